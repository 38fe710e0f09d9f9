//! What each kind of cleanup would free on each file system.

use crate::{
    datadir::DirectoryContent,
    model::{rounding::to_bytes, target::TargetKind},
    table::{NodeIx, Totals, VolumeUsage},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A file system, and what each kind of cleanup would free on it, in bytes. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeLine {
    /// The directory on the file system; if there are two, that of databases.
    pub directory: String,
    /// Size of the file system.
    pub size_bytes: Option<u64>,
    /// Bytes that can still be written.
    pub available_bytes: Option<u64>,
    /// Bytes of view index files that nothing uses.
    pub stale_index_bytes: u64,
    /// Bytes of files that compactions left behind.
    pub leftover_bytes: u64,
    /// Bytes of files that CouchDB deleted and that are still on the disk.
    pub trash_bytes: u64,
    /// Bytes that compacting everything on it is predicted to free.
    pub reclaimable_bytes: Option<u64>,
}

impl VolumeLine {
    pub(super) fn of(on: &VolumeUsage, totals: &Totals, node: NodeIx) -> Self {
        let frees = |kind| totals.sums_of(node, kind).reclaimable_bytes.get();
        let reclaimable = match on.volume.content {
            DirectoryContent::Databases => frees(TargetKind::Db),
            DirectoryContent::Views => frees(TargetKind::View),
            DirectoryContent::Both => {
                frees(TargetKind::Db).zip(frees(TargetKind::View)).map(|(dbs, views)| dbs + views)
            }
        };
        Self {
            directory: on.volume.directory.to_string(),
            size_bytes: on.volume.space.map(|space| space.size),
            available_bytes: on.volume.space.map(|space| space.available),
            stale_index_bytes: on.stale_index_bytes,
            leftover_bytes: on.leftover_bytes,
            trash_bytes: on.trash_bytes,
            reclaimable_bytes: reclaimable.map(to_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        datadir::{DirectoryVolume, FileSystemSpace},
        model::facts::{FactSource, Facts, Measurement, OptionalU64},
        table::{DbName, Draft},
    };
    use couchdb_names::Signature;
    use wall_clock::Moment;

    #[test]
    fn sums_reclaimable_bytes_by_directory_content() {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
        let facts = |file, active| Facts {
            file_bytes: OptionalU64::new(file),
            active_bytes: active,
            measured_at: Some(Measurement { at: Moment::from_unix(7), source: FactSource::Files }),
            ..Facts::default()
        };
        let shard = draft.get_or_add_shard(node, db, None);
        draft.set_facts(shard, facts(90 << 20, OptionalU64::new(10 << 20)));
        let part = draft.get_or_add_part(node, db, None, Signature([1; 16]));
        draft.set_facts(part, facts(70 << 20, OptionalU64::UNKNOWN));
        let snapshot = draft.publish(Moment::from_unix(7));
        let space = FileSystemSpace { available: 5, size: 9, device: 1 };
        let line = |holds, space| {
            let volume = DirectoryVolume { directory: "/data".into(), content: holds, space };
            let on =
                VolumeUsage { volume, stale_index_bytes: 1, leftover_bytes: 2, trash_bytes: 3 };
            VolumeLine::of(&on, snapshot.totals(), node)
        };
        let dbs = line(DirectoryContent::Databases, Some(space));
        assert_eq!((dbs.available_bytes, dbs.size_bytes), (Some(5), Some(9)));
        assert!(dbs.reclaimable_bytes.is_some_and(|bytes| bytes > 70 << 20), "{dbs:?}");
        let views = line(DirectoryContent::Views, None);
        assert_eq!((views.available_bytes, views.reclaimable_bytes), (None, None));
        assert_eq!(line(DirectoryContent::Both, None).reclaimable_bytes, None);
    }
}
