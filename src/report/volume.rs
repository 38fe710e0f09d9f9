//! What can be freed of each file system.

use crate::{
    datadir::Tree,
    snapshot::{NodeIx, OnVolume, Totals},
    target::Kind,
};
use serde::Serialize;

/// What each kind of cleanup would free of one file system, in bytes. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeLine {
    /// The directory there; of two, that of databases.
    pub directory: String,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// What may still be written.
    pub available_bytes: Option<u64>,
    /// View index files that nothing uses.
    pub stale_index_bytes: u64,
    /// What compactions left behind.
    pub leftover_bytes: u64,
    /// Deleted by CouchDB and still there.
    pub trash_bytes: u64,
    /// What compactions of all that lies there would free, as predicted.
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
