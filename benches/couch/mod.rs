//! What the benches share that run `recliner scan` against a real CouchDB.

use std::{
    env,
    error::Error,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// `/proc` counts CPU time in hundredths of a second.
const TICKS: f64 = 100.0;

pub(crate) fn say(line: &str) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}

/// CPU seconds out of a `stat` file of `/proc`: two fields in a row, user and system, the
/// first of them `at` fields after the command's name.
pub(crate) fn cpu(stat: &str, at: usize) -> Result<f64, Failure> {
    let stat = fs::read_to_string(stat)?;
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks = fields.split_whitespace().skip(at).take(2).map(str::parse::<f64>);
    Ok(ticks.collect::<Result<Vec<_>, _>>()?.iter().sum::<f64>() / TICKS)
}

/// The CouchDB that the environment names, with what `scan` needs to reach it.
pub(crate) struct Couch {
    pub(crate) base: String,
    pub(crate) user: String,
    pub(crate) password: String,
    dir: tempfile::TempDir,
}

impl Couch {
    /// `None`, said on standard output, where the environment names none.
    pub(crate) fn named(bench: &str) -> Result<Option<Self>, Failure> {
        let Ok(url) = env::var("RECLINER_TEST_COUCHDB_URL") else {
            say(&format!("{bench}: skipped, RECLINER_TEST_COUCHDB_URL is not set"))?;
            return Ok(None);
        };
        rustls::crypto::ring::default_provider()
            .install_default()
            .map_err(|_| "the TLS provider was installed twice")?;
        let url = reqwest::Url::parse(&url)?;
        let (host, port) =
            (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(5984));
        Ok(Some(Self {
            base: format!("http://{host}:{port}"),
            user: url.username().to_owned(),
            password: url.password().unwrap_or_default().to_owned(),
            dir: tempfile::tempdir()?,
        }))
    }

    /// A file in a directory that is removed at the end.
    pub(crate) fn file(&self, name: &str, contents: &str) -> Result<PathBuf, Failure> {
        let path = self.dir.path().join(name);
        fs::write(&path, contents)?;
        Ok(path)
    }

    /// A configuration of this CouchDB, `couchdb` and `rest` added to it.
    pub(crate) fn config(&self, couchdb: &str, rest: &str) -> Result<PathBuf, Failure> {
        let (base, user) = (&self.base, &self.user);
        let secret = self.file("password", &self.password)?;
        let settings = format!(
            "couchdb: {{urls: [{base:?}], username: {user:?}, password_file: {secret:?}{couchdb}}}\n{rest}"
        );
        self.file("recliner.yml", &settings)
    }
}

/// Runs `scan` to its end. It ends with another status when any file could not be read.
pub(crate) fn scan(config: &Path, more: &[&str]) -> Result<(), Failure> {
    let out = Command::new(env!("CARGO_BIN_EXE_recliner"))
        .args(["scan", "--log.level", "error", "--config.file"])
        .arg(config)
        .args(more)
        .stderr(Stdio::inherit())
        .output()?;
    if out.status.success() {
        Ok(())
    } else {
        Err(format!("scan ended with {}", out.status).into())
    }
}

pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
