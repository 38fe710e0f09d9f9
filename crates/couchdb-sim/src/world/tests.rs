use super::{smoosh::Channel, *};
use crate::{
    config::{Batch, Design, Fleet, Node, Orphan},
    faulty_demo_config,
};

use strum::VariantArray as _;

const A: &str = "couchdb@a";
const GIB: u64 = 1 << 30;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn world(database: Database) -> World {
    let config = Config::new(&[A, "couchdb@b", "couchdb@c"]).with(database);
    World::new(config, 7).unwrap()
}

fn first_file(world: &World) -> String {
    first_file_of(world, A)
}

fn first_file_of(world: &World, node: &str) -> String {
    world.files(node).unwrap().into_iter().find(|file| file.starts_with("shards/")).unwrap()
}

/// Bytes of stale index files of a database, on all nodes.
fn stale_bytes(world: &World, db: &str) -> u64 {
    let copies = world.copies_of(world.catalog.find(db).unwrap());
    copies.into_iter().map(|file| world.stale_of(file)).sum()
}

/// The whole observable state as text.
fn render(world: &World) -> String {
    let mut rendered = format!("{:?}\n{:?}\n", world.tasks(), world.updates(0));
    for node in world.nodes() {
        rendered += &format!("{:?} {:?}\n", world.disk(&node), world.smoosh_status(&node));
        for file in world.files(&node).unwrap() {
            rendered += &format!("{:?}\n", world.shard(&node, &file));
        }
    }
    for (db, _) in world.catalog.from("") {
        let name = world.catalog.name(db);
        rendered += &format!("{name} {:?}\n", world.database_info(&name));
        for design in &world.description(&name).unwrap().designs {
            rendered += &format!("{:?}\n", world.cluster_view(&name, &design.name));
        }
    }
    rendered
}

#[test]
fn state_depends_on_seed_and_time_not_on_reads() {
    let run = |step: u64| {
        let mut world = World::new(faulty_demo_config(), 3).unwrap();
        let node = "couchdb@sim-1.local";
        let file = first_file_of(&world, node);
        for at in (0..=120_000).step_by(usize::try_from(step).unwrap()) {
            world.advance(Duration::from_millis(at));
            if step < 10_000 {
                let _asked = (world.tasks(), world.updates(0), world.database_info("sessions"));
            }
            if at == 30_000 {
                world.compact(node, &file).unwrap();
                world.write("archive-2019", 10);
                world.build("catalog/eu", "search");
            }
        }
        render(&world)
    };
    let seldom = run(30_000);
    assert_eq!(seldom, run(500));
    assert_eq!(seldom, run(30_000));
    assert!(seldom.contains("compact_running: true"), "the built-in compactor is running");
}

#[test]
fn only_compaction_shrinks_files_and_never_below_active() {
    let mut world = World::new(faulty_demo_config(), 11).unwrap();
    let mut before = BTreeMap::new();
    let mut shrunk = 0;
    for minute in 0..15 {
        world.advance(secs(minute * 60));
        for node in world.nodes() {
            for file in world.files(&node).unwrap() {
                let info = world.shard(&node, &file).unwrap();
                assert!(info.sizes.file >= info.sizes.active, "{info:?}");
                assert!(info.compacted_seq <= info.update_seq, "{info:?}");
                if let Some(last) = before.insert((node.clone(), file), info.clone()) {
                    let last: ShardInfo = last;
                    assert!(info.update_seq >= last.update_seq);
                    if info.sizes.file < last.sizes.file {
                        assert!(info.compacted_seq > last.compacted_seq, "{last:?} {info:?}");
                        shrunk += 1;
                    }
                }
            }
        }
    }
    assert!(shrunk > 10, "{shrunk}");
}

#[test]
fn compaction_runs_its_phases_and_frees_bytes() {
    let database =
        Database { docs: 2_000_000, doc_bytes: 500, bloat: 4.0, q: 1, ..Database::new("a") };
    let mut world = world(database);
    let file = first_file(&world);
    let before = world.shard(A, &file).unwrap();
    assert_eq!(world.compact(A, &file), Some(true));
    assert_eq!(world.compact(A, &file), Some(false), "a compaction is already running");
    let (mut phases, mut peak) = (Vec::new(), 0);
    // 1 GB at 50 MB a second.
    for at in 0..=20 {
        world.advance(secs(at));
        peak = peak.max(world.disk(A).unwrap().temporary);
        for task in world.tasks() {
            assert!(task.changes_done <= task.total_changes);
            let TaskKind::Database { phase } = task.kind else { panic!("{task:?}") };
            phases.push(phase);
        }
    }
    phases.dedup();
    assert_eq!(phases, ["document_copy", "docid_sort", "docid_copy"]);
    let after = world.shard(A, &file).unwrap();
    assert_eq!(after.compacted_seq, before.update_seq);
    assert!(after.sizes.file < before.sizes.file / 3);
    assert!(!after.compact_running);
    assert!(peak > before.sizes.active, "small documents need a large sort: {peak}");
    assert_eq!(world.disk(A).unwrap().temporary, 0);
}

