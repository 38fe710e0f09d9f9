//! The cluster of `recliner demo --faults`.
//!
//! Owns one description with every kind of target and state, and with numbers that change within a
//! minute. Sizes are only numbers: nothing is stored.

use super::config::{Config, Database, Deploy, Design, Interrupted, Node, Orphan, Search};
use couchdb_names::{Engine, Version};
use std::time::Duration;

/// The demo's nodes.
pub(super) const NAMES: [&str; 3] =
    ["couchdb@sim-1.local", "couchdb@sim-2.local", "couchdb@sim-3.local"];
/// The disks of three nodes of a medium-sized installation: so full that the largest compactions have to
/// wait until smaller ones have freed space.
const DISK: u64 = 1_400_000_000_000;
/// Faster than real disks, so that a user can watch a compaction of many gigabytes end.
const COMPACTION_RATE: u64 = 400_000_000;
/// Slow enough that deleted files stay visible for a while.
const DELETE_RATE: u64 = 2_000_000_000;
/// Rare enough that no node has three failed compactions within six hours.
const KILLED_EVERY: Duration = Duration::from_secs(75 * 60);

/// Three nodes with databases of every kind, from a few MiB to hundreds of GiB.
pub fn faulty_demo_config() -> Config {
    let node = |name: &&str| Node {
        disk: Some(DISK),
        smoosh: true,
        version: version(name),
        settings: settings(name),
        ..Node::new(name)
    };
    Config {
        nodes: NAMES.iter().map(node).collect(),
        databases: databases(),
        orphans: vec![Orphan {
            node: NAMES[2].to_owned(),
            file: "shards/00000000-ffffffff/campaign-2018.1521590400".to_owned(),
            bytes: 7_300_000_000,
        }],
        orphan_indexes: vec![Orphan {
            node: NAMES[0].to_owned(),
            file: "shards/00000000-ffffffff/campaign-2017.1489140600".to_owned(),
            bytes: 1_900_000_000,
        }],
        recoverable: vec![Orphan {
            node: NAMES[1].to_owned(),
            file: "shards/00000000-ffffffff/campaign-2016.1457517000".to_owned(),
            bytes: 2_600_000_000,
        }],
        deploys: vec![Deploy {
            db: "catalog/eu".to_owned(),
            design: half_price(),
            every: Duration::from_secs(240),
        }],
        killed_every: Some(KILLED_EVERY),
        delete_rate: Some(DELETE_RATE),
        compaction_rate: COMPACTION_RATE,
        index_rate: 40_000,
        // The demo never queries the log.
        records: 256,
        ..Config::new(&NAMES)
    }
}

/// The versions as after an upgrade that stopped before the second node.
fn version(node: &str) -> Version {
    if node == NAMES[1] { Version::new(3, 4, 2) } else { Version::new(3, 5, 0) }
}

/// A node's settings: a channel whose two sizes are swapped, one that earlier channels leave nothing for (stopped
/// on the first node), and on the last node a setting left over from a trial.
fn settings(node: &str) -> Vec<(String, String, String)> {
    let everywhere = [
        ("nouveau", "enable", "true"),
        ("smoosh", "db_channels", "big_dbs,weekend_dbs"),
        ("smoosh.big_dbs", "min_size", "107374182400"),
        ("smoosh.big_dbs", "max_size", "10737418240"),
        ("smoosh.weekend_dbs", "priority", "ratio"),
        ("smoosh.weekend_dbs", "min_priority", "3.0"),
    ];
    let tried = (node == NAMES[2]).then_some(("couchdb", "file_compression", "none"));
    let stopped = (node == NAMES[0]).then_some(("smoosh.weekend_dbs", "concurrency", "0"));
    let all = everywhere.into_iter().chain(tried).chain(stopped);
    all.map(|(section, key, value)| (section.into(), key.into(), value.into())).collect()
}

/// A design document that is changed repeatedly.
fn half_price() -> Design {
    Design {
        bytes_per_doc: 500,
        bloat: 5.0,
        views: vec!["half_price".to_owned()],
        ..Design::new("50% off/neu & alt")
    }
}

