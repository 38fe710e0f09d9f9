//! The journal's outcomes and events, as the API shows them.

use super::{
    columns::{Cell, Table, rest, wide},
    vocabulary,
    vocabulary::Word,
};
use crate::{
    model::{
        records::{JobOwner, JobResult, Outcome},
        target::{TargetId, TargetKind},
    },
    plan::RefusalReason,
    store::journal::JournalEvent,
    table::Snapshot,
    text::{
        Label, counted, grouped,
        size::{format_size, format_size_short},
    },
};
use couchdb_names::Signature;
use hashbrown::{HashMap, HashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use wall_clock::Moment;

const HOUR: u64 = 3_600;

/// Ended jobs, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcomes {
    /// Maximum number of jobs on a page.
    pub limit: usize,
    /// The jobs.
    pub outcomes: Vec<OutcomeLine>,
    /// The `before` that gives the next page; null on the last page.
    pub next_before: Option<u64>,
}

/// How one job ended. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeLine {
    /// The job's number in the journal.
    pub seq: u64,
    /// The target's id.
    pub target: String,
    /// The kind of target.
    #[schemars(with = "vocabulary::Kind")]
    pub kind: Word,
    /// The node whose file was compacted, or `_cluster`.
    pub node: String,
    /// The design document of a view; null for other targets.
    pub ddoc: Option<String>,
    /// The channel that took the target when the job was started.
    pub channel: Option<String>,
    /// Who started the job.
    #[schemars(with = "vocabulary::Owner")]
    pub owner: Word,
    /// The operator who ordered the job; null if none did.
    pub ordered_by: Option<String>,
    /// When the job was started, or first seen.
    pub started_at: String,
    /// Since when the job may have ended, if that was more than a minute before its end was noticed.
    pub ended_after: Option<String>,
    /// When the end of the job was noticed: it ended then, or at some time since `ended_after`.
    pub ended_at: String,
    /// How long the job took; null if it was never seen running and only its file shows that it was compacted.
    pub duration_seconds: Option<u64>,
    /// Bytes on disk before the job.
    pub before_bytes: Option<u64>,
    /// Bytes on disk after the job.
    pub after_bytes: Option<u64>,
    /// Bytes on disk after the job, as predicted before the start.
    pub predicted_bytes: Option<u64>,
    /// Bytes freed; negative if the file grew.
    pub freed_bytes: Option<i64>,
    /// `after_bytes` divided by `predicted_bytes`.
    pub estimate_ratio: Option<f64>,
    /// How the job ended.
    #[schemars(with = "vocabulary::Ended")]
    pub result: Word,
    /// CouchDB's error, or what recliner concluded; null if the job ended well.
    pub why: Option<String>,
}

impl OutcomeLine {
    /// The line of a journal entry.
    pub fn of(seq: u64, outcome: &Outcome) -> Self {
        Self {
            seq,
            target: outcome.target.to_string(),
            kind: outcome.kind.label().into(),
            node: outcome.node.clone(),
            ddoc: outcome.design.clone(),
            channel: outcome.channel.clone(),
            owner: outcome.owner.label().into(),
            ordered_by: outcome.ordered_by.clone(),
            started_at: outcome.started_at.rfc3339(),
            ended_after: outcome.ended_since().map(Moment::rfc3339),
            ended_at: outcome.ended_at.rfc3339(),
            duration_seconds: outcome.took().map(|took| took.as_secs()),
            before_bytes: outcome.before_bytes,
            after_bytes: outcome.after_bytes,
            predicted_bytes: outcome.predicted_bytes,
            freed_bytes: outcome.freed_bytes(),
            estimate_ratio: outcome.estimate_ratio(),
            result: outcome.ending.label().into(),
            why: outcome.why.clone(),
        }
    }
}

/// What compactions did, by hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hours {
    /// The hours until now, the oldest first.
    pub hours: Vec<HourLine>,
    /// Whether the hours go back to the requested time; otherwise they begin after the oldest of the newest
    /// 10,000 jobs.
    pub complete: bool,
}

