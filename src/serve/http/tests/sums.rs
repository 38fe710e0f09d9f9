//! A quantity has the same value on every page, in every response and in every metric.

use super::*;
use crate::{
    advice::{AdviceInputs, ForecastView, check},
    jobs::TargetConstraints,
    ledger::Books,
    model::{
        cause::Cause,
        forecast::{DAY, Forecast, FullRange},
        settings::Settings,
        target::CLUSTER_NODE,
    },
    plan::{
        Rules,
        disk::{Disks, Volume, VolumeSpace},
    },
    serve::report::{
        self, Advice, Changes, DatabaseLine, Databases, FullDates, HourLine, Hours, Planned,
        Queues as QueuesAnswer, Report, Space, Targets, Usage, WasteCourse,
    },
    serve::report_document,
    table::{DiskUsage, Movement, Movements, NodeFiles, PartSums},
    text::{
        document::markdown,
        size::{format_size, format_size_short},
    },
    what_if::VolumeForecasts,
};
use std::collections::BTreeMap;
use tokio::task::JoinSet;

const NODES: [&str; 3] = ["couchdb@a", "couchdb@b", "couchdb@c"];
const HALVES: [Range; 2] =
    [Range { from: 0, to: u32::MAX / 2 }, Range { from: u32::MAX / 2 + 1, to: u32::MAX }];

/// A database of two ranges with copies on every node and a view whose files were read on the first
/// node; also orphans, unused files, trash, targets without a size, a split, and an index cleanup.
pub(crate) fn crowded() -> Arc<Snapshot> {
    let mut draft = Draft::new(9);
    let nodes = NODES.map(|name| draft.get_or_add_node(name));
    for node in nodes {
        draft.update_node(node, |node| {
            (node.is_up, node.is_member, node.is_served) = (Some(true), true, true);
            node.last_success = Some(NOW);
            node.disk_usage = Some(DiskUsage {
                last_success: Some(NOW),
                stale_index_bytes: 7 * MIB,
                leftover_bytes: 5 * MIB,
                trash_bytes: 900 * MIB,
                recent_trash_bytes: 890 * MIB,
                ..DiskUsage::default()
            });
        });
    }
    let orders = draft.get_or_add_db(DbName { db: "orders", suffix: ".17" });
    for (at, node) in nodes.into_iter().enumerate() {
        for range in HALVES {
            let ix = draft.get_or_add_shard(node, orders, Some(range));
            // Watched for an hour, so that a forecast is possible.
            let earlier = Moment::from_unix(NOW.unix() - 3_600);
            let measured_at = Some(Measurement { at: earlier, source: FactSource::Http });
            let facts = facts((300 + at as u64) * MIB, 100 * MIB);
            draft.set_facts(ix, Facts { measured_at, ..facts });
            draft.set_facts(ix, facts);
        }
    }
    let old = draft.get_or_add_db(DbName { db: "orders", suffix: ".16" });
    let old = draft.get_or_add_shard(nodes[0], old, Some(RANGE));
    draft.set_facts(old, facts(500 * MIB, MIB));
    draft.set_state(old, TargetState::Orphan);
    let users = draft.get_or_add_db(DbName { db: "users", suffix: ".17" });
    let split = draft.get_or_add_shard(nodes[0], users, Some(RANGE));
    draft.set_facts(split, facts(90 * MIB, 30 * MIB));
    draft.set_state(split, TargetState::Resharding);
    let missing = draft.get_or_add_shard(nodes[1], users, Some(RANGE));
    draft.set_state(missing, TargetState::Missing);
    draft.get_or_add_shard(nodes[2], users, Some(RANGE));
    add_view(&mut draft, nodes[0]);
    draft.get_or_add_cleanup(orders);
    draft.publish(NOW)
}

