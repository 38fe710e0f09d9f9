//! What happened, as the journal tells it.

mod summary;

pub use summary::Summary;

use crate::model::{
    memory::{Ending, Owner, Scope},
    target::TargetId,
};
use couchdb_client::wire::DbChange;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it was written down.
    pub at: Moment,
    /// What it was.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum What {
    /// A target entered a queue.
    Queued {
        /// The target.
        target: TargetId,
        /// The channel that took it.
        channel: String,
        /// What else the entry stands for.
        #[serde(flatten)]
        summary: Summary,
    },
    /// What keeps a target that waits from starting became another thing, and lasts.
    Refused {
        /// The target.
        target: TargetId,
        /// The channel in which it waits.
        channel: String,
        /// The refusal's reason.
        reason: String,
        /// What else the entry stands for.
        #[serde(flatten)]
        summary: Summary,
    },
    /// More of one kind happened at once than is written down one by one.
    Omitted {
        /// The type of what happened.
        of: String,
        /// To how many targets more.
        targets: u64,
    },
    /// A start was decided, and its request was about to go out.
    Started {
        /// The target.
        target: TargetId,
        /// The node, or `_cluster`.
        node: String,
        /// The channel it was started for.
        channel: String,
        /// Who ordered it, where an operator did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ordered_by: Option<String>,
    },
    /// A start that was decided came to nothing: its request was refused, or never went out.
    NotStarted {
        /// The target.
        target: TargetId,
        /// The node, or `_cluster`.
        node: String,
        /// Why, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A job ended; the history has the rest.
    Finished {
        /// The target.
        target: TargetId,
        /// The node, or `_cluster`.
        node: String,
        /// Who had started it.
        owner: Owner,
        /// How it ended.
        result: Ending,
        /// Bytes that came free, negative where the file grew; absent where unknown.
        freed_bytes: Option<i64>,
    },
    /// An operator suspended starts.
    Suspended {
        /// Of what.
        #[serde(with = "scope_text")]
        scope: Scope,
        /// Who did, and from where.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The reason that was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// An operator let starts go on.
    Resumed {
        /// Of what.
        #[serde(with = "scope_text")]
        scope: Scope,
        /// Who did, and from where.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// An operator ordered the compaction of a target.
    Ordered {
        /// The target.
        target: TargetId,
        /// Who did.
        by: String,
        /// Whether though no channel takes it, or it rests.
        force: bool,
    },
    /// What was ordered had not started in time, and is forgotten.
    Lapsed {
        /// The target.
        target: TargetId,
        /// Who had ordered it.
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
    /// A setting of smoosh was taken over.
    TakenOver(Taken),
    /// A setting of smoosh was given back.
    Restored(Taken),
    /// CouchDB was asked to build a view index.
    IndexBuildStarted {
        /// The view.
        target: TargetId,
        /// `batch` or `incremental`.
        class: String,
    },
    /// That build ended.
    IndexBuildFinished {
        /// The view.
        target: TargetId,
        /// `built` or `failed`.
        result: String,
    },
    /// A database was made.
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

/// A setting of a node's smoosh that was changed to stop a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The node, by CouchDB's name.
    pub node: String,
    /// The section of its configuration.
    pub section: String,
    /// The key.
    pub key: String,
    /// The value before; none where the key was absent.
    pub was: Option<String>,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Type {
    /// A target entered a queue.
    Queued,
    /// Another reason keeps it from starting.
    Refused,
    /// More of that than is written down.
    Omitted,
    /// A start was decided.
    Started,
    /// It came to nothing.
    NotStarted,
    /// A job ended.
    Finished,
    /// Starts were suspended.
    Suspended,
    /// And let go on.
    Resumed,
    /// An operator ordered a compaction.
    Ordered,
    /// It had not started in time.
    Lapsed,
    /// A target waits for an operator.
    Quarantined,
    /// It may be started again.
    Released,
    /// A setting of smoosh was taken over.
    TakenOver,
    /// And given back.
    Restored,
    /// CouchDB was asked to build a view index.
    IndexBuildStarted,
    /// That build ended.
    IndexBuildFinished,
    /// A database was made.
    Created,
    /// One was written to.
    Updated,
    /// One was deleted.
    Deleted,
}

impl Type {
    /// Every type.
    pub const ALL: [Self; 19] = [
        Self::Queued,
        Self::Refused,
        Self::Omitted,
        Self::Started,
        Self::NotStarted,
        Self::Finished,
        Self::Suspended,
        Self::Resumed,
        Self::Ordered,
        Self::Lapsed,
        Self::Quarantined,
        Self::Released,
        Self::TakenOver,
        Self::Restored,
        Self::IndexBuildStarted,
        Self::IndexBuildFinished,
        Self::Created,
        Self::Updated,
        Self::Deleted,
    ];

    /// The word in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Refused => "refused",
            Self::Omitted => "omitted",
            Self::Started => "started",
            Self::NotStarted => "not_started",
            Self::Finished => "finished",
            Self::Suspended => "suspended",
            Self::Resumed => "resumed",
            Self::Ordered => "ordered",
            Self::Lapsed => "lapsed",
            Self::Quarantined => "quarantined",
            Self::Released => "released",
            Self::TakenOver => "taken_over",
            Self::Restored => "restored",
            Self::IndexBuildStarted => "index_build_started",
            Self::IndexBuildFinished => "index_build_finished",
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }

    /// Whether it tells of a database, and not of this program.
    #[must_use]
    pub const fn is_of_database(self) -> bool {
        matches!(self, Self::Created | Self::Updated | Self::Deleted)
    }

    /// The type with this word.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.label() == label)
    }
}

impl What {
    /// What happened to which database, where it is that.
    #[must_use]
    pub fn database(&self) -> Option<(DbChange, &str)> {
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

    /// The target that it is about, where it is about one.
    #[must_use]
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
            | Self::TakenOver(_)
            | Self::Restored(_)
            | Self::Created { .. }
            | Self::Updated { .. }
            | Self::Deleted { .. } => None,
        }
    }

    /// Further targets that it names, to which the same happened at once.
    #[must_use]
    pub fn also(&self) -> &[TargetId] {
        if let Self::Queued { summary, .. } | Self::Refused { summary, .. } = self {
            &summary.also
        } else {
            &[]
        }
    }

    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> Type {
        match self {
            Self::Queued { .. } => Type::Queued,
            Self::Refused { .. } => Type::Refused,
            Self::Omitted { .. } => Type::Omitted,
            Self::Started { .. } => Type::Started,
            Self::NotStarted { .. } => Type::NotStarted,
            Self::Finished { .. } => Type::Finished,
            Self::Suspended { .. } => Type::Suspended,
            Self::Resumed { .. } => Type::Resumed,
            Self::Ordered { .. } => Type::Ordered,
            Self::Lapsed { .. } => Type::Lapsed,
            Self::Quarantined { .. } => Type::Quarantined,
            Self::Released { .. } => Type::Released,
            Self::TakenOver(_) => Type::TakenOver,
            Self::Restored(_) => Type::Restored,
            Self::IndexBuildStarted { .. } => Type::IndexBuildStarted,
            Self::IndexBuildFinished { .. } => Type::IndexBuildFinished,
            Self::Created { .. } => Type::Created,
            Self::Updated { .. } => Type::Updated,
            Self::Deleted { .. } => Type::Deleted,
        }
    }
}

/// Scopes as people write them: `all`, `node:<name>`, `channel:<name>`.
mod scope_text {
    use super::Scope;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(scope: &Scope, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(scope)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Scope, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object_with_its_type() {
        let target: TargetId = "cleanup:orders".parse().unwrap();
        let taken = Taken {
            node: "couchdb@a".into(),
            section: "smoosh.ratio_dbs".into(),
            key: "concurrency".into(),
            was: None,
        };
        let all = [
            What::Queued {
                target: target.clone(),
                channel: "c".into(),
                summary: Summary::default(),
            },
            What::Refused {
                target: target.clone(),
                channel: "c".into(),
                reason: "headroom".into(),
                summary: Summary {
                    also: vec!["cleanup:carts".parse().unwrap()],
                    targets: Some(9),
                    count: Some(7),
                    first: Some(Moment::from_unix(3)),
                    last: Some(Moment::from_unix(8)),
                },
            },
            What::Omitted { of: "queued".into(), targets: 9 },
            What::Started {
                target: target.clone(),
                node: "n".into(),
                channel: "c".into(),
                ordered_by: Some("ann".into()),
            },
            What::NotStarted { target: target.clone(), node: "n".into(), why: None },
            What::Finished {
                target: target.clone(),
                node: "n".into(),
                owner: Owner::Other,
                result: Ending::Grew,
                freed_bytes: Some(-1),
            },
            What::Suspended {
                scope: Scope::Node("a:b".into()),
                by: Some("ann".into()),
                why: Some("disk".into()),
            },
            What::Resumed { scope: Scope::All, by: None },
            What::Ordered { target: target.clone(), by: "ann".into(), force: true },
            What::Lapsed { target: target.clone(), by: "ann".into() },
            What::Quarantined { target: target.clone(), failures: 5 },
            What::Released { target: target.clone() },
            What::TakenOver(taken.clone()),
            What::Restored(taken),
            What::IndexBuildStarted { target: target.clone(), class: "batch".into() },
            What::IndexBuildFinished { target, result: "built".into() },
            What::Created { db: "orders".into() },
            What::Updated { db: "orders".into() },
            What::Deleted { db: "orders".into() },
        ];
        assert_eq!(all.len(), Type::ALL.len());
        for (what, kind) in all.into_iter().zip(Type::ALL) {
            assert_eq!(what.kind(), kind);
            let event = Event { at: Moment::from_unix(9), what };
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["type"], kind.label());
            assert_eq!(json["at"], 9);
            assert_eq!(Type::from_label(kind.label()), Some(kind));
            assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
        }
    }
}
