//! Two clusters share limits: members and keeper are killed, cut off and restarted, and the jobs are judged from the
//! clusters' own records.

use super::{
    PATIENCE, Site, bloated_world, data_of, enforcing, seed,
    service::{Running, get, http_client},
    written,
};
use crate::seeded::random_numbers;
use couchdb_sim::StartedBy;
use recliner::{
    model::share::Share,
    serve::report::{ClusterShare, Status},
};
use std::{net::TcpListener, path::Path, time::Duration};
use tokio::time;

/// Jobs that both clusters may run together, and that each may run without an answer.
const JOBS: usize = 4;
const OWN_JOBS: usize = 1;

/// How often something is killed.
const LIVES: usize = 10;

/// Databases of three copies in each cluster: more than may be compacted within the hour.
const DATABASES: usize = 40;
const FILES: u64 = 2 * 3 * DATABASES as u64;

/// About the size of each file.
const FILE_BYTES: u64 = 21_200_000;

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("the listener is bound").port()
}

/// A recliner for a cluster: its directory, its flags, and its process while it runs.
struct Member<'a> {
    site: &'a Site,
    dir: &'a Path,
    flags: Vec<String>,
    running: Option<Running>,
}

impl<'a> Member<'a> {
    fn new(site: &'a Site, dir: &'a Path, port: u16, yaml: &str) -> Self {
        let config = written(dir, "recliner.yml", yaml);
        let address = format!("127.0.0.1:{port}");
        let flags = [
            "--config.file",
            &config,
            "--web.listen-address",
            &address,
            "--web.admin-socket",
            "none",
            "--web.enable-admin-api",
        ];
        Self { site, dir, flags: flags.map(str::to_owned).to_vec(), running: None }
    }

    async fn start(&mut self) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.running = Some(Running::start(self.site, self.dir, &flags).await);
    }

    fn reload(&self) {
        let pid = self.running.as_ref().expect("it runs").pid().to_string();
        let kill = std::process::Command::new("kill").args(["-HUP", &pid]).status();
        assert!(kill.expect("kill runs").success());
    }

    async fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill().await;
        }
    }
}

/// A member's share once it meets a condition.
async fn share_once(member: &Member<'_>, is_so: impl Fn(&ClusterShare) -> bool) -> ClusterShare {
    let running = member.running.as_ref().expect("it runs");
    let base = format!("http://{}", running.address);
    let http = http_client();
    let asked = async {
        loop {
            let status: Status = data_of(&get(&http, &base, "/api/v1/status").await.1);
            let share = status.shared_limits.and_then(|shared| shared.share);
            if let Some(share) = share.filter(&is_so) {
                return share;
            }
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    time::timeout(PATIENCE, asked).await.expect("its share changes in time")
}

/// One compaction on the common time of both clusters.
struct Ran {
    began: Duration,
    end: Duration,
    bytes: u64,
}

/// The compactions of both clusters, by start.
fn compactions(sites: [&Site; 2]) -> Vec<Ran> {
    let [one, other] = sites.map(|site| site.cluster.elapsed());
    // The clusters began one after the other.
    let ahead = [Duration::ZERO, one.saturating_sub(other)];
    let mut all = Vec::new();
    for (site, ahead) in sites.into_iter().zip(ahead) {
        let of = site.cluster.world(|world| world.compactions());
        let of = of.into_iter().filter(|it| it.by == StartedBy::Request);
        all.extend(of.map(|it| Ran {
            began: it.began + ahead,
            end: it.end.map_or(Duration::MAX, |end| end.at + ahead),
            bytes: it.before,
        }));
    }
    all.sort_by_key(|ran| ran.began);
    all
}

/// Asserts that the shared limits were kept at every start.
fn check(sites: [&Site; 2], bytes: u64) -> usize {
    let all = compactions(sites);
    for (at, ran) in all.iter().enumerate() {
        let before = all.iter().take(at);
        let running = before.filter(|other| other.end > ran.began).count() + 1;
        assert!(running <= JOBS, "{running} run {:?} after the start", ran.began);
    }
    // The test takes less than an hour, so all bytes count.
    let spent: u64 = all.iter().map(|ran| ran.bytes).sum();
    assert!(spent <= bytes, "{spent} of {bytes} bytes");
    all.len()
}

#[tokio::test]
async fn clusters_together_keep_shared_limits_whatever_is_killed() {
    let mut random = random_numbers(seed());
    let mut below = |most: u8| random().to_le_bytes()[7] % most;
    let slow = || {
        let mut config = bloated_world(DATABASES);
        // Two megabytes of each file are active: a compaction takes about two seconds.
        config.compaction_rate = 1_000_000;
        config
    };
    let (one, other) = (Site::open(slow()).await, Site::open(slow()).await);
    let sites = [&one, &other];
    // A third of all files.
    let bytes = FILE_BYTES * FILES / 3;
    let dirs = [0; 2].map(|_| tempfile::tempdir().expect("a temporary directory"));
    let ports = [free_port(), free_port()];
    let member = |name: &str| {
        format!(
            "{}smoosh: {{mode: takeover, takeover: [ratio_dbs]}}\nshared_limits: {{url: 'http://127.0.0.1:{}', name: {name}",
            enforcing(),
            ports[0]
        )
    };
    let own = format!("{{jobs: {OWN_JOBS}, bytes_per_hour: {}}}", bytes / 8);
    let keeper = format!(
        "{}, keeper: {{jobs: {JOBS}, bytes_per_hour: {bytes}, lease: 5s, members: {{one: {own}, other: {own}}}}}}}\n",
        member("one")
    );
    let mut members = [
        Member::new(&one, dirs[0].path(), ports[0], &keeper),
        Member::new(&other, dirs[1].path(), ports[1], &(member("other") + "}\n")),
    ];
    for member in &mut members {
        member.start().await;
    }
    for life in 0..LIVES {
        time::sleep(Duration::from_millis(500 + 20 * u64::from(below(200)))).await;
        // The keeper, the other, or both; sometimes the other works alone until all leases have ended.
        let which = below(3);
        for (at, member) in members.iter_mut().enumerate() {
            if which == 2 || usize::from(which) == at {
                member.kill().await;
            }
        }
        check(sites, bytes);
        if life % 3 == 2 {
            time::sleep(Duration::from_secs(9)).await;
        }
        for member in &mut members {
            if member.running.is_none() {
                member.start().await;
            }
        }
    }
    let go_on = async {
        while check(sites, bytes) <= 2 * LIVES {
            time::sleep(Duration::from_millis(200)).await;
        }
    };
    time::timeout(PATIENCE, go_on).await.expect("compactions go on");

    // The keeper's file no longer lists the other member.
    written(dirs[0].path(), "recliner.yml", &keeper.replace(&format!(", other: {own}"), ""));
    members[0].reload();
    let refused = "no member is called \"other\"";
    let share = share_once(&members[1], |share| share.says.contains(refused)).await;
    assert_eq!((share.allowed, share.own_share), (Share::NONE, Share::NONE));
    members[1].kill().await;
    members[1].start().await;
    let share = share_once(&members[1], |share| share.problem.is_some()).await;
    assert_eq!(share.allowed, Share::NONE, "a later process was told so too");
    println!("{LIVES} times killed; {} compactions", check(sites, bytes));
}
