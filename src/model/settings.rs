//! The checked settings of the whole program, as plain values.
//!
//! Owns their meaning, units and defaults, one file each for what starts and holds back jobs
//! ([`limits`]), for what runs alongside them ([`work`]) and for how the process itself is reached
//! ([`service`]). Never reads a file or a flag: `config` builds the settings completely or not at
//! all; the service passes each part to the task it belongs to.

#![expect(clippy::doc_markdown, reason = "sentences about keys are printed, not rendered")]

pub mod advice;
pub mod fleet;
pub mod limits;
pub mod otlp;
pub(crate) mod service;
pub mod shared;
mod volumes;
pub mod work;

use crate::{
    config_format::{
        form::settings,
        section::Section,
        values::{SECOND, bytes, duration, integer, one_of, path},
    },
    model::channel::{Channel, Channels, Mode},
    text::duration::format_exact,
};
use std::{collections::BTreeSet, path::PathBuf, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// All settings of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How CouchDB is reached.
    pub couchdb: couchdb_client::ClientSettings,
    /// Which nodes this process serves.
    pub nodes: ServedNodes,
    /// Sidecars that measure shard and view files exactly.
    pub peers: Vec<couchdb_client::Address>,
    /// Whether this process handles the targets of the whole cluster: views and cleanups over HTTP. Exactly one process
    /// of a cluster must.
    pub cluster_targets: bool,
    /// How often facts are read.
    pub scan: Scan,
    /// Pause between two polls of running jobs.
    pub poll: Duration,
    /// The directories of a node, read in addition to CouchDB.
    pub files: Files,
    /// Whether recliner may start compactions.
    pub mode: Mode,
    /// What is worth compacting, and what is never compacted.
    pub channels: Channels,
    /// How much runs at a time.
    pub limits: limits::Limits,
    /// Limits that several clusters share.
    pub shared_limits: shared::SharedLimits,
    /// What must stay free on the disks.
    pub headroom: limits::Headroom,
    /// How the horizons of channels by rent adapt to scarce resources.
    pub rent: limits::RentSettings,
    /// When the servers are too busy for more jobs.
    pub pressure: limits::Pressure,
    /// How failed jobs are handled.
    pub failure: limits::FailureSettings,
    /// Which views may be compacted.
    pub views: work::ViewSettings,
    /// How CouchDB's own smoosh is treated.
    pub smoosh: work::Smoosh,
    /// How changes of databases are followed.
    pub follow: work::Follow,
    /// How stale view indexes are built.
    pub warmer: work::Warmer,
    /// Thresholds above which recliner gives advice.
    pub advice: advice::AdviceSettings,
    /// Access logs that show who reads the indexes.
    pub reads: work::ReadsSettings,
    /// Where metrics are pushed.
    pub otlp: otlp::OtlpSettings,
    /// What reports show in addition to bytes.
    pub report: work::ReportSettings,
    /// Other recliners to show together.
    pub fleet: fleet::FleetSettings,
    /// What the journal keeps, and for how long.
    pub journal: work::JournalRetention,
    /// The directory of the embedded database.
    pub storage_path: PathBuf,
    /// The HTTP interface.
    pub web: service::WebSettings,
    /// What is logged, and how.
    pub log: service::LogSettings,
}

impl Settings {
    /// Defaults for all settings except the connection to CouchDB.
    pub fn new(couchdb: couchdb_client::ClientSettings) -> Self {
        Self {
            couchdb,
            nodes: ServedNodes::All,
            peers: Vec::new(),
            cluster_targets: true,
            scan: Scan::default(),
            poll: Duration::from_secs(5),
            files: Files::default(),
            mode: Mode::default(),
            channels: Channels::default(),
            limits: limits::Limits::default(),
            shared_limits: shared::SharedLimits::default(),
            headroom: limits::Headroom::default(),
            rent: limits::RentSettings::default(),
            pressure: limits::Pressure::default(),
            failure: limits::FailureSettings::default(),
            views: work::ViewSettings::default(),
            smoosh: work::Smoosh::default(),
            follow: work::Follow::default(),
            warmer: work::Warmer::default(),
            advice: advice::AdviceSettings::default(),
            reads: work::ReadsSettings::default(),
            otlp: otlp::OtlpSettings::default(),
            report: work::ReportSettings::default(),
            fleet: fleet::FleetSettings::default(),
            journal: work::JournalRetention::default(),
            storage_path: Self::default_storage_path(),
            web: service::WebSettings::default(),
            log: service::LogSettings::default(),
        }
    }

    /// The default directory of the embedded database.
    pub fn default_storage_path() -> PathBuf {
        PathBuf::from("data/")
    }

    /// The effective mode of a channel: the more cautious of the global mode and its own.
    pub fn mode_of(&self, channel: &Channel) -> Mode {
        self.mode.more_cautious(channel.mode)
    }
}

/// Which nodes a process serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServedNodes {
    /// Every node of the cluster (`_all`).
    #[default]
    All,
    /// The listed nodes, by CouchDB's names (`couchdb@host`).
    Named(BTreeSet<String>),
}