/// What compactions did in one hour, whoever started them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HourLine {
    /// When the hour began.
    pub from: String,
    /// Number of compactions that ended in the hour.
    pub compactions: u64,
    /// Bytes that they freed, where sizes are known.
    pub freed_bytes: u64,
    /// Bytes that they wrote, where sizes are known.
    pub rewritten_bytes: u64,
    /// Compactions that succeeded with an unknown size before or after: with any, the bytes are lower bounds.
    #[serde(default)]
    pub unmeasured: u64,
    /// Compactions that freed almost nothing.
    #[serde(default)]
    pub futile: u64,
    /// Compactions that failed, or whose end is unknown.
    #[serde(default)]
    pub failed: u64,
    /// Compactions that recliner did not start.
    #[serde(default)]
    pub by_others: u64,
}

impl HourLine {
    /// The sums over jobs, whenever they ended.
    pub fn of_jobs(jobs: &[OutcomeLine]) -> Self {
        let mut sums = Self::default();
        for job in jobs {
            let ending = JobResult::from_label(&job.result);
            let (owner, kind) =
                (JobOwner::from_label(&job.owner), TargetKind::from_label(&job.kind));
            sums.add((ending, owner, kind), job.freed_bytes, job.after_bytes);
        }
        sums
    }

    /// Adds a job with its ending, owner and kind; a word that this version does not know is `None`, and
    /// the job counts without it.
    fn add(
        &mut self,
        (ending, owner, kind): (Option<JobResult>, Option<JobOwner>, Option<TargetKind>),
        freed: Option<i64>,
        after: Option<u64>,
    ) {
        // An index cleanup compacts nothing, and the sizes of deleted index files are never known.
        if kind == Some(TargetKind::Cleanup) {
            return;
        }
        self.compactions += 1;
        let freed = freed.and_then(|freed| u64::try_from(freed).ok()).unwrap_or(0);
        self.freed_bytes = self.freed_bytes.saturating_add(freed);
        self.rewritten_bytes = self.rewritten_bytes.saturating_add(after.unwrap_or(0));
        self.by_others += u64::from(owner == Some(JobOwner::Other));
        match ending {
            Some(JobResult::Freed) | None => {}
            Some(JobResult::NothingFreed | JobResult::Grew) => self.futile += 1,
            Some(JobResult::Unmeasured) => self.unmeasured += 1,
            Some(JobResult::Failed | JobResult::Lost) => self.failed += 1,
        }
    }

    /// The sums of several hours, beginning with the first of them.
    pub fn sum(hours: &[Self]) -> Self {
        let mut sum = Self {
            from: hours.first().map_or_else(String::new, |hour| hour.from.clone()),
            ..Self::default()
        };
        for hour in hours {
            sum.compactions += hour.compactions;
            sum.freed_bytes = sum.freed_bytes.saturating_add(hour.freed_bytes);
            sum.rewritten_bytes = sum.rewritten_bytes.saturating_add(hour.rewritten_bytes);
            sum.unmeasured += hour.unmeasured;
            sum.futile += hour.futile;
            sum.failed += hour.failed;
            sum.by_others += hour.by_others;
        }
        sum
    }

    /// What compactions did, in a sentence: how many there were, by whom, what they freed and wrote, and what went
    /// wrong.
    pub fn says(&self) -> String {
        if self.compactions == 0 {
            return "no compaction ended".to_owned();
        }
        let by = match self.by_others {
            0 => " by recliner".to_owned(),
            all if all == self.compactions => " (none by recliner)".to_owned(),
            some => format!(" ({} not by recliner)", grouped(some)),
        };
        let bound = if self.unmeasured > 0 { "at least " } else { "" };
        let mut says = format!(
            "{}{by} freed {bound}{} and wrote {bound}{}",
            counted(self.compactions, "compaction", "compactions"),
            format_size_short(self.freed_bytes),
            format_size_short(self.rewritten_bytes),
        );
        for (count, what) in [
            (self.futile, "freed almost nothing"),
            (self.failed, "failed"),
            (self.unmeasured, "of unknown size"),
        ] {
            if count > 0 {
                says.push_str(&format!("; {} {what}", grouped(count)));
            }
        }
        says
    }
}

