//! The largest users of the disks, by database or design document.

use super::{
    databases::{Sums, sums_by_name},
    vocabulary::{self, Word},
};
use crate::{model::target::TargetKind, table::Snapshot, text::Label};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// What bytes are listed by.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeBy {
    /// Each database, with its indexes.
    Database,
    /// Each design document, or all that share an index, without the bytes of the database itself.
    Design,
}

/// Bytes by database or by design document, the largest first, with all copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Whether bytes are listed by database or by design document.
    #[schemars(with = "vocabulary::AttributeBy")]
    pub by: Word,
    /// The largest databases or design documents.
    pub largest: Vec<UsageLine>,
    /// Number of all others.
    pub others: u64,
    /// The bytes of all others.
    pub other_bytes: UsageBytes,
}

/// A database, or the design documents that share an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageLine {
    /// The database.
    pub db: String,
    /// The ids of the design documents that share the index; empty for a database.
    pub designs: Vec<String>,
    /// The bytes of the database or index.
    #[serde(flatten)]
    pub bytes: UsageBytes,
}

/// Bytes on disk; files of unknown size add none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageBytes {
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Bytes of view indexes among them.
    pub view_bytes: u64,
    /// Bytes that compactions would free.
    pub reclaimable_bytes: u64,
    /// Number of shards and indexes of unknown size.
    pub unmeasured: u64,
    /// Number of views of which some copies were not measured; they count as large as the measured one.
    #[serde(default)]
    pub estimated: u64,
}

impl From<&Sums> for UsageBytes {
    fn from(sums: &Sums) -> Self {
        Self {
            file_bytes: sums.file_bytes(),
            view_bytes: sums.index_bytes.saturating_add(sums.index_waste_bytes),
            reclaimable_bytes: sums.reclaimable_bytes,
            unmeasured: sums.unmeasured,
            estimated: sums.estimated,
        }
    }
}

impl Usage {
    /// Number of lines, unless another was asked for.
    pub(crate) const DEFAULT_LIMIT: usize = 20;

    /// The disk usage of a snapshot, with at most `limit` lines.
    pub fn of(snapshot: &Snapshot, by: AttributeBy, limit: usize) -> Self {
        let sums: HashMap<(&str, Vec<&str>), Sums> = match by {
            AttributeBy::Database => {
                let databases = sums_by_name(snapshot, None).into_iter();
                databases.map(|(db, sums)| ((db, Vec::new()), sums)).collect()
            }
            AttributeBy::Design => by_design(snapshot),
        };
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_by(|(one, sums), (other, more)| {
            more.file_bytes().cmp(&sums.file_bytes()).then_with(|| one.cmp(other))
        });
        let rest = all.split_off(limit.min(all.len()));
        let mut other_bytes = Sums::default();
        rest.iter().for_each(|(_, sums)| other_bytes.merge(sums));
        let line = |((db, designs), sums): ((&str, Vec<&str>), Sums)| UsageLine {
            db: db.to_owned(),
            designs: designs.into_iter().map(ToOwned::to_owned).collect(),
            bytes: (&sums).into(),
        };
        Self {
            by: by.label().into(),
            largest: all.into_iter().map(line).collect(),
            others: rest.len() as u64,
            other_bytes: (&other_bytes).into(),
        }
    }
}

/// The sums of all indexes of the same design documents.
fn by_design(snapshot: &Snapshot) -> HashMap<(&str, Vec<&str>), Sums> {
    let mut sums: HashMap<(&str, Vec<&str>), Sums> = HashMap::new();
    for target in snapshot.files_once().filter(|target| target.kind() == TargetKind::View) {
        let designs = target.view().map_or(&[][..], |view| &view.designs);
        let designs = designs.iter().map(AsRef::as_ref).collect();
        sums.entry((target.db_name().db, designs)).or_default().add(target, None);
    }
    sums
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
        let found = Usage::of(&snapshot, by, limit);
        let row = |it: UsageLine| (it.db, it.designs, it.bytes.file_bytes / MIB);
        let rows = found.largest.into_iter().map(row).collect();
        (rows, found.others, found.other_bytes.file_bytes / MIB)
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
        let found = Usage::of(&snapshot, AttributeBy::Database, 9);
        assert_eq!(found.largest[0].bytes.unmeasured, 1);
        assert_eq!(found.largest[1].bytes.unmeasured, 0);
    }
}
