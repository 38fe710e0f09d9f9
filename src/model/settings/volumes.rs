//! Sources of the free space of volumes.

use super::MINUTE;
use crate::config_format::{
    form::{Form, list, settings},
    section::Section,
    values::{SECOND, bytes, bytes_from_mib, duration, node_name, text, url},
};
use couchdb_client::Address;
use serde_json::json;
use std::time::Duration;

/// One volume and the nodes whose files are on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSettings {
    /// The nodes, by CouchDB's names.
    pub nodes: Vec<String>,
    /// The source of its free space.
    pub free: Free,
    /// Its size in bytes, where the configuration states it.
    pub size: Option<u64>,
}

impl VolumeSettings {
    /// Whether the configuration gives its size or a query for it.
    pub const fn has_size(&self) -> bool {
        self.size.is_some() || matches!(&self.free, Free::Prometheus { size_query: Some(_), .. })
    }
}

/// The source of a volume's free space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Free {
    /// The result of a query.
    Prometheus {
        /// The Prometheus server.
        url: Address,
        /// A PromQL expression with one sample, the free bytes.
        query: String,
        /// A PromQL expression with one sample, the volume's size in bytes.
        size_query: Option<String>,
        /// Maximum age of the sample.
        max_age: Duration,
    },
    /// A fixed number of bytes to count as free.
    Available(u64),
}

settings! {
    /// A volume as it is written.
    #[derive(Clone)]
    struct VolumeKeys {
        /// The nodes whose files are on the volume.
        "nodes" => nodes: Vec<String> = Vec::new(), Live, list(node_name()).with_schema(json!({"minItems": 1}));
        /// A Prometheus server that has the free bytes.
        "prometheus" => prometheus: Option<PrometheusKeys> = None, Live, prometheus().optional();
        /// A fixed number of free bytes; allows no forecast.
        "available" => available: Option<u64> = None, Live, bytes().optional();
        /// The volume's size, which keep_free and the horizons of channels by rent need; or use prometheus.size_query.
        "size" => size: Option<u64> = None, Live, bytes_from_mib().optional();
    }
    check = check_volume;
}

settings! {
    /// A query as it is written.
    #[derive(Clone)]
    struct PrometheusKeys {
        /// The URL of the Prometheus server.
        "url" => url: Option<Address> = None, Live, url("a Prometheus server", "http://prom:9090").optional();
        /// A PromQL query that returns one sample, the free bytes.
        "query" => query: Option<String> = None, Live, text().optional();
        /// A PromQL query that returns one sample, the volume's size in bytes.
        "size_query" => size_query: Option<String> = None, Live, text().optional();
        /// Maximum age of a sample; older ones are ignored.
        "max_age" => max_age: Duration = 5 * MINUTE, Live, duration(SECOND);
    }
    check = check_prometheus;
}

fn prometheus() -> Form<PrometheusKeys> {
    PrometheusKeys::form()
        .starting_from(PrometheusKeys::default())
        .with_schema(json!({"required": ["url", "query"]}))
}

fn check_prometheus(_: &mut PrometheusKeys, section: &mut Section<'_, '_>) {
    for key in ["url", "query"] {
        if section.key_at(key).is_none() {
            section.refuse(format!("the key {key} is missing; both url and query are needed"));
        }
    }
}

pub(super) fn form() -> Form<VolumeSettings> {
    VolumeKeys::form()
        .starting_from(VolumeKeys::default())
        .with_schema(json!({
            "required": ["nodes"],
            "oneOf": [{"required": ["prometheus"]}, {"required": ["available"]}],
        }))
        .map(|written| to_volume(written).ok_or(None), from_volume)
}

fn check_volume(written: &mut VolumeKeys, section: &mut Section<'_, '_>) {
    if written.nodes.is_empty() {
        section.refuse(
            "the key nodes is missing or empty; it lists the nodes whose files are on the volume",
        );
    }
    let has_query = written.prometheus.as_ref().is_some_and(|it| it.size_query.is_some());
    if has_query && written.size.is_some() {
        section.refuse("found both size and prometheus.size_query; give only one of them");
    }
    if written.size.zip(written.available).is_some_and(|(size, available)| available > size) {
        section.refuse("available is more than size; it must be at most size");
    }
    let found = match (section.key_at("prometheus"), section.key_at("available")) {
        (Some(_), Some(_)) => "both prometheus and available",
        (None, None) => "neither prometheus nor available",
        (Some(_), None) | (None, Some(_)) => return,
    };
    section.refuse(format!("found {found}; give exactly one of them as the source of free space"));
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