impl Hours {
    /// The hours beginning with that of `since`. `outcomes` are the jobs that ended in them, newest
    /// first; unless they are `all`, hours that may lack some jobs are left out.
    pub fn of(outcomes: &[(u64, Outcome)], all: bool, since: Moment, now: Moment) -> Self {
        let hour = |at: Moment| at.unix() / HOUR;
        let oldest = outcomes.last().filter(|_| !all).map(|(_, oldest)| hour(oldest.ended_at) + 1);
        let first = hour(since).max(oldest.unwrap_or(0));
        let empty = |at: u64| HourLine {
            from: Moment::from_unix(at * HOUR).rfc3339(),
            ..HourLine::default()
        };
        let mut hours: Vec<HourLine> = (first..=hour(now)).map(empty).collect();
        for (_, outcome) in outcomes {
            let at = hour(outcome.ended_at).checked_sub(first);
            let at = at.and_then(|at| usize::try_from(at).ok());
            let Some(line) = at.and_then(|at| hours.get_mut(at)) else { continue };
            let what = (Some(outcome.ending), Some(outcome.owner), Some(outcome.kind));
            line.add(what, outcome.freed_bytes(), outcome.after_bytes);
        }
        Self { hours, complete: all }
    }
}

/// Events, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// Maximum number of events on a page.
    pub limit: usize,
    /// The events.
    pub events: Vec<EventLine>,
    /// Whether there are more events after the last one here.
    pub more: bool,
    /// The number of the newest event in the journal, to continue after.
    pub last_seq: u64,
}

/// One event. Fields that do not apply to its type are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventLine {
    /// The event's number in the journal.
    pub seq: u64,
    /// When the event was recorded.
    #[serde(deserialize_with = "time")]
    pub at: String,
    /// The type of the event.
    #[serde(rename = "type")]
    #[schemars(with = "vocabulary::EventType")]
    pub event_type: Word,
    /// The target's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The design document of a view, if the view still exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ddoc: Option<String>,
    /// Further targets of the same queue to which the same happened at the same time, as far as they are
    /// listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// Number of targets that the event is about, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<u64>,
    /// In an `omitted` event, the type of the events that were not recorded one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db: Option<String>,
    /// The node, or `_cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The reason why the target does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of repetitions that this event covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// When the first repetition happened.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_time")]
    pub first: Option<String>,
    /// When the last repetition happened.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_time")]
    pub last: Option<String>,
    /// Who started the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<vocabulary::Owner>")]
    pub owner: Option<Word>,
    /// The operator who ordered the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// How the job, the index build or the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Word>,
    /// Bytes freed, negative if the file grew; null if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    pub freed_bytes: Option<Option<i64>>,
    /// The number of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// Number of targets that were compacted since the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// Number of those, and of those that the run still could compact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<u64>,
    /// What is suspended or resumed: `all`, `node:<name>` or `channel:<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Who gave the order, and from where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that was given, or what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether the order applies even if no channel takes the target, or while the target is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Number of failures in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// The section of CouchDB's configuration that was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The key that was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The earlier value; null if the key was absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    pub was: Option<Option<String>>,
    /// The code of the advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What the advice is about; absent if it is all advice of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// When the mute ends.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_time")]
    pub until: Option<String>,
    /// Whether the index lagged far behind or a little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<vocabulary::BuildClass>")]
    pub class: Option<Word>,
}

/// An API time as text, or a time as the journal stores it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Written(String),
    Stored(Moment),
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Time::deserialize(from)? {
        Time::Written(text) => text,
        Time::Stored(at) => at.rfc3339(),
    })
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    time(from).map(Some)
}

/// Distinguishes `null` from an absent field.
fn even_null<'de, T, D>(from: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(from).map(Some)
}

/// An event type for people.
pub fn event_type_in_words(label: &str) -> String {
    match label {
        "advice_given" => "new recommendation".to_owned(),
        "advice_gone" => "recommendation resolved".to_owned(),
        "advice_muted" => "recommendation muted".to_owned(),
        "advice_unmuted" => "recommendation unmuted".to_owned(),
        other => other.replace('_', " "),
    }
}