pub(super) fn views(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The largest database with views; two of its design documents share an index.
fn orders() -> Database {
    Database {
        q: 8,
        docs: 60_000_000,
        doc_bytes: 1_800,
        bloat: 1.6,
        compacted: 0.4,
        writes_per_second: 300.0,
        designs: vec![
            Design { views: views(&["by_day", "by_region"]), bloat: 2.6, ..Design::new("reports") },
            Design { views: views(&["by_customer"]), reduces: true, ..Design::new("customers") },
            // The same index under a second name.
            Design { views: views(&["by_customer"]), reduces: true, ..Design::new("clients") },
        ],
        ..Database::new("orders")
    }
}

/// Small documents with large attachments, and a search index.
fn invoices() -> Database {
    Database {
        q: 4,
        docs: 200_000,
        doc_bytes: 900,
        attachment_bytes: 400_000,
        bloat: 1.3,
        compacts_to: 0.97,
        writes_per_second: 2.0,
        designs: vec![Design {
            views: Vec::new(),
            // The same search index as in `logins`.
            searches: vec![Search { built: 0.7, ..Search::new(Engine::Nouveau, "by_text") }],
            ..Design::new("find")
        }],
        ..Database::new("invoices")
    }
}

/// Design documents of every language, one of them with an index that is not built.
fn profiles() -> Database {
    Database {
        docs: 2_000_000,
        doc_bytes: 2_400,
        bloat: 2.2,
        writes_per_second: 25.0,
        new_share: 0.1,
        delete_share: 0.02,
        designs: vec![
            Design {
                language: "query".to_owned(),
                views: views(&["by-email"]),
                ..Design::new("mango-email")
            },
            // As after a restart: nothing builds the index before the next write.
            Design { built: 0.6, views: views(&["by_login"]), ..Design::new("logins") },
            people(),
            Design { views: Vec::new(), ..Design::new("rules") },
        ],
        ..Database::new("profiles")
    }
}

/// A catch-all design document: it repeats the view of `logins` and emits whole documents.
fn people() -> Design {
    let fields =
        ["age", "city", "country", "email", "login", "name", "phone", "plan", "role", "team"];
    Design {
        bytes_per_doc: 3_600,
        views: fields.iter().map(|field| format!("by_{field}")).collect(),
        ..Design::new("people")
    }
}

/// A view that is changed repeatedly, and one that is built only by a query.
fn catalog() -> Database {
    Database {
        docs: 800_000,
        doc_bytes: 3_000,
        bloat: 1.4,
        writes_per_second: 10.0,
        stale_index_bytes: 900_000_000,
        designs: vec![
            // Out of date, and built only by a query.
            Design {
                autoupdate: false,
                built: 0.4,
                views: views(&["by_word"]),
                ..Design::new("search")
            },
            half_price(),
        ],
        ..Database::new("catalog/eu")
    }
}

/// A database on two of the nodes, with a missing copy, an index of two collator versions, and a compaction whose
/// files outgrow what it needs.
fn audit() -> Database {
    Database {
        q: 2,
        n: 2,
        docs: 5_000_000,
        doc_bytes: 500,
        bloat: 1.3,
        writes_per_second: 40.0,
        new_share: 1.0,
        delete_share: 0.0,
        placed_on: vec![NAMES[0].to_owned(), NAMES[1].to_owned()],
        missing: vec![(1, NAMES[1].to_owned())],
        // More bytes than the compaction needs, but too few for an alert.
        interrupted: vec![Interrupted {
            grown_to: Some(6_000_000_000),
            ..Interrupted::new(0, NAMES[0], 0.6)
        }],
        designs: vec![Design {
            collators: vec!["153.104".to_owned(), "153.120".to_owned()],
            views: views(&["by_actor"]),
            ..Design::new("audit")
        }],
        ..Database::new("audit")
    }
}

fn databases() -> Vec<Database> {
    let db = Database::new;
    let design = Design::new;
    vec![
        orders(),
        // Small, busy and mostly rewritten: back above any ratio within a minute of a compaction.
        Database {
            docs: 20_000,
            doc_bytes: 1_000,
            bloat: 1.7,
            writes_per_second: 400.0,
            new_share: 0.01,
            delete_share: 0.01,
            designs: vec![Design { views: views(&["expires"]), ..design("expiry") }],
            ..db("sessions")
        },
        // Its first range holds most of its data.
        Database {
            q: 4,
            docs: 10_000_000,
            first_range: 5.0,
            doc_bytes: 600,
            bloat: 1.25,
            compacted: 0.7,
            writes_per_second: 2_000.0,
            new_share: 0.98,
            delete_share: 0.0,
            designs: vec![Design { bytes_per_doc: 60, ..design("per-minute") }],
            ..db("app/events+clicks")
        },
        // Bloated and idle: a compactor that follows writes never considers it.
        Database {
            docs: 40_000_000,
            doc_bytes: 1_200,
            bloat: 6.5,
            interrupted: vec![Interrupted::new(0, NAMES[0], 0.05)],
            ..db("archive-2019")
        },
        invoices(),
        profiles(),
        Database {
            q: 8,
            docs: 120_000_000,
            doc_bytes: 2_200,
            bloat: 1.9,
            compacted: 0.2,
            compacts_to: 1.06,
            writes_per_second: 150.0,
            designs: vec![Design { bytes_per_doc: 45, bloat: 3.2, ..design("daily") }],
            ..db("telemetry")
        },
        catalog(),
        // Queues of short-lived documents leave tombstones.
        Database {
            docs: 50_000,
            deleted_docs: 30_000_000,
            doc_bytes: 700,
            bloat: 2.4,
            compacts_to: 0.85,
            writes_per_second: 120.0,
            new_share: 0.45,
            delete_share: 0.45,
            interrupted: vec![Interrupted::new(1, NAMES[1], 0.35)],
            ..db("carts")
        },
        audit(),
        // While it is being split, its interrupted compaction must not be resumed.
        Database {
            q: 1,
            docs: 3_000_000,
            bloat: 1.5,
            splitting: true,
            interrupted: vec![Interrupted::new(0, NAMES[2], 0.4)],
            ..db("tickets")
        },
        Database { docs: 12_000, doc_bytes: 600, writes_per_second: 0.5, ..db("_users") },
        Database { docs: 14, ..db("_replicator") },
        // More ranges than the database needs.
        Database { q: 8, docs: 120, ..db("flags") },
    ]
}
