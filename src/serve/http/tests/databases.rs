//! Databases: their sums, order, search and reasons.

use super::{answers::failure, *};
use crate::{
    model::{
        deletions::{CopyCounts, DeletionRecord},
        facts::file_id,
    },
    serve::report::{DatabaseLine, Databases, Pace},
};
use tokio::task::JoinSet;

async fn names(surface: &Surface, query: &str) -> (usize, Vec<String>) {
    let found: Databases = surface.answer(&format!("/api/v1/databases?{query}")).await;
    (found.total, found.databases.into_iter().map(|line| line.db).collect())
}

async fn line(surface: &Surface, db: &str) -> DatabaseLine {
    let found: Databases = surface.answer("/api/v1/databases").await;
    found.databases.into_iter().find(|line| line.db == db).unwrap()
}

#[tokio::test]
async fn databases_are_searched_sorted_and_paged() {
    let surface = Surface::new();
    for (query, total, expected) in [
        ("", 3, &["orders", ODD_DB, "_dbs"][..]),
        ("sort=db", 3, &["_dbs", ODD_DB, "orders"]),
        ("sort=db&order=desc", 3, &["orders", ODD_DB, "_dbs"]),
        ("sort=file_bytes&order=asc&limit=1", 3, &["_dbs"]),
        ("sort=growth_day_bytes", 3, &["_dbs", ODD_DB, "orders"]),
        ("search=ORD", 1, &["orders"]),
        ("search=nothing", 0, &[]),
        ("limit=1&offset=1", 3, &[ODD_DB]),
        ("offset=18446744073709551615", 3, &[]),
    ] {
        let expected = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names(&surface, query).await, (total, expected), "{query}");
    }
    for query in ["sort=size", "order=up", "limit=10001", "search=a&kind=db"] {
        let (status, failed) = failure(&surface, &format!("/api/v1/databases?{query}")).await;
        assert_eq!((status, &*failed.error_type), (StatusCode::BAD_REQUEST, "bad_data"), "{query}");
    }
}

#[tokio::test]
async fn database_line_has_parts_and_the_reason_for_most_of_its_waste() {
    let surface = Surface::new();
    let orders = line(&surface, "orders").await;
    let parts = orders.document_bytes + orders.index_bytes + orders.reclaimable_bytes;
    assert_eq!(parts, orders.file_bytes);
    // A copy, the orphan of an earlier instance, and the view.
    assert_eq!((orders.targets, orders.unmeasured), (3, 0));
    assert_eq!(orders.growth_day_bytes, None, "nothing was watched yet");
    assert_eq!(orders.reason.as_deref(), Some("ramp"));
    let why = orders.why.unwrap();
    assert!(why.contains("first in line"), "{why}");
}

#[tokio::test]
async fn database_page_and_api_show_the_same_sentences() {
    let surface = Surface::new();
    let page = surface.get("/database?name=orders").await;
    let found: Databases = surface.answer("/api/v1/databases?name=orders").await;
    let [orders] = &*found.databases else { panic!("one has this name: {found:?}") };
    for says in [orders.says(), orders.parts_say()] {
        assert!(page.text().contains(&says), "{says}: {}", page.text());
    }
    // No journal says how fast.
    assert!(orders.says().starts_with("orders: ") && orders.pace.is_none(), "{}", orders.says());
    assert_eq!(names(&surface, "name=order").await, (0, Vec::new()));
}