/// How a job ended, for people.
pub fn result_in_words(label: &str) -> String {
    match label {
        "unmeasured" => "size unknown".to_owned(),
        other => other.replace('_', " "),
    }
}

/// Freed bytes, or by how much a file grew.
fn freed_or_grew(freed: i64) -> String {
    let size = format_size(freed.unsigned_abs());
    if freed < 0 { format!("grew by {size}") } else { size.to_string() }
}

/// A time without year and zone, which is always UTC.
pub fn short_time(at: &str) -> String {
    at.get(5..19).map_or_else(|| at.to_owned(), |short| short.replace('T', " "))
}

impl Outcomes {
    /// How jobs ended, the newest first. The journal has them in the order in which their effect was known.
    pub(crate) fn table(lines: &[OutcomeLine]) -> Table<&OutcomeLine> {
        let mut lines: Vec<&OutcomeLine> = lines.iter().collect();
        lines.sort_by(|one, other| other.ended_at.cmp(&one.ended_at));
        Table::of(lines)
            .text("target", |it| Cell::id(&it.target, it.ddoc.as_deref()).below(&it.node))
            .text(rest("node"), |it| Cell::node(&it.node))
            .text("ended", |it| {
                let ended = Cell::time(Some(&it.ended_at));
                let since = it.ended_after.as_deref().map(|since| {
                    Cell::words(" or before, since ").and(Cell::time(Some(since))).quiet()
                });
                ended.and(since.unwrap_or_default())
            })
            .text("result", OutcomeLine::ended)
            .number(wide("before"), |it| Cell::bytes(it.before_bytes))
            .number(wide("after"), |it| Cell::bytes(it.after_bytes))
            .number("freed", |it| it.freed_bytes.map(freed_or_grew))
            .number(rest("took"), |it| Cell::seconds(it.duration_seconds.map(|took| took as f64)))
            .number(wide("actual ÷ predicted size"), |it| Cell::number(it.estimate_ratio))
            .text(wide("channel"), |it| it.channel.as_deref().unwrap_or("-"))
            .text(wide("started by"), |it| {
                let by = it.ordered_by.as_ref().map(|by| format!(", ordered by {by}"));
                Cell::words(it.owner.replace('_', " ")).and(by.unwrap_or_default())
            })
    }
}

impl OutcomeLine {
    fn ended(&self) -> Cell {
        let class = match &*self.result {
            "freed" => "one good",
            "failed" | "lost" => "one bad",
            _ => "one",
        };
        let result = Cell::words(result_in_words(&self.result)).styled(class);
        result.and(self.why.as_deref().map_or_else(Cell::none, Cell::why))
    }
}

impl EventLine {
    /// The type of the event for people.
    pub fn type_in_words(&self) -> String {
        event_type_in_words(&self.event_type)
    }

    /// The id of the event's target, also if it is what a recommendation is about.
    pub fn about_target(&self) -> Option<&str> {
        let is_id = |text: &&String| text.parse::<TargetId>().is_ok();
        self.target.as_ref().or_else(|| self.subject.as_ref().filter(is_id)).map(String::as_str)
    }

    /// The run that the event is about, the scope if it is everything, and the progress.
    pub fn run_in_words(&self) -> Option<String> {
        let covers = if self.db.is_none() && self.node.is_none() { " over everything" } else { "" };
        let progress = self.done.zip(self.members);
        let progress = progress.map(|(done, members)| format!(": {done} of {members}"));
        Some(format!("run {}{covers}{}", self.run?, progress.unwrap_or_default()))
    }