impl ServedNodes {
    /// Whether `node` is served.
    pub fn has(&self, node: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(node),
        }
    }

    /// The listed nodes; none for [`Self::All`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let named = match self {
            Self::All => None,
            Self::Named(names) => Some(names.iter().map(String::as_str)),
        };
        named.into_iter().flatten()
    }

    /// Whether no node is served; a valid configuration serves at least one.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Named(names) if names.is_empty())
    }

    /// The name of the served node, if the configuration lists exactly one.
    pub fn only(&self) -> Option<&str> {
        match self {
            Self::Named(names) if names.len() == 1 => names.first().map(String::as_str),
            Self::All | Self::Named(_) => None,
        }
    }
}

settings! {
    /// How often facts are read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Scan {
        // A sweep that takes longer delays the next one.
        /// Interval between the starts of two sweeps.
        "scan.interval" => interval: Duration = 5 * MINUTE, Live, duration(SECOND);
        /// Interval between reads of targets that feeds report as unchanged; never shorter than scan.interval.
        "scan.interval_followed" => interval_followed: Duration = 6 * HOUR, Live, duration(SECOND);
        /// Maximum age of facts that may start compactions, unless feeds confirm them; default four intervals, never
        /// less than three sweeps.
        "scan.fresh_for" => fresh_for: Duration = 20 * MINUTE, Live, duration(SECOND);
        /// auto reads each view's _info, which makes CouchDB create the empty index of a view that was never built; off
        /// reads no view.
        "scan.views" => views: ScanViews = ScanViews::Auto, NextSweep, one_of();
        /// Number of databases with series for every target in /metrics; the same number of further databases have only
        /// sums.
        "scan.top" => top: usize = 100, NextSweep, integer(0..=100_000);
    }
    check = check_scan;
}

impl Scan {
    /// With fewer intervals than this, one slow sweep makes every fact stale.
    pub const FRESH_INTERVALS: u32 = 3;

    /// The defaults for an interval: facts are fresh for four intervals.
    pub fn every(interval: Duration) -> Self {
        let usual = Self::default();
        Self {
            interval,
            interval_followed: interval.max(usual.interval_followed),
            fresh_for: interval.saturating_mul(Self::FRESH_INTERVALS + 1),
            ..usual
        }
    }
}

/// Absent keys follow from the interval; present keys must be consistent with it.
fn check_scan(scan: &mut Scan, section: &mut Section<'_, '_>) {
    let usual = Scan::every(scan.interval);
    match section.value_at("interval_followed") {
        None => scan.interval_followed = usual.interval_followed,
        Some(value) if scan.interval_followed < scan.interval => {
            let problem = format!(
                "found {}, but this must not be less than scan.interval, {}",
                format_exact(scan.interval_followed),
                format_exact(scan.interval)
            );
            section.report.refuse(value.at, &value.path, problem);
        }
        Some(_) => {}
    }
    match section.value_at("fresh_for") {
        None => scan.fresh_for = usual.fresh_for,
        // A note, not a problem: too short a time only holds starts back, which is safe, and a
        // sweep often takes less time than its interval.
        Some(value) if scan.fresh_for < scan.interval.saturating_mul(Scan::FRESH_INTERVALS) => {
            let problem = format!(
                "{} is less than {} scan intervals of {}: one slow sweep would make all facts stale, and stale facts start nothing",
                format_exact(scan.fresh_for),
                Scan::FRESH_INTERVALS,
                format_exact(scan.interval)
            );
            section.report.note(value.at, &value.path, problem);
        }
        Some(_) => {}
    }
}

/// Whether views are read over HTTP.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanViews {
    /// `_info` is requested once per signature and sweep. CouchDB then creates the empty index of a
    /// view that was never built.
    Auto,
    /// Never, so that reading has no side effect.
    Off,
}

settings! {
    /// The directories of a node, read in addition to CouchDB.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Files {
        /// CouchDB's database_dir on this node.
        "files.data_dir" => data_dir: Option<PathBuf> = None, NextSweep, path().optional();
        /// CouchDB's view_index_dir on this node; default data_dir.
        "files.view_index_dir" => view_index_dir: Option<PathBuf> = None, NextSweep, path().optional();
        /// Bytes of files to read per second to analyse their contents; 0 reads none.
        "files.xray_rate" => xray_rate: u64 = 50 << 20, Live, bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_stay_fresh_for_four_intervals() {
        let scan = Scan::default();
        assert_eq!(scan.fresh_for, Duration::from_secs(20 * 60));
        assert_eq!(scan.interval_followed, Duration::from_secs(6 * 3600));
        let slow = Scan::every(Duration::from_secs(12 * 3600));
        assert_eq!(slow.fresh_for, Duration::from_secs(48 * 3600));
        assert_eq!(slow.interval_followed, slow.interval);
    }

    #[test]
    fn channel_enforces_only_if_the_global_mode_does() {
        let mut settings = Settings::new(couchdb_client::ClientSettings::new(Vec::new()));
        let mut channel = settings.channels.list.remove(0);
        for (whole, own, in_force) in [
            (Mode::Advise, Mode::Enforce, Mode::Advise),
            (Mode::Enforce, Mode::Advise, Mode::Advise),
            (Mode::Enforce, Mode::Enforce, Mode::Enforce),
        ] {
            settings.mode = whole;
            channel.mode = own;
            assert_eq!(settings.mode_of(&channel), in_force);
        }
    }
}