#[tokio::test]
async fn database_answer_states_the_age_of_its_deletions() {
    let mut tasks = JoinSet::new();
    let mut surface = journal::surface(&mut tasks).await;
    surface.state.clock = STOPPED;
    let file = file_id("one").unwrap();
    let copy = |deleted| CopyCounts { deleted, update_seq: 9_000, purge_seq: 0, file };
    let mut record = DeletionRecord::beginning(".17");
    let before = Moment::from_unix(NOW.unix() - 40 * 86_400);
    record.see(&[((RANGE, "couchdb@a"), Some(copy(900)))].into(), before);
    let saved = ["orders", ODD_DB].map(|db| (db.to_owned(), postcard::to_stdvec(&record).ok()));
    surface.state.journal.as_ref().unwrap().save_deletion_records(saved.into()).await.unwrap();
    let publish = |suffix, deleted| {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "orders", suffix });
        let shard = draft.get_or_add_shard(node, db, Some(RANGE));
        let deleted_docs = OptionalU64::new(deleted);
        let update_seq = OptionalU64::new(9_100);
        let known =
            Facts { deleted_docs, update_seq, file_id: Some(file), ..facts(100 * MIB, 10 * MIB) };
        draft.set_facts(shard, known);
        surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    };
    publish(".17", 1_000);
    let says = "Of 1,000 deleted documents, at least 900 are older than 40 days; recorded since 2026-10-12.";
    let deletions = async |query: &str| {
        let found: Databases = surface.answer(&format!("/api/v1/databases{query}")).await;
        found.databases.into_iter().find_map(|line| line.deletions)
    };
    let ages = deletions("?name=orders").await.unwrap();
    assert_eq!((&*ages.suffix, ages.deleted, &*ages.says), (".17", Some(1_000), says));
    let page = surface.get("/database?name=orders").await;
    assert!(page.text().contains(says), "{}", page.text());
    assert_eq!(deletions("").await, None, "only by its name");
    publish(".17", 0);
    assert_eq!(deletions("?name=orders").await, None, "nothing is deleted");
    publish(".18", 1_000);
    assert_eq!(deletions("?name=orders").await, None, "another database of this name");
}

#[test]
fn remaining_time_of_a_database_follows_its_measured_pace() {
    let line = |waiting, pace| DatabaseLine {
        db: "orders".to_owned(),
        file_bytes: 542 << 30,
        document_bytes: 0,
        index_bytes: 0,
        reclaimable_bytes: 207 << 30,
        growth_day_bytes: Some(3 << 30),
        growth_week_bytes: None,
        targets: 24,
        unmeasured: 0,
        estimated: 0,
        last_compaction: None,
        reason: None,
        not_taken: None,
        why: None,
        waiting,
        pace,
        deletions: None,
    };
    let pace = |freed_lately, at_least, rest| Pace { freed_lately, at_least, rest_seconds: rest };
    let sums = "orders: 542 GiB, 207 GiB reclaimable; it grows by 3 GiB a day";
    for (waiting, pace, rest) in [
        (0, Some(pace(5, false, None)), ""),
        (19, None, ""),
        (
            19,
            Some(pace(0, false, None)),
            "; 19 shards and views wait, none freed space within a day",
        ),
        (
            20,
            Some(pace(5, false, Some(4 * 86_400))),
            "; 20 shards and views wait, 5 freed space within a day, so the rest takes about 4d",
        ),
        (
            1,
            Some(pace(5, true, Some(17_280))),
            "; 1 shard or view waits, at least 5 freed space within a day, so the rest takes at most 4h 48m",
        ),
    ] {
        assert_eq!(line(waiting, pace).says(), format!("{sums}{rest}."));
    }
}

#[tokio::test]
async fn database_page_links_to_each_database_and_sorts_by_columns() {
    let surface = Surface::new();
    let page = surface.get("/databases?sort=file_bytes&order=asc").await;
    for expected in [
        "href=\"database?name=orders\"",
        "1 to 3 of 3 databases",
        "aria-sort=\"ascending\"",
        "databases?sort=file%5Fbytes&amp;order=desc",
        "docs/why.html#ramp",
    ] {
        assert!(page.text().contains(expected), "{expected}: {}", page.text());
    }
    let none = surface.get("/databases?search=nothing").await;
    assert!(none.text().contains("No database matches."), "{}", none.text());
    let refused = surface.get("/databases?sort=size").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}