    /// What happened, without the type and the subject.
    pub fn details(&self) -> String {
        let word = Option::<String>::clone;
        let freed = self.freed_bytes.flatten();
        // The bytes already show whether it freed space or grew.
        let result = self.result.as_deref();
        let result = result.filter(|it| freed.is_none() || !matches!(*it, "freed" | "grew"));
        let again = |words: String| words + &self.again();
        let channel = self.channel.as_ref().map(|channel| format!("channel {channel}"));
        let channel = if self.reason.is_none() { channel.map(again) } else { channel };
        let section = self.section.as_deref().map(|section| {
            let key = self.key.as_deref().unwrap_or_default();
            format!("{key} of {section}")
        });
        let more = self.of.as_deref().zip(self.targets);
        let details = [
            self.run_in_words(),
            word(&self.code),
            self.until.as_deref().map(|until| format!("until {until}")),
            self.by.as_deref().map(|by| format!("by {by}")),
            channel,
            self.class.as_deref().map(|class| class.replace('_', " ")),
            self.failures.map(|failures| format!("{failures} failures in a row")),
            self.force.filter(|force| *force).map(|_| "by force".to_owned()),
            freed.map(|bytes| match bytes {
                0.. => format!("freed {}", freed_or_grew(bytes)),
                _ => freed_or_grew(bytes),
            }),
            self.ordered_by.as_deref().map(|by| format!("ordered by {by}")),
            self.owner.as_deref().filter(|it| *it == "other").map(|_| "not by recliner".to_owned()),
            self.reason.as_deref().map(RefusalReason::words_of).map(again),
            result.map(result_in_words),
            section,
            more.map(|(of, targets)| {
                format!("{targets} more targets were {}", event_type_in_words(of))
            }),
            self.was.as_ref().and_then(Option::as_deref).map(|was| format!("was {was}")),
            word(&self.why),
        ];
        details.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// How often it was repeated, and when.
    fn again(&self) -> String {
        let Some(count) = self.count else { return String::new() };
        let [first, last] =
            [&self.first, &self.last].map(|at| at.as_deref().map(short_time).unwrap_or_default());
        match count {
            1 => format!(", again at {first}"),
            _ => format!(", {count} times again from {first} to {last}"),
        }
    }

    /// The number of other targets that it is about.
    pub fn others(&self) -> String {
        match self.targets.filter(|_| self.of.is_none()) {
            Some(targets @ 2..) => format!(" and {} more", targets - 1),
            _ => String::new(),
        }
    }

    /// The lines of journal entries; views get the names that they have now.
    pub fn all(entries: &[(u64, JournalEvent)], tables: &Snapshot) -> Vec<Self> {
        let views = entries.iter().filter_map(|(_, event)| event.details.target());
        let views: HashSet<&TargetId> = views.filter(|id| id.kind() == TargetKind::View).collect();
        let designs = designs(&views, tables);
        let named = |(seq, event): &(u64, JournalEvent)| {
            let ddoc = event.details.target().and_then(|id| designs.get(id)).cloned();
            Self { ddoc, ..Self::of(*seq, event) }
        };
        entries.iter().map(named).collect()
    }

    /// The line of a journal entry, which is stored with the same field names; only times differ.
    pub fn of(seq: u64, event: &JournalEvent) -> Self {
        let mut stored = serde_json::to_value(event).unwrap_or_default();
        stored["seq"] = seq.into();
        serde_json::from_value(stored).unwrap_or_default()
    }
}

/// The first design document of each of these views, if known.
fn designs(views: &HashSet<&TargetId>, tables: &Snapshot) -> HashMap<TargetId, String> {
    if views.is_empty() {
        return HashMap::new();
    }
    let signatures: HashSet<Signature> = views
        .iter()
        .filter_map(|id| match id {
            TargetId::View { signature, .. } => Some(*signature),
            TargetId::Db { .. } | TargetId::Cleanup { .. } | TargetId::Search { .. } => None,
        })
        .collect();
    // Building an id allocates text, so ids are compared only if the signature matches.
    let named = tables.targets().filter(|it| it.kind() == TargetKind::View).filter_map(|it| {
        let view = it.view().filter(|view| signatures.contains(&view.signature))?;
        Some((it.id(), view.designs.first()?.to_string()))
    });
    named.filter(|(id, _)| views.contains(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::journal::{EventDetails, EventSummary};
    use serde_json::json;

    #[test]
    fn ended_jobs_are_listed_newest_first() {
        let line = |seq: u64, ended_at: &str| -> OutcomeLine {
            let line = json!({
                "seq": seq, "target": "db:couchdb@a/orders", "kind": "db", "node": "couchdb@a", "owner": "recliner",
                "started_at": "2026-11-21T00:50:00Z", "ended_at": ended_at, "result": "freed",
            });
            serde_json::from_value(line).unwrap()
        };
        let times = ["2026-11-21T00:54:00Z", "2026-11-21T00:56:00Z", "2026-11-21T00:55:00Z"];
        let lines: Vec<OutcomeLine> = (1..).zip(times).map(|(seq, at)| line(seq, at)).collect();
        let rows = Outcomes::table(&lines).rows;
        let shown = rows.iter().map(|row| format!("{row:?}"));
        for (row, at) in shown.zip([1, 2, 0]) {
            assert!(row.contains(times[at]), "{row}");
        }
    }

    #[test]
    fn summary_states_results_of_compactions_and_unknown_sizes() {
        let hour = |compactions, freed_mib: u64| HourLine {
            compactions,
            freed_bytes: freed_mib << 20,
            rewritten_bytes: 1 << 20,
            ..HourLine::default()
        };
        let odd = HourLine { unmeasured: 2, futile: 1, failed: 3, by_others: 4, ..hour(10, 5) };
        for (hours, expected) in [
            (vec![], "no compaction ended"),
            (vec![hour(0, 0)], "no compaction ended"),
            (vec![hour(1, 3)], "1 compaction by recliner freed 3 MiB and wrote 1 MiB"),
            (vec![hour(2, 3), hour(1, 4)], "3 compactions by recliner freed 7 MiB and wrote 2 MiB"),
            (
                vec![HourLine { by_others: 2, ..hour(2, 0) }],
                "2 compactions (none by recliner) freed 0 B and wrote 1 MiB",
            ),
            (
                vec![odd],
                "10 compactions (4 not by recliner) freed at least 5 MiB and wrote at least 1 MiB; \
                 1 freed almost nothing; 3 failed; 2 of unknown size",
            ),
        ] {
            assert_eq!(HourLine::sum(&hours).says(), expected);
        }
    }

    #[test]
    fn all_times_of_an_event_have_one_format() {
        let at = Moment::from_unix(1_795_222_440);
        let again = EventSummary {
            count: Some(2),
            first: Some(at),
            last: Some(at),
            ..EventSummary::default()
        };
        let target = "cleanup:orders".parse().unwrap();
        for (summary, expected) in [
            (EventSummary::default(), json!({})),
            (
                again,
                json!({
                    "count": 2, "first": "2026-11-21T00:54:00Z", "last": "2026-11-21T00:54:00Z",
                }),
            ),
        ] {
            let what = EventDetails::Queued {
                target: TargetId::clone(&target),
                channel: "c".into(),
                summary,
            };
            let line = EventLine::of(7, &JournalEvent { at, details: what });
            let mut shown = json!(line);
            assert_eq!(serde_json::from_value::<EventLine>(shown.clone()).unwrap(), line);
            let shown = shown.as_object_mut().unwrap();
            for (name, value) in [
                ("seq", json!(7)),
                ("at", json!("2026-11-21T00:54:00Z")),
                ("type", json!("queued")),
                ("target", json!("cleanup:orders")),
                ("channel", json!("c")),
            ] {
                assert_eq!(shown.remove(name), Some(value));
            }
            assert_eq!(json!(shown), expected);
        }
    }

    #[test]
    fn advice_event_has_a_json_name_and_a_readable_name() {
        let event = |code: &str| JournalEvent {
            at: Moment::from_unix(1_795_222_434),
            details: EventDetails::AdviceGiven { code: code.into(), subject: "orders".into() },
        };
        let line = EventLine::of(1, &event("c"));
        assert_eq!(
            (&*line.event_type, &*line.type_in_words()),
            ("advice_given", "new recommendation")
        );
        assert_eq!((line.details().as_str(), line.about_target()), ("c", None));
    }
}
