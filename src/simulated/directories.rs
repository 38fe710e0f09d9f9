//! The simulated nodes' directories, read like a real node's.
//!
//! Owns no content: the files are the simulated cluster's. Never decides what is unused. Used
//! where a service reads directories, in `recliner demo` and in tests.

use crate::{
    datadir::{HeaderValues, OtherFileSums, WalkItem},
    model::facts::{OptionalU64, file_id},
    sources::inventory::{self, DiskWalk, FoundFile, Observation},
};
use couchdb_files::ReportMatch;
use couchdb_sim::{Cluster, DiskFile, ShardInfo, ViewFile};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use std::sync::Arc;

/// Reads the directories of every node of a simulated cluster.
#[derive(Clone, Debug)]
pub struct SimulatedDirectories(pub Cluster);

impl inventory::Directories for SimulatedDirectories {
    fn read(&self) -> BoxStream<'static, Observation> {
        let nodes = self.0.world(|world| world.nodes());
        let this = self.clone();
        stream::iter(nodes).flat_map(move |node| stream::iter(this.walk(&node))).boxed()
    }
}

impl SimulatedDirectories {
    fn walk(&self, node: &str) -> Vec<Observation> {
        let began = self.0.elapsed();
        let at = self.0.wall();
        let Some(walk) = self.0.walk(node) else { return Vec::new() };
        let node: Arc<str> = node.into();
        let sums = OtherFileSums {
            files: walk.files.len() as u64,
            trash: walk.trash.saturating_add(walk.recoverable),
            // The simulated disk frees deleted files within a minute.
            recent_trash: walk.trash,
            recoverable: walk.recoverable,
            ..OtherFileSums::default()
        };
        let files =
            walk.files.into_iter().map(|file| FoundFile::of(to_walk_item(file), at)).collect();
        let took = self.0.elapsed().saturating_sub(began);
        vec![
            Observation::Disk { node: Arc::clone(&node), files },
            Observation::DiskEnd {
                node,
                disk: Ok(DiskWalk { sums, whole: true, took, volumes: Vec::new() }),
            },
        ]
    }
}

/// Converts a simulated file into a finding of the walk.
fn to_walk_item(file: DiskFile) -> WalkItem {
    match file {
        DiskFile::Shard(info) => WalkItem::Db {
            values: shard_numbers(&info),
            shard: info.name.into(),
            reported: ReportMatch::Identical,
            is_same_file: true,
            problem: None,
        },
        DiskFile::View(view) => WalkItem::View {
            values: view_numbers(&view),
            shard: view.shard.into(),
            signature: view.signature,
            collators: view.collators.iter().map(|version| Arc::from(&**version)).collect(),
            problem: None,
        },
        DiskFile::Compaction { shard, bytes, changed } => WalkItem::Compaction {
            shard: shard.into(),
            signature: None,
            bytes,
            modified_at: changed,
        },
    }
}

fn shard_numbers(info: &ShardInfo) -> HeaderValues {
    HeaderValues {
        file_bytes: info.sizes.file,
        active_bytes: OptionalU64::new(info.sizes.active),
        external_bytes: OptionalU64::new(info.sizes.external),
        update_seq: OptionalU64::new(info.update_seq),
        compacted_seq: OptionalU64::new(info.compacted_seq),
        docs: OptionalU64::new(info.doc_count),
        deleted_docs: OptionalU64::new(info.doc_del_count),
        file_id: file_id(&info.uuid),
        ..HeaderValues::default()
    }
}

