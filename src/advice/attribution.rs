//! Attributes the bytes on the disks to databases or design documents.
//!
//! Owns the sums, in one pass over all targets. All copies of a shard and all files of an index
//! count; the parts of views on nodes do not, because they are the same files. Used by the API and
//! `advise --by`.

use crate::{
    model::target::TargetKind,
    table::{DbIx, Snapshot, TargetRef},
};
use std::{cmp::Reverse, collections::BTreeMap};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// What bytes are attributed to.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeBy {
    /// Each database, with its indexes.
    Database,
    /// Each design document, or all that share an index, without the bytes of the database itself.
    Design,
}

/// Bytes on disk. Files of unknown size add nothing and are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributedBytes {
    /// Bytes of shards.
    pub shard_bytes: u64,
    /// Bytes of view indexes.
    pub view_bytes: u64,
    /// Bytes of both that a compaction would free.
    pub reclaimable_bytes: u64,
    /// Number of shards and indexes whose size is unknown.
    pub unmeasured: u64,
    /// Number of views of which some copies were not measured.
    pub estimated: u64,
}

impl AttributedBytes {
    /// Bytes of all files.
    #[must_use]
    pub const fn file_bytes(&self) -> u64 {
        self.shard_bytes.saturating_add(self.view_bytes)
    }

    fn add(&mut self, target: TargetRef<'_>) {
        let Some(bytes) = target.file_bytes() else {
            self.unmeasured += 1;
            return;
        };
        self.estimated += u64::from(target.is_estimated());
        let of_kind = match target.kind() {
            TargetKind::Db => &mut self.shard_bytes,
            TargetKind::View | TargetKind::Cleanup | TargetKind::Search => &mut self.view_bytes,
        };
        *of_kind = of_kind.saturating_add(bytes);
        let reclaimable = target.reclaimable_bytes().unwrap_or_default();
        self.reclaimable_bytes = self.reclaimable_bytes.saturating_add(reclaimable);
    }

    /// Adds other sums.
    pub const fn merge(&mut self, other: &Self) {
        self.shard_bytes = self.shard_bytes.saturating_add(other.shard_bytes);
        self.view_bytes = self.view_bytes.saturating_add(other.view_bytes);
        self.reclaimable_bytes = self.reclaimable_bytes.saturating_add(other.reclaimable_bytes);
        self.unmeasured = self.unmeasured.saturating_add(other.unmeasured);
        self.estimated = self.estimated.saturating_add(other.estimated);
    }
}

/// A database, or the design documents that share an index, with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributed {
    /// The database.
    pub db: String,
    /// The ids of the design documents; empty for a database, and for an index that no document names.
    pub designs: Vec<String>,
    /// Its bytes.
    pub bytes: AttributedBytes,
}

/// The largest databases or design documents, and the sums of all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The largest, by bytes of all files.
    pub largest: Vec<Attributed>,
    /// The number of all others.
    pub others: u64,
    /// Their bytes.
    pub other_bytes: AttributedBytes,
}

/// Attributes the bytes of a snapshot, naming at most `limit`.
#[must_use]
pub fn attribute(snapshot: &Snapshot, by: AttributeBy, limit: usize) -> Attribution {
    // Instances of a database with the same name are merged; so are indexes of the same documents.
    let mut sums: BTreeMap<(&str, Vec<&str>), AttributedBytes> = BTreeMap::new();
    match by {
        AttributeBy::Database => {
            for (db, bytes) in by_instance(snapshot) {
                let name = snapshot.db_name(db).map_or("", |name| name.db);
                sums.entry((name, Vec::new())).or_default().merge(&bytes);
            }
        }
        AttributeBy::Design => {
            for target in snapshot.files_once().filter(|target| target.kind() == TargetKind::View) {
                let designs = target.view().map_or(&[][..], |view| &view.designs);
                let designs = designs.iter().map(AsRef::as_ref).collect();
                sums.entry((target.db_name().db, designs)).or_default().add(target);
            }
        }
    }
    largest(sums, limit)
}

