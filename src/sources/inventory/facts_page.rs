//! `/api/v1/facts`: the format in which one recliner sends another the facts from files.
//!
//! Owns the entries of that list on both sides: the server creates them from targets, the client
//! converts them to observations. Never sorts, pages or sends requests.

use super::{DbFile, PartFile};
use crate::{
    model::{
        facts::{FactFlags, FactSource as MeasuredBy, Facts, Inside, Measurement, Overhead},
        target::TargetId,
    },
    table::{TargetRef, View},
};
use couchdb_files::ReportMatch;
use couchdb_names::ShardName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, num::NonZeroU8, sync::Arc};
use wall_clock::Moment;

/// A page of facts from file headers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FactsPage {
    /// The facts, one entry per file.
    pub facts: Vec<FactsLine>,
    /// The last id of this page, to give as `after`; null on the last page.
    #[schemars(with = "Option<String>")]
    pub next: Option<TargetId>,
}

/// The facts in one file's header. Unknown is null.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FactsLine {
    /// The id of the shard, or of a view's part.
    #[schemars(with = "String")]
    pub id: TargetId,
    /// Size of the file.
    file_bytes: Option<u64>,
    /// Live bytes.
    active_bytes: Option<u64>,
    /// Uncompressed size of the contents.
    external_bytes: Option<u64>,
    /// Sequence of the last change.
    update_seq: Option<u64>,
    /// Sequence at the last compaction.
    compacted_seq: Option<u64>,
    /// Number of documents that are not deleted.
    docs: Option<u64>,
    /// Number of deleted documents.
    deleted_docs: Option<u64>,
    /// A number that identifies the shard's file across compactions; null from recliners that do not report it.
    #[serde(default)]
    file_id: Option<NonZeroU8>,
    /// Sequence of a shard's last purge, or of the last purge that a view's part has processed.
    purge_seq: Option<u64>,
    /// Number of purges that the shard keeps.
    purges_limit: Option<u64>,
    /// Bytes of the shard's purge history.
    purge_bytes: Option<u64>,
    /// Bytes of the shard's local documents.
    local_bytes: Option<u64>,
    /// Collator versions that the part of a view names.
    collator_versions: Option<Vec<String>>,
    /// The last X-ray of the file.
    xray: Option<InsideLine>,
    /// Whether CouchDB would report the same numbers; not used for views.
    exact: bool,
    /// When the header was read.
    measured_at: String,
}

/// What an X-ray of a file showed. Unknown is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InsideLine {
    /// When the file was read.
    pub measured_at: String,
    /// Size of the file then.
    pub file_bytes: u64,
    /// Live bytes then.
    pub active_bytes: Option<u64>,
    /// Sequence of the last change then.
    pub update_seq: Option<u64>,
    /// Size after a compaction, if nothing was written since.
    pub after_compaction_bytes: u64,
    /// With 95 % probability, the real size differs from that by no more than this; zero if everything was read.
    pub error_bytes: u64,
    /// Bytes of revision trees with more than a hundred revisions.
    pub revision_bytes: Option<u64>,
    /// Number of revisions that are kept of a document.
    pub revs_limit: Option<u64>,
}

impl InsideLine {
    /// The line of an X-ray.
    pub fn of(inside: Inside) -> Self {
        Self {
            measured_at: inside.at.rfc3339(),
            file_bytes: inside.file_bytes,
            active_bytes: inside.active_bytes.get(),
            update_seq: inside.update_seq.get(),
            after_compaction_bytes: inside.left_bytes,
            error_bytes: inside.error_bytes,
            revision_bytes: inside.revision_bytes.get(),
            revs_limit: inside.revs_limit.get(),
        }
    }

    fn inside(&self, now: Moment, ahead: i64) -> Option<Inside> {
        Some(Inside {
            at: converted(&self.measured_at, now, ahead)?,
            file_bytes: self.file_bytes,
            active_bytes: self.active_bytes.into(),
            update_seq: self.update_seq.into(),
            left_bytes: self.after_compaction_bytes,
            error_bytes: self.error_bytes,
            revision_bytes: self.revision_bytes.into(),
            revs_limit: self.revs_limit.into(),
        })
    }
}

/// A time on a sidecar's clock, converted to this machine's.
fn converted(theirs: &str, now: Moment, ahead: i64) -> Option<Moment> {
    let theirs = i64::try_from(Moment::parse(theirs)?.unix()).ok()?;
    let ours = u64::try_from(theirs.saturating_sub(ahead)).unwrap_or_default();
    Some(Moment::from_unix(ours).min(now))
}

