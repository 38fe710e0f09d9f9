//! Lists that do not end, and pages that do not advance.

use super::fake::{Cluster, Seen, connect, json, paths, settings, timed};
use crate::ErrorKind;
use axum::response::Response;
use serde_json::json as value;

const A: &str = "http://a:5984";

/// A page of rows with ascending numbers, from the row that the request names.
fn rows(seen: &Seen, promised: Option<u64>) -> Option<Response> {
    let (path, query) = seen.path.split_once('?')?;
    let number = |name: &str| {
        let found = query.split('&').find_map(|part| part.strip_prefix(name));
        found.map(|found| found.trim_start_matches("%22_design%2F").trim_start_matches("%22"))
    };
    let limit: usize = number("limit=")?.parse().ok()?;
    let from = number("startkey=").map_or(Some(0), |from| from.get(..9)?.parse::<usize>().ok())?;
    let name = |number: usize| format!("{number:09}");
    let body = match path {
        "/_all_dbs" => value!((from..from + limit).map(name).collect::<Vec<_>>()),
        "/_node/_local/_dbs/_all_docs" | "/app/_design_docs" => {
            let prefix = if path.ends_with("_design_docs") { "_design/" } else { "" };
            let row = |number: usize| {
                let id = format!("{prefix}{number:09}");
                value!({"id": id, "doc": {"_id": id, "views": {"v": {"map": "x"}}}})
            };
            let rows: Vec<_> = (from..from + limit).map(row).collect();
            value!({"total_rows": promised, "offset": 0, "rows": rows})
        }
        _ => return None,
    };
    Some(json(200, &body.to_string()))
}

#[tokio::test(start_paused = true)]
async fn a_list_that_always_has_another_page_ends_with_an_error() {
    let (cluster, mut seen) = Cluster::new(|seen| rows(seen, Some(300)));
    let client = connect(&cluster, settings(&[A]));
    let (error, _) = timed(async {
        let mut at = None;
        loop {
            match client.shard_map_page(None, at.as_ref(), 500).await {
                Ok(page) => at = Some(page.next.expect("there is always another page")),
                Err(error) => break error,
            }
        }
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Malformed);
    let expected = "its pages do not end: 11001 rows arrived, but 300 were announced";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(paths(&mut seen).len() < 30);

    let (error, _) = timed(client.design_docs("app", [])).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("rows arrived, but 300 were announced"), "{error}");
    assert!(paths(&mut seen).len() < 60);
}

#[tokio::test(start_paused = true)]
async fn endless_list_without_announced_count_ends_with_error() {
    for promised in [None, Some(u64::MAX)] {
        let (cluster, _seen) = Cluster::new(move |seen| rows(seen, promised));
        let client = connect(&cluster, settings(&[A]));
        let (read, _) = timed(client.design_docs("app", [])).await;
        let error = read.unwrap_err().to_string();
        assert!(error.contains("its pages do not end: 100"), "{error}");
    }
    let (cluster, _seen) = Cluster::new(|seen| rows(seen, None));
    let client = connect(&cluster, settings(&[A]));
    let (rows, _) = timed(async {
        let (mut at, mut rows) = (None, 0);
        loop {
            match client.all_dbs_page(at.as_ref(), 100_000).await {
                Ok((names, next)) => (at, rows) = (next, rows + names.len()),
                Err(error) => break (rows, error.kind()),
            }
        }
    })
    .await;
    assert!(rows.0 > 1_800_000 && rows.0 <= 2_000_000, "{rows:?}");
    assert_eq!(rows.1, ErrorKind::Malformed);
}

