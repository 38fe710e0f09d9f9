//! A recliner's answer about its cluster: the part of `/api/v1/status` that is used.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use wall_clock::Moment;

/// Maximum number of characters kept of a text in an answer.
const LONGEST_TEXT: usize = 400;

/// The most sentences of a list that are kept.
const MAX_SENTENCES: usize = 16;

/// A whole cluster at a glance. Unknown is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Overview {
    /// Bytes of all files, in all copies.
    pub file_bytes: Option<u64>,
    /// Bytes of these that nothing needs: what compactions would free, and unused files.
    pub waste_bytes: Option<u64>,
    /// Bytes that compactions would free.
    pub reclaimable_bytes: Option<u64>,
    /// Number of shards and views of unknown size; if there are any, the bytes are lower bounds.
    pub unmeasured: Option<u64>,
    /// Number of nodes whose directories are not read; if there are any, `waste_bytes` lacks their unused files.
    pub unread_directories: Option<u64>,
    /// The volume that will be full first, if any is full within its forecast.
    pub full_volume: Option<String>,
    /// When that volume is full, if compaction keeps up.
    pub full_at: Option<String>,
    /// Until when no volume is full; null if one is, or if a volume has no forecast.
    pub not_full_until: Option<String>,
    /// What compactions did in the last 12 hours.
    pub last_night: Option<LastNight>,
    /// What prevents recliner or CouchDB from working, in sentences.
    pub problems: Vec<String>,
    /// What a person should look at soon, besides advice, in sentences.
    pub warnings: Vec<String>,
    /// The advice that is not muted; null before the rules first ran.
    pub advice: Option<OpenAdvice>,
}

/// What compactions did in the last 12 hours, where sizes are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastNight {
    /// Number of compactions that ended.
    pub compactions: u64,
    /// Bytes that they freed.
    pub freed_bytes: u64,
    /// Bytes that they wrote.
    pub rewritten_bytes: u64,
    /// Compactions that failed, or whose end is unknown.
    pub failed: u64,
}

/// Advice that is not muted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenAdvice {
    /// Number of pieces.
    pub open: u64,
    /// The worst piece; null if there is none.
    pub worst: Option<WorstAdvice>,
}

/// The worst piece of advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorstAdvice {
    /// How much it matters.
    pub severity: String,
    /// The kind of advice.
    pub code: String,
    /// The advice in one sentence.
    pub says: String,
}

/// A member's answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MemberAnswer {
    /// Its version.
    pub version: String,
    /// Its mode.
    pub mode: Option<String>,
    /// Why it can read nothing of its cluster.
    pub problem: Option<String>,
    /// Why it cannot use its journal, so that nothing starts.
    pub journal_problem: Option<String>,
    suspensions: Option<Vec<Suspended>>,
    /// Its overview of its cluster; empty if its version does not report one.
    #[serde(default, deserialize_with = "null_or")]
    pub overview: Overview,
}

fn null_or<'de, D: Deserializer<'de>>(reader: D) -> Result<Overview, D::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or_default())
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Suspended {
    says: String,
}

impl MemberAnswer {
    /// What is suspended, in sentences.
    pub fn suspended(&self) -> Option<Vec<&str>> {
        let all = self.suspensions.as_ref()?;
        Some(all.iter().map(|one| one.says.as_str()).collect())
    }

    /// Why the member cannot do its work.
    pub fn any_problem(&self) -> Option<&str> {
        let own = self.problem.as_ref().or(self.journal_problem.as_ref());
        self.overview.problems.first().or(own).map(String::as_str)
    }

    /// The answer without content that no recliner sends: overlong texts and lists, and invalid times.
    pub(super) fn checked(mut self) -> Self {
        cut(&mut self.version);
        let overview = &mut self.overview;
        for text in [
            &mut self.mode,
            &mut self.problem,
            &mut self.journal_problem,
            &mut overview.full_volume,
        ] {
            text.iter_mut().for_each(cut);
        }
        for time in [&mut overview.full_at, &mut overview.not_full_until] {
            *time = time.as_deref().and_then(Moment::parse).map(Moment::rfc3339);
        }
        if let Some(worst) = overview.advice.as_mut().and_then(|advice| advice.worst.as_mut()) {
            [&mut worst.severity, &mut worst.code, &mut worst.says].into_iter().for_each(cut);
        }
        for sentences in [&mut overview.problems, &mut overview.warnings] {
            sentences.truncate(MAX_SENTENCES);
            sentences.iter_mut().for_each(cut);
        }
        if let Some(suspensions) = &mut self.suspensions {
            suspensions.truncate(MAX_SENTENCES);
            suspensions.iter_mut().for_each(|one| cut(&mut one.says));
        }
        self
    }
}

fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_missing_from_an_older_recliner_are_unknown() {
        let old = json!({"version": "0.1.0", "mode": "advise", "more": [1], "overview": null});
        let answer: MemberAnswer = serde_json::from_value(old).unwrap();
        assert_eq!(answer.suspended(), None);
        assert_eq!(answer.overview, Overview::default());
    }

    #[test]
    fn overlong_texts_are_cut_and_invalid_times_dropped() {
        let long = "ü".repeat(100_000);
        let lies = json!({
            "version": long, "mode": null,
            "suspensions": vec![json!({"says": long}); 1_000],
            "overview": {
                "full_at": "<script>", "not_full_until": "2026-11-21T00:54:00Z",
                "advice": {"open": 1, "worst": {"severity": "x", "code": "y", "says": long}},
            },
        });
        let answer = serde_json::from_value::<MemberAnswer>(lies).unwrap().checked();
        let longest = 2 * LONGEST_TEXT + "…".len();
        assert_eq!(answer.version.len(), longest);
        assert_eq!(answer.suspended().unwrap().len(), 16);
        assert_eq!(answer.suspended().unwrap()[0].len(), longest);
        assert_eq!(answer.overview.full_at, None);
        assert_eq!(answer.overview.not_full_until.as_deref(), Some("2026-11-21T00:54:00Z"));
        assert_eq!(answer.overview.advice.unwrap().worst.unwrap().says.len(), longest);
    }
}
