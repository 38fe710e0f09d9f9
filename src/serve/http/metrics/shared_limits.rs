//! Limits that several clusters share.

use crate::serve::report::SharedLimits;
use metrics_text::{Writer, families};
use wall_clock::Moment;

families! {
    SHARED_ALLOWED_JOBS: Gauge None "recliner_shared_allowed_jobs" []
        "Number of compactions at a time that this cluster may run under shared limits; absent if none are shared.";
    SHARED_ALLOWED_BYTES: Gauge Bytes "recliner_shared_allowed_bytes" []
        "Bytes of files whose compaction this cluster may start within an hour under shared limits; absent if none are shared.";
    SHARED_LEASE_END_TIMESTAMP: Gauge Seconds "recliner_shared_lease_end_timestamp_seconds" []
        "Unix time at which the lease of shared limits ends, in seconds; absent without a lease.";
    SHARED_HELD_JOBS: Gauge None "recliner_shared_held_jobs" ["member"]
        "Number of compactions that the keeper of shared limits allows a member to run; absent if the member never asked.";
    SHARED_HELD_BYTES: Gauge Bytes "recliner_shared_held_bytes" ["member"]
        "Bytes of files whose compaction a member may have started within an hour, as counted by the keeper of shared limits.";
}

pub(in crate::serve::http) fn write(writer: &mut Writer, shared: Option<&SharedLimits>) {
    let share = shared.and_then(|shared| shared.share.as_ref());
    writer.write(&SHARED_ALLOWED_JOBS, share.map(|share| ([], share.allowed.jobs)));
    writer.write(&SHARED_ALLOWED_BYTES, share.map(|share| ([], share.allowed.bytes_per_hour)));
    let until = share.and_then(|share| Moment::parse(share.until.as_deref()?));
    writer.write(&SHARED_LEASE_END_TIMESTAMP, until.map(|until| ([], until)));
    let held = || {
        let members = shared.into_iter().flat_map(|shared| &shared.members);
        members.filter_map(|member| Some(([&*member.name], member.held?)))
    };
    writer.write(&SHARED_HELD_JOBS, held().map(|(labels, held)| (labels, held.jobs)));
    writer.write(&SHARED_HELD_BYTES, held().map(|(labels, held)| (labels, held.bytes_per_hour)));
}
