//! The memory of a process over days of running levels off.
//!
//! A separate test binary, because it counts every allocation of the process; on one thread and on
//! paused time, so that hours pass in seconds, and one test at a time. It counts the bytes in use,
//! not what the allocator retains; those of the simulated cluster are included.

use cap::Cap;
use couchdb_client::Transport;
use couchdb_sim::{Cluster, Config, Database, Deploy, Design, Node, faulty_demo_config};
use recliner::{
    cli::DEMO_CONFIG,
    config::{self, Flags},
    serve::http::ProcessInfo,
    service::{HostAccess, Service},
    simulated::{SimulatedDirectories, SimulatedDisks},
    store::journal::{DirectoryStorage, InMemory, Storage},
};
use std::{alloc::System, path::PathBuf, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::sleep};
use wall_clock::{Clock, Moment};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Runs one test at a time, because the count covers the whole process.
static ALONE: Semaphore = Semaphore::const_new(1);

const HOUR: Duration = Duration::from_secs(3_600);

const MIB: usize = 1 << 20;

/// The hours of a week.
const WEEK: usize = 7 * 24;

/// The interval between two counts.
const LOOK: Duration = Duration::from_secs(60);

/// The three nodes of the cluster that `serve` watches.
const NODES: [&str; 3] = ["couchdb@a.local", "couchdb@b.local", "couchdb@c.local"];

/// The lifetime, in hours, of each temporary database.
const LIVES: usize = 6;

/// A service and the cluster that it observes.
struct Watched {
    service: Service,
    cluster: Cluster,
}

impl Watched {
    async fn start(
        world: Config,
        yaml: &str,
        place: impl Storage + 'static,
        reads_directories: bool,
    ) -> Self {
        // The command installs this before anything else; a second installation has no effect.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let user = world.users[0].clone();
        let url =
            |node: &str| format!("http://{}:5984", node.split_once('@').expect("a node's name").1);
        let flags = Flags {
            couchdb_urls: world.nodes.iter().map(|node| url(&node.name)).collect(),
            couchdb_username: Some(user.name),
            env_password: Some(user.password.as_str().into()),
            web_listen_address: Some("127.0.0.1:0".to_owned()),
            web_admin_socket: Some(PathBuf::from("none")),
            ..Flags::default()
        };
        let file = config::File { name: "recliner.yml".as_ref(), bytes: yaml.as_bytes() };
        let settings = config::load(&flags, Some(file)).expect("it is sound").settings;
        let clock = Clock::anchored(Moment::from_unix(1_795_230_000));
        let cluster = Cluster::new(world, 1, clock).expect("the configuration is valid");
        let transport = Transport::in_process(cluster.by_host());
        let about = ProcessInfo::of_this_build(true);
        let directories = SimulatedDirectories(cluster.clone());
        let machine = HostAccess {
            meter: Arc::new(SimulatedDisks(cluster.clone())),
            directories: if reads_directories { Some(Arc::new(directories)) } else { None },
        };
        let service = Service::start(settings, transport, about, clock, place, machine).await;
        Self { service: service.expect("it starts"), cluster }
    }

    /// The maximum of the bytes in use at the end of each minute, for each simulated hour;
    /// `happens` is called at the beginning of each hour.
    #[expect(clippy::print_stdout, reason = "the numbers are what it is run for")]
    async fn hours(self, count: usize, happens: impl Fn(&Cluster, usize)) -> Vec<usize> {
        let Self { service, cluster } = self;
        let mut most = Vec::with_capacity(count);
        for hour in 1..=count {
            happens(&cluster, hour);
            let (mut here, end) = (0, cluster.elapsed() + HOUR);
            while cluster.elapsed() < end {
                sleep(LOOK).await;
                here = here.max(ALLOCATOR.allocated());
            }
            let sweeps = service.monitor().scanner.status.borrow().sweeps;
            let mb = here as f64 / 1e6;
            println!("hour {hour}: {mb:.2} MB, {} requests, {sweeps} sweeps", cluster.requests());
            assert!(sweeps >= hour as u64, "it sweeps at least once an hour");
            most.push(here);
        }
        most
    }
}

/// Asserts that the second half used at most `but_for` bytes more than the first.
fn assert_levels_off(hours: &[usize], but_for: usize) {
    let (first, second) = hours.split_at(hours.len().div_ceil(2));
    let most = |hours: &[usize]| hours.iter().copied().max().unwrap_or_default();
    let (first, second) = (most(first), most(second));
    assert!(second <= first + but_for, "{first} bytes and then {second}: {hours:?}");
}

async fn demo(count: usize, yaml: &str) -> Vec<usize> {
    let _alone = ALONE.acquire().await;
    let watched = Watched::start(faulty_demo_config(), yaml, InMemory::default(), true).await;
    watched.hours(count, |_, _| {}).await
}

/// Three nodes in enforce mode: databases that grow by writes, one whose design document keeps
/// changing, and every hour one database that is created and one that is deleted.
fn small_cluster() -> Config {
    let views = |name: &str| Design { views: vec![name.to_owned()], ..Design::new(name) };
    let grows = |name: &str, writes_per_second| Database {
        q: 4,
        docs: 200_000,
        bloat: 2.0,
        writes_per_second,
        new_share: 0.2,
        designs: vec![views("by_day"), views("by_customer")],
        ..Database::new(name)
    };
    let node = |name: &&str| Node { disk: Some(1 << 40), ..Node::new(name) };
    Config {
        nodes: NODES.iter().map(node).collect(),
        databases: vec![grows("orders", 40.0), grows("sessions", 100.0), grows("archive", 0.0)],
        deploys: vec![Deploy {
            db: "orders".to_owned(),
            design: views("latest"),
            every: Duration::from_secs(1_800),
        }],
        // No test reads the log of requests.
        records: 256,
        ..Config::new(&NODES)
    }
}

const SMALL_CLUSTER: &str = "mode: enforce\nviews: {enforce: all}\n";

fn replace_database(cluster: &Cluster, hour: usize) {
    let name = |hour: usize| format!("tenant-{hour}");
    let new = Database { docs: 50_000, bloat: 3.0, ..Database::new(&name(hour)) };
    cluster.world(|world| {
        world.create(new).expect("the database is new");
        if let Some(old) = hour.checked_sub(LIVES) {
            world.delete(&name(old), false);
        }
    });
}

async fn serve(count: usize, yaml: &str) -> Vec<usize> {
    let _alone = ALONE.acquire().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = DirectoryStorage::new(directory.path());
    let watched = Watched::start(small_cluster(), yaml, place, false).await;
    watched.hours(count, replace_database).await
}

#[tokio::test(start_paused = true)]
#[ignore = "a week takes long: cargo test --release --test memory_over_days -- --ignored --nocapture demo"]
async fn demo_memory_levels_off_within_a_week() {
    assert_levels_off(&demo(WEEK, DEMO_CONFIG).await, MIB);
}

#[tokio::test(start_paused = true)]
#[ignore = "a week takes long: cargo test --release --test memory_over_days -- --ignored --nocapture serve"]
async fn serve_memory_levels_off_within_a_week() {
    assert_levels_off(&serve(WEEK, SMALL_CLUSTER).await, MIB);
}
