//! Volumes: their size, free space, and the space reserved for running compactions.

use crate::{
    advice::ForecastView,
    jobs::Jobs,
    plan::disk::{Disks, Volume},
    table::Snapshot,
};
use metrics_text::{Writer, families};

families! {
    DISK_KNOWN: Gauge None "recliner_disk_known" ["node", "volume"]
        "1 if the volume's free space is known, 0 if not.";
    DISK_SIZE_BYTES: Gauge Bytes "recliner_disk_size_bytes" ["node", "volume"]
        "Bytes of the volume, where known; a volume that nodes share is listed once, under the first node.";
    DISK_AVAILABLE_BYTES: Gauge Bytes "recliner_disk_available_bytes" ["node", "volume"]
        "Bytes free for writing on the volume, where known.";
    DISK_RESERVED_BYTES: Gauge Bytes "recliner_disk_reserved_bytes" ["node", "volume"]
        "Bytes that running compactions may still write to the volume.";
    DISK_HELD_BYTES: Gauge Bytes "recliner_disk_held_bytes" ["node", "volume"]
        "Bytes of unfinished compaction files: measured in local directories, estimated elsewhere.";
    FORECAST_FULL_TIMESTAMP: Gauge Seconds
        "recliner_forecast_full_timestamp_seconds" ["node", "volume", "bound"]
        "Unix time at which the volume will be full, as forecast, in seconds; absent without a forecast that reaches it.";
}

/// A volume shared by several nodes is written once, with its first node, so that sums count it
/// once.
pub(super) fn write(writer: &mut Writer, disks: &Disks, jobs: &Jobs, snapshot: &Snapshot) {
    let volumes = disks.volumes.iter();
    let volumes = volumes.filter_map(|it| Some(([&**it.nodes.first()?, &*it.name], it)));
    let volumes: Vec<([&str; 2], &Volume)> = volumes.collect();
    writer.write_each(
        &volumes,
        &[
            (&DISK_KNOWN, |volume| Some(volume.space.is_some().into())),
            (&DISK_SIZE_BYTES, |volume| volume.space?.size),
            (&DISK_AVAILABLE_BYTES, |volume| Some(volume.space?.available)),
        ],
    );
    // Before the first poll, it is unknown which jobs run.
    if jobs.polled_nodes.is_empty() {
        return;
    }
    let reserved = volumes.iter().map(|(of, volume)| (*of, volume.reserved_bytes(jobs, snapshot)));
    writer.write(&DISK_RESERVED_BYTES, reserved);
    let held = volumes.iter().map(|(of, volume)| (*of, volume.held_bytes(jobs, snapshot)));
    writer.write(&DISK_HELD_BYTES, held);
}

/// When volumes are full, as `/api/v1/space` says.
pub(super) fn write_forecasts(writer: &mut Writer, disks: &Disks, forecasts: &ForecastView) {
    let mut samples = writer.family(&FORECAST_FULL_TIMESTAMP);
    for volume in &disks.volumes {
        let Some(Ok(known)) = forecasts.by_volume.get(&volume.name) else { continue };
        let Some(node) = volume.nodes.first() else { continue };
        let full = known.in_force.full;
        for (bound, at) in [("early", full.early), ("median", full.median), ("late", full.late)] {
            if let Some(at) = at {
                samples.sample(&[&**node, &*volume.name, bound], at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{
            disk::VolumeSpace,
            pressure::{NodePressure, Pressures, Signal},
        },
        serve::http::metrics::pressure,
        table::Draft,
    };
    use metrics_text::{Encoding, TextFormat};
    use std::collections::BTreeMap;
    use wall_clock::Moment;

    #[test]
    fn omits_unknown_values_and_writes_shared_volume_once() {
        let mut draft = Draft::new(5);
        let node = draft.get_or_add_node("couchdb@a");
        let snapshot = draft.publish(Moment::from_unix(7));
        let space =
            VolumeSpace { available: 5, size: None, held: None, measured_at: Moment::from_unix(7) };
        let volume = |name: &str, space| Volume {
            name: name.into(),
            nodes: vec!["couchdb@a".into(), "couchdb@b".into()],
            space,
            is_stated: false,
            falling_since: None,
            problem: None,
        };
        let disks = Disks { volumes: vec![volume("x", Some(space)), volume("y", None)] };
        let signals = BTreeMap::from([(Signal::ProbeLatency, 0.25)]);
        let of_node = NodePressure { signals, ..NodePressure::default() };
        let pressures =
            Pressures { nodes: BTreeMap::from([(node, of_node)]), ..Pressures::default() };
        let text = |jobs: &Jobs| {
            let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
            write(&mut writer, &disks, jobs, &snapshot);
            pressure::write(&mut writer, &pressures, &snapshot);
            let text = String::from_utf8(writer.finish()).unwrap();
            let lines: Vec<String> =
                text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
            lines
        };
        let available = "recliner_disk_available_bytes{node=\"couchdb@a\",volume=\"x\"} 5";
        let known = [("x", 1), ("y", 0)].map(|(name, known)| {
            format!("recliner_disk_known{{node=\"couchdb@a\",volume=\"{name}\"}} {known}")
        });
        let [x, y] = [&*known[0], &*known[1]];
        let latency = "recliner_pressure_probe_latency_seconds{node=\"couchdb@a\"} 0.25";
        assert_eq!(text(&Jobs::default()), [x, y, available, latency]);
        let polled = Jobs { polled_nodes: vec![(node, Moment::from_unix(7))], ..Jobs::default() };
        let nothing = |what: &str| {
            ["x", "y"].map(|name| {
                format!("recliner_disk_{what}_bytes{{node=\"couchdb@a\",volume=\"{name}\"}} 0")
            })
        };
        let (reserved, held) = (nothing("reserved"), nothing("held"));
        let running = [&reserved[0], &reserved[1], &held[0], &held[1]].map(String::as_str);
        assert_eq!(text(&polled), [&[x, y, available], &running[..], &[latency]].concat());
    }
}