fn add_view(draft: &mut Draft, node: crate::table::NodeIx) {
    let orders = draft.find_db(DbName { db: "orders", suffix: ".17" }).unwrap();
    let view = View {
        signature: Signature([1; 16]),
        designs: ["_design/clients".into()].into(),
        exact_range: true,
        ..View::default()
    };
    let ix = draft.add_view(orders, view);
    draft.set_shard_map(orders, ShardMapEntry { copies: 6, ranges: 2 }, &[ix]);
    draft.set_facts(ix, facts(60 * MIB, 20 * MIB));
    let mut sums = PartSums::default();
    for range in HALVES {
        let part = draft.get_or_add_part(node, orders, Some(range), Signature([1; 16]));
        draft.set_facts(part, facts(66 * MIB, 20 * MIB));
        let snapshot = draft.publish(NOW);
        let part = snapshot.target(part).unwrap();
        sums.add(&PartSums {
            count: 1,
            file_bytes: part.file_bytes().unwrap(),
            active_bytes: part.active_bytes().unwrap(),
            external_bytes: part.external_bytes().unwrap(),
            predicted_bytes: part.predicted_bytes().unwrap(),
            reclaimable_bytes: part.reclaimable_bytes().unwrap(),
        });
    }
    draft.set_parts(ix, sums);
    let stale = draft.get_or_add_part(node, orders, Some(HALVES[0]), Signature([9; 16]));
    draft.set_facts(stale, facts(7 * MIB, MIB));
    draft.set_state(stale, TargetState::Orphan);
}

/// A nearly full volume on each node.
fn conditions() -> Conditions {
    let space =
        VolumeSpace { available: 40 * MIB, size: Some(4_000 * MIB), held: None, measured_at: NOW };
    let volumes = NODES.map(|node| Volume {
        name: format!("{node} data").into(),
        nodes: vec![node.into()],
        space: Some(space),
        is_stated: false,
        falling_since: None,
        problem: None,
    });
    Conditions { disks: Arc::new(Disks { volumes: volumes.into() }), ..Conditions::default() }
}

/// The sum of all samples of a metric family.
fn sum(scrape: &str, family: &str) -> f64 {
    let samples = scrape.lines().filter(|line| !line.starts_with('#'));
    let of_family = samples
        .filter(|line| line.strip_prefix(family).is_some_and(|rest| rest.starts_with(['{', ' '])));
    of_family.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// Asserts that all sources give the same value for a quantity, apart from rounding errors in sums.
fn assert_one(fact: &str, values: &[(&str, f64)]) {
    let (_, first) = values[0];
    assert!(first > 0.0, "{fact} is zero");
    let is_same = |value: f64| (value - first).abs() <= 4.0;
    assert!(values.iter().all(|(_, value)| is_same(*value)), "{fact}: {values:#?}");
}

fn surface() -> (Surface, Arc<Snapshot>) {
    surface_under(&conditions(), &Arc::default())
}

fn surface_under(conditions: &Conditions, rules: &Arc<Rules>) -> (Surface, Arc<Snapshot>) {
    let (surface, snapshot) = (Surface::new(), crowded());
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, NOW);
    let plan = queues.make_plan(&snapshot, conditions, rules, NOW);
    surface.plan.send_replace(Arc::new(plan));
    (surface, snapshot)
}

