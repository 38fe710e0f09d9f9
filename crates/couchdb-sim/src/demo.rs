//! The cluster of `recliner demo`: a plausible one, without faults.
//!
//! Owns one description whose live bytes grow by a few per cent a week, and whose waste has the usual causes: documents
//! that are changed all the time, a job that rewrites many of them each night, and a database that somebody filled and
//! nobody writes to any more. Sizes are only numbers: nothing is stored.

use super::{
    config::{Batch, Config, Database, Design, Node},
    faulty_demo::{NAMES, views},
};
use std::time::Duration;
use wall_clock::Moment;

const DISK: u64 = 800_000_000_000;
/// A shard of a gigabyte takes half a minute, so that a user can watch one end.
const COMPACTION_RATE: u64 = 40_000_000;
/// March 2025.
const CREATED: u64 = 1_740_800_000;
const DAY: Duration = Duration::from_secs(86_400);

/// Three nodes with databases of a few MiB to some 200 GiB. Its nightly jobs end shortly before each full day.
pub fn demo_config() -> Config {
    let node = |name: &&str| Node { disk: Some(DISK), smoosh: true, ..Node::new(name) };
    let batch = |db: &str, documents| Batch {
        db: db.to_owned(),
        documents,
        first: DAY - Duration::from_secs(1_200),
        every: DAY,
    };
    Config {
        nodes: NAMES.iter().map(node).collect(),
        databases: databases(),
        batches: vec![batch("orders", 830_000), batch("catalog", 300_000)],
        smoosh_every: Duration::from_secs(300),
        compaction_rate: COMPACTION_RATE,
        created: Moment::from_unix(CREATED),
        index_rate: 20_000,
        // The demo never queries the log of requests, and counts every compaction.
        records: 1_024,
        ..Config::new(&NAMES)
    }
}

fn databases() -> Vec<Database> {
    let db = |name| Database { even: true, ..Database::new(name) };
    let design = Design::new;
    vec![
        Database {
            q: 4,
            docs: 24_000_000,
            doc_bytes: 1_800,
            bloat: 1.25,
            compacted: 0.8,
            writes_per_second: 5.0,
            new_share: 0.2,
            delete_share: 0.02,
            designs: vec![
                Design { views: views(&["by_day", "by_region"]), ..design("reports") },
                Design { views: views(&["by_customer"]), reduces: true, ..design("customers") },
            ],
            ..db("orders")
        },
        Database {
            q: 4,
            docs: 30_000_000,
            doc_bytes: 1_200,
            bloat: 1.1,
            compacted: 0.9,
            writes_per_second: 3.0,
            new_share: 0.98,
            delete_share: 0.0,
            designs: vec![Design { bytes_per_doc: 45, ..design("daily") }],
            ..db("telemetry")
        },
        // Idle, and never compacted: a compactor that follows writes never looks at it.
        Database {
            q: 4,
            docs: 20_000_000,
            doc_bytes: 1_200,
            bloat: 3.2,
            designs: vec![Design { bloat: 4.5, ..design("by-customer") }],
            ..db("archive-2019")
        },
        // Large attachments.
        Database {
            q: 4,
            docs: 150_000,
            doc_bytes: 900,
            attachment_bytes: 400_000,
            bloat: 1.05,
            compacted: 0.9,
            writes_per_second: 0.02,
            ..db("invoices")
        },
        Database {
            docs: 800_000,
            doc_bytes: 3_000,
            bloat: 1.4,
            compacted: 0.7,
            writes_per_second: 0.2,
            new_share: 0.02,
            delete_share: 0.01,
            designs: vec![Design { views: views(&["by_word"]), ..design("search") }],
            ..db("catalog")
        },
        Database {
            docs: 3_000_000,
            doc_bytes: 2_400,
            bloat: 1.5,
            compacted: 0.6,
            writes_per_second: 2.0,
            new_share: 0.1,
            delete_share: 0.02,
            designs: vec![
                Design { views: views(&["by_login"]), ..design("logins") },
                Design {
                    language: "query".to_owned(),
                    views: views(&["by-email"]),
                    ..design("mango-email")
                },
            ],
            ..db("profiles")
        },
        // Small, and changed all the time.
        Database {
            docs: 300_000,
            bloat: 1.6,
            writes_per_second: 2.0,
            new_share: 0.02,
            delete_share: 0.01,
            ..db("sessions")
        },
        // Short-lived documents leave tombstones.
        Database {
            docs: 80_000,
            deleted_docs: 4_000_000,
            doc_bytes: 700,
            bloat: 1.4,
            compacted: 0.5,
            writes_per_second: 1.5,
            new_share: 0.4,
            delete_share: 0.4,
            ..db("carts")
        },
        Database { docs: 12_000, doc_bytes: 600, writes_per_second: 0.002, ..db("_users") },
        Database { docs: 14, ..db("_replicator") },
        Database { docs: 120, ..db("flags") },
    ]
}
