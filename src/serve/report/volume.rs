//! What can be freed of each file system.

use crate::{
    datadir::Tree,
    model::target::Kind,
    table::{NodeIx, OnVolume, Totals},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What each kind of cleanup would free of one file system, in bytes. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeLine {
    /// The directory there; of two, that of databases.
    pub directory: String,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// What may still be written.
    pub available_bytes: Option<u64>,
    /// View index files that nothing uses.
    pub stale_index_bytes: u64,
    /// Leftovers of compactions.
    pub leftover_bytes: u64,
    /// Deleted by CouchDB and still there.
    pub trash_bytes: u64,
    /// What compacting everything on it would free, as predicted.
    pub reclaimable_bytes: Option<u64>,
}

impl VolumeLine {
    pub(super) fn of(on: &OnVolume, totals: &Totals, node: NodeIx) -> Self {
        let frees = |kind| totals.of(node, kind).reclaimable.get();
        let reclaimable = match on.volume.holds {
            Tree::Databases => frees(Kind::Db),
            Tree::Views => frees(Kind::View),
            Tree::Both => frees(Kind::Db).zip(frees(Kind::View)).map(|(dbs, views)| dbs + views),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let whole = |bytes: f64| bytes as u64;
        Self {
            directory: on.volume.directory.to_string(),
            size_bytes: on.volume.space.map(|space| space.size),
            available_bytes: on.volume.space.map(|space| space.available),
            stale_index_bytes: on.stale_index,
            leftover_bytes: on.leftover,
            trash_bytes: on.trash,
            reclaimable_bytes: reclaimable.map(whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        datadir::{Space, Volume},
        model::facts::{Facts, Known, Measured, Source},
        table::{DbName, Draft},
    };
    use couchdb_names::Signature;
    use wall_clock::Moment;

    #[test]
    fn compaction_frees_where_its_files_lie_and_what_is_unknown_is_null() {
        let mut draft = Draft::new(1);
        let node = draft.node("couchdb@a");
        let db = draft.db(DbName { db: "orders", suffix: ".1" });
        let facts = |file, active| Facts {
            file: Known::new(file),
            active,
            measured_at: Some(Measured { at: Moment::from_unix(7), by: Source::Files }),
            ..Facts::default()
        };
        let shard = draft.db_target(node, db, None);
        draft.set_facts(shard, facts(90 << 20, Known::new(10 << 20)));
        let part = draft.part(node, db, None, Signature([1; 16]));
        draft.set_facts(part, facts(70 << 20, Known::UNKNOWN));
        let snapshot = draft.publish(Moment::from_unix(7));
        let space = Space { available: 5, size: 9, device: 1 };
        let line = |holds, space| {
            let volume = Volume { directory: "/data".into(), holds, space };
            let on = OnVolume { volume, stale_index: 1, leftover: 2, trash: 3 };
            VolumeLine::of(&on, snapshot.totals(), node)
        };
        let dbs = line(Tree::Databases, Some(space));
        assert_eq!((dbs.available_bytes, dbs.size_bytes), (Some(5), Some(9)));
        assert!(dbs.reclaimable_bytes.is_some_and(|bytes| bytes > 70 << 20), "{dbs:?}");
        let views = line(Tree::Views, None);
        assert_eq!((views.available_bytes, views.reclaimable_bytes), (None, None));
        assert_eq!(line(Tree::Both, None).reclaimable_bytes, None);
    }
}