#[tokio::test]
async fn every_quantity_is_the_same_in_api_pages_and_metrics() {
    let (surface, _) = surface();
    let space: Space = surface.answer("/api/v1/space").await;
    let advice: Advice = surface.answer("/api/v1/advice").await;
    let usage: Usage = surface.answer("/api/v1/usage").await;
    let listed: Targets = surface.answer("/api/v1/targets?limit=10000").await;
    let databases: Databases = surface.answer("/api/v1/databases?limit=10000").await;
    let queues: QueuesAnswer = surface.answer("/api/v1/queue").await;
    let scrape = surface.get("/metrics").await;
    let metric = |family: &str| sum(scrape.text(), family);
    let number = |value: Option<u64>| value.unwrap() as f64;
    let of_list = |read: fn(&report::Target) -> Option<u64>| {
        listed.targets.iter().filter_map(read).sum::<u64>() as f64
    };
    let of_volumes = |read: fn(&report::VolumeSpaceLine) -> Option<u64>| {
        space.volumes.iter().map(|volume| read(volume).unwrap()).sum::<u64>() as f64
    };
    let used = |read: fn(&report::UsageBytes) -> u64| {
        usage.largest.iter().map(|line| read(&line.bytes)).sum::<u64>() as f64
    };
    let unused = number(space.unused_bytes);
    let of_databases =
        |read: fn(&DatabaseLine) -> u64| databases.databases.iter().map(read).sum::<u64>() as f64;

    assert_one(
        "reclaimable",
        &[
            ("space", number(space.reclaimable_bytes)),
            ("volumes", of_volumes(|volume| volume.reclaimable_bytes)),
            ("metric", metric("recliner_reclaimable_bytes")),
            ("usage", used(|bytes| bytes.reclaimable_bytes)),
            ("databases", of_databases(|line| line.reclaimable_bytes)),
            ("targets", of_list(|target| target.reclaimable_bytes)),
            ("advice", number(advice.waste_bytes) - unused),
        ],
    );
    let beside = 3.0 * 22.0 * MIB as f64;
    assert_one(
        "on disk",
        &[
            ("space", number(space.file_bytes)),
            (
                "volumes",
                of_volumes(|it| Some(it.live_bytes? + it.reclaimable_bytes? + it.unused_bytes?)),
            ),
            ("metric", metric("recliner_file_bytes") + beside),
            ("usage", used(|bytes| bytes.file_bytes) + beside),
            ("databases", of_databases(|line| line.file_bytes) + beside),
            ("targets", of_list(|target| target.file_bytes) + beside),
            ("advice", number(advice.file_bytes)),
        ],
    );
    assert_one(
        "unused",
        &[
            ("space", unused),
            ("volumes", of_volumes(|volume| volume.unused_bytes)),
            ("metrics", metric("recliner_orphan_bytes") + beside),
        ],
    );
    assert_one(
        "targets",
        &[
            ("space", space.targets as f64),
            ("targets", listed.total as f64),
            ("metric", metric("recliner_targets")),
        ],
    );
    let sizeless = listed
        .targets
        .iter()
        .filter(|it| it.file_bytes.is_none() && it.state != "missing" && it.kind != "cleanup");
    assert_one(
        "unmeasured",
        &[
            ("space", space.unmeasured as f64),
            ("metric", metric("recliner_targets_unmeasured")),
            ("usage", used(|bytes| bytes.unmeasured)),
            ("databases", of_databases(|line| line.unmeasured)),
            ("targets", sizeless.count() as f64),
        ],
    );
    let estimated = listed.targets.iter().filter(|target| target.estimated);
    assert_one(
        "estimated",
        &[
            ("space", space.estimated as f64),
            ("usage", used(|bytes| bytes.estimated)),
            ("databases", of_databases(|line| line.estimated)),
            ("targets", estimated.count() as f64),
        ],
    );
    assert_one(
        "waiting",
        &[
            ("space", space.waiting as f64),
            ("queue", queues.queues.iter().map(|queue| queue.size).sum::<usize>() as f64),
            ("metric", metric("recliner_queue_size")),
        ],
    );
}

/// Books of a node on which waste grew and a compaction freed space.
fn books() -> Books {
    let at = |before: u64| Moment::from_unix(NOW.unix() - before);
    let files = |name: &str, bytes| NodeFiles {
        name: name.into(),
        bytes,
        is_complete: true,
        is_member: true,
        is_shown: false,
        other_files: Vec::new(),
    };
    let nodes = |bytes| vec![files(CLUSTER_NODE, 0), files(NODES[0], bytes)];
    let mib = |count: i64| count << 20;
    let entry =
        |cause, bytes| Movement { node: 1, cause, db: "orders".into(), design: "".into(), bytes };
    let mut books = Books::resume(None, Duration::from_secs(7_200), at(7_200));
    books.receive(Movements { nodes: nodes(mib(900)), entries: Vec::new() }, at(7_200));
    let entries = vec![entry(Cause::Waste, mib(30)), entry(Cause::Compaction, mib(-500))];
    books.receive(Movements { nodes: nodes(mib(430)), entries }, at(60));
    books
}

fn in_minutes(what: &str, at: &str) -> String {
    format!("{what} {}", at.get(..16).unwrap().replace('T', " "))
}

