//! The judge on handmade histories: a correct one, and one for each kind of breach.

use super::*;
use crate::{
    scenario::{MINUTE, bloated, on, volumes},
    support::{A, B, C, Rig, START, nodes},
};
use couchdb_sim::{CompactionEnd, Database, Obstacle, StartedBy};
use recliner::{
    config::{self, Flags},
    model::{
        channel::Mode,
        records::{Intent, JobOwner, JobResult, Outcome, StateChange},
        target::{TargetId, TargetKind},
    },
};
use std::path::Path;

const SHARD: &str = "shards/00000000-ffffffff/orders.1";
const MB: u64 = 1_000_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn loaded(yaml: &str) -> Settings {
    let flags = Flags { couchdb_urls: vec!["http://a:5984".into()], ..Flags::default() };
    let file = config::File { name: Path::new("recliner.yml"), bytes: yaml.as_bytes() };
    config::load(&flags, Some(file)).unwrap_or_else(|why| panic!("{why}")).settings
}

fn settings() -> Settings {
    let yaml = format!(
        "mode: enforce\nlimits: {{bytes_per_hour: 1GB, wait: 30s}}\nheadroom: {{blind_limit: 500MB, volumes: [{{nodes: [\"{A}\"], available: 1TB}}]}}\nchannels: [{{name: nightly, kind: db, priority: ratio, concurrency: 2, windows: [{{days: [mon-sun], from: \"00:00\", to: \"12:00\", zone: UTC}}]}}]\nsmoosh: {{mode: takeover, takeover: [nightly]}}\n"
    );
    loaded(&yaml)
}

fn intent(at: u64, node: &str, shard: &str) -> Intent {
    Intent {
        target: TargetId::Db { node: node.into(), shard: shard.into() },
        node: node.into(),
        shard: Some(shard.into()),
        design: None,
        channel: "nightly".into(),
        ordered_by: None,
        run: None,
        at: START.plus(seconds(at)),
        file_bytes: Some(400 * MB),
        active_bytes: Some(100 * MB),
        update_seq: Some(10),
        compacted_seq: Some(0),
        predicted_bytes: Some(100 * MB),
        fitted_bytes: None,
        peak_bytes: 220 * MB,
    }
}

fn job_ended(intent: &Intent, ending: JobResult) -> StateChange {
    let outcome = Outcome {
        target: intent.target.clone(),
        kind: TargetKind::Db,
        node: intent.node.clone(),
        design: None,
        channel: Some(intent.channel.clone()),
        owner: JobOwner::Recliner,
        started_at: intent.at,
        ended_after: None,
        charged_bytes: None,
        ended_at: intent.at,
        before_bytes: None,
        after_bytes: None,
        predicted_bytes: None,
        ending,
        ordered_by: None,
        why: None,
    };
    StateChange::JobEnded { outcome, closes: Some(intent.key()) }
}

fn compaction(began: u64, node: &str, shard: &str) -> Compaction {
    Compaction {
        node: node.into(),
        shard: shard.into(),
        ddoc: None,
        by: StartedBy::Request,
        began: seconds(began),
        running_on_node: 0,
        running_in_cluster: 0,
        other_copy: false,
        available: Some(1_000 * MB),
        needed: 120 * MB,
        reserved: 0,
        obstacles: vec![],
        before: 400 * MB,
        end: Some(CompactionEnd {
            at: seconds(began + 10),
            after: 100 * MB,
            clean: 100 * MB,
            swapped: true,
        }),
    }
}

impl Record {
    /// Adds a start with its order, compaction and journal entries.
    fn with(mut self, at: u64, node: &str, shard: &str) -> Self {
        let intent = intent(at, node, shard);
        let entry = |orders, change| Entry { orders, change };
        self.kept.push(entry(self.orders.len(), StateChange::StartIntended(intent.clone())));
        let path = format!("/_node/{node}/{}/_compact", shard.replace('/', "%2F"));
        self.orders.push(order(at, http::Method::POST, &path, 202));
        self.compactions.push(compaction(at, node, shard));
        self.kept.push(entry(self.orders.len(), job_ended(&intent, JobResult::Freed)));
        self
    }
}

fn order(at: u64, method: http::Method, path: &str, status: u16) -> Exchange {
    let (node, path) = (A.to_owned(), path.to_owned());
    Exchange { at: seconds(at), node, method, path, user: None, status }
}

fn good_record() -> Record {
    Record { now: seconds(7_200), ..Record::beginning(START, &settings()) }
        .with(100, A, SHARD)
        .with(200, B, SHARD)
        .with(4_000, A, "shards/00000000-ffffffff/users.1")
}

