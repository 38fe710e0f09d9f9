//! Where metrics are pushed to, for those whose Prometheus does not scrape.

use crate::config_format::{
    form::settings,
    values::{SECOND, duration_between, path, text, url},
};
use couchdb_client::Address;
use std::{path::PathBuf, time::Duration};

settings! {
    /// Where to push metrics over OTLP, in addition to scraping.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct OtlpSettings {
        /// The receiver's URL for metrics over HTTP; without it, nothing is pushed.
        "otlp.url" => url: Option<Address> = None, Live, url("an OTLP receiver", "http://collector:4318/v1/metrics").optional();
        /// How often all metrics are pushed; Prometheus forgets a series after five minutes.
        "otlp.interval" => interval: Duration = 60 * SECOND, Live, duration_between(SECOND, 240 * SECOND);
        /// The value of the label cluster of every series, by which dashboards and alerts tell clusters apart.
        "otlp.cluster" => cluster: Option<String> = None, Live, text().optional();
        /// A file with the value of the Authorization header, such as Bearer and a token; read before each push.
        "otlp.authorization_file" => authorization_file: Option<PathBuf> = None, Live, path().optional();
    }
}