#[tokio::test]
async fn report_has_the_same_numbers_as_the_other_routes() {
    let (mut surface, mut tasks) = (surface().0, JoinSet::new());
    surface.state.journal = journal::surface(&mut tasks).await.state.journal;
    surface.state.ledger = watch::channel(Arc::new(books())).1;
    let report: Report = surface.answer("/api/v1/report?since=90m").await;
    let space: Space = surface.answer("/api/v1/space").await;
    let changes: Changes = surface.answer("/api/v1/changes?since=90m").await;
    let databases: Databases = surface.answer("/api/v1/databases?limit=10").await;
    let hours: Hours = surface.answer("/api/v1/history/hours?since=90m").await;
    let advice: Advice = surface.answer("/api/v1/advice").await;
    assert_eq!(report.space, space);
    assert_eq!(report.changes, changes);
    assert_eq!(report.databases, databases);
    assert_eq!(report.compactions, HourLine::sum(&hours.hours));
    assert_eq!(report.advice, advice);
    let after = space.reclaimable_bytes.unwrap();
    let waste = WasteCourse {
        after_bytes: Some(after),
        since: Some(changes.volumes[0].since.clone()),
        grown_bytes: 30 * MIB,
        freed_bytes: 500 * MIB,
        before_bytes: Some(after + 470 * MIB),
    };
    assert_eq!(report.waste, waste);
    assert_eq!(report.compactions.compactions, 4);
    let cost = report.cost.as_ref().unwrap();
    let gib = (1_u64 << 30) as f64;
    assert_eq!(cost.waste_per_month, Some(after as f64 / gib / 2.0));
    assert_eq!(cost.freed_per_month, (500 * MIB) as f64 / gib / 2.0, "of the same span");

    let page = report_document(&report);
    assert!(!page.contains("<script") && !page.contains("href=") && page.contains("<style>"));
    let text = markdown(&report.title(), &report.blocks());
    let [volume] = &*changes.volumes else { panic!("one node: {changes:?}") };
    let mut expected = vec![
        format_size_short(after + 470 * MIB),
        format_size(volume.before_bytes.unsigned_abs()).to_string(),
        format_size(volume.after_bytes.unsigned_abs()).to_string(),
        format!("{} and wrote", format_size_short(report.compactions.freed_bytes)),
        "all suspended by ann: backup".to_owned(),
        format!("{}: {}", in_minutes("Since", &report.compactions.from), "4 compactions"),
        in_minutes("Reclaimable by compaction on", report.waste.since.as_ref().unwrap()),
    ];
    expected.extend(databases.databases.iter().map(|it| format_size(it.file_bytes).to_string()));
    for says in expected {
        assert!(page.contains(&says), "{says}: {page}");
        assert!(text.contains(&says), "{says}: {text}");
    }
}

