//! Settings in the shape of the file, complete: structs are taken apart without a rest.

use super::emit::{Out, map, text};
use crate::{
    config::read::has_effect,
    model::{
        channel::{Channel, Priority},
        settings::{Files, Nodes, Scan, Settings, limits, work},
        window::{Days, Edge, Window, shown_time, zone_name},
    },
    text::pattern::Names,
};
use couchdb_client::{self, Login, Tls};

type Entries = Vec<(&'static str, Out)>;

/// Everything that the file can say.
pub(super) fn settings(settings: &Settings) -> Entries {
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
        views: work::Views { enforce },
        smoosh: work::Smoosh { mode: smoosh_mode, takeover },
        follow,
        warmer,
        journal: work::Journal { events, outcomes },
        storage_path: _,
        web: _,
        log: _,
    } = settings;
    let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
    let list = channels.list.iter().map(|one| channel(one, true)).collect();
    vec![
        ("couchdb", self::couchdb(couchdb)),
        (
            "nodes",
            match nodes {
                Nodes::All => Out::texts(&["_all"]),
                Nodes::Named(names) => Out::List(names.iter().map(|name| text(name)).collect()),
            },
        ),
        ("peers", Out::texts(&peers)),
        ("cluster_targets", Out::Bool(*cluster_targets)),
        ("scan", self::scan(scan)),
        ("poll", Out::span(*poll)),
        ("files", self::files(files)),
        ("mode", text(mode.label())),
        ("channels", Out::List(list)),
        ("ignore", Out::texts(channels.ignore.texts())),
        ("limits", self::limits(limits)),
        ("headroom", self::headroom(headroom)),
        ("pressure", self::pressure(pressure)),
        ("failure", self::failure(failure)),
        ("views", map([("enforce", text(enforce.label()))])),
        ("smoosh", map([("mode", text(smoosh_mode.label())), ("takeover", Out::texts(takeover))])),
        ("follow", self::follow(follow)),
        ("warmer", self::warmer(warmer)),
        ("journal", map([("events", keep(events)), ("outcomes", keep(outcomes))])),
    ]
}

/// The stand-in for a password that was given itself.
pub(super) fn given_password(settings: &couchdb_client::Settings) -> Option<Out> {
    matches!(settings.login, Login::Password { .. }).then(|| text("<secret>"))
}

fn couchdb(settings: &couchdb_client::Settings) -> Out {
    let couchdb_client::Settings {
        urls,
        nodes,
        trust_node_hosts,
        login,
        tls: Tls { ca_file, cert_file, key_file },
        timeout,
        requests_in_flight,
        cold_reads_per_second,
    } = settings;
    let urls: Vec<String> = urls.iter().map(ToString::to_string).collect();
    let nodes = nodes.iter().map(|(node, url)| (node.clone(), text(&url.to_string()))).collect();
    let mut entries = vec![("urls", Out::texts(&urls))];
    match login {
        Login::None => {}
        Login::Password { username, password: _ } => entries.push(("username", text(username))),
        Login::File { username, path } => {
            entries.push(("username", text(username)));
            entries.push(("password_file", Out::path(path)));
        }
    }
    let tls = [("ca_file", ca_file), ("cert_file", cert_file), ("key_file", key_file)];
    entries.push((
        "tls",
        map(tls.into_iter().filter_map(|(key, path)| Some((key, Out::path(path.as_deref()?))))),
    ));
    entries.push(("timeout", Out::span(*timeout)));
    entries.push(("requests_in_flight", Out::number(requests_in_flight)));
    let pace = match cold_reads_per_second {
        0 => text("off"),
        pace => Out::number(pace),
    };
    entries.push(("cold_reads_per_second", pace));
    entries.push(("nodes", Out::Map(nodes)));
    let trusted: Vec<String> = trust_node_hosts.iter().map(ToString::to_string).collect();
    entries.push(("trust_node_hosts", Out::texts(&trusted)));
    map(entries)
}