#[test]
fn second_process_copies_writes_made_during_a_compaction() {
    let busy = Database {
        docs: 2_000_000,
        doc_bytes: 500,
        q: 1,
        writes_per_second: 3_000.0,
        new_share: 0.0,
        delete_share: 0.0,
        ..Database::new("a")
    };
    let mut world = world(busy);
    let file = first_file(&world);
    world.compact(A, &file).unwrap();
    let first = world.tasks().remove(0);
    world.advance(Duration::from_millis(20_010));
    let second = world.tasks().remove(0);
    assert!(second.process > first.process && second.started > first.started);
    assert!(second.total_changes < first.total_changes);
    world.advance(secs(60));
    let after = world.shard(A, &file).unwrap();
    assert!(!after.compact_running && after.compacted_seq > 0);
    assert!(after.sizes.file > after.sizes.active, "writes that arrived meanwhile were appended");
}

#[test]
fn design_document_is_shown_on_exactly_one_range() {
    let odd = ["v", "50% off/ü", "..", "a\"b\nc"].map(Design::new);
    let database = Database { q: 8, designs: odd.to_vec(), ..Database::new("app/_design/x") };
    let world = world(database);
    for design in odd {
        let files = world.files(A).unwrap();
        let shown: Vec<_> =
            files.iter().filter(|file| world.node_view(A, file, &design.name).is_some()).collect();
        assert_eq!(shown.len(), 1, "{design:?}");
        let range = world.range_of("app/_design/x", &format!("_design/{}", design.name)).unwrap();
        assert!(shown[0].contains(&range.to_string()));
    }
}

#[test]
fn compaction_resumes_after_a_full_disk() {
    let database = Database { docs: 1_000_000, bloat: 2.0, q: 1, n: 1, ..Database::new("a") };
    let node = Node { disk: Some(3 * GIB / 2 + GIB), ..Node::new(A) };
    let config = Config { nodes: vec![node], ..Config::new(&[A]) }.with(database);
    let mut world = World::new(config, 1).unwrap();
    let file = first_file(&world);
    assert!(world.disk(A).unwrap().available().unwrap() < 2 * GIB / 3);
    world.compact(A, &file).unwrap();
    world.advance(secs(60));
    let failed = world.shard(A, &file).unwrap();
    assert_eq!((failed.compact_running, failed.compacted_seq), (false, 0));
    let left = world.disk(A).unwrap().temporary;
    assert!(left > 0, "its temporary files stay");

    world.set_disk_full(A, true);
    assert_eq!(world.disk(A).unwrap().available(), Some(0));
    world.set_disk_full(A, false);
    world.nodes[0].node.disk = None;
    world.compact(A, &file).unwrap();
    let resumed = world.tasks().remove(0);
    assert!(
        resumed.changes_done > 0 || resumed.kind != TaskKind::Database { phase: "document_copy" }
    );
    world.advance(secs(120));
    assert_eq!(world.disk(A).unwrap().temporary, 0);
    assert!(world.shard(A, &file).unwrap().compacted_seq > 0);
}

#[test]
fn log_records_circumstances_and_end_of_each_compaction() {
    let mut world =
        world(Database { q: 1, docs: 1_000_000, bloat: 4.0, ..Database::new("orders") });
    let file = first_file(&world);
    for (at, node) in [(1, A), (2, "couchdb@b")] {
        world.advance(secs(at));
        assert_eq!(world.compact(node, &file), Some(true));
        assert_eq!(world.compact(node, &file), Some(false), "a second start has no effect");
    }
    let rendered = |world: &World| -> Vec<(String, usize, usize, bool, Option<bool>)> {
        let all = world.compactions().into_iter();
        all.map(|it| {
            let swapped = it.end.map(|end| end.swapped);
            (it.node, it.running_on_node, it.running_in_cluster, it.other_copy, swapped)
        })
        .collect()
    };
    let line = |node: &str, others, swapped| (node.to_owned(), 0, others, others > 0, swapped);
    assert_eq!(rendered(&world), [line(A, 0, None), line("couchdb@b", 1, None)]);
    world.stop_node("couchdb@b");
    world.advance(secs(3_600));
    assert_eq!(rendered(&world), [line(A, 0, Some(true)), line("couchdb@b", 1, Some(false))]);
    let first = world.compactions().swap_remove(0);
    let after = first.end.map_or(0, |end| end.after);
    assert!(
        after < first.before && first.needed > 0 && first.by == StartedBy::Request,
        "{first:?}"
    );
}