/// A file whose last compaction showed that another one frees less than its sizes suggest; and `_users`, whose
/// node-local files and clustered database have one name.
#[tokio::test]
async fn sums_agree_with_learned_sizes_and_node_local_databases() {
    let mut draft = Draft::new(9);
    let node = draft.get_or_add_node("couchdb@a");
    draft.update_node(node, |node| {
        (node.is_up, node.is_member, node.is_served) = (Some(true), true, true);
    });
    let mut add = |db, suffix, range, file: u64| {
        let db = draft.get_or_add_db(DbName { db, suffix });
        let ix = draft.get_or_add_shard(node, db, range);
        draft.set_facts(ix, facts(file * MIB, 20 * MIB));
        ix
    };
    let taught = add("orders", ".17", Some(RANGE), 70);
    add("_users", ".17", Some(RANGE), 50);
    add("_users", "", None, 40);
    let snapshot = draft.publish(NOW);
    let remaining_bytes = [(taught, 60 * MIB)].into();
    let constraints = TargetConstraints { remaining_bytes, ..TargetConstraints::default() };
    let conditions = Conditions { constraints: Arc::new(constraints), ..conditions() };
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, NOW);
    let plan = queues.make_plan(&snapshot, &conditions, &Arc::default(), NOW);
    let surface = Surface::new();
    surface.plan.send_replace(Arc::new(plan));

    let space: Space = surface.answer("/api/v1/space").await;
    let listed: Targets = surface.answer("/api/v1/targets?limit=10000").await;
    let databases: Databases = surface.answer("/api/v1/databases?limit=10000").await;
    let scrape = surface.get("/metrics").await;
    let metric = |family: &str| sum(scrape.text(), family);
    let of_list = |read: fn(&report::Target) -> Option<u64>| {
        listed.targets.iter().filter_map(read).sum::<u64>() as f64
    };
    let of_databases =
        |read: fn(&DatabaseLine) -> u64| databases.databases.iter().map(read).sum::<u64>() as f64;
    let of_orders = listed.targets.iter().find(|target| target.db == "orders").unwrap();
    assert_eq!(of_orders.reclaimable_bytes, Some(10 * MIB));
    let explained: report::Explanations = surface.answer("/api/v1/explain?target=orders").await;
    let by_sizes = explained.targets.first().and_then(|it| it.reclaimable_by_sizes).unwrap();
    assert!(by_sizes > 45 * MIB, "{by_sizes}");
    assert_one(
        "reclaimable",
        &[
            ("space", space.reclaimable_bytes.unwrap() as f64),
            ("targets", of_list(|target| target.reclaimable_bytes)),
            ("databases", of_databases(|line| line.reclaimable_bytes)),
            ("metric", metric("recliner_reclaimable_bytes")),
            ("metric of databases", metric("recliner_database_reclaimable_bytes")),
            ("metric of targets", metric("recliner_target_reclaimable_bytes")),
        ],
    );
    let queues: QueuesAnswer = surface.answer("/api/v1/queue").await;
    let queued = queues.queues.iter().flat_map(|queue| &queue.targets);
    assert_one(
        "reclaimable in queues",
        &[
            ("targets", queued.filter_map(|it| it.reclaimable_bytes).sum::<u64>() as f64),
            ("queues", queues.queues.iter().map(|it| it.reclaimable_bytes).sum::<u64>() as f64),
            ("metric", metric("recliner_queue_reclaimable_bytes")),
        ],
    );
    assert_one(
        "on disk",
        &[
            ("targets", of_list(|target| target.file_bytes)),
            ("databases", of_databases(|line| line.file_bytes)),
            ("metric of databases", metric("recliner_database_file_bytes")),
            ("metric of targets", metric("recliner_target_file_bytes")),
        ],
    );
}

#[tokio::test]
async fn pages_sentences_and_alert_rules_show_the_same_numbers() {
    let (surface, _) = surface();
    let space: Space = surface.answer("/api/v1/space").await;
    let advice: Advice = surface.answer("/api/v1/advice").await;
    let usage: Usage = surface.answer("/api/v1/usage").await;
    let scrape = surface.get("/metrics").await;
    let page = surface.get("/").await;
    let size = |bytes: Option<u64>| format!("{}</span>", format_size(bytes.unwrap()));
    for (text, says) in [
        (size(space.file_bytes), "on disk: shards, views and unused files"),
        (size(space.reclaimable_bytes), "reclaimable by compaction"),
        (size(space.unused_bytes), "in unused files"),
        (space.targets.to_string(), "targets: shards, views, cleanups"),
        (space.waiting.to_string(), "waiting for compaction"),
    ] {
        let card = format!("{text}</b><span>{says}");
        assert!(page.text().contains(&card), "{card}: {}", page.text());
    }
    let orders = usage.largest.iter().find(|line| line.db == "orders").unwrap();
    let of_orders = surface.get("/database?name=orders").await;
    let says =
        format!("{} reclaimable in all files", format_size_short(orders.bytes.reclaimable_bytes));
    assert!(of_orders.text().contains(&says), "{says}: {}", of_orders.text());
    // Sums the samples like the rule behind the alert.
    let (views, others): (Vec<&str>, Vec<&str>) = scrape
        .text()
        .lines()
        .filter(|line| line.starts_with("recliner_reclaimable_bytes{"))
        .partition(|line| line.contains("kind=\"view\""));
    let of_cluster = views.iter().copied().filter(|line| line.contains("node=\"_cluster\""));
    let alerted: Vec<&str> = others.into_iter().chain(of_cluster).collect();
    assert_one(
        "reclaimable in the alert",
        &[
            ("space", space.reclaimable_bytes.unwrap() as f64),
            ("rules", sum(&alerted.join("\n"), "recliner_reclaimable_bytes")),
        ],
    );
    let says = [space.reclaimable_bytes, space.unused_bytes, space.file_bytes];
    for size in says.map(|size| format_size_short(size.unwrap())) {
        assert!(advice.says.contains(&size), "{size}: {}", advice.says);
    }
}