/// Sums by database instance, keyed by index to avoid comparing the names of a million targets.
fn by_instance(snapshot: &Snapshot) -> impl Iterator<Item = (DbIx, AttributedBytes)> {
    let mut instances: Vec<Option<AttributedBytes>> = Vec::new();
    for target in snapshot.files_once() {
        let at = target.db().as_usize();
        if instances.len() <= at {
            instances.resize(at + 1, None);
        }
        instances[at].get_or_insert_default().add(target);
    }
    let named = instances.into_iter().enumerate();
    named.filter_map(|(at, bytes)| Some((DbIx::from_usize(at)?, bytes?)))
}

fn largest(sums: BTreeMap<(&str, Vec<&str>), AttributedBytes>, limit: usize) -> Attribution {
    let mut all: Vec<_> = sums.into_iter().collect();
    all.sort_by_key(|(_, bytes)| Reverse(bytes.file_bytes()));
    let rest = all.split_off(limit.min(all.len()));
    let mut attribution = Attribution { others: rest.len() as u64, ..Attribution::default() };
    rest.iter().for_each(|(_, bytes)| attribution.other_bytes.merge(bytes));
    attribution.largest = all
        .into_iter()
        .map(|((db, designs), bytes)| Attributed {
            db: db.to_owned(),
            designs: designs.into_iter().map(ToOwned::to_owned).collect(),
            bytes,
        })
        .collect();
    attribution
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::test_cluster::{NOW, Shard, TestCluster},
        model::facts::{Facts, OptionalU64},
        table::{DbName, ShardMapEntry, View},
    };
    use couchdb_names::Signature;

    const MIB: u64 = 1 << 20;

    fn cluster() -> TestCluster {
        let shard = |db, node, mib| Shard::new(db, node, 0, mib * MIB);
        let mut cluster = TestCluster::with_shards(&[
            shard("orders", "a", 10),
            shard("orders", "b", 11),
            shard("users", "a", 5),
            Shard { file_bytes: None, ..shard("users", "b", 0) },
            shard("gone", "a", 100).missing(),
        ]);
        for (number, designs, mib) in
            [(1, &["_design/x", "_design/y"][..], 20), (2, &["_design/z"], 30)]
        {
            let db = cluster.draft.get_or_add_db(DbName { db: "users", suffix: ".1" });
            let designs = designs.iter().map(|name| (*name).into()).collect();
            let view = View { signature: Signature([number; 16]), designs, ..View::default() };
            let ix = cluster.draft.add_view(db, view);
            let bytes = OptionalU64::new(mib * MIB);
            cluster.draft.set_facts(
                ix,
                Facts { file_bytes: bytes, active_bytes: bytes, ..Facts::default() },
            );
            cluster.draft.set_shard_map(db, ShardMapEntry { copies: 2, ranges: 1 }, &[ix]);
        }
        cluster
    }

    /// A database or its design documents, with MiB of files.
    type Row = (String, Vec<String>, u64);

    fn rows(by: AttributeBy, limit: usize) -> (Vec<Row>, u64, u64) {
        let snapshot = cluster().draft.publish(NOW);
        let found = attribute(&snapshot, by, limit);
        let row = |it: Attributed| (it.db, it.designs, it.bytes.file_bytes() / MIB);
        let rows = found.largest.into_iter().map(row).collect();
        (rows, found.others, found.other_bytes.file_bytes() / MIB)
    }

    #[test]
    fn database_includes_all_copies_and_indexes() {
        let row = |db: &str, mib| (db.to_owned(), Vec::new(), mib);
        let all = rows(AttributeBy::Database, 9);
        assert_eq!(all, (vec![row("users", 105), row("orders", 21)], 0, 0));
        assert_eq!(rows(AttributeBy::Database, 1), (vec![row("users", 105)], 1, 21));
    }

    #[test]
    fn designs_that_share_an_index_are_one_row() {
        let row = |designs: &[&str], mib| {
            ("users".to_owned(), designs.iter().map(|it| (*it).to_owned()).collect(), mib)
        };
        let all = rows(AttributeBy::Design, 9);
        let expected = vec![row(&["_design/z"], 60), row(&["_design/x", "_design/y"], 40)];
        assert_eq!(all, (expected, 0, 0));
    }

    #[test]
    fn files_of_unknown_size_are_counted() {
        let snapshot = cluster().draft.publish(NOW);
        let found = attribute(&snapshot, AttributeBy::Database, 9);
        assert_eq!(found.largest[0].bytes.unmeasured, 1);
        assert_eq!(found.largest[1].bytes.unmeasured, 0);
    }
}