#[test]
fn smoosh_shows_only_its_own_jobs_as_active() {
    let config = Config {
        nodes: vec![Node { smoosh: true, ..Node::new(A) }],
        ..Config::new(&[A]).with(Database {
            q: 2,
            n: 1,
            docs: 10_000_000,
            bloat: 4.0,
            ..Database::new("orders")
        })
    };
    let mut world = World::new(config, 7).unwrap();
    world.advance(secs(60));
    assert!(world.compactions().is_empty(), "smoosh ignores databases without writes");
    world.write("orders", 100);
    let channel = |world: &World| {
        let all = world.smoosh_status(A);
        let ratio = all.into_iter().find(|(channel, _)| *channel == Channel::RatioDbs).unwrap();
        (ratio.1.size, ratio.1.active)
    };
    let file = first_file(&world);
    assert_eq!(world.compact(A, &file), Some(true));
    assert_eq!(channel(&world), (2, 0), "an operator's compaction is not one of smoosh's");
    // smoosh waits until the only slot of its channel is free.
    let runs = |world: &World| world.compactions().into_iter().find(|it| it.end.is_none());
    let its_turn = (61..3_600).find(|at| {
        world.advance(secs(*at));
        runs(&world).is_some_and(|it| it.by == StartedBy::Smoosh)
    });
    assert!(its_turn.is_some());
    assert_eq!(channel(&world), (0, 1));
}

#[test]
fn each_channel_of_smoosh_runs_one_compaction_of_its_own() {
    let designs = vec![Design { bloat: 4.0, ..Design::new("v") }];
    let bloated = |name| Database {
        q: 2,
        n: 1,
        docs: 10_000_000,
        bloat: 4.0,
        designs: designs.clone(),
        ..Database::new(name)
    };
    let nodes = vec![Node { smoosh: true, ..Node::new(A) }];
    let config = Config { nodes, ..Config::new(&[A]).with(bloated("a")).with(bloated("b")) };
    let mut world = World::new(config, 7).unwrap();
    world.write("a", 100);
    world.write("b", 100);
    world.advance(secs(6));
    let views: Vec<bool> = world.compactions().iter().map(|it| it.ddoc.is_some()).collect();
    assert_eq!(views, [false, true], "one of ratio_dbs, one of ratio_views");
}

#[test]
fn writes_are_the_same_with_and_without_smoosh() {
    let world = || World::new(crate::demo_config(), 7).unwrap();
    let (mut by_smoosh, mut by_nobody) = (world(), world());
    for node in by_nobody.nodes() {
        for channel in Channel::VARIANTS {
            let section = format!("smoosh.{}", <&str>::from(channel));
            by_nobody.set(&node, &section, "concurrency", "0");
        }
    }
    let day = secs(86_400);
    by_smoosh.advance(day);
    by_nobody.advance(day);
    assert!(by_smoosh.tally().compactions > 0 && by_nobody.tally().compactions == 0);
    for db in by_smoosh.databases().collect::<Vec<_>>() {
        let written = |world: &World| {
            let info = world.database_info(&db).unwrap();
            (info.seq, info.docs, info.deleted)
        };
        assert_eq!(written(&by_smoosh), written(&by_nobody), "{db}");
    }
}

#[test]
fn stopped_node_loses_jobs_while_cluster_continues() {
    let database = Database { docs: 10_000_000, q: 1, ..Database::new("a") };
    let mut world = world(database);
    let file = first_file(&world);
    world.compact(A, &file).unwrap();
    world.advance(secs(5));
    world.stop_node(A);
    assert_eq!(world.tasks(), []);
    assert_eq!(world.compact(A, &file), None);
    assert!(world.database_info("a").is_ok());
    for node in ["couchdb@b", "couchdb@c"] {
        world.stop_node(node);
    }
    assert_eq!(world.database_info("a"), Err(LookupError::Range));
    world.start_node(A);
    assert!(!world.shard(A, &file).unwrap().compact_running);
    assert!(world.disk(A).unwrap().temporary > 0, "interrupted files stay");
}