/// The text in the cells of a page's tables, row by row.
fn cells(page: &str, part: &str) -> Vec<Vec<String>> {
    let part = page.split(&format!("aria-label=\"{part}\"")).nth(1).unwrap();
    let part = part.split("</table>").next().unwrap();
    let text = |cell: &str| {
        let pieces = cell.split('<').map(|piece| piece.split_once('>').map_or("", |(_, it)| it));
        pieces.collect::<String>()
    };
    let cells =
        |row: &str| row.split("<td").skip(1).map(|cell| text(&format!("<td{cell}"))).collect();
    part.split("<tr").skip(2).map(cells).collect()
}

/// The page of the forecast of a day.
async fn forecast(surface: &Surface) -> String {
    let request = Request::post("/what-if").extension(HERE);
    let request = request
        .header("host", "127.0.0.1:10984")
        .header("origin", "http://127.0.0.1:10984")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from("days=1"));
    let answer = surface.router().oneshot(request.unwrap()).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn pages_of_nodes_databases_and_the_forecast_show_the_same_numbers() {
    let (surface, _) = surface();
    let space: Space = surface.answer("/api/v1/space").await;
    let nodes = surface.get("/nodes").await;
    let directories = cells(nodes.text(), "Directories");
    assert_eq!(directories.len(), NODES.len());
    for row in directories {
        assert_eq!(
            row[2..5],
            [7, 5, 900].map(|size| format_size(size * MIB).to_string()),
            "{row:?}"
        );
    }

    let databases: Databases = surface.answer("/api/v1/databases?limit=10000").await;
    assert!(databases.databases.iter().any(|line| line.unmeasured > 0));
    for line in databases.databases {
        let page = surface.get(&format!("/database?name={}", line.db)).await;
        let [documents, indexes, reclaimable] =
            [line.document_bytes, line.index_bytes, line.reclaimable_bytes].map(format_size_short);
        let says =
            format!("{documents} of documents, {indexes} of indexes, {reclaimable} reclaimable");
        assert!(page.text().contains(&says), "{says}: {}", page.text());
        let unknown = page.text().contains("At least ") && page.text().contains("is unknown");
        assert_eq!(unknown, line.unmeasured > 0, "{}: {}", line.db, page.text());
    }

    let forecast = forecast(&surface).await;
    let rules = cells(&forecast, "Rules");
    let nothing = rules.iter().find(|row| row[0].contains("nothing")).unwrap();
    let reclaimable = format_size(space.reclaimable_bytes.unwrap()).to_string();
    assert_eq!(nothing[1], reclaimable, "{rules:?}");
}

#[tokio::test]
async fn full_date_of_a_volume_is_the_same_everywhere() {
    let (mut surface, _) = surface();
    let plan = Arc::clone(&surface.state.plan.borrow());
    let volume = &plan.conditions.disks.volumes[0];
    let at = |days: u32| NOW.plus(DAY * days);
    let full = FullRange { early: Some(at(9)), median: Some(at(10)), late: None };
    let in_force = Forecast { made_at: NOW, full, ..Forecast::default() };
    let known = VolumeForecasts { in_force, ..VolumeForecasts::default() };
    let by_volume = Arc::new([(Arc::clone(&volume.name), Ok(known))].into());
    let forecasts = Arc::new(ForecastView { by_volume, ..ForecastView::default() });
    let mut advice = AdviceView::default();
    advice.forecasts = forecasts;
    surface.state.advice = watch::channel(Arc::new(advice)).1;
    let space: Space = surface.answer("/api/v1/space").await;
    let scrape = surface.get("/metrics").await;
    let mut said = BTreeMap::new();
    for line in space.volumes {
        let FullDates { full_at, full_early_at, full_late_at } = line.full;
        for (bound, at) in [("early", full_early_at), ("median", full_at), ("late", full_late_at)] {
            let at = at.and_then(|at| Moment::parse(&at));
            said.extend(at.map(|at| {
                let (node, name) = (&line.nodes[0], &line.volume);
                let labels = format!("{{node=\"{node}\",volume=\"{name}\",bound=\"{bound}\"}}");
                (format!("recliner_forecast_full_timestamp_seconds{labels}"), at.unix())
            }));
        }
    }
    assert_eq!(said.len(), 2, "the volumes without a forecast, and the late end beyond its reach");
    let samples = scrape.text().lines();
    let samples = samples.filter(|line| line.starts_with("recliner_forecast_full_"));
    let exported = samples.filter_map(|line| line.rsplit_once(' '));
    let exported: BTreeMap<String, u64> =
        exported.map(|(name, at)| (name.to_owned(), at.parse().unwrap())).collect();
    assert_eq!(exported, said);
}