/// The judge's findings about a correct history after a modification.
fn findings_after(spoil: impl FnOnce(&mut Record)) -> String {
    let mut record = good_record();
    spoil(&mut record);
    breaches(&record).join("\n")
}

#[test]
fn correct_history_passes() {
    assert_eq!(findings_after(|_| {}), "");
    // Channels that are configured for takeover may be changed.
    let put = |key: &str| format!("/_node/{A}/_config/{key}");
    let taken = ["smoosh.nightly/concurrency", "recliner/smoosh.nightly.concurrency"];
    let taken = taken.map(|key| order(0, http::Method::PUT, &put(key), 200));
    assert_eq!(findings_after(|record| record.orders.extend(taken)), "");
}

#[test]
fn breaches_of_every_limit_are_found() {
    type Spoil = fn(&mut Compaction);
    let spoils: [(Spoil, &str); 9] = [
        (|one| one.running_on_node = 2, "more jobs on the node"),
        (|one| one.running_in_cluster = 8, "more jobs in the cluster"),
        (|one| one.other_copy = true, "two copies of a range"),
        (|one| one.available = Some(119 * MB), "no space"),
        (|one| one.reserved = 881 * MB, "no space"),
        (|one| one.obstacles = vec![Obstacle::Maintenance], "in maintenance"),
        (|one| one.obstacles = vec![Obstacle::Splitting], "being split"),
        (|one| one.obstacles = vec![Obstacle::Building], "being built"),
        (|one| one.before = 620 * MB, "within an hour"),
    ];
    for (spoil, says) in spoils {
        let findings = findings_after(|record| spoil(&mut record.compactions[0]));
        assert!(findings.contains(says), "{says}: {findings:?}");
    }
    let blind = findings_after(|record| record.compactions[1].before = 501 * MB);
    assert!(blind.contains("blindly"), "{blind}");
}

#[test]
fn starts_at_the_wrong_time_are_found() {
    let noon = 9 * 3_600;
    let late = findings_after(|record| {
        *record = record.clone().with(noon, B, "shards/00000000-ffffffff/x.1")
    });
    assert!(late.contains("nightly was shut"), "{late}");
    let set = findings_after(|record| {
        *record = record.clone().with(noon, B, "shards/00000000-ffffffff/x.1");
        record.clock.push((seconds(noon - 1), -7_200));
    });
    assert_eq!(set, "", "by recliner's own clock the window was open");
    let soon = findings_after(|record| {
        *record = record.clone().with(4_020, A, "shards/00000000-ffffffff/x.1")
    });
    assert!(soon.contains("after the start before it"), "{soon}");
    let third = findings_after(|record| {
        for (at, name) in [(6_000, "x"), (6_040, "y"), (6_080, "z")] {
            *record = record.clone().with(at, A, &format!("shards/00000000-ffffffff/{name}.1"));
        }
        for one in &mut record.compactions {
            one.before = 100 * MB;
            one.end = one.end.map(|end| CompactionEnd { at: end.at + seconds(500), ..end });
        }
    });
    assert!(third.contains("2 of nightly ran on the node, which may run 2"), "{third}");
}

#[test]
fn needless_restart_is_found() {
    let again = findings_after(|record| {
        *record = record.clone().with(7_000, B, SHARD);
        record.compactions.last_mut().unwrap().before = 110 * MB;
    });
    assert!(again.contains("hardly grew"), "{again}");
    let grown = findings_after(|record| *record = record.clone().with(7_000, B, SHARD));
    assert_eq!(grown, "");
    let fails = |again: u64, released: bool| {
        findings_after(|record| {
            let end = CompactionEnd {
                at: seconds(210),
                after: 400 * MB,
                clean: 100 * MB,
                swapped: false,
            };
            record.compactions[1].end = Some(end);
            let last = intent(200, B, SHARD);
            record.kept[3].change = job_ended(&last, JobResult::Failed);
            *record = record.clone().with(again, B, SHARD);
            record.compactions.iter_mut().for_each(|one| one.before = 200 * MB);
            record.released.extend(released.then(|| seconds(300)));
        })
    };
    assert!(fails(400, false).contains("it failed at"), "{}", fails(400, false));
    assert_eq!((fails(900, false), fails(400, true)), (String::new(), String::new()));
}

