//! CouchDB as the client sees it: which URLs answer, and the requests sent.
//!
//! The client counts its requests in the `prometheus` registry. This file only declares those
//! families, so that the table of metrics is complete.

use couchdb_client::EntryStatus;
use metrics_text::{Writer, families};

families! {
    COUCHDB_UP: Gauge None "recliner_couchdb_up" ["url"]
        "1 if CouchDB's last answer at this URL was usable, 0 if it was not or did not come; absent before the first request.";
    COUCHDB_REQUESTS: Counter None "recliner_couchdb_requests_total" ["route", "code"]
        "Requests sent to CouchDB, by route and by the status code or failure that came back.";
    COUCHDB_REQUEST_DURATION: Histogram Seconds
        "recliner_couchdb_request_duration_seconds" ["route"]
        "Time from sending a request to CouchDB to the end of its answer, in seconds.";
}

pub(super) fn write(writer: &mut Writer, entries: &[EntryStatus]) {
    let up = entries.iter().filter_map(|entry| Some(([entry.url.as_str()], entry.up?)));
    writer.write(&COUCHDB_UP, up);
}