/// What compactions and the removal of unused files would free, as advice says it.
fn gains(plan: &Arc<Plan>) -> Vec<(&'static str, u64)> {
    let mut settings = Settings::new(couchdb_client::ClientSettings::new(Vec::new()));
    settings.advice.min_bytes = 1;
    let inputs =
        AdviceInputs::of_one_reading(Arc::clone(plan), Arc::default(), Arc::default(), &settings);
    let results = check(&inputs, NOW).into_iter();
    let gains = results.flat_map(|result| {
        let of_rule = result.findings.into_iter();
        of_rule.map(move |finding| (result.rule.code, finding.gain.freed_bytes()))
    });
    gains.filter(|(_, bytes)| *bytes > 0).collect()
}

#[tokio::test]
async fn no_advice_promises_more_bytes_than_are_wasted() {
    let (surface, _) = surface();
    let mut draft = Draft::new(1);
    let node = draft.get_or_add_node("couchdb@a");
    draft.update_node(node, |node| {
        (node.is_up, node.is_member, node.is_served) = (Some(true), true, true);
    });
    // A sidecar reads the index files of this node.
    let orders = draft.get_or_add_db(DbName { db: "orders", suffix: ".17" });
    let shard = draft.get_or_add_shard(node, orders, Some(RANGE));
    draft.set_facts(shard, facts(MIB, MIB));
    let stale = draft.get_or_add_part(node, orders, Some(RANGE), Signature([9; 16]));
    draft.set_facts(stale, facts(900 * MIB, MIB));
    draft.set_state(stale, TargetState::Orphan);
    let cleanup = draft.get_or_add_cleanup(orders);
    let flags = FactFlags { evidence: true, ..FactFlags::default() };
    draft.set_facts(cleanup, Facts { flags, ..facts(900 * MIB, 0) });
    let of_sidecar = Arc::new(planned(&draft.publish(NOW)));
    for plan in [Arc::clone(&surface.state.plan.borrow()), of_sidecar] {
        let found = gains(&plan);
        assert!(!found.is_empty());
        let advice = Advice::of(&AdviceView::default(), &plan, NOW);
        for (code, bytes) in found {
            assert!(
                bytes <= advice.waste_bytes.unwrap(),
                "{code}: {bytes} of {:?}",
                advice.waste_bytes
            );
        }
    }
}

