//! Events recorded in the journal.

mod summary;

pub use summary::EventSummary;

use crate::model::{
    records::{JobOwner, JobResult, RunEnding, SuspensionScope},
    target::TargetId,
};
use couchdb_client::wire::DbChange;
use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// One recorded event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEvent {
    /// When the event was recorded.
    pub at: Moment,
    /// What happened.
    #[serde(flatten)]
    pub details: EventDetails,
}

/// What happened, with its details. The names of variants and fields are part of the JSON API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants)]
#[serde(tag = "type", rename_all = "snake_case")]
#[strum_discriminants(
    name(EventType),
    doc = "The types of events.",
    derive(PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray),
    strum(serialize_all = "snake_case")
)]
pub enum EventDetails {
    /// A target entered a queue.
    Queued {
        /// The target.
        target: TargetId,
        /// The channel that took it.
        channel: String,
        /// Further targets and repeats covered by this entry.
        #[serde(flatten)]
        summary: EventSummary,
    },
    /// A queued target is refused for a new reason, and the reason persists.
    Refused {
        /// The target.
        target: TargetId,
        /// The channel in whose queue it waits.
        channel: String,
        /// Reason of the refusal.
        reason: String,
        /// Further targets and repeats covered by this entry.
        #[serde(flatten)]
        summary: EventSummary,
    },
    /// More events of one type happened at once than are recorded individually.
    Omitted {
        /// Type of the omitted events.
        of: String,
        /// Number of affected targets.
        targets: u64,
    },
    /// A start was decided and its request was about to be sent.
    Started {
        /// The target.
        target: TargetId,
        /// The node, or `_cluster`.
        node: String,
        /// The channel that started it.
        channel: String,
        /// Who ordered it, if an operator did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ordered_by: Option<String>,
    },
    /// A decided start did not happen: its request was refused or never sent.
    NotStarted {
        /// The target.
        target: TargetId,
        /// The node, or `_cluster`.
        node: String,
        /// Why, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A job ended; the history has the details.
    Finished {
        /// The target.
        target: TargetId,
        /// The node, or `_cluster`.
        node: String,
        /// Who started it.
        owner: JobOwner,
        /// How it ended.
        result: JobResult,
        /// Freed bytes, negative if the file grew; absent if unknown.
        freed_bytes: Option<i64>,
    },
    /// An operator suspended starts.
    Suspended {
        /// Which starts.
        #[serde(with = "scope_text")]
        scope: SuspensionScope,
        /// Who suspended them, and from where.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The reason given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// An operator resumed starts.
    Resumed {
        /// Which starts.
        #[serde(with = "scope_text")]
        scope: SuspensionScope,
        /// Who resumed them, and from where.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// An operator began a run.
    RunBegan {
        /// The run's number.
        run: u64,
        /// Its database, if it is about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        db: Option<String>,
        /// Its node, if it is about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// Who ordered it, and from where.
        by: String,
        /// Whether it overrides thresholds and rest periods.
        force: bool,
    },
    /// A run ended.
    RunEnded {
        /// The run's number.
        run: u64,
        /// Its database, if it is about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        db: Option<String>,
        /// Its node, if it is about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// How it ended.
        result: RunEnding,
        /// Who ended it, if an operator did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// Number of targets that were compacted since it began.
        done: u64,
        /// Number of those, and of those that it could still have compacted.
        members: u64,
        /// Bytes that were freed, as far as sizes are known; negative if files grew.
        freed_bytes: Option<i64>,
    },
    /// An operator ordered the compaction of a target.
    Ordered {
        /// The target.
        target: TargetId,
        /// Who ordered it.
        by: String,
        /// Whether it overrides thresholds and rest periods.
        force: bool,
    },
    /// An order expired because it did not start in time.
    Lapsed {
        /// The target.
        target: TargetId,
        /// Who ordered it.
        by: String,
    },
    /// A target failed too often and waits for an operator.
    Quarantined {
        /// The target.
        target: TargetId,
        /// Failures in a row.
        failures: u32,
    },
    /// A target may be started again.
    Released {
        /// The target.
        target: TargetId,
    },
    /// A smoosh setting was overridden.
    TakenOver(OverriddenSetting),
    /// A smoosh setting was restored.
    Restored(OverriddenSetting),
    /// CouchDB was asked to build a view index.
    IndexBuildStarted {
        /// The view.
        target: TargetId,
        /// `batch` or `incremental`.
        class: String,
    },
    /// An index build ended.
    IndexBuildFinished {
        /// The view.
        target: TargetId,
        /// `built` or `failed`.
        result: String,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A rule found something, for the first time or again.
    AdviceGiven {
        /// The rule's code.
        code: String,
        /// What the advice is about.
        subject: String,
    },
    /// A rule no longer finds something.
    AdviceGone {
        /// The rule's code.
        code: String,
        /// What the advice was about.
        subject: String,
    },
    /// An operator muted advice.
    AdviceMuted {
        /// The rule's code.
        code: String,
        /// What the muted advice is about; absent for all advice of the code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        /// When the mute expires.
        until: Moment,
        /// Who muted it, and from where.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The reason given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A mute ended: it expired, or an operator ended it.
    AdviceUnmuted {
        /// The rule's code.
        code: String,
        /// What the advice is about; absent for all advice of the code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
    },
    /// A database was created.
    Created {
        /// Its name.
        db: String,
    },
    /// A database was written to.
    Updated {
        /// Its name.
        db: String,
    },
    /// A database was deleted.
    Deleted {
        /// Its name.
        db: String,
    },
}

/// A smoosh setting of a node that was changed to stop a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverriddenSetting {
    /// The node's name in CouchDB.
    pub node: String,
    /// The configuration section.
    pub section: String,
    /// The key.
    pub key: String,
    /// The value before; `None` if the key was absent.
    pub was: Option<String>,
}

impl EventType {
    /// Whether the event is about a database rather than about this program.
    pub const fn is_database_event(self) -> bool {
        matches!(self, Self::Created | Self::Updated | Self::Deleted)
    }
}

impl EventDetails {
    /// The change and the database name, if this is a database event.
    pub fn database_change(&self) -> Option<(DbChange, &str)> {
        let (change, db) = if let Self::Created { db } = self {
            (DbChange::Created, db)
        } else if let Self::Updated { db } = self {
            (DbChange::Updated, db)
        } else if let Self::Deleted { db } = self {
            (DbChange::Deleted, db)
        } else {
            return None;
        };
        Some((change, db))
    }

    /// The target of the event, if it has one.
    pub const fn target(&self) -> Option<&TargetId> {
        match self {
            Self::Queued { target, .. }
            | Self::Refused { target, .. }
            | Self::Started { target, .. }
            | Self::NotStarted { target, .. }
            | Self::Finished { target, .. }
            | Self::Ordered { target, .. }
            | Self::Lapsed { target, .. }
            | Self::Quarantined { target, .. }
            | Self::Released { target }
            | Self::IndexBuildStarted { target, .. }
            | Self::IndexBuildFinished { target, .. } => Some(target),
            Self::Omitted { .. }
            | Self::Suspended { .. }
            | Self::Resumed { .. }
            | Self::RunBegan { .. }
            | Self::RunEnded { .. }
            | Self::TakenOver(_)
            | Self::Restored(_)
            | Self::AdviceGiven { .. }
            | Self::AdviceGone { .. }
            | Self::AdviceMuted { .. }
            | Self::AdviceUnmuted { .. }
            | Self::Created { .. }
            | Self::Updated { .. }
            | Self::Deleted { .. } => None,
        }
    }

    /// Further targets covered by the same entry.
    pub fn also_targets(&self) -> &[TargetId] {
        if let Self::Queued { summary, .. } | Self::Refused { summary, .. } = self {
            &summary.also
        } else {
            &[]
        }
    }

    /// Type of the event.
    pub fn event_type(&self) -> EventType {
        self.into()
    }
}

/// Serialises scopes as text: `all`, `node:<name>`, `channel:<name>`.
mod scope_text {
    use super::SuspensionScope;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        scope: &SuspensionScope,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_str(scope)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<SuspensionScope, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::text::Label;

    /// One event of each type, in the order of the types.
    pub(crate) fn one_of_each_type() -> [EventDetails; EventType::ALL.len()] {
        let target: TargetId = "cleanup:orders".parse().unwrap();
        let setting = OverriddenSetting {
            node: "couchdb@a".into(),
            section: "smoosh.ratio_dbs".into(),
            key: "concurrency".into(),
            was: None,
        };
        [
            EventDetails::Queued {
                target: target.clone(),
                channel: "c".into(),
                summary: EventSummary::default(),
            },
            EventDetails::Refused {
                target: target.clone(),
                channel: "c".into(),
                reason: "headroom".into(),
                summary: EventSummary {
                    also: vec!["cleanup:carts".parse().unwrap()],
                    targets: Some(9),
                    count: Some(7),
                    first: Some(Moment::from_unix(3)),
                    last: Some(Moment::from_unix(8)),
                },
            },
            EventDetails::Omitted { of: "queued".into(), targets: 9 },
            EventDetails::Started {
                target: target.clone(),
                node: "n".into(),
                channel: "c".into(),
                ordered_by: Some("ann".into()),
            },
            EventDetails::NotStarted { target: target.clone(), node: "n".into(), why: None },
            EventDetails::Finished {
                target: target.clone(),
                node: "n".into(),
                owner: JobOwner::Other,
                result: JobResult::Grew,
                freed_bytes: Some(-1),
            },
            EventDetails::Suspended {
                scope: SuspensionScope::Node("a:b".into()),
                by: Some("ann".into()),
                why: Some("disk".into()),
            },
            EventDetails::Resumed { scope: SuspensionScope::All, by: None },
            EventDetails::RunBegan {
                run: 3,
                db: Some("orders".into()),
                node: None,
                by: "ann".into(),
                force: false,
            },
            EventDetails::RunEnded {
                run: 3,
                db: None,
                node: Some("n".into()),
                result: RunEnding::Cancelled,
                by: Some("ann".into()),
                done: 5,
                members: 24,
                freed_bytes: Some(41),
            },
            EventDetails::Ordered { target: target.clone(), by: "ann".into(), force: true },
            EventDetails::Lapsed { target: target.clone(), by: "ann".into() },
            EventDetails::Quarantined { target: target.clone(), failures: 5 },
            EventDetails::Released { target: target.clone() },
            EventDetails::TakenOver(setting.clone()),
            EventDetails::Restored(setting),
            EventDetails::IndexBuildStarted { target: target.clone(), class: "batch".into() },
            EventDetails::IndexBuildFinished { target, result: "built".into(), why: None },
            EventDetails::AdviceGiven { code: "c".into(), subject: "orders".into() },
            EventDetails::AdviceGone { code: "c".into(), subject: "orders".into() },
            EventDetails::AdviceMuted {
                code: "c".into(),
                subject: None,
                until: Moment::from_unix(99),
                by: Some("ann".into()),
                why: None,
            },
            EventDetails::AdviceUnmuted { code: "c".into(), subject: Some("orders".into()) },
            EventDetails::Created { db: "orders".into() },
            EventDetails::Updated { db: "orders".into() },
            EventDetails::Deleted { db: "orders".into() },
        ]
    }

    #[test]
    fn event_serialises_as_one_flat_object_with_its_type() {
        for (what, kind) in one_of_each_type().into_iter().zip(EventType::each()) {
            assert_eq!(what.event_type(), kind);
            let event = JournalEvent { at: Moment::from_unix(9), details: what };
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["type"], kind.label());
            assert_eq!(json["at"], 9);
            assert_eq!(serde_json::from_value::<JournalEvent>(json).unwrap(), event);
        }
    }
}
