//! The queue of each channel on each node.

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
        "Unix time at which the longest waiting target was queued, in seconds; absent if the queue is empty.";
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
        "Time for which a wasted byte may stay, in seconds, adapted to scarcity; absent unless the channel ranks by rent.";
}

/// A queue with its channel, and what the plan knows of it.
#[derive(Clone, Copy)]
struct Row<'a> {
    channel: &'a Channel,
    queue: &'a QueueView,
    waiting: usize,
    drainable_bytes: u64,
    /// The factor by which scarcity adapts the horizon on the queue's node.
    horizon_factor: f64,
}

impl Row<'_> {
    /// The lowest or highest priority of a waiting target, if the channel ranks by this kind.
    fn priority(self, kind: PriorityKind, is_highest: bool) -> Option<f64> {
        let (best, worst) = self.queue.priority_range.filter(|_| self.channel.priority == kind)?;
        Some(if is_highest { best } else { worst })
    }
}

pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    let row = |at| {
        let (queue, waiting) = plan.waiting_in(at)?;
        let channel = plan.channels.list.get(queue.channel_index)?;
        let (drainable_bytes, horizon_factor) =
            (plan.drainable_bytes(at), plan.horizon_factors.product_on(queue.node));
        let row = Row { channel, queue, waiting, drainable_bytes, horizon_factor };
        Some(([&*plan.snapshot.node(queue.node)?.name, &*channel.name], row))
    };
    let rows: Vec<([&str; 2], Row<'_>)> = (0..plan.queues.len()).filter_map(row).collect();
    writer.write_each(
        &rows,
        &[
            (&QUEUE_SIZE, |row| Some(row.waiting as u64)),
            (&QUEUE_DRAINABLE_BYTES, |row| Some(row.drainable_bytes)),
            (&QUEUE_ACTIVE, |row| Some(row.queue.active_jobs as u64)),
            (&QUEUE_CAPACITY, |row| Some(row.queue.capacity as u64)),
            (&QUEUE_OVERFLOW, |row| Some(row.queue.overflow as u64)),
            (&QUEUE_RECLAIMABLE_BYTES, |row| Some(row.queue.reclaimable_bytes)),
        ],
    );
    writer.write_each(&rows, &[(&QUEUE_OLDEST_TIMESTAMP, |row| row.queue.oldest_queued_at)]);
    writer.write_each(
        &rows,
        &[
            (&QUEUE_RATIO_MIN, |row| row.priority(PriorityKind::Ratio, false)),
            (&QUEUE_RATIO_MAX, |row| row.priority(PriorityKind::Ratio, true)),
            (&QUEUE_SLACK_MIN_BYTES, |row| row.priority(PriorityKind::Slack, false)),
            (&QUEUE_SLACK_MAX_BYTES, |row| row.priority(PriorityKind::Slack, true)),
            (&QUEUE_RENT_MIN, |row| row.priority(PriorityKind::Rent, false)),
            (&QUEUE_RENT_MAX, |row| row.priority(PriorityKind::Rent, true)),
            (&RENT_HORIZON_SECONDS, |row| {
                (row.channel.priority == PriorityKind::Rent)
                    .then_some(row.channel.horizon.as_secs_f64() * row.horizon_factor)
            }),
        ],
    );
}