#[tokio::test]
async fn unused_files_are_unknown_where_no_directory_is_read() {
    let surface = Surface::new();
    let mut draft = Draft::new(1);
    let node = draft.get_or_add_node("couchdb@a");
    draft.update_node(node, |node| {
        (node.is_up, node.is_member, node.is_served) = (Some(true), true, true);
    });
    let orders = draft.get_or_add_db(DbName { db: "orders", suffix: ".17" });
    let ix = draft.get_or_add_shard(node, orders, Some(HALVES[0]));
    draft.set_facts(ix, facts(3 * MIB, MIB));
    draft.get_or_add_shard(node, orders, Some(HALVES[1]));
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    let space: Space = surface.answer("/api/v1/space").await;
    assert_eq!((space.unused_bytes, space.unread_directories), (None, 1));
    assert_eq!((space.file_bytes, space.unmeasured), (Some(3 * MIB), 1));
    let page = surface.get("/").await;
    assert!(!page.text().contains("0 B"), "{}", page.text());
    for says in ["on disk: shards and views", "<code>--data-dir</code> reads them"] {
        assert!(page.text().contains(says), "{says}: {}", page.text());
    }
    let view = AdviceView::found(Vec::new(), NOW);
    let advice = Advice::of(&view, &surface.state.plan.borrow(), NOW);
    assert_eq!(
        advice.says,
        "At least 2 MiB reclaimable, of at least 3 MiB on disk. No recommendations for the part that was read. 1 shard or view was not measured: sizes are unknown. Leftovers, trash and the sizes of stale indexes are unknown; to read them from CouchDB's directory, add `--data-dir /opt/couchdb/data`."
    );

    draft.update_node(node, |node| node.has_sidecar = true);
    let advice = Advice::of(&view, &planned(&draft.publish(NOW)), NOW);
    let hint = " Leftovers and trash on 1 node are known only to the sidecars there: `recliner advise --recliner.url URL` with each sidecar's URL shows them.";
    assert!(advice.says.ends_with(hint) && !advice.says.contains("stale"), "{}", advice.says);
    draft.update_node(node, |node| node.has_sidecar = false);

    draft.update_node(node, |node| node.is_up = Some(false));
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    let advice = Advice::of(&AdviceView::found(Vec::new(), NOW), &surface.state.plan.borrow(), NOW);
    let away = " No answer from couchdb@a: sizes there are those last read, or unknown.";
    assert!(advice.says.ends_with(away), "{}", advice.says);

    // Nothing at all is known of the sizes of shards, but those of views are: a lower bound.
    draft.remove(ix);
    let view = View { signature: Signature([1; 16]), exact_range: true, ..View::default() };
    let view = draft.add_view(orders, view);
    draft.set_shard_map(orders, ShardMapEntry { copies: 1, ranges: 1 }, &[view]);
    draft.set_facts(view, facts(3 * MIB, MIB));
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    let space: Space = surface.answer("/api/v1/space").await;
    assert_eq!((space.file_bytes, space.unmeasured), (Some(3 * MIB), 1));
}

#[tokio::test]
async fn single_view_files_are_listed_only_by_node_state_or_id() {
    let (surface, snapshot) = surface();
    let count = async |query: &str| {
        let found: Targets = surface.answer(&format!("/api/v1/targets?kind=view{query}")).await;
        found.total
    };
    assert_eq!(count("").await, 1, "the view stands for its files");
    assert_eq!(count("&node=couchdb@a").await, 3);
    assert_eq!(count("&state=orphan").await, 1);
    let part = snapshot.targets().find(|target| target.is_part()).unwrap().id().to_string();
    assert_eq!(count(&format!("&search={}", answers::encoded(&part))).await, 1);
}

/// In advise mode the first targets in line hold the others back, but nothing runs.
#[tokio::test]
async fn no_page_or_answer_claims_that_a_planned_compaction_runs() {
    for (per_node, cluster) in [(1, 8), (2, 2), (8, 1), (8, 8)] {
        let mut rules = Rules::default();
        (rules.limits.per_node, rules.limits.cluster) = (per_node, cluster);
        let (surface, snapshot) = surface_under(&Conditions::default(), &Arc::new(rules));
        let planned: Planned = surface.answer("/api/v1/plan?limit=1000").await;
        assert_eq!(planned.mode, "advise");
        assert!(!planned.starts.is_empty() && !planned.refused.is_empty(), "{planned:?}");
        let mut paths: Vec<String> =
            ["/", "/databases", "/targets", "/queue", "/jobs", "/database?name=orders"]
                .map(ToOwned::to_owned)
                .into();
        paths.push("/api/v1/plan?limit=1000".to_owned());
        paths.extend(snapshot.targets().flat_map(|target| {
            let id = answers::encoded(&target.id().to_string());
            [format!("/target?id={id}"), format!("/api/v1/explain?target={id}")]
        }));
        for path in paths {
            let shown = surface.get(&path).await;
            let text = shown.text();
            for says in ["is being compacted", "are being compacted", "runs or is", "running jobs"]
            {
                assert!(!text.contains(says), "{path} says {says}: {text}");
            }
        }
    }
}
