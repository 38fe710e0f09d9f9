//! Limits that several clusters share: who may ask for a lease, and what status, page and metrics say.

use super::*;
use crate::{
    act::sharing::{MemberHandle, MemberView},
    model::share::Share,
    serve::report::{ClusterShare, SharedLimits, Status},
    shared_limits::{Granted, Lease, Now},
};

const PATH: &str = "/api/v1/shared-limits/lease";
const JSON: (&str, &str) = ("content-type", "application/json");

const LEASED: Share = Share { jobs: 3, bytes_per_hour: 5 << 30 };
const OWN: Share = Share { jobs: 1, bytes_per_hour: 1 << 30 };

async fn post(surface: &Surface, headers: &[(&str, &str)], body: &str) -> (StatusCode, Value) {
    let mut request = Request::builder().method(Method::POST).uri(PATH).extension(HERE);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let (parts, body) = surface.router().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, serde_json::from_slice(&body).unwrap())
}

fn body(instance: &str) -> String {
    let none = json!({"jobs": 0, "bytes_per_hour": 0});
    json!({"name": "a", "instance": instance, "acts_on": 0, "used": none, "wanted": none})
        .to_string()
}

#[tokio::test]
async fn lease_requires_order_permission_and_a_valid_request() {
    let mut surface = Surface::new();
    let long = "x".repeat(101);
    for (headers, body, status, says) in [
        (&[][..], body("i"), 415_u16, "application/json"),
        (&[JSON, ("origin", "http://evil.example")], body("i"), 403, "origin"),
        (&[JSON], "{}".to_owned(), 400, "not a request for a lease"),
        (&[JSON], "[".to_owned(), 400, "not a request for a lease"),
        (&[JSON], body(""), 400, "instance"),
        (&[JSON], body(&long), 400, "instance"),
        (&[JSON], "x".repeat(5_000), 400, "cannot be read"),
        // No task answers.
        (&[JSON], body("i"), 503, "try again"),
    ] {
        let (found, answer) = post(&surface, headers, &body).await;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(found == status && error.contains(says), "{found} {error}: {says}");
    }
    surface.state.allow.admin = false;
    let (found, answer) = post(&surface, &[JSON], &body("i")).await;
    assert_eq!(found, StatusCode::FORBIDDEN, "{answer}");
}

/// A member with a lease.
fn member(problem: Option<&str>) -> Surface {
    let mut surface = Surface::new();
    let asked_at = Now::read(surface.state.clock);
    let lease = Lease { id: 1, lease: LEASED, lasts_ms: 120_000, own_share: OWN, most: LEASED };
    let view = MemberView {
        keeper: Some(("http://keeper:10984".parse().unwrap(), "orders".to_owned())),
        answered_at: Some(NOW),
        problem: problem.map(str::to_owned),
    };
    let granted = Some(Granted::answered(asked_at, lease));
    surface.state.sharing.member = MemberHandle::fixed(granted, view);
    surface
}

#[tokio::test]
async fn share_of_a_member_is_in_status_page_and_metrics() {
    let surface = Surface::new();
    assert_eq!(surface.answer::<Status>("/api/v1/status").await.shared_limits, None);
    assert!(!surface.get("/metrics").await.text().contains("\nrecliner_shared_"));

    let surface = member(None);
    let status: Status = surface.answer("/api/v1/status").await;
    let Some(SharedLimits { share: Some(share), members }) = status.shared_limits else {
        panic!("there is a share")
    };
    assert_eq!(members, []);
    let ClusterShare { allowed, own_share, until, says, .. } = share;
    assert_eq!((allowed, own_share), (LEASED, OWN));
    let until = Moment::parse(&until.unwrap()).unwrap();
    assert!((119..=122).contains(&NOW.age(until).as_secs()), "{until:?}");
    let begins = "May use 3 compactions at a time and 5 GiB an hour of the limits shared through http://keeper:10984, at least until ";
    assert!(says.starts_with(begins), "{says}");
    let page = surface.get("/nodes").await;
    assert!(page.text().contains("3 compactions at a time and 5 GiB an hour"));
    let metrics = surface.get("/metrics").await;
    for line in ["recliner_shared_allowed_jobs 3", "recliner_shared_allowed_bytes 5368709120"] {
        assert!(metrics.text().lines().any(|it| it == line), "{line}");
    }
}

#[tokio::test]
async fn reason_for_a_missing_lease_is_stated() {
    let surface = member(Some("it answered 503: <b>busy</b>"));
    let status: Status = surface.answer("/api/v1/status").await;
    let says = status.shared_limits.and_then(|it| it.share).unwrap().says;
    assert!(
        says.ends_with(
            "then only its own share, because it gets no new lease: it answered 503: <b>busy</b>."
        ),
        "{says}"
    );
    let page = surface.get("/nodes").await;
    assert!(!page.text().contains("<b>busy"), "it is escaped");
}
