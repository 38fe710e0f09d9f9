//! The journal's outcomes and events, as the API shows them.

use super::{Listing, words, words::Word};
use crate::{
    model::records::Outcome,
    store::journal::{EventDetails, EventSummary, JournalEvent, OverriddenSetting},
    text::Label,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use wall_clock::Moment;

const HOUR: u64 = 3_600;

/// How jobs ended, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcomes {
    /// How many are listed at most.
    pub limit: usize,
    /// The jobs.
    pub outcomes: Vec<OutcomeLine>,
    /// The `before` that gives the next page; null where this is the last one.
    pub next_before: Option<u64>,
}

impl Listing for Outcomes {
    const LIST: &'static str = "outcomes";
    type Item = OutcomeLine;
}

/// How one job ended. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeLine {
    /// Its number in the journal.
    pub seq: u64,
    /// The target's id.
    pub target: String,
    /// The target's kind.
    #[schemars(with = "words::Kind")]
    pub kind: Word,
    /// The node whose file was compacted, or `_cluster`.
    pub node: String,
    /// The design document, of a view.
    pub ddoc: Option<String>,
    /// The channel that took the target when the job was started.
    pub channel: Option<String>,
    /// Who started the job.
    #[schemars(with = "words::Owner")]
    pub owner: Word,
    /// Who had ordered it, where an operator did.
    pub ordered_by: Option<String>,
    /// When it was started, or first seen.
    pub started_at: String,
    /// When it ended, or when its end was noticed.
    pub ended_at: String,
    /// How long it took; null if no poll showed it, and only its file tells that it was compacted.
    pub duration_seconds: Option<u64>,
    /// Bytes on disk before.
    pub before_bytes: Option<u64>,
    /// Bytes on disk after.
    pub after_bytes: Option<u64>,
    /// Bytes after, as predicted before the start.
    pub predicted_bytes: Option<u64>,
    /// Bytes that were freed; negative where the file grew.
    pub freed_bytes: Option<i64>,
    /// Bytes after, divided by those that were predicted.
    pub estimate_ratio: Option<f64>,
    /// How it ended.
    #[schemars(with = "words::Ended")]
    pub result: Word,
    /// CouchDB's error, or what was concluded, if it did not end well.
    pub why: Option<String>,
}

impl OutcomeLine {
    /// The line of a journal entry.
    #[must_use]
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

/// What compactions did, hour by hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hours {
    /// The hours up to now, the oldest first.
    pub hours: Vec<HourLine>,
    /// Whether the hours go back as far as was asked for; else they begin where the newest 10,000 jobs do.
    pub complete: bool,
}

/// What compactions did in one hour, whoever started them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HourLine {
    /// When the hour began.
    pub from: String,
    /// How many ended in it.
    pub compactions: u64,
    /// Bytes that they freed, as far as sizes are known.
    pub freed_bytes: u64,
    /// Bytes that they wrote, as far as sizes are known.
    pub rewritten_bytes: u64,
}

impl Hours {
    /// The hours beginning with that of `since`. `outcomes` are the jobs that ended in them, newest
    /// first; unless they are `all`, hours that may lack some jobs are left out.
    #[must_use]
    pub fn of(outcomes: &[(u64, Outcome)], all: bool, since: Moment, now: Moment) -> Self {
        let hour = |at: Moment| at.unix() / HOUR;
        let oldest = outcomes.last().filter(|_| !all).map(|(_, oldest)| hour(oldest.ended_at) + 1);
        let first = hour(since).max(oldest.unwrap_or(0));
        let empty = |at: u64| HourLine {
            from: Moment::from_unix(at * HOUR).rfc3339(),
            compactions: 0,
            freed_bytes: 0,
            rewritten_bytes: 0,
        };
        let mut hours: Vec<HourLine> = (first..=hour(now)).map(empty).collect();
        for (_, outcome) in outcomes {
            let at = hour(outcome.ended_at).checked_sub(first);
            let at = at.and_then(|at| usize::try_from(at).ok());
            let Some(line) = at.and_then(|at| hours.get_mut(at)) else { continue };
            let freed = outcome.freed_bytes().and_then(|freed| u64::try_from(freed).ok());
            line.compactions += 1;
            line.freed_bytes += freed.unwrap_or(0);
            line.rewritten_bytes += outcome.after_bytes.unwrap_or(0);
        }
        Self { hours, complete: all }
    }
}

