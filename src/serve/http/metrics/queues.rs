//! The queue of each channel on each node.

use super::FamilyReaders;
use crate::{
    model::{channel::Channel, priority::PriorityKind},
    plan::{Plan, QueueView},
};
use metrics_text::{Writer, families};

families! {
    QUEUE_SIZE: Gauge None "recliner_queue_size" ["node", "channel"]
        "Number of targets that wait in the channel's queue on the node.";
    QUEUE_ACTIVE: Gauge None "recliner_queue_active" ["node", "channel"]
        "Number of running compactions of targets that the channel takes, whatever started them.";
    QUEUE_CAPACITY: Gauge None "recliner_queue_capacity" ["node", "channel"]
        "Number of targets that the channel's queue on the node can hold.";
    QUEUE_OVERFLOW: Gauge None "recliner_queue_overflow" ["node", "channel"]
        "Number of targets that the channel takes but that its full queue on the node cannot hold.";
    QUEUE_RECLAIMABLE_BYTES: Gauge Bytes "recliner_queue_reclaimable_bytes" ["node", "channel"]
        "Bytes that compacting all targets in the queue is predicted to free.";
    QUEUE_DRAINABLE_BYTES: Gauge Bytes "recliner_queue_drainable_bytes" ["node", "channel"]
        "Bytes that compacting the queued targets is predicted to free, without excluded, quarantined or futile ones.";
    QUEUE_OLDEST_TIMESTAMP: Gauge Seconds
        "recliner_queue_oldest_timestamp_seconds" ["node", "channel"]
        "Unix time at which the longest waiting target was queued, in seconds; absent when empty.";
    QUEUE_RATIO_MIN: Gauge Ratio "recliner_queue_ratio_min" ["node", "channel"]
        "Lowest ratio of file to active bytes in the queue; absent unless the channel ranks by ratio.";
    QUEUE_RATIO_MAX: Gauge Ratio "recliner_queue_ratio_max" ["node", "channel"]
        "Highest ratio of file to active bytes in the queue; absent unless the channel ranks by ratio.";
    QUEUE_SLACK_MIN_BYTES: Gauge Bytes "recliner_queue_slack_min_bytes" ["node", "channel"]
        "Lowest slack (file minus active bytes) in the queue; absent unless the channel ranks by slack.";
    QUEUE_SLACK_MAX_BYTES: Gauge Bytes "recliner_queue_slack_max_bytes" ["node", "channel"]
        "Highest slack (file minus active bytes) in the queue; absent unless the channel ranks by slack.";
    QUEUE_RENT_MIN: Gauge None "recliner_queue_rent_min" ["node", "channel"]
        "Lowest ratio of rent to cost times horizon in the queue; absent unless the channel ranks by rent.";
    QUEUE_RENT_MAX: Gauge None "recliner_queue_rent_max" ["node", "channel"]
        "Highest ratio of rent to cost times horizon in the queue; absent unless the channel ranks by rent.";
    RENT_HORIZON_SECONDS: Gauge Seconds "recliner_rent_horizon_seconds" ["node", "channel"]
        "Time for which a wasted byte may lie, in seconds, as scarcity adapts it; absent unless the channel ranks by rent.";
}

pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    let queues: Vec<(&str, &Channel, &QueueView)> = plan
        .queues
        .iter()
        .filter_map(|queue| {
            let node = plan.snapshot.node(queue.node)?;
            Some((&*node.name, plan.channels.list.get(queue.channel_index)?, &**queue))
        })
        .collect();
    let mut samples = writer.family(&QUEUE_SIZE);
    for (queue, waiting) in plan.waiting() {
        let node = plan.snapshot.node(queue.node);
        if let Some((node, channel)) = node.zip(plan.channels.list.get(queue.channel_index)) {
            samples.sample(&[&*node.name, &channel.name], waiting as u64);
        }
    }
    let mut samples = writer.family(&QUEUE_DRAINABLE_BYTES);
    for (at, queue) in plan.queues.iter().enumerate() {
        let node = plan.snapshot.node(queue.node);
        if let Some((node, channel)) = node.zip(plan.channels.list.get(queue.channel_index)) {
            samples.sample(&[&*node.name, &channel.name], plan.drainable_bytes(at));
        }
    }
    let numbers: FamilyReaders<&QueueView, u64, 2, 4> = [
        (&QUEUE_ACTIVE, |queue| queue.active_jobs as u64),
        (&QUEUE_CAPACITY, |queue| queue.capacity as u64),
        (&QUEUE_OVERFLOW, |queue| queue.overflow as u64),
        (&QUEUE_RECLAIMABLE_BYTES, |queue| queue.reclaimable_bytes),
    ];
    for (family, read) in numbers {
        let mut samples = writer.family(family);
        for (node, channel, queue) in &queues {
            samples.sample(&[node, &channel.name], read(queue));
        }
    }
    let mut samples = writer.family(&QUEUE_OLDEST_TIMESTAMP);
    for (node, channel, queue) in &queues {
        if let Some(oldest) = queue.oldest_queued_at {
            samples.sample(&[node, &channel.name], oldest);
        }
    }
    for (family, priority, highest) in [
        (&QUEUE_RATIO_MIN, PriorityKind::Ratio, false),
        (&QUEUE_RATIO_MAX, PriorityKind::Ratio, true),
        (&QUEUE_SLACK_MIN_BYTES, PriorityKind::Slack, false),
        (&QUEUE_SLACK_MAX_BYTES, PriorityKind::Slack, true),
        (&QUEUE_RENT_MIN, PriorityKind::Rent, false),
        (&QUEUE_RENT_MAX, PriorityKind::Rent, true),
    ] {
        let mut samples = writer.family(family);
        for (node, channel, queue) in queues.iter().filter(|(_, it, _)| it.priority == priority) {
            if let Some((best, worst)) = queue.priority_range {
                samples.sample(&[node, &channel.name], if highest { best } else { worst });
            }
        }
    }
    let mut samples = writer.family(&RENT_HORIZON_SECONDS);
    for (node, channel, queue) in &queues {
        if channel.priority == PriorityKind::Rent {
            let factor = plan.horizon_factors.product_on(queue.node);
            samples.sample(&[node, &channel.name], channel.horizon.as_secs_f64() * factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{
            channel::{ChannelPreset, Channels},
            facts::{FactSource, Facts, Measurement, OptionalU64},
        },
        plan::{Conditions, Queues, Rules},
        table::{DbName, Draft},
    };
    use metrics_text::{Encoding, TextFormat};
    use std::sync::Arc;
    use wall_clock::Moment;

    #[test]
    fn rent_channels_export_priority_range_and_horizon() {
        let (read, now) = (Moment::from_unix(1_000_000), Moment::from_unix(1_000_000 + 259_200));
        let mut draft = Draft::new(5);
        let node = draft.get_or_add_node("couchdb@a");
        draft.update_node(node, |node| node.is_member = true);
        for (name, active) in [("half", 1_u64 << 30), ("third", 1_431_655_765)] {
            let db = draft.get_or_add_db(DbName { db: name, suffix: ".1" });
            let ix = draft.get_or_add_shard(node, db, None);
            let facts = Facts {
                file_bytes: OptionalU64::new(1 << 31),
                active_bytes: OptionalU64::new(active),
                docs: OptionalU64::new(9),
                deleted_docs: OptionalU64::new(0),
                update_seq: OptionalU64::new(9),
                compacted_seq: OptionalU64::new(0),
                measured_at: Some(Measurement { at: read, source: FactSource::Http }),
                ..Facts::default()
            };
            draft.set_facts(ix, facts);
        }
        let list = ChannelPreset::Rent.channels();
        let mut queues = Queues::new(Arc::new(Channels { list, ..Channels::default() }));
        let (conditions, rules) = (Conditions::default(), Arc::new(Rules::default()));
        let snapshot = draft.publish(now);
        queues.apply_snapshot(&snapshot, now);
        queues.update_prices(&snapshot, &conditions, &rules, now);
        let plan = queues.make_plan(&snapshot, &conditions, &rules, now);
        let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
        write(&mut writer, &plan);
        let text = String::from_utf8(writer.finish()).unwrap();
        let value = |name: &str| -> Option<f64> {
            let series = format!("{name}{{node=\"couchdb@a\",channel=\"rent_dbs\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&series))?.parse().ok()
        };
        let near = |found: Option<f64>, expected: f64| {
            assert!(
                found.is_some_and(|found| (found - expected).abs() < 0.01),
                "{found:?}\n{text}"
            );
        };
        near(value("recliner_queue_rent_max"), 3.0);
        near(value("recliner_queue_rent_min"), 1.5);
        near(value("recliner_rent_horizon_seconds"), 86_400.0);
        assert_eq!(value("recliner_queue_ratio_max"), None);
    }
}
