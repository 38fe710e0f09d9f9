//! An operator's suspension is shown everywhere, with its start, sender and reason.

use super::*;
use crate::{
    jobs::TargetConstraints,
    model::records::{Suspension, SuspensionScope, Suspensions},
    plan::pressure::{NodePressure, Pressures},
    serve::report::Planned,
    table::NodeIx,
};

#[tokio::test]
async fn suspension_is_shown_with_start_sender_and_reason() {
    let surface = Surface::new();
    let why = format!("the <disk> of couch-a is \"replaced\" {}", "x".repeat(300));
    let of = |by: &str, why: Option<&str>| Suspension {
        since: NOW,
        by: Some(by.to_owned()),
        why: why.map(str::to_owned),
    };
    let suspensions = Suspensions(
        [
            (SuspensionScope::All, of("unix socket, uid 7", Some(&why))),
            (SuspensionScope::Channel("ratio_dbs".into()), of("ann from 10.0.0.7", None)),
        ]
        .into(),
    );
    let history = Arc::new(TargetConstraints { suspensions, ..TargetConstraints::default() });
    let maintenance = NodePressure { maintenance_since: Some(NOW), ..NodePressure::default() };
    let nodes = [(NodeIx::from_usize(1).unwrap(), maintenance)].into();
    let pressures = Arc::new(Pressures { nodes, ..Pressures::default() });
    let conditions = Conditions { constraints: history, pressures, ..Conditions::default() };
    let snapshot = snapshot();
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, NOW);
    let plan = queues.make_plan(&snapshot, &conditions, &Arc::default(), NOW);
    surface.plan.send_replace(Arc::new(plan));

    let says =
        format!("all starts are suspended since 2026-11-21T00:54:00Z by unix socket, uid 7: {why}");
    let other =
        "starts of channel ratio_dbs are suspended since 2026-11-21T00:54:00Z by ann from 10.0.0.7";
    let expected = json!([
        {
            "scope": "all", "since": "2026-11-21T00:54:00Z", "by": "unix socket, uid 7",
            "why": why, "says": says,
        },
        {
            "scope": "channel:ratio_dbs", "since": "2026-11-21T00:54:00Z",
            "by": "ann from 10.0.0.7", "why": null, "says": other,
        },
    ]);
    for path in ["/api/v1/status", "/api/v1/plan"] {
        // The JSON itself: a missing reason is null.
        assert_eq!(surface.data(path).await["suspensions"], expected, "{path}");
    }
    let refused = surface.answer::<Planned>("/api/v1/plan").await.refused;
    let whys: Vec<&str> = refused.iter().map(|line| line.why.as_str()).collect();
    let expected = format!("{says}; recliner resume all resumes them");
    assert!(!whys.is_empty() && whys.iter().all(|why| *why == expected), "{whys:?}");

    let page = surface.get("/").await;
    let shown = "All starts are suspended since 2026-11-21T00:54:00Z by unix socket, uid 7: the &lt;disk&gt; of couch-a is &quot;replaced&quot;";
    assert!(page.text().contains(shown), "{}", page.text());
    assert!(page.text().contains("Starts of channel ratio_dbs are suspended"), "{}", page.text());
    // A node that does not answer needs somebody first.
    let at = |text: &str| page.text().find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("couchdb@b does not answer") < at("All starts are suspended"), "{}", page.text());
    assert!(at("All starts are suspended") < at("in maintenance mode since"), "{}", page.text());

    let nodes = surface.get("/nodes").await;
    for gate in ["maintenance", "node_down"] {
        let held = format!("held back: <a href=\"docs/why.html#{gate}\">");
        assert!(nodes.text().contains(&held), "{held} in {}", nodes.text());
    }

    let metrics = surface.get("/metrics").await;
    let unix = NOW.unix();
    let short = why.chars().take(120).collect::<String>().replace('"', "\\\"") + "…";
    for line in [
        "recliner_suspended{scope=\"all\"} 1".to_owned(),
        "recliner_suspended{scope=\"channel:ratio_dbs\"} 1".to_owned(),
        format!("recliner_suspended_since_timestamp_seconds{{scope=\"all\"}} {unix}"),
        format!(
            "recliner_suspension_info{{scope=\"all\",by=\"unix socket, uid 7\",why=\"{short}\"}} 1"
        ),
        format!("recliner_suspended_since_timestamp_seconds{{scope=\"channel:ratio_dbs\"}} {unix}"),
        "recliner_suspension_info{scope=\"channel:ratio_dbs\",by=\"ann from 10.0.0.7\",why=\"\"} 1"
            .to_owned(),
    ] {
        assert!(metrics.text().lines().any(|it| it == line), "{line} in {}", metrics.text());
    }
}
