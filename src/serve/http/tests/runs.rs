//! Runs: their orders, their answers, and the pages that show them.

use super::{
    super::orders::{Action, Denied},
    admin::{deny, done, nobody, order, success},
    *,
};
use crate::{
    jobs::TargetConstraints,
    model::records::{
        JobResult, LeftOut, LeftOutMember, Run, RunEnd, RunEnding, RunScope, Runs, Suspension,
    },
    plan::Rules,
    serve::report::{
        RunLine, RunList,
        orders::{ChangeRunOrder, OrderAnswer, RunChange},
    },
};

fn run(scope: RunScope) -> Run {
    Run::beginning(scope, false, "ann".into(), NOW)
}

/// Three runs: one that goes on, one that is paused, and one that was cancelled.
fn runs() -> Runs {
    let gone = |reason: &str, members| LeftOut {
        reason: reason.into(),
        members,
        examples: vec![LeftOutMember { id: SHARD.into(), name: String::new(), why: None }],
    };
    let ended = RunEnd {
        at: NOW,
        how: RunEnding::Cancelled,
        by: Some("bob".into()),
        members: 24,
        left_out: vec![gone("futile", 1), gone("cancelled", 19)],
    };
    let results = [(JobResult::Freed, 4), (JobResult::Failed, 1)].into();
    let paused = Suspension { since: NOW, by: Some("bob".into()), why: None };
    Runs(
        [
            (3, Run { ended: Some(ended), results, freed_bytes: 41 << 30, ..run(RunScope::All) }),
            (4, run(RunScope::Database("orders".into()))),
            (5, Run { paused: Some(paused), ..run(RunScope::Node("couchdb@a".into())) }),
        ]
        .into(),
    )
}

const HOST: (&str, &str) = ("host", "127.0.0.1:10984");
const SHARD: &str = "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.17";

fn with_runs(mode: Mode) -> Surface {
    with_channels(mode, Channels::default())
}

fn with_channels(mode: Mode, channels: Channels) -> Surface {
    let surface = Surface::new();
    let history = TargetConstraints {
        runs: runs(),
        rewrite_bytes_per_second: Some(1_000.0),
        ..TargetConstraints::default()
    };
    let conditions = Conditions { constraints: Arc::new(history), ..Conditions::default() };
    let snapshot = snapshot();
    let mut queues = Queues::new(Arc::new(channels));
    queues.apply_snapshot(&snapshot, NOW);
    let rules = Rules { mode, ..Rules::default() };
    let plan = queues.make_plan(&snapshot, &conditions, &Arc::new(rules), NOW);
    surface.plan.send_replace(Arc::new(plan));
    surface
}

fn line(plan: &Plan) -> RunLine {
    RunLine::of(plan, 9, &run(RunScope::Database("orders".into())))
}