#[test]
fn index_is_built_on_request_and_can_be_compacted() {
    let design = Design { autoupdate: false, built: 0.0, ..Design::new("v") };
    let database = Database { docs: 100_000, q: 1, designs: vec![design], ..Database::new("a") };
    let mut world = world(database);
    let file = first_file(&world);
    let never = world.view(A, &file, "v").unwrap();
    assert_eq!((never.update_seq, never.sizes.active, never.sizes.file), (0, 0, 51));
    world.build("a", "v");
    world.advance(secs(5));
    assert!(world.view(A, &file, "v").unwrap().updater_running);
    world.advance(secs(60));
    let built = world.view(A, &file, "v").unwrap();
    assert_eq!((built.pending, built.updater_running), (0, false));
    assert!(built.sizes.file > built.sizes.active * 4, "{built:?}");
    world.compact_view(A, &file, "v").unwrap();
    world.advance(secs(61));
    let after = world.view(A, &file, "v").unwrap();
    assert!(after.sizes.file < built.sizes.file / 3);
    world.write("a", 50);
    assert_eq!(world.view(A, &file, "v").unwrap().pending, 50, "nothing keeps it built");
}

#[test]
fn equal_views_share_an_index_and_changes_leave_stale_files() {
    let designs = vec![Design::new("x"), Design::new("y")];
    let database = Database { docs: 100_000, q: 1, n: 1, designs, ..Database::new("a") };
    let mut world = world(database);
    let (node, file) = world
        .nodes()
        .into_iter()
        .find_map(|node| {
            let files = world.files(&node)?;
            Some((node, files.into_iter().find(|file| file.starts_with("shards/"))?))
        })
        .unwrap();
    let info = |world: &World, ddoc| world.view(&node, &file, ddoc).unwrap();
    assert_eq!(info(&world, "x").signature, info(&world, "y").signature);
    let old = info(&world, "x").sizes.file;
    let changed = Design { views: vec!["other".to_owned()], ..Design::new("x") };
    world.put_design("a", changed.clone());
    assert_eq!(stale_bytes(&world, "a"), 0, "the other design document still uses it");
    let old = info(&world, "y").sizes.file.max(old);
    assert_eq!(info(&world, "x").update_seq, 0);
    world.put_design("a", Design { name: "y".to_owned(), ..changed });
    assert_eq!(stale_bytes(&world, "a"), old);
    world.clean_up("a");
    assert_eq!(stale_bytes(&world, "a"), 0);
}

#[test]
fn databases_are_created_and_deleted_and_may_leave_orphans() {
    let mut world = world(Database::new("a"));
    let files = world.files(A).unwrap().len();
    world.advance(secs(10));
    world.create(Database { q: 1, ..Database::new("b") }).unwrap();
    assert!(world.create(Database::new("b")).is_err());
    assert_eq!(world.files(A).unwrap().len(), files + 1);
    world.advance(secs(20));
    world.delete("b", true);
    assert_eq!(
        world.files(A).unwrap().len(),
        files + 1,
        "the deleted database's file is left behind"
    );
    assert!(world.files(A).unwrap().is_sorted());
    world.delete("a", false);
    assert_eq!(world.files(A).unwrap().len(), 3 + 1);
    world.advance(secs(30));
    let kinds: Vec<_> =
        world.updates(0).into_iter().map(|update| (update.db, update.kind)).collect();
    let (a, b) = ("a".to_owned(), "b".to_owned());
    let mut deleted = [(b.clone(), EventKind::Deleted), (a, EventKind::Deleted)];
    deleted.sort();
    assert_eq!(kinds[0], (b, EventKind::Created));
    let mut rest = kinds[1..].to_vec();
    rest.sort();
    assert_eq!(rest, deleted);
}

