//! `recliner demo`: a simulated cluster inside the process, to explore recliner.

mod past;

use super::{
    CommandError, Exit, args::DemoArgs, next_step::program_name, print_note, read_once, serve,
    service_client::DEFAULT_URL, tidy,
};
use crate::{
    config::{self, Flags},
    model::channel::Mode,
    serve::{
        http::{self, ProcessInfo},
        report::SimulatedWeek,
    },
    service::{ReloadFn, Service, StartError},
    store::journal,
};
use couchdb_client::Transport;
use couchdb_sim::{Cluster, demo_config, faulty_demo_config};
use past::Past;
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{
    net::TcpListener,
    task::{self, JoinSet},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Intervals are shorter than is sensible for a real CouchDB, so that a newcomer sees numbers change, and nodes never
/// pause between jobs. Advice needs minutes of data where a real cluster needs days, and its limits are those of a
/// small cluster. The mode is enforce because nothing can be harmed. The simulation replaces the configured Prometheus,
/// and the query names the node's disk. The journal is in memory, so it keeps little.
pub const CONFIG: &str = "mode: enforce
scan: {interval: 10s}
poll: 1s
limits: {wait: 3s, duty: 100%, bytes_per_hour: 8TiB}
views: {enforce: all}
smoosh:
  mode: takeover
  takeover:
    - index_cleanup
    - ratio_dbs
    - ratio_views
    - slack_dbs
    - slack_views
    - upgrade_dbs
    - upgrade_views
couchdb: {cold_reads_per_second: off}
advice: {min_watched: 10m, max_backlog: 5m, surplus_shards: 20, untaken_waste: 0.5%}
journal:
  events: {keep: 1d, max_size: 4MiB}
  outcomes: {keep: 30d, max_size: 2MiB}
warmer: {enabled: true, grace: 30s}
headroom:
  volumes:
    - nodes: [couchdb@sim-1.local]
      prometheus: {url: 'http://simulation', query: couchdb@sim-1.local}
    - nodes: [couchdb@sim-2.local]
      prometheus: {url: 'http://simulation', query: couchdb@sim-2.local}
    - nodes: [couchdb@sim-3.local]
      prometheus: {url: 'http://simulation', query: couchdb@sim-3.local}
";

/// The configuration for the cluster without faults: channels that weigh waste against writing, large shards only in
/// quiet hours, and room for a view with four files on a node. People look at the demo while they work, so the quiet
/// hours begin later than `now`.
fn config_without_faults(now: Moment) -> String {
    let hour = |hours: u64| {
        let at = now.plus(Duration::from_secs(hours * 3_600)).unix() % 86_400;
        format!("{:02}:00", at / 3_600)
    };
    let (from, to) = (hour(3), hour(13));
    let channels = format!(
        "channels:
  - name: large_dbs
    kind: db
    priority: rent
    min_size: 2GiB
    windows: [{{from: \"{from}\", to: \"{to}\"}}]
  - {{name: dbs, kind: db, priority: rent, max_size: 2GiB}}
  - {{name: views, kind: view, priority: rent}}
  - {{name: index_cleanup, kind: cleanup, priority: cleanup}}
"
    );
    let limits = "limits: {per_node: 4, cluster: 12, duty: 100%, bytes_per_hour: 8TiB}";
    CONFIG.replace(
        "limits: {wait: 3s, duty: 100%, bytes_per_hour: 8TiB}",
        &format!("{channels}{limits}"),
    )
}

pub(super) async fn run(args: DemoArgs) -> Result<Exit, CommandError> {
    let world = if args.faults { faulty_demo_config() } else { demo_config() };
    let Some(user) = world.users.first().cloned() else {
        return Err(CommandError::failed("the simulated cluster has no user"));
    };
    let cluster_nodes: Vec<String> = world.nodes.iter().map(|node| node.name.clone()).collect();
    let flags = Flags {
        couchdb_urls: cluster_nodes
            .iter()
            .map(|node| format!("http://{}:5984", host_of(node)))
            .collect(),
        couchdb_username: Some(user.name.clone()),
        env_password: Some(user.password.as_str().into()),
        mode: args.mode.clone(),
        log_level: args.log.level.clone().or_else(|| Some("warn".to_owned())),
        log_format: args.log.format.clone(),
        ..args.web.apply_to(Flags::default())
    };
    // Nothing can be harmed, and a newcomer wants to try orders, so this machine may give them over
    // TCP. There is no directory for a socket.
    let here =
        args.web.listen.address.is_none_or(|address| address.ip().to_canonical().is_loopback());
    let flags = Flags {
        web_enable_admin_api: flags.web_enable_admin_api || here,
        web_admin_socket: flags.web_admin_socket.or_else(|| Some("none".into())),
        ..flags
    };
    let config =
        if args.faults { CONFIG.to_owned() } else { config_without_faults(Clock::System.now()) };
    let load = move || {
        let file = config::File { name: "demo".as_ref(), bytes: config.as_bytes() };
        config::load(&flags, Some(file))
    };
    let loaded = load().map_err(CommandError::usage)?;
    read_once::start_log(&loaded.settings)?;
    let mode = loaded.settings.mode;
    let mut about = ProcessInfo::of_this_build(true);
    let place = journal::InMemory::default();
    let cluster = if args.faults {
        Cluster::new(world, args.seed, Clock::System).map_err(CommandError::failed)?
    } else {
        // A port in use is reported before the week, not after it.
        let address = loaded.settings.web.listen_address;
        let free = http::listen(address);
        drop(free.map_err(|why| serve::start_error(StartError::Listen { address, why }))?);
        print_note("Simulating a week first; this takes a few seconds.");
        let (seed, settings, storage) = (args.seed, loaded.settings.clone(), place.clone());
        let (stop, interrupted) = (CancellationToken::new(), tidy::interrupted()?);
        let (now, stopped) = (Clock::System.now(), stop.clone());
        let live = move || Past::live(&world, seed, settings, storage, now, &stopped);
        let lived = tokio::select! {
            () = interrupted => {
                stop.cancel();
                return Ok(Exit::Done);
            }
            lived = task::spawn_blocking(live) => lived,
        };
        let Past { cluster, weeks } = lived.map_err(CommandError::failed)??;
        cluster.continue_on(Clock::System);
        about.simulated_weeks = weeks;
        cluster
    };
    let weeks = about.simulated_weeks.clone();
    let transport = Transport::in_process(cluster.by_host());
    let machine = past::machine(&cluster);
    let service = Service::start(loaded.settings, transport, about, Clock::System, place, machine)
        .await
        .map_err(serve::start_error)?;
    let mut servers = JoinSet::new();
    let own = serve::own_url(&service);
    let mut lines = opening_lines(mode, &own, &weeks);
    if let Some(first) = args.port {
        for (node, port) in cluster_nodes.iter().zip(first..=u16::MAX) {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let listener = TcpListener::bind(address).await.map_err(|why| {
                CommandError::failed(format!(
                    "cannot listen on {address}: {why}; choose another port with --couchdb.port"
                ))
            })?;
            let router = cluster.router(node);
            servers.spawn(async move { axum::serve(listener, router).await });
            lines.push(info_line("as CouchDB", &format!("http://{address}/ is {node}")));
        }
        lines.push(info_line("login", &format!("{}, password {}", user.name, user.password)));
    }
    lines.push("Stop it with ctrl-c.".to_owned());
    lines.iter().for_each(|line| print_note(line));
    let again: ReloadFn = Box::new(move || load().map_err(|problems| problems.to_string()));
    serve::exit_result(service.run(again).await)
}

fn opening_lines(mode: Mode, own: &str, weeks: &[SimulatedWeek]) -> Vec<String> {
    let acts: &[&str] = match mode {
        Mode::Enforce => &[
            "It enforces, but only inside its simulation: it compacts simulated files and",
            "touches nothing outside the process.",
        ],
        Mode::Advise => &[
            "It advises: it starts nothing. The simulated CouchDB's own smoosh compacts what is",
            "written to.",
        ],
    };
    let flag = if own == DEFAULT_URL { String::new() } else { format!(" --recliner.url {own}") };
    let program = program_name();
    let what =
        "This is a simulated cluster: three CouchDB nodes inside this process, without real data.";
    let mut lines = vec![what.to_owned()];
    lines.extend(acts.iter().map(|line| (*line).to_owned()));
    if !weeks.is_empty() {
        lines.extend([
            String::new(),
            "It has lived for a week, and so has its twin, which smoosh compacts:".to_owned(),
        ]);
        lines.extend(weeks.iter().map(|week| info_line(&week.by, &week.says())));
    }
    lines.extend([
        String::new(),
        format!("Open {own}/ in a browser, then try in another terminal:"),
        format!("  {program} explain sessions{flag}"),
        String::new(),
        "There is more:".to_owned(),
        info_line("the book", &format!("{own}/docs/")),
        info_line("metrics", &format!("{own}/metrics")),
        info_line("plan", &format!("{program} plan{flag}")),
        info_line("events", &format!("{program} events --follow{flag}")),
    ]);
    lines
}

fn info_line(what: &str, value: &str) -> String {
    format!("  {what:<14}{value}")
}

fn host_of(node: &str) -> &str {
    node.split_once('@').map_or(node, |(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::{AdviceInputs, FAMILIES, Family, check},
        model::settings::Settings,
        service::{ClusterMonitor, Dependencies, TaskSet},
        simulated::{SimulatedDirectories, SimulatedDisks},
    };
    use std::{collections::BTreeSet, sync::Arc};
    use tokio::time::sleep;

    const MINUTE: Duration = Duration::from_secs(60);

    fn settings() -> Settings {
        let world = faulty_demo_config();
        let user = &world.users[0];
        let flags = Flags {
            couchdb_urls: world
                .nodes
                .iter()
                .map(|node| format!("http://{}:5984", host_of(&node.name)))
                .collect(),
            couchdb_username: Some(user.name.clone()),
            env_password: Some(user.password.as_str().into()),
            ..Flags::default()
        };
        let file = config::File { name: "demo".as_ref(), bytes: CONFIG.as_bytes() };
        config::load(&flags, Some(file)).unwrap().settings
    }

    #[tokio::test(start_paused = true)]
    async fn every_advice_family_appears_within_minutes() {
        let clock = Clock::anchored(Moment::from_unix(1_795_230_000));
        let settings = settings();
        let cluster = Cluster::new(faulty_demo_config(), 1, clock).unwrap();
        let transport = Transport::in_process(cluster.by_host());
        let (registry, stop) = (prometheus::Registry::new(), CancellationToken::new());
        let mut tasks = TaskSet::new();
        let around = |_| Dependencies {
            meter: Some(Arc::new(SimulatedDisks(cluster.clone()))),
            acts: true,
            directories: Some(Arc::new(SimulatedDirectories(cluster.clone()))),
            ..Dependencies::none()
        };
        let monitor = ClusterMonitor::start(
            &settings, transport, clock, &registry, &mut tasks, &stop, around,
        )
        .unwrap();
        let nothing_writes = tokio::sync::watch::channel(()).1;
        let node_settings = monitor.start_node_settings(nothing_writes, &mut tasks);
        monitor.start_enforcer(&mut tasks);
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut missing_families: Vec<&str> = Vec::new();
        for _ in 0..15 {
            sleep(MINUTE).await;
            let inputs = AdviceInputs::of_one_reading(
                Arc::clone(&monitor.planner.plan.borrow()),
                Arc::clone(&monitor.scanner.status.borrow()),
                Arc::clone(&node_settings.borrow()),
                &settings,
            );
            seen.extend(check(&inputs, clock.now()).iter().map(|result| result.rule.code));
            let is_seen =
                |family: &&Family| family.rules.iter().any(|rule| seen.contains(rule.code));
            // Volumes are forecast only after two days.
            let families = FAMILIES.iter().filter(|it| it.title != "Disk space");
            let missing = families.filter(|it| !is_seen(it)).map(|family| family.title);
            missing_families = missing.collect();
            if missing_families.is_empty() {
                break;
            }
        }
        assert_eq!(missing_families, [""; 0], "{seen:?}");
        stop.cancel();
    }
}
