//! Every metric family that this version exports.
//!
//! Owns names, types, units, help and label names: a contract with dashboards, alerts
//! and their authors. A family that is unknown at a scrape has no sample there and then
//! does not show at all; one that is known to be zero shows zero.

use metrics_text::families;

#[cfg(test)]
mod table;

families! {
    BUILD_INFO: Gauge None "recliner_build_info" ["version", "revision"]
        "Always 1, labelled with the version and source revision of this recliner.";
    MODE: Gauge None "recliner_mode" ["mode"]
        "1 for the mode in force, 0 for the other: advise only reports, enforce starts compactions.";
    CHANNEL_MODE: Gauge None "recliner_channel_mode" ["channel", "mode"]
        "1 for the mode in force for the channel, 0 for the other.";
    CONFIG_LAST_RELOAD_SUCCESSFUL: Gauge None "recliner_config_last_reload_successful" []
        "1 if the last attempt to load the configuration succeeded, 0 if it failed.";
    CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP: Gauge Seconds
        "recliner_config_last_reload_success_timestamp_seconds" []
        "Unix time at which a configuration was last loaded successfully, in seconds.";
    CONFIG_NEEDS_RESTART: Gauge None "recliner_config_needs_restart" []
        "Settings whose new value was loaded and takes effect only after a restart.";
    CERTIFICATE_EXPIRY_TIMESTAMP: Gauge Seconds
        "recliner_certificate_expiry_timestamp_seconds" ["use"]
        "Unix time at which a certificate in use ends, in seconds.";

    COUCHDB_UP: Gauge None "recliner_couchdb_up" ["url"]
        "1 if a server at this URL of couchdb.urls answered when it was last asked, 0 if none did.";
    NODE_UP: Gauge None "recliner_node_up" ["node"]
        "1 if the CouchDB node answered when it was last asked, 0 if it did not.";
    NODE_INFO: Gauge None "recliner_node_info" ["node", "version"]
        "Always 1, labelled with the CouchDB version that the node reports.";
    SCAN_LAST_SUCCESS_TIMESTAMP: Gauge Seconds
        "recliner_scan_last_success_timestamp_seconds" ["node", "source"]
        "Unix time at which a scan last read all of the node from this source, in seconds.";
    SCAN_OLDEST_FACT_TIMESTAMP: Gauge Seconds
        "recliner_scan_oldest_fact_timestamp_seconds" ["node", "source"]
        "Unix time of the oldest measurement in use for the node from this source, in seconds.";
    SCAN_DURATION: Gauge Seconds "recliner_scan_duration_seconds" ["source"]
        "Time that the last finished scan of this source took, in seconds.";
    SCAN_FRESH_FOR: Gauge Seconds "recliner_scan_fresh_for_seconds" []
        "Time for which facts count as fresh after they were measured, in seconds.";
    SCAN_ERRORS: Counter None "recliner_scan_errors_total" ["node", "reason"]
        "Reads that failed while the node was scanned, by reason.";

    COUCHDB_REQUESTS: Counter None "recliner_couchdb_requests_total" ["route", "code"]
        "Requests sent to CouchDB, by route and by the status code or failure that came back.";
    COUCHDB_REQUEST_DURATION: Histogram Seconds
        "recliner_couchdb_request_duration_seconds" ["route"]
        "Time from sending a request to CouchDB to the end of its answer, in seconds.";

    TARGETS: Gauge None "recliner_targets" ["node", "kind", "state"]
        "Targets known on the node, by kind and by how they stand to the shard map.";
    FILE_BYTES: Gauge Bytes "recliner_file_bytes" ["node", "kind"]
        "Size of the targets' files in bytes, summed where known; a view counts all its copies.";
    ACTIVE_BYTES: Gauge Bytes "recliner_active_bytes" ["node", "kind"]
        "Bytes of the targets' files that CouchDB counts as live data, summed where known.";
    EXTERNAL_BYTES: Gauge Bytes "recliner_external_bytes" ["node", "kind"]
        "Uncompressed size of the targets' contents, summed where known, in bytes.";
    RECLAIMABLE_BYTES: Gauge Bytes "recliner_reclaimable_bytes" ["node", "kind"]
        "Bytes that compacting the targets is predicted to free, summed where known.";
    TARGETS_UNMEASURED: Gauge None "recliner_targets_unmeasured" ["node"]
        "Targets on the node whose file size is not known.";
    ORPHAN_BYTES: Gauge Bytes "recliner_orphan_bytes" ["node"]
        "Bytes of shard files on the node that the shard map does not place there, summed where known.";

    NODE_VIEW_FILES: Gauge None "recliner_node_view_files" ["node", "state"]
        "View index files on the node, where its directories are read: ok, or an orphan if unused.";
    NODE_VIEW_FILE_BYTES: Gauge Bytes "recliner_node_view_file_bytes" ["node"]
        "Bytes of the view index files in use on the node, where its directories are read.";
    NODE_VIEW_ACTIVE_BYTES: Gauge Bytes "recliner_node_view_active_bytes" ["node"]
        "Bytes of live data in the view index files in use on the node, summed where known.";
    NODE_VIEW_RECLAIMABLE_BYTES: Gauge Bytes "recliner_node_view_reclaimable_bytes" ["node"]
        "Bytes that compacting the view index files in use on the node is predicted to free.";

    DATABASE_COPIES: Gauge None "recliner_database_copies" ["db", "kind"]
        "Files of the database: copies of its shards, or of its view indexes, on all nodes.";
    DATABASE_FILE_BYTES: Gauge Bytes "recliner_database_file_bytes" ["db", "kind"]
        "Bytes of the database's files on all nodes, for the databases with most to reclaim.";
    DATABASE_ACTIVE_BYTES: Gauge Bytes "recliner_database_active_bytes" ["db", "kind"]
        "Bytes of live data in the database's files, for the databases with most to reclaim.";
    DATABASE_RECLAIMABLE_BYTES: Gauge Bytes "recliner_database_reclaimable_bytes" ["db", "kind"]
        "Bytes that compacting all of the database is predicted to free, for those with most.";
    DATABASES_NOT_EXPORTED: Gauge None "recliner_databases_not_exported" []
        "Databases that are not exported whole: their targets have no series of their own.";
    TARGET_FILE_BYTES: Gauge Bytes "recliner_target_file_bytes"
        ["node", "kind", "db", "range", "ddoc", "signature"]
        "Size of the target's file in bytes, for every target of the exported databases.";
    TARGET_ACTIVE_BYTES: Gauge Bytes "recliner_target_active_bytes"
        ["node", "kind", "db", "range", "ddoc", "signature"]
        "Bytes of live data in the target's file, for every target of the exported databases.";
    TARGET_RECLAIMABLE_BYTES: Gauge Bytes "recliner_target_reclaimable_bytes"
        ["node", "kind", "db", "range", "ddoc", "signature"]
        "Bytes that compacting the target is predicted to free, for the exported databases.";
    VIEW_PART_FILE_BYTES: Gauge Bytes "recliner_view_part_file_bytes"
        ["node", "db", "range", "ddoc", "signature"]
        "Bytes of one file of a view index, one for each shard copy, where directories are read.";
    VIEW_PART_RECLAIMABLE_BYTES: Gauge Bytes "recliner_view_part_reclaimable_bytes"
        ["node", "db", "range", "ddoc", "signature"]
        "Bytes that compacting one file of a view index is predicted to free.";

    QUEUE_SIZE: Gauge None "recliner_queue_size" ["node", "channel"]
        "Targets that wait in the channel's queue on the node.";
    QUEUE_ACTIVE: Gauge None "recliner_queue_active" ["node", "channel"]
        "Running compactions of targets that the channel takes, whoever started them.";
    QUEUE_CAPACITY: Gauge None "recliner_queue_capacity" ["node", "channel"]
        "Targets that the channel's queue on the node can hold.";
    QUEUE_OVERFLOW: Gauge None "recliner_queue_overflow" ["node", "channel"]
        "Targets that the channel takes but for which its queue on the node has no room.";
    QUEUE_RECLAIMABLE_BYTES: Gauge Bytes "recliner_queue_reclaimable_bytes" ["node", "channel"]
        "Bytes that compacting all targets in the queue is predicted to free.";
    QUEUE_OLDEST_TIMESTAMP: Gauge Seconds
        "recliner_queue_oldest_timestamp_seconds" ["node", "channel"]
        "Unix time since which the target that waits longest has been queued, in seconds.";
    QUEUE_RATIO_MIN: Gauge Ratio "recliner_queue_ratio_min" ["node", "channel"]
        "Lowest ratio of file to active bytes in the queue of a channel that ranks by ratio.";
    QUEUE_RATIO_MAX: Gauge Ratio "recliner_queue_ratio_max" ["node", "channel"]
        "Highest ratio of file to active bytes in the queue of a channel that ranks by ratio.";
    QUEUE_SLACK_BYTES_MIN: Gauge Bytes "recliner_queue_slack_bytes_min" ["node", "channel"]
        "Lowest difference of file and active bytes in the queue of a channel that ranks by slack.";
    QUEUE_SLACK_BYTES_MAX: Gauge Bytes "recliner_queue_slack_bytes_max" ["node", "channel"]
        "Highest difference of file and active bytes in the queue of a channel that ranks by slack.";
    CHANNEL_CONCURRENCY_LIMIT: Gauge None "recliner_channel_concurrency_limit" ["channel"]
        "Compactions of the channel that may run on one node at a time.";
    NODE_CONCURRENCY_LIMIT: Gauge None "recliner_node_concurrency_limit" []
        "Compactions that may run on one node at a time, whoever starts them.";
    CLUSTER_CONCURRENCY_LIMIT: Gauge None "recliner_cluster_concurrency_limit" []
        "Compactions that may run in the whole cluster at a time, whoever starts them.";
    CHANNEL_WINDOW_OPEN: Gauge None "recliner_channel_window_open" ["channel"]
        "1 if a window of the channel is open or it has none, 0 if all are closed.";
    CANDIDATES: Gauge None "recliner_candidates" ["node", "channel", "decision"]
        "Queued targets by what is decided about them: start, or the reason for which they do not.";
    GATE_OPEN: Gauge None "recliner_gate_open" ["node", "gate"]
        "1 if the gate allows starts on the node, 0 if it holds all of them back.";
    GATE_CLOSED_SINCE_TIMESTAMP: Gauge Seconds
        "recliner_gate_closed_since_timestamp_seconds" ["node", "gate"]
        "Unix time since which the gate holds all starts on the node back, in seconds.";
    SUSPENDED: Gauge None "recliner_suspended" ["scope"]
        "1 for each suspension in force: all, a node or a channel; 0 for all where there is none.";
    SUSPENDED_SINCE_TIMESTAMP: Gauge Seconds
        "recliner_suspended_since_timestamp_seconds" ["scope"]
        "Unix time since which the suspension is in force, in seconds.";
    SUSPENSION_INFO: Gauge None "recliner_suspension_info" ["scope", "by", "why"]
        "Always 1, labelled with who ordered the suspension and the reason they gave.";

    FEED_CONNECTED: Gauge None "recliner_feed_connected" ["feed"]
        "1 while the CouchDB feed is open and has told everything so far, else 0.";
    FEED_EVENTS: Counter None "recliner_feed_events_total" ["type"]
        "Database events that CouchDB's feed told.";
    FEED_PENDING_EVENTS: Gauge None "recliner_feed_pending_events" []
        "Database events that wait to be written to the journal.";
    FEED_SUBSCRIBERS: Gauge None "recliner_feed_subscribers" []
        "Readers that wait for events of this recliner's own feed.";

    JOURNAL_LAST_SEQ: Gauge None "recliner_journal_last_seq" []
        "Number of the newest entry of the journal that is safe on disk.";
    JOURNAL_DROPPED: Counter None "recliner_journal_dropped_total" []
        "Events that were not written to the journal because it was full or in trouble.";

    SMOOSH_UP: Gauge None "recliner_smoosh_up" ["node"]
        "1 if the node's smoosh status could be read at the node's own address, 0 if not.";
    SMOOSH_ACTIVE: Gauge None "recliner_smoosh_active" ["node", "channel"]
        "Compactions that CouchDB's smoosh channel is running.";
    SMOOSH_STARTING: Gauge None "recliner_smoosh_starting" ["node", "channel"]
        "Compactions that CouchDB's smoosh channel is starting.";
    SMOOSH_WAITING: Gauge None "recliner_smoosh_waiting" ["node", "channel"]
        "Compactions that wait in CouchDB's smoosh channel.";
    SMOOSH_WAITING_PRIORITY_MIN: Gauge None
        "recliner_smoosh_waiting_priority_min" ["node", "channel"]
        "Lowest priority in CouchDB's smoosh channel, in the unit of that channel.";
    SMOOSH_WAITING_PRIORITY_MAX: Gauge None
        "recliner_smoosh_waiting_priority_max" ["node", "channel"]
        "Highest priority in CouchDB's smoosh channel, in the unit of that channel.";

    SMOOSH_TAKEN_OVER: Gauge None "recliner_smoosh_taken_over" ["node"]
        "1 while every channel that is to be taken over is stopped on the node, else 0.";
    SMOOSH_CHANNELS_STOPPED: Gauge None "recliner_smoosh_channels_stopped" ["node"]
        "Channels of CouchDB's smoosh that are stopped on the node for a recliner, this or another.";
    VIEW_UPDATES_PENDING: Gauge None "recliner_view_updates_pending" ["db", "ddoc"]
        "Sequences that the view index has not seen, of those that lag most.";
    SEARCH_UPDATES_PENDING: Gauge None
        "recliner_search_updates_pending" ["db", "ddoc", "engine", "index"]
        "Sequences that the search index has not seen at least; absent where that may be none.";
    INDEX_BUILDS_RUNNING: Gauge None "recliner_index_builds_running" ["class"]
        "Indexes that this recliner has CouchDB build now.";
    INDEX_BUILDS_WAITING: Gauge None "recliner_index_builds_waiting" ["class"]
        "Indexes that lag behind documents and wait to be built.";
    INDEX_BUILDS_STALLED: Gauge None "recliner_index_builds_stalled" []
        "Indexes that lag though a build was tried, or whose indexers do nothing.";
    INDEX_BUILDS_STARTED: Counter None "recliner_index_builds_started_total" ["class"]
        "Builds of indexes that this recliner asked CouchDB for.";
    INDEX_BUILDS_FINISHED: Counter None "recliner_index_builds_finished_total" ["class", "result"]
        "Builds of indexes that this recliner asked for and that ended, by how.";

    PRESSURE: Gauge None "recliner_pressure" ["node", "signal"]
        "What the signal reads, the median of the last looks; latency in seconds, else a count.";

    DISK_SIZE_BYTES: Gauge Bytes "recliner_disk_size_bytes" ["node", "volume"]
        "Bytes of the volume, where known; one that nodes share is shown with its first node.";
    DISK_AVAILABLE_BYTES: Gauge Bytes "recliner_disk_available_bytes" ["node", "volume"]
        "Bytes that may still be written to the volume, as last measured; absent when too old.";
    DISK_RESERVED_BYTES: Gauge Bytes "recliner_disk_reserved_bytes" ["node", "volume"]
        "Bytes that running compactions may still take on the volume, whoever started them.";

    STALE_INDEX_BYTES: Gauge Bytes "recliner_stale_index_bytes" ["node"]
        "Bytes of view index files on the node that no design document and no shard uses.";
    LEFTOVER_BYTES: Gauge Bytes "recliner_leftover_bytes" ["node"]
        "Bytes that compactions wrote on the node and left behind.";
    TRASH_BYTES: Gauge Bytes "recliner_trash_bytes" ["node"]
        "Bytes of files on the node that CouchDB deleted or set aside and that are still there.";
    SOURCE_DISAGREEMENTS: Gauge None "recliner_source_disagreements" ["node"]
        "Targets of which CouchDB and the header of the file say different things.";

    JOBS_RUNNING: Gauge None "recliner_jobs_running" ["node", "kind", "owner"]
        "Compactions that run or are being started on the node, by who started them.";
    JOB_PROGRESS_RATIO: Gauge Ratio "recliner_job_progress_ratio"
        ["node", "kind", "db", "range", "ddoc"]
        "Ratio of the compaction's work that is done, its phases weighted by the time they take.";
    JOB_LAST_PROGRESS_TIMESTAMP: Gauge Seconds
        "recliner_job_last_progress_timestamp_seconds" ["node", "kind", "db", "range", "ddoc"]
        "Unix time at which CouchDB last said anything new of the compaction, in seconds.";
    COMPACTIONS_STARTED: Counter None
        "recliner_compactions_started_total" ["node", "channel", "kind"]
        "Compactions that this recliner started.";
    COMPACTIONS_FINISHED: Counter None
        "recliner_compactions_finished_total" ["node", "channel", "kind", "result"]
        "Compactions that this recliner started and that ended, by how.";
    QUARANTINED_TARGETS: Gauge None "recliner_quarantined_targets" ["node"]
        "Targets that failed repeatedly and wait to be released by an operator.";
    COMPACTION_RECLAIMED_BYTES: Counter Bytes
        "recliner_compaction_reclaimed_bytes_total" ["node", "kind"]
        "Bytes that came free by compactions that this recliner started, where sizes are known.";
    COMPACTION_REWRITTEN_BYTES: Counter Bytes
        "recliner_compaction_rewritten_bytes_total" ["node", "kind"]
        "Bytes of the new files of compactions that this recliner started, where sizes are known.";
    COMPACTION_DURATION: Histogram Seconds "recliner_compaction_duration_seconds" ["kind"]
        "Time from the start of a compaction of this recliner to its end, in seconds.";
    COMPACTION_ESTIMATE_RATIO: Histogram Ratio "recliner_compaction_estimate_ratio" ["kind"]
        "Ratio of the size after a compaction of this recliner to the predicted one.";
}