/// The facts that a recliner sent about one node.
#[derive(Debug, Default)]
pub(super) struct NodeFiles {
    pub(super) dbs: Vec<DbFile>,
    pub(super) parts: Vec<PartFile>,
}

impl FactsLine {
    /// The entry of a target; `None` for one that was never measured.
    pub fn of(target: TargetRef<'_>) -> Option<Self> {
        let facts = target.facts();
        let overhead = target.overhead().unwrap_or_default();
        let purge_seq = facts.purge_seq.get().or_else(|| overhead.purge_seq.get());
        let collators = |view: &View| view.collators.iter().map(ToString::to_string).collect();
        Some(Self {
            id: target.id(),
            file_bytes: facts.file_bytes.get(),
            active_bytes: facts.active_bytes.get(),
            external_bytes: facts.external_bytes.get(),
            update_seq: facts.update_seq.get(),
            compacted_seq: facts.compacted_seq.get(),
            docs: facts.docs.get(),
            deleted_docs: facts.deleted_docs.get(),
            file_id: facts.file_id,
            purge_seq,
            purges_limit: overhead.purges_limit.get(),
            purge_bytes: overhead.purge_bytes.get(),
            local_bytes: overhead.local_bytes.get(),
            collator_versions: target.view().map(collators),
            xray: target.inside().map(InsideLine::of),
            exact: facts.flags.exact,
            measured_at: facts.measured_at?.at.rfc3339(),
        })
    }