#[tokio::test(start_paused = true)]
async fn pages_that_go_in_circles_end_with_an_error() {
    let (cluster, _seen) = Cluster::new(|seen| {
        let (path, query) = seen.path.split_once('?')?;
        let at_b = query.contains("startkey=%22b");
        let ids = if at_b { ["a", "a1", "a2"] } else { ["b", "b1", "b2"] };
        let rows: Vec<_> = ids.iter().map(|id| value!({"id": id, "doc": {"_id": id}})).collect();
        let body = match path {
            "/_all_dbs" => value!(ids),
            "/_node/_local/_dbs/_all_docs" => value!({ "rows": rows }),
            _ => return None,
        };
        Some(json(200, &body.to_string()))
    });
    let client = connect(&cluster, settings(&[A]));
    let first = client.shard_map_page(None, None, 2).await.unwrap().next;
    let error = client.shard_map_page(None, first.as_ref(), 2).await.unwrap_err();
    let expected = "its pages are out of order: \"a\" comes after \"b2\"";
    assert!(error.to_string().contains(expected), "{error}");
    let (_, first) = client.all_dbs_page(None, 2).await.unwrap();
    let error = client.all_dbs_page(first.as_ref(), 2).await.unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test(start_paused = true)]
async fn refuses_answer_with_millions_of_small_entries() {
    let (cluster, _seen) = Cluster::new(|seen| {
        let many = "{},".repeat(4 << 20);
        match seen.path.split('?').next()? {
            "/_node/couchdb@a/_active_tasks" => Some(json(200, &format!("[{many}{{}}]"))),
            "/_node/_local/_dbs/_all_docs" => {
                Some(json(200, &format!(r#"{{"rows":[{many}{{}}]}}"#)))
            }
            _ => None,
        }
    });
    let client = connect(&cluster, settings(&[A]));
    for error in [
        client.active_tasks("couchdb@a").await.unwrap_err(),
        client.shard_map_page(None, None, 500).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("it has more than "), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn refuses_database_names_too_long_for_file_systems() {
    let long = "x".repeat(5_000);
    let shard = format!("shards/00000000-7fffffff/{long}.1795222434");
    let (cluster, _seen) = Cluster::new(move |seen| {
        let row = value!({"id": long, "seq": 8, "doc": {"_id": long}});
        let body = match seen.path.split('?').next()? {
            "/_all_dbs" => value!([long]),
            "/_node/_local/_all_dbs" => value!([shard]),
            "/_node/_local/_dbs/_all_docs" => value!({"total_rows": 1, "rows": [row]}),
            "/_node/_local/_dbs/_changes" => value!({"results": [row], "last_seq": 8}),
            _ => return None,
        };
        Some(json(200, &body.to_string()))
    });
    let client = connect(&cluster, settings(&[A]));
    let second = std::time::Duration::from_secs(1);
    for (what, result) in [
        ("map", client.shard_map_page(None, None, 500).await.map(drop)),
        ("names", client.all_dbs_page(None, 500).await.map(drop)),
        ("files", client.node_files("_local").await.map(drop)),
        ("changes", client.shard_map_changes("_local", 7, second).await.map(drop)),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{what}: {error}");
        assert!(error.to_string().contains("a database name of 5000 bytes"), "{what}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn refuses_more_tasks_than_a_node_can_run() {
    for (count, is_answer) in [(20_000, true), (20_001, false)] {
        let (cluster, _seen) = Cluster::new(move |seen| {
            let tasks = vec![value!({"type": "indexer"}); count];
            let is_asked = seen.path == "/_node/_local/_active_tasks";
            is_asked.then(|| json(200, &value!(tasks).to_string()))
        });
        let client = connect(&cluster, settings(&[A]));
        match client.active_tasks("_local").await {
            Ok(tasks) => assert!(is_answer && tasks.len() == count),
            Err(error) => {
                assert!(!is_answer && error.kind() == ErrorKind::Malformed, "{error}");
                assert!(error.to_string().contains("it has 20001 tasks"), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refuses_more_map_changes_than_requested() {
    let (cluster, _seen) = Cluster::new(move |seen| {
        let rows = vec![value!({"id": "a", "seq": 8}); 1_001];
        let is_asked = seen.path.starts_with("/_node/_local/_dbs/_changes?");
        is_asked.then(|| json(200, &value!({"results": rows, "last_seq": 8}).to_string()))
    });
    let client = connect(&cluster, settings(&[A]));
    let changes = client.shard_map_changes("_local", 7, std::time::Duration::from_secs(1)).await;
    let error = changes.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.to_string().contains("it has 1001 rows, but at most 1000 were"), "{error}");
}