/// What happened, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// How many are listed at most.
    pub limit: usize,
    /// The events.
    pub events: Vec<EventLine>,
    /// Whether there are more after the last event here.
    pub more: bool,
    /// The number of the last event in the journal, to go on after.
    pub last_seq: u64,
}

impl Listing for Events {
    const LIST: &'static str = "events";
    type Item = EventLine;
}

/// One thing that happened. A field that means nothing for the type of the event is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventLine {
    /// Its number in the journal.
    pub seq: u64,
    /// When it was written down.
    pub at: String,
    /// What kind of event it is.
    #[serde(rename = "type")]
    #[schemars(with = "words::EventType")]
    pub event_type: Word,
    /// The target's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Other targets of the same queue to which the same happened at once, as far as they are
    /// named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// How many targets the event is about, where it is more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<u64>,
    /// Of `omitted`, the type of the events that were not written down one by one.
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
    /// The reason of the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often it happened again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// When it first happened again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// When it last happened again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// Who started the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<words::Owner>")]
    pub owner: Option<Word>,
    /// Who had ordered it, where an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// How the job or the build ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Word>,
    /// Bytes that were freed, negative where the file grew; null where that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    pub freed_bytes: Option<Option<i64>>,
    /// What is suspended or resumed: `all`, `node:<name>` or `channel:<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Who ordered it, and from where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether the order counts although no channel takes the target, or although it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// How often in a row it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// The section of CouchDB's configuration that was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The key that was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The value before; null where the key was absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    pub was: Option<Option<String>>,
    /// The code of the advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What the advice is about; absent for all advice of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// When the mute expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whether the index lagged far behind or a little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<words::BuildClass>")]
    pub class: Option<Word>,
}

/// Distinguishes `null` from an absent field.
fn even_null<'de, T, D>(from: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(from).map(Some)
}

/// A type of events for people. Advice is found by a rule, so it is not called given.
#[must_use]
pub fn event_type_in_words(label: &str) -> String {
    match label {
        "advice_given" => "new recommendation".to_owned(),
        "advice_gone" => "recommendation gone".to_owned(),
        "advice_muted" => "recommendation muted".to_owned(),
        "advice_unmuted" => "recommendation unmuted".to_owned(),
        other => other.replace('_', " "),
    }
}

/// How a job ended, for people.
#[must_use]
pub fn result_in_words(label: &str) -> String {
    match label {
        "unmeasured" => "size unknown".to_owned(),
        other => other.replace('_', " "),
    }
}

impl EventLine {
    /// The type of the event for people.
    #[must_use]
    pub fn type_in_words(&self) -> String {
        event_type_in_words(&self.event_type)
    }

    /// The line of a journal entry.
    #[must_use]
    pub fn of(seq: u64, event: &JournalEvent) -> Self {
        let JournalEvent { at, details: what } = event;
        let head = Self {
            seq,
            at: at.rfc3339(),
            event_type: what.event_type().label().into(),
            target: what.target().map(ToString::to_string),
            db: what.database_change().map(|(_, db)| db.to_owned()),
            ..Self::default()
        };
        match what.clone() {
            EventDetails::Queued { channel, summary, .. } => {
                Self { channel: Some(channel), ..head.summed_up(&summary) }
            }
            EventDetails::Refused { channel, reason, summary, .. } => {
                Self { channel: Some(channel), reason: Some(reason), ..head.summed_up(&summary) }
            }
            EventDetails::Omitted { of, targets } => {
                Self { of: Some(of), targets: Some(targets), ..head }
            }
            EventDetails::Started { node, channel, ordered_by, .. } => {
                Self { node: Some(node), channel: Some(channel), ordered_by, ..head }
            }
            EventDetails::NotStarted { node, why, .. } => Self { node: Some(node), why, ..head },
            EventDetails::Finished { node, owner, result, freed_bytes, .. } => Self {
                node: Some(node),
                owner: Some(owner.label().into()),
                result: Some(result.label().into()),
                freed_bytes: Some(freed_bytes),
                ..head
            },
            EventDetails::Suspended { scope, by, why } => {
                Self { scope: Some(scope.to_string()), by, why, ..head }
            }
            EventDetails::Resumed { scope, by } => {
                Self { scope: Some(scope.to_string()), by, ..head }
            }
            EventDetails::Ordered { by, force, .. } => {
                Self { by: Some(by), force: Some(force), ..head }
            }
            EventDetails::Lapsed { by, .. } => Self { by: Some(by), ..head },
            EventDetails::Quarantined { failures, .. } => Self { failures: Some(failures), ..head },
            EventDetails::TakenOver(OverriddenSetting { node, section, key, was })
            | EventDetails::Restored(OverriddenSetting { node, section, key, was }) => Self {
                node: Some(node),
                section: Some(section),
                key: Some(key),
                was: Some(was),
                ..head
            },
            EventDetails::IndexBuildStarted { class, .. } => {
                Self { class: Some(class.into()), ..head }
            }
            EventDetails::IndexBuildFinished { result, .. } => {
                Self { result: Some(result.into()), ..head }
            }
            EventDetails::AdviceGiven { code, subject }
            | EventDetails::AdviceGone { code, subject } => {
                Self { code: Some(code), subject: Some(subject), ..head }
            }
            EventDetails::AdviceMuted { code, subject, until, by, why } => {
                Self { code: Some(code), subject, until: Some(until.rfc3339()), by, why, ..head }
            }
            EventDetails::AdviceUnmuted { code, subject } => {
                Self { code: Some(code), subject, ..head }
            }
            EventDetails::Released { .. }
            | EventDetails::Created { .. }
            | EventDetails::Updated { .. }
            | EventDetails::Deleted { .. } => head,
        }
    }

