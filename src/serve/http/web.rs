//! Users, certificates and headers that are in force.
//!
//! Owns what `--web.config.file` says, as it was read last: it is looked at again for every
//! connection and every request, so that a new certificate or a user who was struck out
//! counts at once. A new file that is bad, or that asks less of those who come, leaves the
//! old one in force and says so: while it is being written, a file may be half there.

mod checks;
mod tls;
mod users;

pub(super) use users::{Asker, admit};

use crate::{
    config::{self, Pem, Placed, Problem, Problems, WebConfig},
    tasks::unwrap_join,
};
use arc_swap::ArcSwap;
use checks::Checks;
use couchdb_client::CertificateEnds;
use http::{HeaderName, HeaderValue};
use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use tls::Tls;
use users::Users;

/// The flag that names the file.
const FLAG: &str = "--web.config.file";

/// The longest file in PEM that is read, in bytes.
const MAX_PEM: usize = 1 << 20;

/// Who may come in, and how; anybody in plain HTTP where no file was named.
#[derive(Clone, Debug, Default)]
pub struct Web(Option<Arc<Live>>);

/// A file that is looked at again and again.
struct Live {
    path: PathBuf,
    seen: ArcSwap<Seen>,
    /// Passwords are checked a few at a time: each takes a core for a while.
    checks: Arc<Checks>,
}

/// What was read last, and what is in force since.
struct Seen {
    read: Read,
    in_force: Arc<InForce>,
    problem: Option<Arc<str>>,
}

/// The bytes of the file and of those it names, or why there are none.
#[derive(Clone, PartialEq, Eq)]
struct Read {
    file: Result<Vec<u8>, Problems>,
    pem: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
}

/// What one good file says.
#[derive(Debug, Default)]
pub(super) struct InForce {
    tls: Option<Tls>,
    headers: Vec<(HeaderName, HeaderValue)>,
    users: Users,
}

impl fmt::Debug for Live {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of what was read, some is secret.
        out.debug_struct("Live").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Web {
    /// What the file says now; `None` is no file.
    ///
    /// # Errors
    /// Everything that is wrong with the file, or with the certificates and keys it names.
    pub fn open(path: Option<&Path>) -> Result<Self, Problems> {
        let Some(path) = path else { return Ok(Self(None)) };
        let (read, in_force) = load(path);
        let seen = Seen { read, in_force: Arc::new(in_force?), problem: None };
        let (path, checks) = (path.to_owned(), Arc::default());
        Ok(Self(Some(Arc::new(Live { path, seen: ArcSwap::from_pointee(seen), checks }))))
    }

    /// Whether only users may ask.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.0.as_ref().is_some_and(|live| !live.seen.load().in_force.users.is_empty())
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.0.as_ref().is_some_and(|live| live.seen.load().in_force.tls.is_some())
    }

    /// When the certificates in force end.
    #[must_use]
    pub fn certificate_ends(&self) -> CertificateEnds {
        let seen = self.0.as_ref().map(|live| live.seen.load());
        let tls = seen.as_ref().and_then(|seen| seen.in_force.tls.as_ref());
        tls.map(Tls::certificate_ends).unwrap_or_default()
    }

    /// Why the newest file is not in force, if it is not.
    #[must_use]
    pub fn problem(&self) -> Option<Arc<str>> {
        self.0.as_ref()?.seen.load().problem.clone()
    }

    /// What is in force, read again if it changed.
    pub(super) async fn in_force(&self) -> Arc<InForce> {
        let Some(live) = &self.0 else { return Arc::default() };
        let looks = Arc::clone(live);
        let looked = unwrap_join(tokio::task::spawn_blocking(move || looks.look_again()).await);
        // Where the runtime ends, what was read before.
        looked.unwrap_or_else(|| Arc::clone(&live.seen.load().in_force))
    }

    /// The line of those whose password is to be checked.
    fn checks(&self) -> Option<&Arc<Checks>> {
        self.0.as_ref().map(|live| &live.checks)
    }
}

