//! `limits`, `headroom`, `pressure`, `failure`: what holds starts back.

use super::{SECOND, set};
use crate::{
    config::{
        section::{Report, Section},
        tree::Node,
        value,
    },
    model::settings::limits::{Failure, Free, Headroom, Limits, Marks, Pressure, Volume},
    text::duration,
};
use std::time::Duration;

pub(super) fn limits(section: &mut Section<'_, '_>) -> Limits {
    let mut limits = Limits::default();
    set(&mut limits.per_node, section.value("per_node", value::integer(0..=10_000)));
    set(&mut limits.cluster, section.value("cluster", value::integer(0..=1_000_000)));
    set(&mut limits.bytes_per_hour, section.value("bytes_per_hour", value::bytes));
    set(&mut limits.wait, section.value("wait", value::duration(Duration::ZERO)));
    set(&mut limits.one_copy_of_a_range, section.value("one_copy_of_a_range", value::boolean));
    limits
}

pub(super) fn headroom(section: &mut Section<'_, '_>) -> Headroom {
    let mut headroom = Headroom::default();
    set(&mut headroom.factor, section.value("factor", value::number_in(1.0..=100.0)));
    set(&mut headroom.keep_free_percent, section.value("keep_free", value::percent));
    set(&mut headroom.blind_limit, section.value("blind_limit", value::bytes));
    set(&mut headroom.volumes, section.list("volumes", volume));
    headroom
}

fn volume(report: &mut Report, node: &Node, path: &str) -> Option<Volume> {
    let (mut section, is_mapping) = Section::open(report, node, path);
    let nodes = section.values("nodes", value::node_name);
    let asked = section.key_at("prometheus").is_some();
    let given = section.key_at("available").is_some();
    let prometheus = section.section("prometheus", |section| {
        let missing: Vec<&str> =
            ["url", "query"].into_iter().filter(|key| section.key_at(key).is_none()).collect();
        for key in missing {
            section.refuse(format!("the key {key} is missing; both url and query are needed"));
        }
        let url = section.value("url", value::url("a Prometheus server", "http://prom:9090"));
        let query = section.value("query", value::text);
        let max_age = section.value("max_age", value::duration(SECOND));
        let max_age = max_age.unwrap_or(Duration::from_secs(300));
        Some(Free::Prometheus { url: url?, query: query?, max_age })
    });
    let available = section.value("available", value::bytes).map(Free::Available);
    if is_mapping && nodes.as_ref().is_none_or(Vec::is_empty) {
        section.refuse(
            "the key nodes is missing or names nobody; it says whose files are on the volume",
        );
    }
    if is_mapping && asked == given {
        let found = if asked {
            "both prometheus and available"
        } else {
            "neither prometheus nor available"
        };
        section.refuse(format!("found {found}; exactly one of them says what is free"));
    }
    section.close(is_mapping);
    let nodes = nodes?.into_iter().map(|node| node.value).collect();
    Some(Volume { nodes, free: prometheus.flatten().or(available)? })
}

pub(super) fn pressure(section: &mut Section<'_, '_>) -> Pressure {
    let mut pressure = Pressure::default();
    let moment = || value::duration(Duration::from_millis(1));
    let shown = |span: &Duration| duration::exact(*span);
    marks(section, "probe_latency", &mut pressure.probe_latency, moment(), shown);
    marks(section, "run_queue", &mut pressure.run_queue, value::count, u64::to_string);
    marks(
        section,
        "replication_backlog",
        &mut pressure.replication_backlog,
        value::count,
        u64::to_string,
    );
    marks(section, "indexers", &mut pressure.indexers, value::count, u64::to_string);
    set(&mut pressure.hold_at_most, section.value("hold_at_most", value::duration(SECOND)));
    pressure
}

/// A high and a low mark, of which the low one is not above the high one.
fn marks<T: PartialOrd + Copy>(
    section: &mut Section<'_, '_>,
    key: &'static str,
    marks: &mut Marks<T>,
    read: impl Fn(&str) -> value::Read<T>,
    shown: impl Fn(&T) -> String,
) {
    section.section(key, |section| {
        set(&mut marks.high, section.value("high", &read));
        set(&mut marks.low, section.value("low", &read));
        if marks.low > marks.high {
            section.refuse(format!(
                "low is {} and high is {}; low must not be above high",
                shown(&marks.low),
                shown(&marks.high)
            ));
        }
    });
}

pub(super) fn failure(section: &mut Section<'_, '_>) -> Failure {
    let mut failure = Failure::default();
    set(&mut failure.cool_down, section.value("cool_down", value::duration(SECOND)));
    let most = section.value("cool_down_max", value::duration(SECOND));
    failure.cool_down_max = most.unwrap_or_else(|| failure.cool_down_max.max(failure.cool_down));
    set(
        &mut failure.quarantine_after,
        section.value("quarantine_after", value::integer(1..=1_000)),
    );
    if failure.cool_down > failure.cool_down_max {
        section.refuse(format!(
            "cool_down is {} and cool_down_max is {}; the longest must not be below the first",
            duration::exact(failure.cool_down),
            duration::exact(failure.cool_down_max)
        ));
    }
    failure
}
