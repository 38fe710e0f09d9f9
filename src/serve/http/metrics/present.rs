//! The present, read at scrape: nodes, sizes, queues, smoosh, configuration.
//!
//! Absent where unknown, zero where known to be zero. Nothing is summed here: totals and
//! the top databases come with the snapshot.

use super::{Rows, Scrape, places, plan, top};
use crate::{
    datadir::Problem,
    model::{
        channel::{Channel, Mode, Priority},
        facts::Source,
        target::{Kind, State as TargetState},
    },
    plan::{Plan, QueueView},
    scan::Status,
    serve::http::families as f,
    table::{Node, NodeIx, SmooshChannel, SmooshSeen, Sums},
};
use couchdb_client::{self, CertificateEnds};
use metrics_text::Writer;
use std::collections::BTreeMap;

/// Writes every family of the present.
pub(super) fn write(writer: &mut Writer, scrape: &Scrape) {
    let plan = &*scrape.plan;
    program(writer, scrape);
    couchdb(writer, &scrape.couchdb);
    nodes(writer, plan);
    scans(writer, plan, &scrape.status);
    sizes(writer, plan);
    top::write(writer, plan);
    queues(writer, plan);
    plan::write(writer, plan);
    smoosh(writer, plan);
}

fn program(writer: &mut Writer, scrape: &Scrape) {
    let Scrape { plan, config, about, .. } = scrape;
    writer.family(&f::BUILD_INFO).sample(&[about.version, about.revision], 1_u64);
    let mut samples = writer.family(&f::MODE);
    for mode in Mode::ALL {
        samples.sample(&[mode.label()], mode == config.mode);
    }
    let mut samples = writer.family(&f::CHANNEL_MODE);
    for channel in &plan.channels.list {
        let in_force = channel.mode.and(config.mode);
        for mode in Mode::ALL {
            samples.sample(&[&channel.name, mode.label()], mode == in_force);
        }
    }
    writer.family(&f::CONFIG_LAST_RELOAD_SUCCESSFUL).sample(&[], config.reload_successful);
    writer.family(&f::CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP).sample(&[], config.loaded_at);
    writer.family(&f::CONFIG_NEEDS_RESTART).sample(&[], config.needs_restart.len() as u64);
    certificates(writer, scrape.web_certificates, scrape.couchdb_certificates);
    let mut samples = writer.family(&f::CHANNEL_CONCURRENCY_LIMIT);
    for channel in &plan.channels.list {
        samples.sample(&[&channel.name], channel.concurrency);
    }
}

fn certificates(writer: &mut Writer, web: CertificateEnds, couchdb: CertificateEnds) {
    let mut samples = writer.family(&f::CERTIFICATE_EXPIRY_TIMESTAMP);
    for (purpose, end) in [
        ("web", web.own),
        ("web_clients", web.authorities),
        ("couchdb", couchdb.own),
        ("couchdb_ca", couchdb.authorities),
    ] {
        if let Some(end) = end {
            samples.sample(&[purpose], end);
        }
    }
}

/// The cluster's nodes, without the pseudo node.
fn members(plan: &Plan) -> impl Iterator<Item = &Node> {
    plan.snapshot.nodes().iter().skip(1).map(AsRef::as_ref).filter(|node| node.member)
}

fn couchdb(writer: &mut Writer, entries: &[couchdb_client::Entry]) {
    let mut samples = writer.family(&f::COUCHDB_UP);
    for entry in entries {
        if let Some(up) = entry.up {
            samples.sample(&[entry.url.as_str()], up);
        }
    }
}

fn nodes(writer: &mut Writer, plan: &Plan) {
    let mut samples = writer.family(&f::NODE_UP);
    for node in members(plan) {
        if let Some(up) = node.up {
            samples.sample(&[&node.name], up);
        }
    }
    let mut samples = writer.family(&f::NODE_INFO);
    for node in members(plan) {
        if let Some(version) = node.version {
            samples.sample(&[&node.name, &version.to_string()], 1_u64);
        }
    }
}