fn view_numbers(view: &ViewFile) -> HeaderValues {
    HeaderValues {
        file_bytes: view.sizes.file,
        active_bytes: OptionalU64::new(view.sizes.active),
        external_bytes: OptionalU64::new(view.sizes.external),
        update_seq: OptionalU64::new(view.update_seq),
        needs_upgrade: view.collators.len() >= 2,
        ..HeaderValues::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::inventory::Directories as _;
    use couchdb_names::Signature;
    use couchdb_sim::{Config, Database, Deploy, Design, Interrupted, Orphan};
    use std::{collections::BTreeMap, time::Duration};
    use wall_clock::{Clock, Moment};

    const NODE: &str = "couchdb@sim";
    const START: u64 = 1_795_300_000;

    fn config() -> Config {
        let design = Design::new("by_day");
        let database = Database {
            q: 1,
            n: 1,
            docs: 100_000,
            bloat: 3.0,
            designs: vec![design.clone()],
            stale_index_bytes: 700,
            interrupted: vec![Interrupted::new(0, NODE, 0.3)],
            ..Database::new("orders")
        };
        Config {
            orphan_indexes: vec![Orphan {
                node: NODE.to_owned(),
                file: "shards/00000000-ffffffff/gone.1".to_owned(),
                bytes: 90,
            }],
            deploys: vec![Deploy {
                db: "orders".to_owned(),
                design,
                every: Duration::from_secs(1_000),
            }],
            killed_every: Some(Duration::from_secs(1_000)),
            delete_rate: Some(10_000_000),
            ..Config::new(&[NODE]).with(database)
        }
    }

    /// The results of a walk: index files by signature, size and age of compaction files, and the
    /// sums.
    #[derive(Debug, Default)]
    struct Walked {
        views: BTreeMap<Signature, u64>,
        compactions: Vec<(u64, u64)>,
        dbs: usize,
        sums: OtherFileSums,
    }

    async fn walked(cluster: &Cluster) -> Walked {
        let now = cluster.wall();
        let observations: Vec<Observation> =
            SimulatedDirectories(cluster.clone()).read().collect().await;
        let [Observation::Disk { files, .. }, Observation::DiskEnd { disk: Ok(end), .. }] =
            &*observations
        else {
            panic!("{observations:?}")
        };
        assert!(end.whole);
        let mut walked = Walked { sums: end.sums, ..Walked::default() };
        for file in files {
            match file {
                FoundFile::Db(_) => walked.dbs += 1,
                FoundFile::View(part) => {
                    walked.views.insert(part.signature, part.facts.file_bytes.get().unwrap());
                }
                FoundFile::Compaction(file) => {
                    walked.compactions.push((file.bytes, file.changed.age(now).as_secs()));
                }
                FoundFile::Unread(unread) => panic!("{unread:?}"),
            }
        }
        walked
    }

    fn signature(cluster: &Cluster) -> Signature {
        let shard = cluster.world(|world| world.files(NODE).unwrap().pop().unwrap());
        cluster.world(|world| world.view(NODE, &shard, "by_day").unwrap().signature)
    }

    #[tokio::test(start_paused = true)]
    async fn unused_files_appear_and_disappear() {
        let clock = Clock::anchored(Moment::from_unix(START));
        let cluster = Cluster::new(config(), 1, clock).unwrap();
        let old = signature(&cluster);
        let walk = walked(&cluster).await;
        // Three node-local databases, and the shard.
        assert_eq!((walk.dbs, walk.views.len(), walk.sums.trash), (4, 3, 0));
        assert!(walk.views.contains_key(&old));
        assert!(walk.views.values().any(|bytes| *bytes == 700), "{walk:?}");
        assert!(walk.views.values().any(|bytes| *bytes == 90), "{walk:?}");
        let [(left, age)] = walk.compactions[..] else { panic!("{walk:?}") };
        assert!(left > 0 && age == 2 * 86_400, "{walk:?}");

        // Another client resumes the compaction; at its end the old file is deleted.
        let shard = cluster.world(|world| world.files(NODE).unwrap().pop().unwrap());
        cluster.world(|world| world.compact(NODE, &shard)).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        let [(more, 0)] = walked(&cluster).await.compactions[..] else {
            panic!("expected one compaction file that grows")
        };
        assert!(more > left, "{more} is not more than {left}");
        tokio::time::advance(Duration::from_secs(10)).await;
        let walk = walked(&cluster).await;
        assert_eq!(walk.compactions, []);
        assert!(walk.sums.trash > 100_000_000, "{walk:?}");
        let free = cluster.world(|world| world.disk(NODE).unwrap());
        assert_eq!(free.trash, walk.sums.trash);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(walked(&cluster).await.sums.trash, 0);

        // The design document changes: the previous index is unused until a cleanup.
        tokio::time::advance(Duration::from_secs(40)).await;
        let new = signature(&cluster);
        assert_ne!(old, new);
        let walk = walked(&cluster).await;
        assert!(walk.views.contains_key(&new) && !walk.views.contains_key(&old), "{walk:?}");
        assert!(walk.views.values().max().unwrap() > &10_000_000, "{walk:?}");
        cluster.world(|world| world.clean_up("orders"));
        let walk = walked(&cluster).await;
        assert!(walk.views.values().max().unwrap() < &100, "{walk:?}");
        assert!(walk.sums.trash > 10_000_000, "{walk:?}");

        // A compaction is killed and leaves its files.
        tokio::time::advance(Duration::from_millis(38_500)).await;
        cluster.world(|world| world.compact(NODE, &shard)).unwrap();
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(cluster.world(|world| world.tasks()), []);
        let [(left, age)] = walked(&cluster).await.compactions[..] else {
            panic!("expected one leftover file")
        };
        assert!(left > 0 && age >= 60, "{left} bytes, {age} s old");
    }

    #[tokio::test(start_paused = true)]
    async fn index_signature_is_computed_from_design_document() {
        let clock = Clock::anchored(Moment::from_unix(START));
        let cluster = Cluster::new(config(), 1, clock).unwrap();
        let text =
            r#"{"_id":"x","views":{"all":{"map":"function(doc){emit(doc[\"all\"],null)}"}}}"#;
        let computed = couchdb_files::Design::parse(text).unwrap().signature;
        assert_eq!(signature(&cluster), computed);
    }
}