#[test]
fn forbidden_requests_are_found() {
    for (method, path, status) in [
        (http::Method::POST, "/orders/_compact", 202),
        (http::Method::POST, "/_node/x/_all_dbs/_compact", 202),
        (http::Method::DELETE, "/orders", 200),
        (http::Method::PUT, "/_node/x/_config/smoosh.slack_dbs/concurrency", 200),
        (http::Method::PUT, "/_node/x/_config/couchdb/maintenance_mode", 200),
    ] {
        let findings =
            findings_after(|record| record.orders.push(order(6_000, method, path, status)));
        assert!(findings.contains(path) && findings.contains("was sent"), "{path}: {findings:?}");
    }
    let twice = findings_after(|record| {
        let again = Exchange { at: seconds(105), ..record.orders[0].clone() };
        record.orders.insert(1, again);
    });
    assert!(twice.contains("started what ran already"), "{twice}");
}

#[test]
fn incomplete_or_wrong_journal_is_found() {
    let findings = findings_after(|record| drop(record.kept.remove(0)));
    assert!(findings.contains("was sent and not kept before"), "{findings}");
    let findings = findings_after(|record| record.kept[0].orders = 1);
    assert!(findings.contains("was sent and not kept before"), "kept after it: {findings}");
    let findings = findings_after(|record| drop(record.kept.remove(1)));
    assert!(findings.contains("has no outcome"), "{findings}");
    let findings = findings_after(|record| {
        let end = record.kept[1].clone();
        record.kept.insert(2, end);
    });
    assert!(
        findings.contains("was not open") && findings.contains("outcomes too many"),
        "{findings}"
    );
    let findings = findings_after(|record| {
        let again = record.kept[0].clone();
        record.kept.insert(1, again);
    });
    assert!(findings.contains("begun while it was open"), "{findings}");
    let findings = findings_after(|record| {
        record.kept[1].change = job_ended(&intent(100, A, SHARD), JobResult::Failed)
    });
    assert!(findings.contains("and did not"), "{findings}");
    let findings = findings_after(|record| {
        record.orders.remove(2);
        record.compactions.remove(2);
    });
    assert!(findings.contains("was never sent and ended"), "{findings}");
    // A start whose result is unknown, and one that was never sent, are fine.
    let lost = findings_after(|record| {
        record.kept[1].change = job_ended(&intent(100, A, SHARD), JobResult::Lost);
    });
    assert_eq!(lost, "");
    let withdrawn = findings_after(|record| {
        record.orders.remove(2);
        record.compactions.remove(2);
        record.kept[5].orders = 2;
        record.kept[5].change =
            StateChange::StartWithdrawn(intent(4_000, A, "shards/00000000-ffffffff/users.1").key());
    });
    assert_eq!(withdrawn, "");
}

/// The whole program runs without limits and is judged by limits that it does not know.
#[tokio::test(start_paused = true)]
async fn breaches_of_a_process_without_limits_are_found() {
    let settings_yaml = |limits: &str, channel: &str, failure: &str| {
        let space = volumes(&[(&[A, B, C], "available: 100TB")]);
        let channel = format!("{{name: any, kind: db, priority: ratio, {channel}}}");
        format!(
            "mode: enforce\npoll: 5s\n{space}limits: {{{limits}}}\nchannels: [{channel}]\nfailure: {{{failure}}}\n"
        )
    };
    let lax = settings_yaml(
        "per_node: 9, cluster: 9, wait: 0s, duty: 100%, bytes_per_hour: 1PB, one_copy_of_a_range: false",
        "concurrency: 9",
        "cool_down: 1s, cool_down_max: 1s, quarantine_after: 99",
    );
    let strict = settings_yaml(
        "per_node: 1, cluster: 2, wait: 30s, bytes_per_hour: 10GB",
        r#"concurrency: 1, windows: [{days: [mon-sun], from: "05:00", to: "06:00", zone: UTC}]"#,
        "cool_down: 10m",
    );
    let mut world = nodes().with(Database { n: 3, ..bloated("mail", 1_000) });
    for name in ["orders", "users", "logs"] {
        world = world.with(on(A, bloated(name, 2_000)));
    }
    let mut rig = Rig::in_mode(Mode::Enforce, START, world, &lax);
    rig.run_for(10 * MINUTE).await;
    let mut record = rig.record();
    assert_eq!(breaches(&record), Vec::<String>::new(), "by its own settings there is no breach");
    record.lives[0].settings = loaded(&strict);
    let found = breaches(&record).join("\n");
    for breach in [
        "more jobs on the node",
        "more jobs in the cluster",
        "two copies of a range",
        "which may run 1",
        "any was shut",
        "after the start before it",
        "within an hour",
    ] {
        assert!(found.contains(breach), "{breach}: {found}");
    }
}

#[test]
fn empty_plan_has_no_undecided_targets() {
    assert_eq!(undecided(&Plan::default()), Vec::<String>::new());
}
