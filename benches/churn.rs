//! smoosh or recliner during the same stream of writes to a real CouchDB: the bytes that each
//! wastes and rewrites, measured from outside in the data directories.
//!
//! ```text
//! export RECLINER_TEST_COUCHDB_URL=http://127.0.0.1:5984,http://127.0.0.1:5985,http://127.0.0.1:5986
//! export RECLINER_TEST_COUCHDB_USER=admin RECLINER_TEST_COUCHDB_PASSWORD=...
//! export RECLINER_TEST_COUCHDB_DATA=/data/node1,/data/node2,/data/node3
//!
//! cargo bench --bench churn -- smoosh
//! cargo bench --bench churn -- recliner smoosh-channels.yml
//! cargo bench --bench churn -- recliner rent.yml
//! ```
//!
//! Give each run a cluster of three nodes with fresh data; without the variables the bench says so
//! and does nothing. Options after the mode: `--seconds 600`, `--seed 1`, `--listen 127.0.0.1:10984`.
//! `smoosh` leaves CouchDB as it is. `recliner FILE` runs `recliner serve` with that file from before
//! the first write on. The file needs the three nodes and
//!
//! ```yaml
//! mode: enforce
//! channels: rent          # or smoosh, for its channels in recliner; or a list, with a `horizon`
//! smoosh:
//!   mode: takeover        # smoosh's own channels stop while recliner runs
//!   takeover: [ratio_dbs, slack_dbs, upgrade_dbs, ratio_views, slack_views, upgrade_views, index_cleanup]
//! ```
//!
//! There are 12 databases with two ranges and three copies each. Their sizes, from 0.4 to 40 MB, and
//! their write rates, from half a document to 50 documents of 4 KB a second, are independent of each
//! other. Of ten writes nine change a document; the others add or delete one. The databases are filled
//! first. Then the files are listed once a second until the last write. A file that another one replaced
//! under the same name was compacted, and the new file's size counts as rewritten. At the end everything
//! is compacted, which gives the live size; earlier live sizes are in proportion to the text of the
//! existing documents. Waste is the size of the files beyond the live size.

mod disk_watch;
#[path = "../tests/seeded/mod.rs"]
mod seeded;
mod stream;

use disk_watch::{Look, Rewritten};
use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use stream::{Couch, DATABASES, Failure, Written};
use tokio::{
    process::{Child, Command},
    task::{self, JoinSet},
    time::{self, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// How long recliner may take to become ready, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long compacting everything at the end may take.
const LAST_COMPACTION: Duration = Duration::from_secs(600);

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// The settings from the command line.
struct Run {
    label: String,
    /// recliner's configuration; `None` if smoosh compacts.
    config: Option<PathBuf>,
    seconds: u64,
    seed: u64,
    listen: String,
}

impl Run {
    /// Reads the command line; `None` if it names no mode.
    fn from_args() -> Result<Option<Self>, Failure> {
        let mut args = env::args().skip(1).filter(|arg| arg != "--bench");
        let config = match args.next().as_deref() {
            None => return Ok(None),
            Some("smoosh") => None,
            Some("recliner") => Some(args.next().ok_or("recliner: name its configuration file")?),
            Some(other) => return Err(format!("{other:?} is neither smoosh nor recliner").into()),
        };
        let label = config.as_deref().unwrap_or("smoosh").to_owned();
        let listen = "127.0.0.1:10984".to_owned();
        let config = config.map(PathBuf::from);
        let mut run = Self { label, config, seconds: 600, seed: 1, listen };
        while let Some(option) = args.next() {
            let value = args.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--seconds" => run.seconds = value.parse()?,
                "--seed" => run.seed = value.parse()?,
                "--listen" => run.listen = value,
                _ => return Err(format!("there is no option {option}").into()),
            }
        }
        Ok(Some(run))
    }
}

/// A running recliner and its directory.
struct Recliner {
    child: Child,
    dir: tempfile::TempDir,
}

impl Recliner {
    async fn start(config: &Path, listen: &str) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let log = fs::File::create(dir.path().join("log"))?;
        let child = Command::new(env!("CARGO_BIN_EXE_recliner"))
            .args(["serve", "--web.listen-address", listen, "--config.file"])
            .arg(config)
            .arg("--storage.path")
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let mut recliner = Self { child, dir };
        let (url, until) = (format!("http://{listen}/-/ready"), Instant::now() + PATIENCE);
        loop {
            let ready = reqwest::get(&url).await.is_ok_and(|answer| answer.status().is_success());
            if ready {
                return Ok(recliner);
            }
            if Instant::now() > until || recliner.child.try_wait()?.is_some() {
                let log = fs::read_to_string(recliner.dir.path().join("log"))?;
                return Err(format!("recliner is not ready: {log}").into());
            }
            time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Ends recliner gracefully, so that it restores smoosh's channels.
    async fn stop(mut self) -> Result<(), Failure> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).ok_or("recliner ended by itself")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        time::timeout(PATIENCE, self.child.wait()).await??;
        Ok(())
    }
}

/// One second of the run.
struct Sample {
    files: [u64; DATABASES],
    /// Bytes of the documents' text.
    text: [u64; DATABASES],
    blocks: u64,
}

/// All seconds of the run.
#[derive(Default)]
struct Watched {
    samples: Vec<Sample>,
    rewritten: Rewritten,
}

/// The databases, each with the counter of its text's bytes.
type Databases = Vec<(String, Arc<AtomicU64>)>;

fn by_database(databases: &Databases, of: impl Fn(&str, &AtomicU64) -> u64) -> [u64; DATABASES] {
    std::array::from_fn(|at| databases.get(at).map_or(0, |(name, text)| of(name, text)))
}

