//! Tests of `POST /api/v1/what-if`, and of the `Host` names that requests may use.

use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");
const HOST: (&str, &str) = ("host", "127.0.0.1:10984");

async fn ask(question: &Value, headers: &[(&str, &str)]) -> (StatusCode, Value) {
    let mut request = Request::post("/api/v1/what-if").extension(HERE);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(question.to_string())).unwrap();
    let response = Surface::new().router().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn accepts_questions_from_programs_and_own_pages_only() {
    let rent = json!({"channels": "rent", "days": 3});
    for (headers, code) in [
        // 409, because growth is not known yet.
        (&[HOST, JSON][..], 409),
        (&[HOST, JSON, ("origin", "http://127.0.0.1:10984")], 409),
        (&[HOST, JSON, ("sec-fetch-site", "same-origin")], 409),
        (&[HOST, JSON, ("origin", "http://evil.example")], 403),
        (&[HOST, JSON, ("sec-fetch-site", "cross-site")], 403),
        (&[HOST, ("content-type", "text/plain")], 415),
        (&[HOST], 415),
    ] {
        let (status, answer) = ask(&rent, headers).await;
        assert_eq!(status.as_u16(), code, "{headers:?}: {answer}");
    }
    let get = Surface::new().get("/api/v1/what-if?channels=rent").await;
    assert_eq!(get.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn refuses_configuration_that_expands_without_bounds() {
    let letters = "x".repeat(10_000);
    let aliases =
        |times: usize, text: &str| format!("ignore: [&a {text},{}]\n", vec!["*a"; times].join(","));
    for (config, says) in [
        (aliases(15_000, &letters), "aliases make this document too large"),
        (aliases(15_000, "'x*'"), "ignore[1000]: more than 1000 patterns with * or ?"),
        (
            format!("ignore: [{letters}]"),
            "ignore[0]: found a pattern of 10000 bytes; the longest is 512",
        ),
    ] {
        let (status, answer) = ask(&json!({"config": config}), &[HOST, JSON]).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(says) && error.len() < 1_000, "{error}");
    }
    let wrong = format!("channels: [&a [],{}]\n", vec!["*a"; 15_000].join(","));
    let (_, answer) = ask(&json!({"config": wrong}), &[HOST, JSON]).await;
    assert!(answer["error"].as_str().unwrap().lines().count() <= 1_000, "{answer}");
}

#[tokio::test]
async fn refuses_unknown_host() {
    let mut surface = Surface::new();
    let names: Arc<[String]> = [String::from("couch-a"), String::from("recliner.example")].into();
    surface.state.allow = Allow { names, ..Allow::default() };
    let evil = [("host", "evil.example:10984")];
    for path in
        ["/", "/metrics", "/api/v1/status", "/_db_updates", "/docs/", "/assets/console.js", "/sd"]
    {
        let answer = surface.ask(Method::GET, path, &evil).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        let flag = "start recliner with --web.allowed-host=evil.example";
        assert!(answer.text().contains(flag), "{path}: {}", answer.text());
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    }
    for path in ["/-/healthy", "/-/ready"] {
        assert_eq!(surface.ask(Method::GET, path, &evil).await.status, StatusCode::OK, "{path}");
    }
    for host in [
        "127.0.0.1:10984",
        "localhost",
        "[::1]:10984",
        "10.0.0.7",
        "Couch-A:10984",
        "recliner.example",
    ] {
        let answer = surface.ask(Method::GET, "/metrics", &[("host", host)]).await;
        assert_eq!(answer.status, StatusCode::OK, "{host}");
    }
}