fn scans(writer: &mut Writer, plan: &Plan, status: &Status) {
    let [http, files] = Source::ALL.map(Source::label);
    let mut samples = writer.family(&f::SCAN_LAST_SUCCESS_TIMESTAMP);
    for (_, node) in places(plan) {
        let of_files = node.disk.and_then(|disk| disk.last_success);
        for (source, at) in [(http, node.last_success), (files, of_files)] {
            if let Some(at) = at {
                samples.sample(&[&node.name, source], at);
            }
        }
    }
    let mut samples = writer.family(&f::SCAN_OLDEST_FACT_TIMESTAMP);
    for (_, node) in places(plan) {
        let of_files = node.disk.and_then(|disk| disk.oldest_fact);
        for (source, at) in [(http, node.oldest_fact), (files, of_files)] {
            if let Some(at) = at {
                samples.sample(&[&node.name, source], at);
            }
        }
    }
    let walks = members(plan).filter_map(|node| node.disk).map(|disk| disk.took_ms);
    let walk = walks.max().map(|milliseconds| milliseconds as f64 / 1e3);
    let asked = members(plan).any(|node| node.up.is_some()) || walk.is_none();
    let sweep = status.last_duration.filter(|_| asked).map(|took| took.as_secs_f64());
    let mut samples = writer.family(&f::SCAN_DURATION);
    for (source, took) in [(http, sweep), (files, walk)] {
        if let Some(took) = took {
            samples.sample(&[source], took);
        }
    }
    let fresh_for = plan.rules.fresh_for.as_secs_f64();
    writer.family(&f::SCAN_FRESH_FOR).sample(&[], fresh_for);
    // From zero on, because the first failure is no increase of a counter that was absent.
    let mut errors: BTreeMap<(&str, &str), u64> = members(plan)
        .flat_map(|node| couchdb_client::Kind::ALL.map(|kind| ((&*node.name, kind.label()), 0)))
        .collect();
    for node in members(plan).filter(|node| node.disk.is_some()) {
        errors.extend(Problem::ALL.map(|problem| ((&*node.name, problem.label()), 0)));
    }
    errors.extend(status.errors.iter().map(|((node, reason), count)| ((&**node, *reason), *count)));
    let mut samples = writer.family(&f::SCAN_ERRORS);
    for ((node, reason), count) in errors {
        samples.sample(&[node, reason], count);
    }
}

/// Nodes that the shard map places copies on though they are no members of the cluster, and
/// how many.
fn strangers(plan: &Plan) -> impl Iterator<Item = (&str, u64)> {
    let nodes = plan.snapshot.nodes().iter().enumerate().skip(1);
    let nodes = nodes.filter(|(_, node)| node.served && !node.member);
    nodes.filter_map(|(at, node)| {
        let sums = plan.snapshot.totals().of(NodeIx::from_usize(at)?, Kind::Db);
        let missing = sums.states[TargetState::Missing as usize];
        (missing > 0).then_some((&*node.name, missing))
    })
}

fn sizes(writer: &mut Writer, plan: &Plan) {
    let totals = plan.snapshot.totals();
    // Databases are on nodes; views with all their copies, cleanups and search indexes are on the
    // pseudo node. Where nothing was found and no pass ever ended, nothing is known to be zero.
    let combinations: Vec<(&str, Kind, Sums)> = places(plan)
        .flat_map(|(at, node)| {
            Kind::ALL
                .into_iter()
                .filter(move |kind| (*kind == Kind::Db) != (at == NodeIx::CLUSTER))
                .map(move |kind| (node, kind, totals.of(at, kind)))
        })
        .filter(|(node, _, sums)| {
            let walked = node.disk.is_some_and(|disk| disk.last_success.is_some());
            node.last_success.is_some() || walked || *sums != Sums::default()
        })
        .map(|(node, kind, sums)| (&*node.name, kind, sums))
        .collect();
    let mut samples = writer.family(&f::TARGETS);
    for (node, kind, sums) in &combinations {
        for state in TargetState::ALL {
            samples.sample(&[node, kind.label(), state.label()], sums.states[state as usize]);
        }
    }
    let missing = TargetState::Missing;
    for (node, count) in strangers(plan) {
        samples.sample(&[node, Kind::Db.label(), missing.label()], count);
    }
    let mut unmeasured: BTreeMap<&str, u64> = BTreeMap::new();
    for (node, _, sums) in &combinations {
        *unmeasured.entry(node).or_default() += sums.file.unknown();
    }
    let mut samples = writer.family(&f::TARGETS_UNMEASURED);
    for (node, count) in unmeasured {
        samples.sample(&[node], count);
    }
    let mut samples = writer.family(&f::ORPHAN_BYTES);
    for (node, _, sums) in combinations.iter().filter(|(_, kind, _)| *kind == Kind::Db) {
        if let Some(bytes) = sums.orphan.get() {
            samples.sample(&[node], bytes);
        }
    }
    let sums: Rows<&Sums, Option<f64>, 2, 4> = [
        (&f::FILE_BYTES, |sums| sums.file.get()),
        (&f::ACTIVE_BYTES, |sums| sums.active.get()),
        (&f::EXTERNAL_BYTES, |sums| sums.external.get()),
        (&f::RECLAIMABLE_BYTES, |sums| sums.reclaimable.get()),
    ];
    for (family, sum) in sums {
        let mut samples = writer.family(family);
        // Of what is live in Lucene's files, or can be freed there, CouchDB says nothing.
        let has = |kind: Kind| match kind {
            Kind::Db | Kind::View => true,
            Kind::Search => std::ptr::eq(family, &f::FILE_BYTES),
            Kind::Cleanup => false,
        };
        for (node, kind, sums) in combinations.iter().filter(|(_, kind, _)| has(*kind)) {
            if let Some(bytes) = sum(sums) {
                samples.sample(&[node, kind.label()], bytes);
            }
        }
    }
}