async fn look(dirs: &[PathBuf]) -> Result<Look, Failure> {
    let dirs = dirs.to_vec();
    Ok(task::spawn_blocking(move || Look::at(&dirs)).await?)
}

async fn watch(
    dirs: Vec<PathBuf>,
    databases: Databases,
    stop: CancellationToken,
) -> Result<Watched, Failure> {
    let mut watched = Watched::default();
    let mut last = look(&dirs).await?;
    let mut tick = time::interval(BETWEEN_LOOKS);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !stop.is_cancelled() {
        tick.tick().await;
        let now = look(&dirs).await?;
        let Rewritten { files, bytes } = now.rewritten_since(&last);
        watched.rewritten.files += files;
        watched.rewritten.bytes += bytes;
        watched.samples.push(Sample {
            files: by_database(&databases, |name, _| now.bytes_of(name)),
            text: by_database(&databases, |_, text| text.load(Ordering::Relaxed)),
            blocks: now.blocks,
        });
        last = now;
    }
    Ok(watched)
}

/// Compacts everything; returns the remaining size of each database.
async fn live(
    couch: &Couch,
    dirs: &[PathBuf],
    databases: &Databases,
) -> Result<[u64; DATABASES], Failure> {
    let before = look(dirs).await?;
    for (name, _) in databases {
        couch.compact(name).await?;
    }
    let until = Instant::now() + LAST_COMPACTION;
    loop {
        let now = look(dirs).await?;
        let replaced = now.rewritten_since(&before).files;
        if replaced == before.files.len() as u64 && now.unfinished == 0 {
            return Ok(by_database(databases, |name, _| now.bytes_of(name)));
        }
        if Instant::now() > until {
            let all = before.files.len();
            return Err(format!("only {replaced} of {all} files were compacted at the end").into());
        }
        time::sleep(BETWEEN_LOOKS).await;
    }
}

impl Watched {
    /// Bytes beyond the live size at one sample, given the live size and the text at the end.
    fn waste(sample: &Sample, live: &[u64; DATABASES], text: &[u64; DATABASES]) -> f64 {
        let of = |at: usize| {
            let then = sample.text[at] as f64 / text[at].max(1) as f64;
            sample.files[at] as f64 - live[at] as f64 * then
        };
        (0..DATABASES).map(of).sum()
    }

    fn table(&self, label: &str, stream: Written, live: &[u64; DATABASES]) -> Vec<String> {
        let mb = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
        let Some(last) = self.samples.last() else { return vec!["nothing was seen".to_owned()] };
        let waste = |sample: &Sample| Self::waste(sample, live, &last.text);
        let mean = self.samples.iter().map(waste).sum::<f64>() / self.samples.len() as f64;
        let peak = self.samples.iter().map(waste).fold(0.0, f64::max);
        let most = |of: fn(&Sample) -> u64| self.samples.iter().map(of).max().unwrap_or(0) as f64;
        let rows = [
            ("mean waste", mb(mean)),
            ("bytes rewritten", mb(self.rewritten.bytes as f64)),
            ("blocks in the data directories, peak", mb(most(|sample| sample.blocks))),
            ("compacted files", self.rewritten.files.to_string()),
            ("waste, peak", mb(peak)),
            ("waste, at the end", mb(waste(last))),
            ("files, peak", mb(most(|sample| sample.files.iter().sum()))),
            ("live bytes, at the end", mb(live.iter().sum::<u64>() as f64)),
            ("documents written, refused", format!("{}, {}", stream.documents, stream.refused)),
            ("seconds that a write was late, at most", format!("{:.1}", stream.late.as_secs_f64())),
            ("looks", self.samples.len().to_string()),
        ];
        let head = [format!("| | {label} |"), "|---|---:|".to_owned()];
        head.into_iter().chain(rows.map(|(what, value)| format!("| {what} | {value} |"))).collect()
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let named = (Couch::named()?, env::var("RECLINER_TEST_COUCHDB_DATA"));
    let (Some(couch), Ok(dirs)) = named else {
        say("churn: skipped, RECLINER_TEST_COUCHDB_URL or RECLINER_TEST_COUCHDB_DATA is not set")?;
        return Ok(());
    };
    let Some(run) = Run::from_args()? else {
        say("churn: skipped, name a mode: smoosh, or recliner CONFIG.yml")?;
        return Ok(());
    };
    let dirs: Vec<PathBuf> = dirs.split(',').map(PathBuf::from).collect();
    let couch = Arc::new(couch);
    let recliner = match &run.config {
        Some(config) => Some(Recliner::start(config, &run.listen).await?),
        None => None,
    };

    let mut writers = stream::writers(&couch, run.seed);
    for writer in &mut writers {
        writer.fill().await?;
    }
    let named = writers.iter().map(|writer| (writer.name.clone(), Arc::clone(&writer.live)));
    let databases: Databases = named.collect();
    let stop = CancellationToken::new();
    let mut watching = JoinSet::new();
    watching.spawn(watch(dirs.clone(), databases.clone(), stop.clone()));
    let mut writing = JoinSet::new();
    for writer in writers {
        writing.spawn(writer.write(run.seconds));
    }
    let mut stream = Written::default();
    while let Some(ended) = writing.join_next().await {
        stream.add(ended??);
    }
    stop.cancel();
    let watched = watching.join_next().await.ok_or("nothing watched the files")???;
    if let Some(recliner) = recliner {
        recliner.stop().await?;
    }

    let live = live(&couch, &dirs, &databases).await?;
    for (name, _) in &databases {
        couch.delete(name).await?;
    }
    watched.table(&run.label, stream, &live).iter().try_for_each(|row| say(row))?;
    Ok(())
}
