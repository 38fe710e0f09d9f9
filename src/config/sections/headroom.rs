//! `headroom`: what must stay free on the disks.

use crate::{
    config::{
        form::{Form, keys, list, section},
        section::Section,
        values::{SECOND, bytes, bytes_from_mib, duration, node_name, number, percent, text, url},
    },
    model::settings::limits::{Free, Headroom, VolumeSettings},
};
use couchdb_client::Address;
use serde_json::json;
use std::time::Duration;

pub(super) fn form() -> Form<Headroom> {
    let keys = keys!(Headroom {
        "headroom.factor" => factor, Live, number(1.0..=100.0),
            "The space that a database's compaction may need, as a multiple of its active bytes.";
        "headroom.keep_free" => keep_free_percent, Live, percent(),
            "Share of each volume that no start may use up; it needs the volume's size.";
        "headroom.blind_limit" => blind_limit, Live, bytes(),
            "The largest file that is compacted where free space is unknown.";
        "headroom.volumes" => volumes, Live, list(volume()),
            "Where the free space of each volume is known from; one volume may have files of several nodes.";
    });
    section(keys, |_, _| {})
}

/// A volume as it is written.
#[derive(Clone, Default)]
struct VolumeKeys {
    nodes: Vec<String>,
    prometheus: Option<PrometheusKeys>,
    available: Option<u64>,
    size: Option<u64>,
}

/// A query as it is written.
#[derive(Clone)]
struct PrometheusKeys {
    url: Option<Address>,
    query: Option<String>,
    size_query: Option<String>,
    max_age: Duration,
}

fn volume() -> Form<VolumeSettings> {
    let keys = keys!(VolumeKeys {
        "nodes" => nodes, Live, list(node_name()).with_schema(json!({"minItems": 1})),
            "The nodes whose files are on the volume.";
        "prometheus" => prometheus, Live, prometheus().optional(),
            "A Prometheus server that knows the free bytes.";
        "available" => available, Live, bytes().optional(),
            "A fixed number of bytes that may be taken as free.";
        "size" => size, Live, bytes_from_mib().optional(),
            "The volume's size, which keep_free and the horizons of channels by rent need; or use prometheus.size_query.";
    });
    section(keys, check_volume)
        .starting_from(VolumeKeys::default())
        .with_schema(json!({
            "required": ["nodes"],
            "oneOf": [{"required": ["prometheus"]}, {"required": ["available"]}],
        }))
        .map(|written| to_volume(written).ok_or(None), from_volume)
}

fn check_volume(written: &mut VolumeKeys, section: &mut Section<'_, '_>) {
    if written.nodes.is_empty() {
        section.refuse("the key nodes is missing or empty; it says whose files are on the volume");
    }
    let has_query = written.prometheus.as_ref().is_some_and(|it| it.size_query.is_some());
    if has_query && written.size.is_some() {
        section.refuse("found both size and prometheus.size_query; only one of them may say how large the volume is");
    }
    if written.size.zip(written.available).is_some_and(|(size, available)| available > size) {
        section.refuse("available is more than size; free space is a part of the volume");
    }
    let found = match (section.key_at("prometheus"), section.key_at("available")) {
        (Some(_), Some(_)) => "both prometheus and available",
        (None, None) => "neither prometheus nor available",
        (Some(_), None) | (None, Some(_)) => return,
    };
    section.refuse(format!("found {found}; exactly one of them says what is free"));
}

fn to_volume(written: VolumeKeys) -> Option<VolumeSettings> {
    let VolumeKeys { nodes, prometheus, available, size } = written;
    let free = match prometheus {
        Some(PrometheusKeys { url, query, size_query, max_age }) => {
            Free::Prometheus { url: url?, query: query?, size_query, max_age }
        }
        None => Free::Available(available?),
    };
    Some(VolumeSettings { nodes, free, size })
}

fn from_volume(volume: &VolumeSettings) -> VolumeKeys {
    let VolumeSettings { nodes, free, size } = volume;
    let (prometheus, available) = match free {
        Free::Available(bytes) => (None, Some(*bytes)),
        Free::Prometheus { url, query, size_query, max_age } => {
            let keys = PrometheusKeys {
                url: Some(url.clone()),
                query: Some(query.clone()),
                size_query: size_query.clone(),
                max_age: *max_age,
            };
            (Some(keys), None)
        }
    };
    VolumeKeys { nodes: nodes.clone(), prometheus, available, size: *size }
}

fn prometheus() -> Form<PrometheusKeys> {
    let keys = keys!(PrometheusKeys {
        "url" => url, Live, url("a Prometheus server", "http://prom:9090").optional(),
            "The URL of the Prometheus server.";
        "query" => query, Live, text().optional(),
            "A PromQL query whose one sample is the number of free bytes.";
        "size_query" => size_query, Live, text().optional(),
            "A PromQL query whose one sample is the volume's size in bytes.";
        "max_age" => max_age, Live, duration(SECOND),
            "An older sample counts as none.";
    });
    let check = |_: &mut PrometheusKeys, section: &mut Section<'_, '_>| {
        for key in ["url", "query"] {
            if section.key_at(key).is_none() {
                section.refuse(format!("the key {key} is missing; both url and query are needed"));
            }
        }
    };
    section(keys, check)
        .starting_from(PrometheusKeys {
            url: None,
            query: None,
            size_query: None,
            max_age: Duration::from_secs(300),
        })
        .with_schema(json!({"required": ["url", "query"]}))
}