#[tokio::test]
async fn run_is_ordered_for_one_scope_and_changed_by_number() {
    let mut surface = Surface::new();
    let database = RunScope::Database("orders".into());
    for (body, scope, force) in [
        (r#"{"db": "orders"}"#, database.clone(), false),
        (r#"{"db": "orders", "force": true, "all": false}"#, database, true),
        (r#"{"node": "couchdb@a"}"#, RunScope::Node("couchdb@a".into()), false),
        (r#"{"all": true}"#, RunScope::All, false),
    ] {
        let line = line(&surface.state.plan.borrow());
        let expected = serde_json::to_value(&line).unwrap();
        let answer = order(&mut surface, "runs", body, |order| {
            assert_eq!(order.action, Action::BeginRun { scope, force });
            done(order, OrderAnswer::Run(Box::new(line)));
        });
        assert_eq!(answer.await, success(expected), "{body}");
    }
    for (path, body, status, says) in [
        ("runs", "{}", 400, "exactly one of db, node and all"),
        ("runs", r#"{"db": "orders", "all": true}"#, 400, "exactly one of db, node and all"),
        ("runs", r#"{"all": true, "force": true}"#, 400, "force needs db"),
        ("runs", r#"{"node": "couchdb@a", "force": true}"#, 400, "force needs db"),
        ("runs", r#"{"db": "ordrs"}"#, 404, "did you mean \"orders\"?"),
        ("runs", r#"{"node": "couchdb@z"}"#, 404, "couchdb@a"),
        ("runs/change", r#"{"run": 7}"#, 400, "missing field `to`"),
        ("runs/change", r#"{"run": 7, "to": "gone"}"#, 400, "unknown variant `gone`"),
        ("runs/change", r#"{"run": "7", "to": "paused"}"#, 400, "expected u64"),
    ] {
        let (found, body) = order(&mut surface, path, body, nobody).await;
        assert_eq!(found.as_u16(), status, "{body}");
        assert!(body["error"].as_str().unwrap().contains(says), "{body}");
    }
    let body = r#"{"run": 7, "to": "cancelled"}"#;
    let (status, body) = order(&mut surface, "runs/change", body, |order| {
        let change = ChangeRunOrder { run: 7, to: RunChange::Cancelled };
        assert_eq!(order.action, Action::ChangeRun(change));
        deny(order, Denied::Unknown("no open run has the number 7".into()));
    })
    .await;
    assert_eq!((status, &body["errorType"]), (StatusCode::NOT_FOUND, &json!("not_found")));
    let (status, body) = order(&mut surface, "runs", r#"{"all": true}"#, |order| {
        let requests = vec!["POST /x".to_owned()];
        deny(order, Denied::Run { why: "no".into(), requests, left_out: Vec::new() });
    })
    .await;
    assert_eq!((status, &body["error"]), (StatusCode::CONFLICT, &json!("no")));
    assert_eq!(body["data"], json!({ "requests": ["POST /x"], "left_out": [] }));
}

#[tokio::test]
async fn runs_are_listed_with_progress_and_result() {
    let surface = with_runs(Mode::Enforce);
    let runs = surface.answer::<RunList>("/api/v1/runs").await.runs;
    let shown: Vec<(u64, &str, u64, u64, &str)> = runs
        .iter()
        .map(|run| (run.run, &*run.state, run.done, run.members, run.says.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            (5, "paused", 0, 2, "0 of 2, 0 B freed, paused"),
            (4, "running", 0, 2, "0 of 2, 0 B freed, about 6 hours left"),
            (3, "cancelled", 5, 24, "5 of 24, 41 GiB freed, 1 failed, 20 left out, cancelled"),
        ]
    );
    let left: Vec<(&str, u64)> =
        runs[2].left_out.iter().map(|group| (&*group.reason, group.members)).collect();
    assert_eq!(left, [("futile", 1), ("cancelled", 19)]);
    assert_eq!(runs[2].left_out[0].examples[0].id, SHARD);
    assert_eq!(surface.data("/api/v1/runs").await["runs"][2]["seconds_left"], Value::Null);
    let metrics = surface.get("/metrics").await;
    for sample in [
        "recliner_runs{state=\"running\"} 1\n",
        "recliner_runs{state=\"paused\"} 1\n",
        "recliner_run_members{state=\"done\"} 0\n",
        "recliner_run_members{state=\"waiting\"} 4\n",
    ] {
        assert!(metrics.text().contains(sample), "{sample}");
    }
}

#[tokio::test]
async fn pages_offer_a_run_and_show_its_progress() {
    let surface = with_runs(Mode::Enforce);
    let jobs = surface.get("/jobs").await;
    for shown in [
        "0 of 2, 0 B freed, about 6 hours left",
        "act?order=runs%2Fchange&amp;run=4&amp;to=paused",
        "act?order=runs%2Fchange&amp;run=5&amp;to=running",
        "act?order=runs%2Fchange&amp;run=5&amp;to=cancelled",
        "Left out: 19 (cancelled)",
    ] {
        assert!(jobs.text().contains(shown), "{shown}: {}", jobs.text());
    }
    assert!(!jobs.text().contains("run=3&amp;to="), "an ended run cannot be changed");
    let database = surface.get("/database?name=orders").await;
    assert!(!database.text().contains("Compact database"), "it is under way");
    assert!(database.text().contains("0 of 2"), "{}", database.text());

    let surface = Surface::new();
    assert!(!surface.get("/jobs").await.text().contains("<h2>Runs</h2>"));
    let database = surface.get("/database?name=orders").await;
    assert!(database.text().contains("act?order=runs&amp;db=orders\">Compact database …</a>"));
    // The page's question before, in both modes.
    let ask = "/act?order=runs&db=orders";
    let asked = surface.ask(Method::GET, ask, &[HOST]).await;
    assert!(asked.text().contains("You cannot start it in advise mode."), "{}", asked.text());
    let surface = with_runs(Mode::Enforce);
    let asked = surface.ask(Method::GET, ask, &[HOST]).await;
    for shown in [
        "Everything in database orders that is worth compacting",
        "<dt>targets to compact</dt><dd>2</dd>",
        "name=\"force\"",
    ] {
        assert!(asked.text().contains(shown), "{shown}: {}", asked.text());
    }
    let mut strict = Channels::default();
    strict.list.iter_mut().for_each(|channel| channel.min_size = u64::MAX);
    let asked = with_channels(Mode::Enforce, strict).ask(Method::GET, ask, &[HOST]).await;
    for shown in
        ["only force can start it", "value=\"true\" checked", "<dt>targets to compact</dt><dd>2"]
    {
        assert!(asked.text().contains(shown), "{shown}: {}", asked.text());
    }
    let change = "/act?order=runs/change&run=4&to=cancelled";
    let change = surface.ask(Method::GET, change, &[HOST]).await;
    assert!(
        change.text().contains("Run 4 ends. Running compactions continue."),
        "{}",
        change.text()
    );
}