fn scan(scan: &Scan) -> Out {
    let Scan { interval, interval_followed, fresh_for, views, top } = scan;
    map([
        ("interval", Out::span(*interval)),
        ("interval_followed", Out::span(*interval_followed)),
        ("fresh_for", Out::span(*fresh_for)),
        ("views", text(views.label())),
        ("top", Out::number(top)),
    ])
}

fn files(files: &Files) -> Out {
    let Files { data_dir, view_index_dir } = files;
    let paths = [("data_dir", data_dir), ("view_index_dir", view_index_dir)];
    map(paths.into_iter().filter_map(|(key, path)| Some((key, Out::path(path.as_deref()?)))))
}

/// A channel; `whole` also says what is as it is by default.
pub(super) fn channel(channel: &Channel, whole: bool) -> Out {
    let Channel {
        name,
        kind,
        priority,
        min_priority,
        max_priority,
        min_size,
        max_size,
        min_changes,
        capacity,
        concurrency,
        mode,
        databases,
        designs,
        windows,
        strict_window,
    } = channel;
    let default = Channel::with_defaults(name, *kind, *priority);
    let mut entries = vec![
        ("name", text(name)),
        ("kind", text(kind.label())),
        ("priority", text(priority.label())),
    ];
    let mut add = |key: &'static str, differs: bool, value: &dyn Fn() -> Out| {
        if differs || (whole && has_effect(key, *kind, *priority)) {
            entries.push((key, value()));
        }
    };
    add("min_priority", *min_priority != default.min_priority, &|| bound(*min_priority, *priority));
    add("max_priority", *max_priority != default.max_priority, &|| bound(*max_priority, *priority));
    add("min_size", *min_size != default.min_size, &|| Out::bytes(*min_size));
    add("max_size", *max_size != default.max_size, &|| {
        max_size.map_or_else(|| text("infinity"), Out::bytes)
    });
    add("min_changes", *min_changes != default.min_changes, &|| Out::number(min_changes));
    add("capacity", *capacity != default.capacity, &|| Out::number(capacity));
    add("concurrency", *concurrency != default.concurrency, &|| Out::number(concurrency));
    add("mode", *mode != default.mode, &|| text(mode.label()));
    add("databases", *databases != default.databases, &|| names(databases));
    add("designs", *designs != default.designs, &|| names(designs));
    add("windows", *windows != default.windows, &|| {
        Out::List(windows.iter().map(window).collect())
    });
    add("strict_window", *strict_window != default.strict_window, &|| Out::Bool(*strict_window));
    map(entries)
}

/// A bound of the priority: a ratio, or slack in bytes where it is a whole number of them.
fn bound(bound: f64, priority: Priority) -> Out {
    if bound == f64::INFINITY {
        return text("infinity");
    }
    let digits = bound.to_string();
    match digits.parse::<u64>() {
        Ok(bytes) if priority == Priority::Slack => Out::bytes(bytes),
        _ => Out::Number(digits),
    }
}

fn names(names: &Names) -> Out {
    let (include, exclude) = names.texts();
    let lists = [("include", include), ("exclude", exclude)];
    map(lists
        .into_iter()
        .filter(|(_, texts)| !texts.is_empty())
        .map(|(key, texts)| (key, Out::texts(texts))))
}

fn window(window: &Window) -> Out {
    let Window { days, from, to, zone } = window;
    let days = (*days != Days::ALL).then(|| ("days", Out::texts(&days.texts())));
    map(days.into_iter().chain([
        ("from", text(&shown_time(*from, Edge::From))),
        ("to", text(&shown_time(*to, Edge::To))),
        ("zone", text(zone_name(zone))),
    ]))
}