    /// Adds the entry's file to those of its node; ignores targets without a file.
    pub(super) fn add_to(self, all: &mut BTreeMap<Arc<str>, NodeFiles>, now: Moment, ahead: i64) {
        let Some(at) = converted(&self.measured_at, now, ahead) else { return };
        let collators = self.collator_versions.as_deref().unwrap_or_default();
        let is_shard = matches!(self.id, TargetId::Db { .. });
        let facts = Facts {
            file_bytes: self.file_bytes.into(),
            active_bytes: self.active_bytes.into(),
            external_bytes: self.external_bytes.into(),
            update_seq: self.update_seq.into(),
            compacted_seq: self.compacted_seq.into(),
            docs: self.docs.into(),
            deleted_docs: self.deleted_docs.into(),
            file_id: self.file_id,
            purge_seq: self.purge_seq.filter(|_| !is_shard).into(),
            overhead: Overhead {
                purge_seq: self.purge_seq.filter(|_| is_shard).into(),
                purges_limit: self.purges_limit.into(),
                purge_bytes: self.purge_bytes.into(),
                local_bytes: self.local_bytes.into(),
            },
            inside: self.xray.as_ref().and_then(|line| line.inside(now, ahead)),
            measured_at: Some(Measurement { at, source: MeasuredBy::Files }),
            flags: FactFlags { needs_upgrade: collators.len() >= 2, ..FactFlags::default() },
            ..Facts::default()
        };
        let facts = facts.marked_from_files();
        match self.id {
            TargetId::Db { node, shard } => {
                let reported =
                    if self.exact { ReportMatch::Identical } else { ReportMatch::Different };
                let shard = shard.into();
                let file = DbFile { shard, facts, reported, same: true, problem: None };
                all.entry(node.into()).or_default().dbs.push(file);
            }
            TargetId::View { node, db: shard, signature } if ShardName::split(&shard).is_some() => {
                let collators = collators.iter().map(|version| Arc::from(&**version)).collect();
                let shard = shard.into();
                let file = PartFile { shard, signature, facts, collators, problem: None };
                all.entry(node.into()).or_default().parts.push(file);
            }
            TargetId::View { .. } | TargetId::Cleanup { .. } | TargetId::Search { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::OptionalU64,
        table::{DbName, Draft},
    };
    use couchdb_names::{Range, Signature};
    use serde_json::json;

    fn line(id: &str, at: &str, exact: bool) -> FactsLine {
        serde_json::from_value(json!({
            "id": id, "file_bytes": 9, "active_bytes": null, "exact": exact, "measured_at": at,
        }))
        .unwrap()
    }

    #[test]
    fn lines_are_grouped_by_node_without_targets_that_have_no_file() {
        let mut all = BTreeMap::new();
        let part = format!("view:a/shards%2F00000000-ffffffff%2Fx.1/{}", "01".repeat(16));
        let cluster = format!("view:_cluster/x.1/{}", "01".repeat(16));
        for id in ["db:a/_dbs", "db:b/_dbs", &part, &cluster, "cleanup:x"] {
            line(id, "1000", true).add_to(&mut all, Moment::from_unix(2_000), 0);
        }
        let counts: Vec<_> =
            all.iter().map(|(node, files)| (&**node, files.dbs.len(), files.parts.len())).collect();
        assert_eq!(counts, [("a", 1, 1), ("b", 1, 0)]);
        let facts = all["a"].dbs[0].facts;
        assert_eq!((facts.file_bytes.get(), facts.active_bytes.get()), (Some(9), None));
        line("db:c/_dbs", "1000", false).add_to(&mut all, Moment::from_unix(2_000), 0);
        assert_eq!(all["c"].dbs[0].reported, ReportMatch::Different);
    }

    #[test]
    fn converts_times_from_the_sidecars_clock() {
        let now = Moment::from_unix(2_000);
        for (theirs, ahead, ours) in
            [("1990", 0, 1_990), ("5590", 3_600, 1_990), ("990", -1_000, 1_990), ("3000", 0, 2_000)]
        {
            assert_eq!(
                converted(theirs, now, ahead),
                Some(Moment::from_unix(ours)),
                "{theirs} {ahead}"
            );
        }
        assert_eq!(converted("yesterday", now, 0), None);
    }

    #[test]
    fn facts_sent_between_processes_are_received_unchanged() {
        let measured = Measurement { at: Moment::from_unix(1_000), source: MeasuredBy::Files };
        let inside = Inside {
            at: Moment::from_unix(999),
            file_bytes: 80,
            active_bytes: OptionalU64::new(40),
            left_bytes: 50,
            error_bytes: 2,
            revs_limit: OptionalU64::new(1_000),
            ..Inside::default()
        };
        let mut facts = Facts {
            external_bytes: OptionalU64::new(70),
            update_seq: OptionalU64::new(5),
            compacted_seq: OptionalU64::new(2),
            docs: OptionalU64::new(3),
            deleted_docs: OptionalU64::new(1),
            overhead: Overhead {
                purge_seq: OptionalU64::new(5_000),
                purges_limit: OptionalU64::new(1_000),
                purge_bytes: OptionalU64::new(8),
                local_bytes: OptionalU64::new(0),
            },
            inside: Some(inside),
            measured_at: Some(measured),
            ..Facts::sized(90, 40)
        };
        facts.flags.exact = true;
        let facts = facts.marked_from_files();
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("a");
        let db = draft.get_or_add_db(DbName { db: "x", suffix: ".1" });
        let range = Range { from: 0, to: u32::MAX };
        let shard = draft.get_or_add_shard(node, db, Some(range));
        let part = draft.get_or_add_part(node, db, Some(range), Signature([1; 16]));
        let of_view = Facts {
            compacted_seq: OptionalU64::UNKNOWN,
            docs: OptionalU64::UNKNOWN,
            purge_seq: OptionalU64::new(4),
            overhead: Overhead::default(),
            ..facts
        };
        for (ix, facts) in [(shard, facts), (part, of_view)] {
            draft.set_facts(ix, facts);
            assert!(draft.set_inside(ix, inside));
        }
        let never = draft.get_or_add_db(DbName { db: "y", suffix: "" });
        let never = draft.get_or_add_shard(node, never, None);
        let mut all = BTreeMap::new();
        for ix in [shard, part, never] {
            let Some(line) = FactsLine::of(draft.current().target(ix).unwrap()) else { continue };
            let page = FactsPage { facts: vec![line], next: None };
            let received: FactsPage =
                serde_json::from_str(&serde_json::to_string(&page).unwrap()).unwrap();
            received
                .facts
                .into_iter()
                .for_each(|it| it.add_to(&mut all, Moment::from_unix(2_000), 0));
        }
        let files = &all["a"];
        let [db] = &files.dbs[..] else { panic!("{files:?}") };
        assert_eq!(
            (&*db.shard, db.reported),
            ("shards/00000000-ffffffff/x.1", ReportMatch::Identical)
        );
        // The receiver decides whether these facts replace CouchDB's response.
        assert_eq!(db.facts, Facts { flags: FactFlags::default(), ..facts });
        let [part] = &files.parts[..] else { panic!("{files:?}") };
        assert_eq!(
            part.facts,
            Facts { flags: FactFlags::default(), ..of_view }.marked_from_files()
        );
    }
}