impl Live {
    /// Two that look at the same time do the same; the later one's result stays, and the
    /// next look finds out if that was older.
    fn look_again(&self) -> Arc<InForce> {
        let seen = self.seen.load_full();
        if seen.read.is_still_there(&self.path) {
            return Arc::clone(&seen.in_force);
        }
        let (read, found) = load(&self.path);
        let found = found
            .map_err(|problems| problems.to_string())
            .and_then(|found| found.at_least(&seen.in_force).map(|()| found));
        let (in_force, problem) = match found {
            Ok(found) => {
                tracing::info!(file = %self.path.display(), "users and certificates were read again");
                (Arc::new(found), None)
            }
            Err(why) => {
                tracing::error!(why, "users and certificates stay as they were");
                (Arc::clone(&seen.in_force), Some(why.into()))
            }
        };
        self.seen.store(Arc::new(Seen { read, in_force: Arc::clone(&in_force), problem }));
        in_force
    }
}

impl Read {
    fn is_still_there(&self, path: &Path) -> bool {
        config::read_file(path, FLAG) == self.file
            && self.pem.iter().all(|(path, bytes)| read_pem(path) == *bytes)
    }
}

impl InForce {
    /// The certificate's side of a connection; plain HTTP without.
    pub(super) fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.as_ref().map(Tls::config)
    }

    /// Whether the certificate is for this host, so that a browser that came here by another
    /// name was warned.
    pub(super) fn certifies(&self, host: &str) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.certifies(host))
    }

    /// Refuses to be less closed than `old` was: that wants a restart.
    fn at_least(&self, old: &Self) -> Result<(), String> {
        let asks_for_certificates =
            |it: &Self| it.tls.as_ref().is_some_and(Tls::asks_for_certificates);
        let opened = match () {
            () if self.tls.is_none() && old.tls.is_some() => "no certificate",
            () if self.users.is_empty() && !old.users.is_empty() => "no users",
            () if !asks_for_certificates(self) && asks_for_certificates(old) => {
                "no demand for client certificates"
            }
            () => return Ok(()),
        };
        Err(format!("the new file has {opened}; what was closed is opened by a restart only"))
    }
}

/// Reads the file, and what it names.
fn load(path: &Path) -> (Read, Result<InForce, Problems>) {
    let mut read = Read { file: config::read_file(path, FLAG), pem: BTreeMap::new() };
    let made = read
        .file
        .clone()
        .and_then(|bytes| config::read_web(config::File { name: path, bytes: &bytes }))
        .and_then(|config| make(config, &mut read.pem));
    (read, made)
}

fn make(
    config: WebConfig,
    read: &mut BTreeMap<PathBuf, Result<Vec<u8>, String>>,
) -> Result<InForce, Problems> {
    let tls = config.tls.map(|found| Tls::new(&found, &mut |pem| text_of(pem, read)));
    let tls = tls.transpose().map_err(Problems::new)?;
    Ok(InForce { tls, headers: config.headers, users: Users::new(config.users) })
}

/// The bytes of a text in PEM, noted down if they are a file's.
fn text_of(
    pem: &Placed<Pem>,
    read: &mut BTreeMap<PathBuf, Result<Vec<u8>, String>>,
) -> Result<Vec<u8>, Problem> {
    use secrecy::ExposeSecret as _;
    match &pem.value {
        Pem::Text(text) => Ok(text.expose_secret().as_bytes().to_vec()),
        Pem::File(path) => {
            let bytes = read.entry(path.clone()).or_insert_with(|| read_pem(path));
            bytes.clone().map_err(|text| Problem { place: pem.place.clone(), text })
        }
    }
}

fn read_pem(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_PEM).unwrap_or(u64::MAX).saturating_add(1);
    fs::File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|why| format!("{} cannot be read: {why}", path.display()))?;
    if bytes.len() > MAX_PEM {
        return Err(format!("{} is longer than 1 MiB; nothing sound is", path.display()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
