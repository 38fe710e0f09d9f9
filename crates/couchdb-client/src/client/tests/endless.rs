//! Lists that do not end, and pages that do not go on.

use super::fake::{Cluster, Seen, connect, json, paths, settings, timed};
use crate::ErrorKind;
use axum::response::Response;
use serde_json::json as value;

const A: &str = "http://a:5984";

/// A page of rows whose numbers go up, behind the one that the request names.
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
            match client.shard_map_page(at.as_ref(), 500).await {
                Ok(page) => at = Some(page.next.expect("there is always another")),
                Err(error) => break error,
            }
        }
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Malformed);
    let says = "its pages do not end: 11001 rows arrived, and 300 were announced";
    assert!(error.to_string().contains(says), "{error}");
    assert!(paths(&mut seen).len() < 30);

    let (error, _) = timed(client.design_docs("app", [])).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("rows arrived, and 300 were announced"), "{error}");
    assert!(paths(&mut seen).len() < 60);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_promises_nothing_ends_too() {
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
    let first = client.shard_map_page(None, 2).await.unwrap().next;
    let error = client.shard_map_page(first.as_ref(), 2).await.unwrap_err();
    let says = "its pages do not go on: \"a\" comes after \"b2\"";
    assert!(error.to_string().contains(says), "{error}");
    let (_, first) = client.all_dbs_page(None, 2).await.unwrap();
    let error = client.all_dbs_page(first.as_ref(), 2).await.unwrap_err();
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_many_small_entries_is_not_taken_into_memory() {
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
        client.shard_map_page(None, 500).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("it has more than "), "{error}");
    }
}
