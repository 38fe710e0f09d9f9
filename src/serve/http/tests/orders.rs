//! Probes and orders.

use super::*;
use crate::serve::report::{Failed, Success, orders::Permissions};

const HOST: (&str, &str) = ("host", "127.0.0.1:10984");
const JSON: (&str, &str) = ("content-type", "application/json");

const ORDERS: [&str; 10] = [
    "/api/v1/advice/mute",
    "/api/v1/advice/unmute",
    "/api/v1/suspend",
    "/api/v1/resume",
    "/api/v1/compact",
    "/api/v1/runs",
    "/api/v1/runs/change",
    "/api/v1/release",
    "/api/v1/rescan",
    "/api/v1/flush",
];

#[tokio::test]
async fn unready_process_reports_the_reason() {
    let surface = Surface::new();
    let healthy = surface.get("/-/healthy").await;
    assert_eq!((healthy.status, healthy.text()), (StatusCode::OK, "recliner is healthy\n"));
    let ready = surface.get("/-/ready").await;
    assert_eq!((ready.status, ready.text()), (StatusCode::OK, "recliner is ready\n"));
    let no = "the first sweep has not ended";
    for (problem, last_error, text) in [
        (None, None, format!("{no}\n")),
        (None, Some("b is down"), format!("{no}: b is down\n")),
        (
            Some("the login was refused"),
            Some("b is down"),
            format!("{no}: the login was refused\n"),
        ),
    ] {
        surface.status.send_replace(Arc::new(ScanStatus {
            problem: problem.map(str::to_owned),
            last_error: last_error.map(str::to_owned),
            ..ScanStatus::default()
        }));
        let ready = surface.get("/-/ready").await;
        assert_eq!((ready.status, ready.text()), (StatusCode::SERVICE_UNAVAILABLE, &*text));
        assert_eq!(surface.get("/-/healthy").await.status, StatusCode::OK);
        // An empty list would remove every node from Prometheus.
        assert_eq!(surface.get("/sd").await.status, StatusCode::SERVICE_UNAVAILABLE);
        // An empty list would suggest that the node has no files.
        let facts = surface.get("/api/v1/facts").await;
        assert_eq!(facts.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(facts.text().contains(text.trim_end()), "{}", facts.text());
    }
}

#[tokio::test]
async fn reload_responds_with_its_result() {
    let mut surface = Surface::new();
    for (outcome, status, text) in [
        (Ok(()), StatusCode::OK, "the new configuration is active\n"),
        (
            Err("recliner.yml:3: no such key".to_owned()),
            StatusCode::INTERNAL_SERVER_ERROR,
            "recliner.yml:3: no such key\nthe old configuration stays active\n",
        ),
    ] {
        let router = surface.router();
        let service = async {
            match surface.orders.recv().await {
                Some(Command::Reload(answer)) => answer.send(outcome).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        let (answer, ()) = tokio::join!(ask(router, Method::POST, "/-/reload", &[HOST]), service);
        assert_eq!((answer.status, answer.text()), (status, text));
    }
    // The service ends before it answers.
    let router = surface.router();
    let service = async { drop(surface.orders.recv().await) };
    let (answer, ()) = tokio::join!(ask(router, Method::POST, "/-/reload", &[HOST]), service);
    assert_eq!(
        (answer.status, answer.text()),
        (StatusCode::SERVICE_UNAVAILABLE, "recliner is stopping\n")
    );
}

#[tokio::test]
async fn quit_reaches_the_service_and_a_second_order_is_refused() {
    let mut surface = Surface::new();
    let quit = surface.ask(Method::POST, "/-/quit", &[HOST]).await;
    assert_eq!((quit.status, quit.text()), (StatusCode::OK, "recliner is stopping\n"));
    for path in ["/-/quit", "/-/reload"] {
        let second = surface.ask(Method::POST, path, &[HOST]).await;
        assert_eq!(second.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(second.text(), "another order is being processed; try again\n", "{path}");
    }
    assert!(matches!(surface.orders.recv().await, Some(Command::Quit)));
    surface.orders.close();
    let late = surface.ask(Method::POST, "/-/quit", &[HOST]).await;
    assert_eq!(
        (late.status, late.text()),
        (StatusCode::SERVICE_UNAVAILABLE, "recliner is stopping\n")
    );
}

#[tokio::test]
async fn orders_need_flag_and_trusted_origin() {
    let mut surface = Surface::new();
    for (headers, status) in [
        ([("host", "127.0.0.1:10984"), ("origin", "https://evil.example")], StatusCode::FORBIDDEN),
        (
            [("host", "evil.example:10984"), ("origin", "http://evil.example:10984")],
            StatusCode::FORBIDDEN,
        ),
        (
            [("host", "127.0.0.1:10984"), ("content-type", "text/plain")],
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
    ] {
        for path in ["/-/reload", "/-/quit", "/api/v1/rescan", "/api/v1/suspend"] {
            let mut headers = headers.to_vec();
            if path.starts_with("/api/") && status == StatusCode::FORBIDDEN {
                headers.push(("content-type", "application/json"));
            }
            let answer = surface.ask(Method::POST, path, &headers).await;
            assert_eq!(answer.status, status, "{path} {headers:?}");
        }
    }
    surface.state.allow = Allow::default();
    for path in ["/-/reload", "/-/quit"] {
        let answer = surface.ask(Method::POST, path, &[HOST]).await;
        assert_eq!(
            (answer.status, answer.text()),
            (
                StatusCode::FORBIDDEN,
                "reload and quit over HTTP are disabled; start recliner with --web.enable-lifecycle\n"
            )
        );
    }
    for path in ORDERS {
        let answer = surface.ask(Method::POST, path, &[HOST, JSON]).await;
        let failed: Failed = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            (answer.status, failed.error_type.as_ref()),
            (StatusCode::FORBIDDEN, "forbidden")
        );
        let expected = "start recliner with --web.enable-admin-api";
        let order = path.strip_prefix("/api/v1/").unwrap();
        let permissions = permissions(&surface, &[HOST]).await;
        let refused = permissions.refused(order).unwrap();
        assert!(refused.contains(expected), "{path}: {refused}");
        assert_eq!(failed.error, refused, "{path}");
    }
    assert!(surface.orders.try_recv().is_err(), "an order reached the service");
}

/// The permissions of a sender with these headers.
async fn permissions(surface: &Surface, headers: &[(&str, &str)]) -> Permissions {
    let answer = surface.ask(Method::GET, "/api/v1/permissions", headers).await;
    let answer: Success<Permissions> = serde_json::from_slice(&answer.body).unwrap();
    answer.data
}

#[tokio::test]
async fn permissions_list_every_order_and_depend_on_sender() {
    let surface = Surface::new();
    let allowed = permissions(&surface, &[HOST]).await;
    assert_eq!(allowed.orders.len(), ORDERS.len());
    for path in ORDERS {
        let order = path.strip_prefix("/api/v1/").unwrap();
        assert!(allowed.orders.iter().any(|line| line.order == order), "{order}");
        assert_eq!(allowed.refused(order), None);
    }
    for headers in [[HOST, ("origin", "https://evil.example")], [HOST, ("x-real-ip", "10.0.0.7")]] {
        let refused = permissions(&surface, &headers).await;
        assert!(refused.orders.iter().all(|line| line.refused.is_some()), "{refused:?}");
    }
}