fn limits(limits: &limits::Limits) -> Out {
    let limits::Limits { per_node, cluster, bytes_per_hour, wait, one_copy_of_a_range } = limits;
    map([
        ("per_node", Out::number(per_node)),
        ("cluster", Out::number(cluster)),
        ("bytes_per_hour", Out::bytes(*bytes_per_hour)),
        ("wait", Out::span(*wait)),
        ("one_copy_of_a_range", Out::Bool(*one_copy_of_a_range)),
    ])
}

fn headroom(headroom: &limits::Headroom) -> Out {
    let limits::Headroom { factor, keep_free_percent, blind_limit, volumes } = headroom;
    let volume = |volume: &limits::Volume| {
        let limits::Volume { nodes, free } = volume;
        let free = match free {
            limits::Free::Prometheus { url, query, max_age } => (
                "prometheus",
                map([
                    ("url", text(&url.to_string())),
                    ("query", text(query)),
                    ("max_age", Out::span(*max_age)),
                ]),
            ),
            limits::Free::Available(bytes) => ("available", Out::bytes(*bytes)),
        };
        map([("nodes", Out::texts(nodes)), free])
    };
    map([
        ("factor", Out::number(factor)),
        ("keep_free", Out::Text(format!("{keep_free_percent}%"))),
        ("blind_limit", Out::bytes(*blind_limit)),
        ("volumes", Out::List(volumes.iter().map(volume).collect())),
    ])
}

fn pressure(pressure: &limits::Pressure) -> Out {
    fn marks<T: Copy>(marks: &limits::Marks<T>, write: impl Fn(T) -> Out) -> Out {
        let limits::Marks { high, low } = *marks;
        map([("high", write(high)), ("low", write(low))])
    }
    let limits::Pressure { probe_latency, run_queue, replication_backlog, indexers, hold_at_most } =
        pressure;
    map([
        ("probe_latency", marks(probe_latency, Out::span)),
        ("run_queue", marks(run_queue, Out::number)),
        ("replication_backlog", marks(replication_backlog, Out::number)),
        ("indexers", marks(indexers, Out::number)),
        ("hold_at_most", Out::span(*hold_at_most)),
    ])
}

fn failure(failure: &limits::Failure) -> Out {
    let limits::Failure { cool_down, cool_down_max, quarantine_after } = failure;
    map([
        ("cool_down", Out::span(*cool_down)),
        ("cool_down_max", Out::span(*cool_down_max)),
        ("quarantine_after", Out::number(quarantine_after)),
    ])
}

fn follow(follow: &work::Follow) -> Out {
    let work::Follow { enabled, max_event_delay, max_write_delay, update_db, reread_after } =
        follow;
    map([
        ("enabled", Out::Bool(*enabled)),
        ("max_event_delay", Out::span(*max_event_delay)),
        ("max_write_delay", Out::span(*max_write_delay)),
        ("update_db", Out::Bool(*update_db)),
        ("reread_after", Out::span(*reread_after)),
    ])
}

fn warmer(warmer: &work::Warmer) -> Out {
    let work::Warmer {
        enabled,
        batch_channels,
        incremental_channels,
        max_incremental_updates,
        batch_size,
        delay,
        prune_interval,
        grace,
        ignore,
        languages,
    } = warmer;
    map([
        ("enabled", Out::Bool(*enabled)),
        ("batch_channels", Out::number(batch_channels)),
        ("incremental_channels", Out::number(incremental_channels)),
        ("max_incremental_updates", Out::number(max_incremental_updates)),
        ("batch_size", Out::number(batch_size)),
        ("delay", Out::span(*delay)),
        ("prune_interval", Out::span(*prune_interval)),
        ("grace", Out::span(*grace)),
        ("ignore", Out::texts(ignore.texts())),
        ("languages", Out::texts(languages)),
    ])
}

fn keep(keep: &work::Keep) -> Out {
    let work::Keep { keep, max_size } = keep;
    map([("keep", Out::span(*keep)), ("max_size", Out::bytes(*max_size))])
}
