//! Shared by the benches that run `recliner scan` against a real CouchDB.

use crate::measured::{Failure, say};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The CouchDB that the environment names, with everything that `scan` needs to reach it.
pub(crate) struct Couch {
    pub(crate) base: String,
    /// The URLs of the cluster's other nodes, from `RECLINER_BENCH_OTHER_NODES`.
    pub(crate) others: Vec<String>,
    pub(crate) user: String,
    pub(crate) password: String,
    dir: tempfile::TempDir,
}

impl Couch {
    /// `None`, after a notice on standard output, if the environment names no CouchDB.
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
        let others = env::var("RECLINER_BENCH_OTHER_NODES").unwrap_or_default();
        let others = others.split(',').map(str::trim).filter(|url| !url.is_empty());
        Ok(Some(Self {
            base: format!("http://{host}:{port}"),
            others: others.map(str::to_owned).collect(),
            user: url.username().to_owned(),
            password: url.password().unwrap_or_default().to_owned(),
            dir: tempfile::tempdir()?,
        }))
    }

    /// Creates a file in a directory that is removed at the end.
    pub(crate) fn file(&self, name: &str, contents: &str) -> Result<PathBuf, Failure> {
        let path = self.dir.path().join(name);
        fs::write(&path, contents)?;
        Ok(path)
    }

    /// A configuration for this CouchDB, with `couchdb` and `rest` added.
    pub(crate) fn config(&self, couchdb: &str, rest: &str) -> Result<PathBuf, Failure> {
        let (base, others, user) = (&self.base, &self.others, &self.user);
        let nodes: Vec<&String> = std::iter::once(base).chain(others).collect();
        let secret = self.file("password", &self.password)?;
        let settings = format!(
            "couchdb: {{urls: {nodes:?}, username: {user:?}, password_file: {secret:?}{couchdb}}}\n{rest}"
        );
        self.file("recliner.yml", &settings)
    }
}

/// Runs `scan` to its end and returns its log. `scan` exits with a nonzero status if it could not
/// read a file.
pub(crate) fn scan(config: &Path, more: &[&str]) -> Result<String, Failure> {
    let out = Command::new(env!("CARGO_BIN_EXE_recliner"))
        .args(["scan", "--log.level", "debug", "--config.file"])
        .arg(config)
        .args(more)
        .output()?;
    let log = String::from_utf8(out.stderr)?;
    if out.status.success() {
        Ok(log)
    } else {
        Err(format!("scan ended with {}: {log}", out.status).into())
    }
}

pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