    fn summed_up(self, summary: &EventSummary) -> Self {
        Self {
            also: summary.also.iter().map(ToString::to_string).collect(),
            targets: summary.targets,
            count: summary.count,
            first: summary.first.map(Moment::rfc3339),
            last: summary.last.map(Moment::rfc3339),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::target::TargetId;
    use serde_json::json;

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
    fn event_line_has_the_fields_of_its_event() {
        let target: TargetId = "cleanup:orders".parse().unwrap();
        let at = Moment::from_unix(1_795_222_440);
        let taken = OverriddenSetting {
            node: "couchdb@a".into(),
            section: "smoosh.ratio_dbs".into(),
            key: "concurrency".into(),
            was: None,
        };
        for what in [
            EventDetails::Released { target: target.clone() },
            EventDetails::TakenOver(taken.clone()),
            EventDetails::Restored(taken),
            EventDetails::Finished {
                target: target.clone(),
                node: "couchdb@a".into(),
                owner: crate::model::records::JobOwner::Other,
                result: crate::model::records::JobResult::Lost,
                freed_bytes: None,
            },
            EventDetails::Suspended {
                scope: crate::model::records::SuspensionScope::Node("couchdb@a".into()),
                by: Some("ann".into()),
                why: None,
            },
            EventDetails::Ordered { target: target.clone(), by: "ann".into(), force: false },
            EventDetails::Quarantined { target: target.clone(), failures: 5 },
            EventDetails::IndexBuildStarted { target: target.clone(), class: "batch".into() },
            EventDetails::IndexBuildFinished { target, result: "built".into() },
            EventDetails::Omitted { of: "queued".into(), targets: 7 },
            EventDetails::AdviceGiven { code: "c".into(), subject: "orders".into() },
            EventDetails::AdviceGone { code: "c".into(), subject: "orders".into() },
            EventDetails::AdviceUnmuted { code: "c".into(), subject: None },
            EventDetails::AdviceMuted {
                code: "c".into(),
                subject: None,
                until: at,
                by: Some("ann".into()),
                why: Some("known".into()),
            },
            EventDetails::Updated { db: "orders".into() },
        ] {
            let line = EventLine::of(7, &JournalEvent { at, details: what.clone() });
            let mut expected = json!(what);
            expected["seq"] = 7.into();
            expected["at"] = at.rfc3339().into();
            if let Some(until) = expected.get_mut("until") {
                *until = at.rfc3339().into();
            }
            assert_eq!(json!(line), expected);
            assert_eq!(serde_json::from_value::<EventLine>(json!(line)).unwrap(), line);
        }
    }

    #[test]
    fn advice_event_has_different_names_in_json_and_words() {
        let event = |code: &str| JournalEvent {
            at: Moment::from_unix(1_795_222_434),
            details: EventDetails::AdviceGiven { code: code.into(), subject: "orders".into() },
        };
        let line = EventLine::of(1, &event("c"));
        assert_eq!(
            (&*line.event_type, &*line.type_in_words()),
            ("advice_given", "new recommendation")
        );
    }
}