#[test]
fn feed_reports_every_write_to_followers() {
    let database = |name, rate| Database { writes_per_second: rate, ..Database::new(name) };
    let config = Config::new(&[A])
        .with(database("slow", 0.2))
        .with(database("fast", 30.0))
        .with_fleet(Fleet::named(Database { q: 1, ..database("m", 0.05) }, 20, 4));
    let mut world = World::new(config, 5).unwrap();
    let mut since = world.updates_seq();
    let mut seqs: BTreeMap<String, u64> = BTreeMap::new();
    let total = |world: &World, name: &str| world.database_info(name).unwrap().seq;
    for name in world.databases().collect::<Vec<_>>() {
        seqs.insert(name.clone(), total(&world, &name));
    }
    for at in (0..300_000).step_by(777) {
        world.advance(Duration::from_millis(at));
        let named: BTreeSet<String> =
            world.updates(since).into_iter().map(|update| update.db).collect();
        since = world.updates_seq();
        // Events of all writes before the end of the last write delay have been sent.
        let sent = Duration::from_millis(at / 500 * 500);
        for (name, seq) in &mut seqs {
            let db = world.catalog.find(name).unwrap();
            let now: u64 =
                world.copies_of(db).into_iter().map(|file| world.held_at(file, sent).seq).sum();
            assert_eq!(now > *seq, named.contains(name), "{name} at {at}");
            *seq = now;
        }
    }
}

#[test]
fn disks_have_the_configured_orphans_missing_copies_and_splits() {
    let orphan =
        Orphan { node: A.into(), file: "shards/00000000-ffffffff/gone.1".into(), bytes: 99 };
    let database = Database {
        q: 1,
        n: 1,
        missing: vec![(0, A.to_owned())],
        placed_on: vec![A.to_owned()],
        ..Database::new("lost")
    };
    let splitting = Database { q: 1, n: 1, splitting: true, ..Database::new("split") };
    let config =
        Config { orphans: vec![orphan], ..Config::new(&[A]) }.with(database).with(splitting);
    let world = World::new(config, 1).unwrap();
    let files = world.files(A).unwrap();
    let ranges: Vec<_> = files.iter().map(|file| file.split('.').next().unwrap()).collect();
    assert_eq!(
        ranges,
        [
            "_dbs",
            "_nodes",
            "_users",
            "shards/00000000-7fffffff/split",
            "shards/00000000-ffffffff/gone",
            "shards/00000000-ffffffff/split",
            "shards/80000000-ffffffff/split",
        ]
    );
    for file in files {
        assert!(world.shard(A, &file).is_some(), "{file}");
    }
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

#[test]
#[ignore = "reads /proc and shows numbers: cargo test --release -- --ignored --nocapture million"]
fn million_shards_cost_little_memory_and_time() {
    let before = resident();
    let description =
        Database { q: 1, n: 1, writes_per_second: 0.01, ..Database::new("customer-data-") };
    let config = Config::new(&[A]).with_fleet(Fleet::named(description, 1_000_000, 40));
    let mut world = World::new(config, 1).unwrap();
    world.advance(secs(1_000));
    let files = world.files(A).unwrap();
    assert_eq!(files.len(), 1_000_003);
    let names: u64 = files.iter().map(|file| file.len() as u64).sum();
    assert_eq!(files[3].len(), "shards/00000000-ffffffff/".len() + 40 + 11);
    let began = tokio::time::Instant::now();
    let asked = files.iter().filter(|file| world.shard(A, file).is_some()).count();
    let each = began.elapsed() / u32::try_from(asked).unwrap();
    drop(files);
    let took = began.elapsed();
    let held = resident().saturating_sub(before);
    println!("{asked} shards in {took:?}, {each:?} each; {held} B held after {names} B of names");
    assert_eq!(world.changed.len(), 0, "reading changes nothing");
}

#[test]
fn batches_repeat_and_the_tally_counts_compaction_results() {
    let batch = Batch { db: "a".to_owned(), documents: 500, first: secs(10), every: secs(100) };
    let database =
        Database { docs: 1_000_000, bloat: 3.0, q: 1, n: 1, even: true, ..Database::new("a") };
    let config = Config { batches: vec![batch], ..Config::new(&[A]).with(database) };
    let mut world = World::new(config, 7).unwrap();
    let file = first_file(&world);
    let seq = |world: &World| world.shard(A, &file).unwrap().update_seq;
    let before = seq(&world);
    world.advance(secs(111));
    assert_eq!(seq(&world), before + 1_000);
    let waste = world.tally().waste_bytes;
    world.compact(A, &file);
    world.advance(secs(190));
    let tally = world.tally();
    assert_eq!((tally.compactions, tally.futile), (1, 0));
    assert!(tally.freed_bytes > 0 && tally.waste_bytes < waste / 10, "{waste} {tally:?}");
    world.compact(A, &file);
    world.advance(secs(270));
    assert_eq!(world.tally().futile, 1, "nothing was left to free");
}
