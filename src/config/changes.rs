//! What a reload changes, and from when.
//!
//! Owns the table that says which key is live, which waits for the next sweep and which
//! needs a restart. Settings are taken apart without a rest, so that none is forgotten.

use crate::model::settings::{Files, Scan, Settings, limits, service, work};

/// From when a changed key is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum When {
    /// At once.
    Live,
    /// When the next sweep begins.
    NextSweep,
    /// After a restart; until then the old value stays in force.
    Restart,
}

impl When {
    /// The words for logs and answers.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::NextSweep => "next_sweep",
            Self::Restart => "restart",
        }
    }
}

/// A key whose value differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// The key, as in the file, or the flag.
    pub key: &'static str,
    /// From when the new value is in force.
    pub when: When,
}

/// What differs between two settings, in the file's order.
#[must_use]
pub fn changes(old: &Settings, new: &Settings) -> Vec<Change> {
    let mut table = Table(Vec::new());
    table.settings(old, new);
    table.0
}

struct Table(Vec<Change>);

/// Compares fields of two values of one struct: every field must be named once, for the
/// pattern has no rest.
macro_rules! compare {
    ($table:ident, $type:path, $old:expr, $new:expr; $($when:ident $key:literal $field:ident),+ $(,)?) => {
        let $type { $($field),+ } = $old;
        $( $table.see(When::$when, $key, $field, &$new.$field); )+
    };
}

impl Table {
    fn see<T: PartialEq>(&mut self, when: When, key: &'static str, old: &T, new: &T) {
        if old != new {
            self.0.push(Change { key, when });
        }
    }

    fn settings(&mut self, old: &Settings, new: &Settings) {
        let Settings {
            couchdb,
            nodes,
            peers,
            cluster_targets,
            scan,
            poll,
            files,
            mode,
            channels,
            limits,
            headroom,
            pressure,
            failure,
            views,
            smoosh,
            follow,
            warmer,
            journal,
            storage_path,
            web,
            log,
        } = old;
        self.couchdb(couchdb, &new.couchdb);
        self.see(When::NextSweep, "nodes", nodes, &new.nodes);
        self.see(When::NextSweep, "peers", peers, &new.peers);
        self.see(When::NextSweep, "cluster_targets", cluster_targets, &new.cluster_targets);
        self.scan(scan, &new.scan);
        self.see(When::Live, "poll", poll, &new.poll);
        self.files(files, &new.files);
        self.see(When::Live, "mode", mode, &new.mode);
        self.see(When::Live, "channels", &channels.list, &new.channels.list);
        self.see(When::Live, "ignore", &channels.ignore, &new.channels.ignore);
        self.holds((limits, headroom, pressure, failure), new);
        self.work((views, smoosh, follow, warmer, journal), new);
        self.see(When::Restart, "--storage.path", storage_path, &new.storage_path);
        self.service(web, log, new);
    }

    fn couchdb(&mut self, old: &couchdb_client::Settings, new: &couchdb_client::Settings) {
        compare!(self, couchdb_client::Settings, old, new;
            NextSweep "couchdb.urls" urls,
            NextSweep "couchdb.nodes" nodes,
            NextSweep "couchdb.trust_node_hosts" trust_node_hosts,
            NextSweep "couchdb.username, couchdb.password_file" login,
            NextSweep "couchdb.tls" tls,
            NextSweep "couchdb.timeout" timeout,
            NextSweep "couchdb.requests_in_flight" requests_in_flight,
            NextSweep "couchdb.cold_reads_per_second" cold_reads_per_second,
        );
    }

    fn scan(&mut self, old: &Scan, new: &Scan) {
        compare!(self, Scan, old, new;
            Live "scan.interval" interval,
            Live "scan.interval_followed" interval_followed,
            Live "scan.fresh_for" fresh_for,
            NextSweep "scan.views" views,
            NextSweep "scan.top" top,
        );
    }

    fn files(&mut self, old: &Files, new: &Files) {
        compare!(self, Files, old, new;
            NextSweep "files.data_dir" data_dir,
            NextSweep "files.view_index_dir" view_index_dir,
        );
    }

    fn holds(
        &mut self,
        old: (&limits::Limits, &limits::Headroom, &limits::Pressure, &limits::Failure),
        new: &Settings,
    ) {
        compare!(self, limits::Limits, old.0, new.limits;
            Live "limits.per_node" per_node,
            Live "limits.cluster" cluster,
            Live "limits.bytes_per_hour" bytes_per_hour,
            Live "limits.wait" wait,
            Live "limits.one_copy_of_a_range" one_copy_of_a_range,
        );
        compare!(self, limits::Headroom, old.1, new.headroom;
            Live "headroom.factor" factor,
            Live "headroom.keep_free" keep_free_percent,
            Live "headroom.blind_limit" blind_limit,
            Live "headroom.volumes" volumes,
        );
        compare!(self, limits::Pressure, old.2, new.pressure;
            Live "pressure.probe_latency" probe_latency,
            Live "pressure.run_queue" run_queue,
            Live "pressure.replication_backlog" replication_backlog,
            Live "pressure.indexers" indexers,
            Live "pressure.hold_at_most" hold_at_most,
        );
        compare!(self, limits::Failure, old.3, new.failure;
            Live "failure.cool_down" cool_down,
            Live "failure.cool_down_max" cool_down_max,
            Live "failure.quarantine_after" quarantine_after,
        );
    }

    fn work(
        &mut self,
        old: (&work::Views, &work::Smoosh, &work::Follow, &work::Warmer, &work::Journal),
        new: &Settings,
    ) {
        compare!(self, work::Views, old.0, new.views; Live "views.enforce" enforce);
        compare!(self, work::Smoosh, old.1, new.smoosh;
            Live "smoosh.mode" mode,
            Live "smoosh.takeover" takeover,
        );
        compare!(self, work::Follow, old.2, new.follow;
            Live "follow.enabled" enabled,
            Live "follow.max_event_delay" max_event_delay,
            Live "follow.max_write_delay" max_write_delay,
            Live "follow.update_db" update_db,
            Live "follow.reread_after" reread_after,
        );
        compare!(self, work::Warmer, old.3, new.warmer;
            Live "warmer.enabled" enabled,
            Live "warmer.batch_channels" batch_channels,
            Live "warmer.incremental_channels" incremental_channels,
            Live "warmer.max_incremental_updates" max_incremental_updates,
            Live "warmer.batch_size" batch_size,
            Live "warmer.delay" delay,
            Live "warmer.prune_interval" prune_interval,
            Live "warmer.grace" grace,
            Live "warmer.ignore" ignore,
            Live "warmer.languages" languages,
        );
        compare!(self, work::Journal, old.4, new.journal;
            Live "journal.events" events,
            Live "journal.outcomes" outcomes,
        );
    }

    fn service(&mut self, web: &service::Web, log: &service::Log, new: &Settings) {
        compare!(self, service::Web, web, new.web;
            Restart "--web.listen-address" listen_address,
            Restart "--web.config.file" config_file,
            Restart "--web.enable-lifecycle" enable_lifecycle,
            Restart "--web.enable-admin-api" enable_admin_api,
            Restart "--web.admin-socket" admin_socket,
        );
        compare!(self, service::Log, log, new.log;
            Live "--log.level" level,
            Restart "--log.format" format,
        );
    }
}