fn queues(writer: &mut Writer, plan: &Plan) {
    let queues: Vec<(&str, &Channel, &QueueView)> = plan
        .queues
        .iter()
        .filter_map(|queue| {
            let node = plan.snapshot.node(queue.node)?;
            Some((&*node.name, plan.channels.list.get(queue.channel)?, &**queue))
        })
        .collect();
    let counts: Rows<&QueueView, u64, 2, 5> = [
        (&f::QUEUE_SIZE, |queue| queue.waiting().len() as u64),
        (&f::QUEUE_ACTIVE, |queue| queue.active as u64),
        (&f::QUEUE_CAPACITY, |queue| queue.capacity as u64),
        (&f::QUEUE_OVERFLOW, |queue| queue.overflow as u64),
        (&f::QUEUE_RECLAIMABLE_BYTES, |queue| queue.reclaimable),
    ];
    for (family, count) in counts {
        let mut samples = writer.family(family);
        for (node, channel, queue) in &queues {
            samples.sample(&[node, &channel.name], count(queue));
        }
    }
    let mut samples = writer.family(&f::QUEUE_OLDEST_TIMESTAMP);
    for (node, channel, queue) in &queues {
        if let Some(oldest) = queue.oldest {
            samples.sample(&[node, &channel.name], oldest);
        }
    }
    for (family, priority, largest) in [
        (&f::QUEUE_RATIO_MIN, Priority::Ratio, false),
        (&f::QUEUE_RATIO_MAX, Priority::Ratio, true),
        (&f::QUEUE_SLACK_BYTES_MIN, Priority::Slack, false),
        (&f::QUEUE_SLACK_BYTES_MAX, Priority::Slack, true),
    ] {
        let mut samples = writer.family(family);
        for (node, channel, queue) in queues.iter().filter(|(_, it, _)| it.priority == priority) {
            if let Some((best, worst)) = queue.priority {
                samples.sample(&[node, &channel.name], if largest { best } else { worst });
            }
        }
    }
}

fn smoosh(writer: &mut Writer, plan: &Plan) {
    let mut samples = writer.family(&f::SMOOSH_UP);
    for node in members(plan) {
        match node.smoosh {
            SmooshSeen::Channels(_) => samples.sample(&[&node.name], 1_u64),
            SmooshSeen::Failed => samples.sample(&[&node.name], 0_u64),
            SmooshSeen::Unasked | SmooshSeen::NotOffered => {}
        }
    }
    let channels: Vec<(&str, &SmooshChannel)> = members(plan)
        .flat_map(|node| {
            match &node.smoosh {
                SmooshSeen::Channels(channels) => channels.as_slice(),
                SmooshSeen::Unasked | SmooshSeen::NotOffered | SmooshSeen::Failed => &[],
            }
            .iter()
            .map(|channel| (&*node.name, channel))
        })
        .collect();
    let counts: Rows<&SmooshChannel, u64, 2, 3> = [
        (&f::SMOOSH_ACTIVE, |channel| channel.active),
        (&f::SMOOSH_STARTING, |channel| channel.starting),
        (&f::SMOOSH_WAITING, |channel| channel.waiting),
    ];
    for (family, count) in counts {
        let mut samples = writer.family(family);
        for (node, channel) in &channels {
            samples.sample(&[node, &channel.name], count(channel));
        }
    }
    for (family, largest) in
        [(&f::SMOOSH_WAITING_PRIORITY_MIN, false), (&f::SMOOSH_WAITING_PRIORITY_MAX, true)]
    {
        let mut samples = writer.family(family);
        for (node, channel) in &channels {
            if let Some(priority) = channel.priority {
                let value = if largest { priority.max } else { priority.min };
                samples.sample(&[node, &channel.name], value);
            }
        }
    }
}
