//! `/api/v1/facts`: what one recliner sends another about the files that it reads.
//!
//! Owns the lines of that list on both sides: the server makes them of targets, the client turns
//! them into observations. Never sorts, pages or asks.

use super::{DbSeen, PartSeen};
use crate::{
    model::{
        facts::{Facts, Flags, Measured, Source as MeasuredBy},
        target::TargetId,
    },
    table::{TargetRef, View},
};
use couchdb_files::Reported;
use couchdb_names::ShardName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// A page of the list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FactsPage {
    /// Its lines.
    pub facts: Vec<FactsLine>,
    /// The last id of this page, if another page follows.
    #[schemars(with = "Option<String>")]
    pub next: Option<TargetId>,
}

/// What one file's header said. Unknown is null.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FactsLine {
    /// The shard, or the part of a view.
    #[schemars(with = "String")]
    pub id: TargetId,
    file_bytes: Option<u64>,
    active_bytes: Option<u64>,
    external_bytes: Option<u64>,
    update_seq: Option<u64>,
    compacted_seq: Option<u64>,
    docs: Option<u64>,
    deleted_docs: Option<u64>,
    collator_versions: Option<Vec<String>>,
    /// Whether CouchDB would say the same; not used for views.
    exact: bool,
    measured_at: String,
}

/// What a recliner sent about one node.
#[derive(Debug, Default)]
pub(super) struct NodeFiles {
    pub(super) dbs: Vec<DbSeen>,
    pub(super) parts: Vec<PartSeen>,
}

impl FactsLine {
    /// The line of a target; none for one that was never measured.
    #[must_use]
    pub fn of(target: TargetRef<'_>) -> Option<Self> {
        let facts = target.facts();
        let collators = |view: &View| view.collators.iter().map(ToString::to_string).collect();
        Some(Self {
            id: target.id(),
            file_bytes: facts.file.get(),
            active_bytes: facts.active.get(),
            external_bytes: facts.external.get(),
            update_seq: facts.update_seq.get(),
            compacted_seq: facts.compacted_seq.get(),
            docs: facts.docs.get(),
            deleted_docs: facts.deleted_docs.get(),
            collator_versions: target.view().map(collators),
            exact: facts.flags.exact,
            measured_at: facts.measured_at?.at.rfc3339(),
        })
    }

    /// Adds its file to those of its node; leaves out what is no file.
    pub(super) fn add_to(self, all: &mut BTreeMap<Arc<str>, NodeFiles>, now: Moment, ahead: i64) {
        let Some(at) = self.at(now, ahead) else { return };
        let collators = self.collator_versions.as_deref().unwrap_or_default();
        let facts = Facts {
            file: self.file_bytes.into(),
            active: self.active_bytes.into(),
            external: self.external_bytes.into(),
            update_seq: self.update_seq.into(),
            compacted_seq: self.compacted_seq.into(),
            docs: self.docs.into(),
            deleted_docs: self.deleted_docs.into(),
            measured_at: Some(Measured { at, by: MeasuredBy::Files }),
            flags: Flags { needs_upgrade: collators.len() >= 2, ..Flags::default() },
            ..Facts::default()
        };
        let facts = facts.all_by_files();
        match self.id {
            TargetId::Db { node, shard } => {
                let reported = if self.exact { Reported::AsRead } else { Reported::Otherwise };
                let shard = shard.into();
                let seen = DbSeen { shard, facts, reported, same: true, problem: None };
                all.entry(node.into()).or_default().dbs.push(seen);
            }
            TargetId::View { node, db: shard, signature } if ShardName::split(&shard).is_some() => {
                let collators = collators.iter().map(|version| Arc::from(&**version)).collect();
                let shard = shard.into();
                let seen = PartSeen { shard, signature, facts, collators, problem: None };
                all.entry(node.into()).or_default().parts.push(seen);
            }
            TargetId::View { .. } | TargetId::Cleanup { .. } | TargetId::Search { .. } => {}
        }
    }

    /// When it was read, by this machine's clock.
    fn at(&self, now: Moment, ahead: i64) -> Option<Moment> {
        let theirs = i64::try_from(Moment::read(&self.measured_at)?.unix()).ok()?;
        let ours = u64::try_from(theirs.saturating_sub(ahead)).unwrap_or_default();
        Some(Moment::from_unix(ours).min(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::Known,
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
    fn lines_are_sorted_by_node_and_what_is_no_file_is_left_out() {
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
        assert_eq!((facts.file.get(), facts.active.get()), (Some(9), None));
        line("db:c/_dbs", "1000", false).add_to(&mut all, Moment::from_unix(2_000), 0);
        assert_eq!(all["c"].dbs[0].reported, Reported::Otherwise);
    }

    #[test]
    fn an_age_is_counted_by_the_sidecars_own_clock() {
        let now = Moment::from_unix(2_000);
        for (theirs, ahead, ours) in
            [("1990", 0, 1_990), ("5590", 3_600, 1_990), ("990", -1_000, 1_990), ("3000", 0, 2_000)]
        {
            let at = line("db:a/_dbs", theirs, true).at(now, ahead);
            assert_eq!(at, Some(Moment::from_unix(ours)), "{theirs} {ahead}");
        }
        assert_eq!(line("db:a/_dbs", "yesterday", true).at(now, 0), None);
    }

    #[test]
    fn facts_arrive_as_they_were_sent() {
        let measured = Measured { at: Moment::from_unix(1_000), by: MeasuredBy::Files };
        let mut facts = Facts {
            file: Known::new(90),
            active: Known::new(40),
            external: Known::new(70),
            update_seq: Known::new(5),
            compacted_seq: Known::new(2),
            docs: Known::new(3),
            deleted_docs: Known::new(1),
            measured_at: Some(measured),
            ..Facts::default()
        };
        facts.flags.exact = true;
        let facts = facts.all_by_files();
        let mut draft = Draft::new(1);
        let node = draft.node("a");
        let db = draft.db(DbName { db: "x", suffix: ".1" });
        let range = Range { from: 0, to: u32::MAX };
        let shard = draft.db_target(node, db, Some(range));
        let part = draft.part(node, db, Some(range), Signature([1; 16]));
        let of_view = Facts { compacted_seq: Known::UNKNOWN, ..facts };
        for (ix, facts) in [(shard, facts), (part, of_view)] {
            draft.set_facts(ix, facts);
        }
        let never = draft.db(DbName { db: "y", suffix: "" });
        let never = draft.db_target(node, never, None);
        let mut all = BTreeMap::new();
        for ix in [shard, part, never] {
            let Some(line) = FactsLine::of(draft.now().target(ix).unwrap()) else { continue };
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
        assert_eq!((&*db.shard, db.reported), ("shards/00000000-ffffffff/x.1", Reported::AsRead));
        // Whether it covers CouchDB's answer is decided by the receiver.
        assert_eq!(db.facts, Facts { flags: Flags::default(), ..facts });
        let [part] = &files.parts[..] else { panic!("{files:?}") };
        assert_eq!(part.facts, Facts { flags: Flags::default(), ..of_view }.all_by_files());
    }
}
