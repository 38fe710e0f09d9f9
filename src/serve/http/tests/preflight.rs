//! Tests of `POST /api/v1/preflight`. The form that asks the same is tested with the console.

use super::*;

const DESIGN: &str = r#"{"_id":"_design/by_day","views":{"by_day":{"map":"m"}}}"#;

/// A surface with this reader of design documents, and without flags.
fn surface(designs: Designs) -> Surface {
    let mut surface = Surface::new();
    surface.state.designs = Arc::new(designs);
    // Preflight only reads, so it needs no flag.
    surface.state.allow = Allow::default();
    surface
}

async fn post(designs: Designs, content_type: &str, body: String) -> (StatusCode, Value) {
    let request = Request::post("/api/v1/preflight")
        .header("host", "127.0.0.1:10984")
        .header("content-type", content_type)
        .body(Body::from(body))
        .unwrap();
    let response = surface(designs).router().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn question(db: &str, design: &str) -> String {
    format!(r#"{{"db":{},"design":{design}}}"#, json!(db))
}

async fn ask(db: &str, design: &str) -> (StatusCode, Value) {
    post(Designs(Ok(None)), "application/json", question(db, design)).await
}

#[tokio::test]
async fn preflight_compares_with_the_present_document() {
    let (status, new) = ask("orders", DESIGN).await;
    assert_eq!((status, &new["data"]["build"]), (StatusCode::OK, &json!("new")), "{new}");
    assert_eq!(new["data"]["views"], json!([{"name": "by_day", "change": "added", "parts": []}]));
    let present = Designs(Ok(Some(DESIGN)));
    let (_, same) = post(present, "application/json", question("orders", DESIGN)).await;
    assert_eq!(same["data"]["build"], "unchanged", "{same}");
    assert_eq!(same["data"]["nodes"], json!([]));
    let unread = Designs(Err("couchdb@a hangs"));
    let (_, unread) = post(unread, "application/json", question("orders", DESIGN)).await;
    let note = unread["data"]["notes"][0].as_str().unwrap();
    assert!(note.contains("couchdb@a hangs"), "{note}");
    assert_eq!(unread["data"]["build"], "unknown");
}

#[tokio::test]
async fn refuses_document_with_too_many_values_before_parsing() {
    let many =
        format!(r#"{{"_id":"_design/x","views":{{}},"x":[{}]}}"#, vec!["[]"; 60_000].join(","));
    let (status, answer) = ask("orders", &many).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("has more than 50000 lists"), "{answer}");
    // Brackets in the text of a function do not count as values.
    let text = format!(
        r#"{{"_id":"_design/x","views":{{"a":{{"map":"{}"}}}}}}"#,
        "[,{\\\"".repeat(60_000)
    );
    let (status, answer) = ask("orders", &text).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// A body that counts when it is first read, and never ends.
fn endless(read: &Arc<std::sync::atomic::AtomicUsize>) -> Body {
    let read = Arc::clone(read);
    Body::from_stream(futures::stream::once(async move {
        read.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::future::pending::<Result<axum::body::Bytes, std::io::Error>>().await
    }))
}

#[tokio::test]
async fn number_of_request_bodies_read_at_once_is_limited() {
    for (path, at_a_time) in [("/api/v1/preflight", 16), ("/api/v1/what-if", 16)] {
        let (router, read) = (surface(Designs(Ok(None))).router(), Arc::default());
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let request = Request::post(path)
                .header("host", "127.0.0.1:10984")
                .header("content-type", "application/json")
                .body(endless(&read))
                .unwrap();
            asked.spawn(router.clone().oneshot(request));
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(read.load(std::sync::atomic::Ordering::SeqCst), at_a_time, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_request_bodies_delay_other_questions_only_briefly() {
    for (path, content, text, status) in [
        ("/api/v1/preflight", "application/json", question("orders", DESIGN), StatusCode::OK),
        // Growth is not known yet.
        ("/api/v1/what-if", "application/json", "{}".to_owned(), StatusCode::CONFLICT),
        (
            "/what-if",
            "application/x-www-form-urlencoded",
            "days=1".to_owned(),
            StatusCode::CONFLICT,
        ),
        (
            "/preflight",
            "application/x-www-form-urlencoded",
            format!("db=orders&design={DESIGN}"),
            StatusCode::OK,
        ),
    ] {
        let (router, read) = (surface(Designs(Ok(None))).router(), Arc::default());
        let asked = |body| {
            let request = Request::post(path)
                .header("host", "127.0.0.1:10984")
                .header("origin", "http://127.0.0.1:10984")
                .header("content-type", content);
            router.clone().oneshot(request.body(body).unwrap())
        };
        let mut slow = tokio::task::JoinSet::new();
        for _ in 0..20 {
            slow.spawn(asked(endless(&read)));
        }
        tokio::task::yield_now().await;
        let begun = tokio::time::Instant::now();
        let response = asked(Body::from(text)).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        assert!(begun.elapsed() < Duration::from_secs(25), "{path}: {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn preflight_fails_before_the_first_sweep() {
    let surface = surface(Designs(Ok(None)));
    surface.status.send_modify(|status| Arc::make_mut(status).ready = false);
    let request = Request::post("/api/v1/preflight")
        .header("host", "127.0.0.1:10984")
        .header("content-type", "application/json")
        .body(Body::from(question("orders", DESIGN)))
        .unwrap();
    let response = surface.router().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn invalid_question_is_refused_with_the_reason() {
    for (db, design, code, says) in [
        ("ordrs", DESIGN, 404, "no database is called \"ordrs\"; did you mean \"orders\"?"),
        (
            "orders",
            r#"{"_id":"x","views":{}}"#,
            400,
            "the document is not a design document: its _id is \"x\"; ids of design documents begin with _design/",
        ),
        (
            "orders",
            r#"{"views":{}}"#,
            400,
            "the document has no _id; add \"_id\": \"_design/NAME\"",
        ),
        (
            "orders",
            r#"{"_id":"_design/x","language":"cobol","views":{"a":{"map":"m"}}}"#,
            400,
            "the document has views in the language \"cobol\", which CouchDB does not build; it builds erlang, javascript and query",
        ),
        ("orders", "[]", 400, "the document is not a design document: it is not a JSON object"),
    ] {
        let (status, answer) = ask(db, design).await;
        assert_eq!(status.as_u16(), code, "{answer}");
        assert_eq!(answer["error"], says);
    }
    let json = "application/json";
    for (content_type, body, code) in [
        ("text/plain", question("orders", DESIGN), 415),
        (json, "{".to_owned(), 400),
        (json, "[]".to_owned(), 400),
        (json, r#"{"db":"orders"}"#.to_owned(), 400),
        (json, r#"{"db":"orders","design":{},"more":1}"#.to_owned(), 400),
    ] {
        let (status, answer) = post(Designs(Ok(None)), content_type, body.clone()).await;
        assert_eq!(status.as_u16(), code, "{body}: {answer}");
    }
}
