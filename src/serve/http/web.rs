//! The active users, certificates and response headers.
//!
//! Owns the content of `--web.config.file`. The file is checked for changes at every connection
//! and request, so that a new certificate or a removed user takes effect at once. If a new file
//! is invalid or weakens access control, the old one stays active and the problem is reported: a
//! file may be half written when it is read.

mod password_queue;
mod tls;
mod users;

pub(super) use users::{AuthenticatedUser, PUBLIC_PATHS, authenticate};

use crate::{
    config::{self, Pem, Placed, Problem, Problems, WebConfig},
    tasks::unwrap_join,
};
use arc_swap::ArcSwap;
use couchdb_client::CertificateEnds;
use http::{HeaderName, HeaderValue};
use password_queue::PasswordQueue;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tls::ServerTls;
use users::Users;

/// The flag with the file's path.
const FLAG: &str = "--web.config.file";

/// The maximum size of a PEM file, in bytes.
const MAX_PEM: u64 = 1 << 20;

/// Access control of the HTTP server. Without a file: plain HTTP, without users.
#[derive(Clone, Debug, Default)]
pub struct WebAccess(Option<Arc<WatchedFile>>);

/// A file that is checked for changes.
struct WatchedFile {
    path: PathBuf,
    loaded: ArcSwap<LoadedWebFile>,
    /// Limits concurrent password checks: each uses a core for a while.
    password_queue: Arc<PasswordQueue>,
}

/// The content read last, and the configuration that is active since.
struct LoadedWebFile {
    contents: FileContents,
    active: Arc<ActiveWebConfig>,
    problem: Option<Arc<str>>,
}

/// The bytes of the file and of the files it names, or the errors of reading them.
#[derive(Clone, PartialEq, Eq)]
struct FileContents {
    file: Result<Vec<u8>, Problems>,
    pem: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
}

/// The configuration of one valid file.
#[derive(Debug, Default)]
pub(super) struct ActiveWebConfig {
    tls: Option<ServerTls>,
    headers: Vec<(HeaderName, HeaderValue)>,
    users: Users,
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some of the content is secret.
        out.debug_struct("Live").field("path", &self.path).finish_non_exhaustive()
    }
}

impl WebAccess {
    /// Reads the web configuration file; without a path, nothing is restricted.
    ///
    /// # Errors
    /// All problems of the file, and of the certificates and keys it names.
    pub fn open(path: Option<&Path>) -> Result<Self, Problems> {
        let Some(path) = path else { return Ok(Self(None)) };
        let (contents, active) = load(path);
        let loaded = LoadedWebFile { contents, active: Arc::new(active?), problem: None };
        let (path, checks) = (path.to_owned(), Arc::default());
        Ok(Self(Some(Arc::new(WatchedFile {
            path,
            loaded: ArcSwap::from_pointee(loaded),
            password_queue: checks,
        }))))
    }

    /// Whether requests need a user.
    pub fn has_users(&self) -> bool {
        self.0.as_ref().is_some_and(|file| !file.loaded.load().active.users.is_empty())
    }

    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.as_ref().is_some_and(|file| file.loaded.load().active.tls.is_some())
    }

    /// When the active certificates expire.
    pub fn certificate_ends(&self) -> CertificateEnds {
        let loaded = self.0.as_ref().map(|file| file.loaded.load());
        let tls = loaded.as_ref().and_then(|loaded| loaded.active.tls.as_ref());
        tls.map(ServerTls::certificate_ends).unwrap_or_default()
    }

    /// Why the newest file is not active, if it is not.
    pub fn problem(&self) -> Option<Arc<str>> {
        self.0.as_ref()?.loaded.load().problem.clone()
    }

    /// The active configuration, read again if the file changed.
    pub(super) async fn active(&self) -> Arc<ActiveWebConfig> {
        let Some(file) = &self.0 else { return Arc::default() };
        let reloaded = Arc::clone(file);
        let reload = tokio::task::spawn_blocking(move || reloaded.reload_if_changed());
        let active = unwrap_join(reload.await);
        // At shutdown of the runtime, the configuration read before.
        active.unwrap_or_else(|| Arc::clone(&file.loaded.load().active))
    }

    /// The queue of password checks.
    fn password_queue(&self) -> Option<&Arc<PasswordQueue>> {
        self.0.as_ref().map(|file| &file.password_queue)
    }
}

impl WatchedFile {
    /// Two concurrent calls do the same work. The later result stays; if it is the older one, the
    /// next call corrects it.
    fn reload_if_changed(&self) -> Arc<ActiveWebConfig> {
        let loaded = self.loaded.load_full();
        if loaded.contents.is_unchanged(&self.path) {
            return Arc::clone(&loaded.active);
        }
        let (contents, found) = load(&self.path);
        let found = found
            .map_err(|problems| problems.to_string())
            .and_then(|found| found.check_not_weaker(&loaded.active).map(|()| found));
        let (active, problem) = match found {
            Ok(found) => {
                tracing::info!(file = %self.path.display(), "loaded the changed web configuration file");
                (Arc::new(found), None)
            }
            Err(why) => {
                tracing::error!(
                    why,
                    "the changed web configuration file is invalid; the old one stays active"
                );
                (Arc::clone(&loaded.active), Some(why.into()))
            }
        };
        self.loaded.store(Arc::new(LoadedWebFile {
            contents,
            active: Arc::clone(&active),
            problem,
        }));
        active
    }
}

impl FileContents {
    fn is_unchanged(&self, path: &Path) -> bool {
        config::read_file(path, FLAG) == self.file
            && self.pem.iter().all(|(path, bytes)| read_pem(path) == *bytes)
    }
}

impl ActiveWebConfig {
    /// The TLS configuration; `None` is plain HTTP.
    pub(super) fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.as_ref().map(ServerTls::config)
    }

    /// Whether the certificate is valid for this host. A browser that used another name was
    /// warned.
    pub(super) fn certifies(&self, host: &str) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.certifies(host))
    }

    /// Fails if this configuration has weaker access control than `old`: that needs a restart.
    fn check_not_weaker(&self, old: &Self) -> Result<(), String> {
        let asks_for_certificates =
            |it: &Self| it.tls.as_ref().is_some_and(ServerTls::asks_for_certificates);
        let opened = match () {
            () if self.tls.is_none() && old.tls.is_some() => "no certificate",
            () if self.users.is_empty() && !old.users.is_empty() => "no users",
            () if !asks_for_certificates(self) && asks_for_certificates(old) => {
                "no demand for client certificates"
            }
            () => return Ok(()),
        };
        Err(format!("the new file has {opened}; weakening access control needs a restart"))
    }
}

/// Reads the file, and the files it names.
fn load(path: &Path) -> (FileContents, Result<ActiveWebConfig, Problems>) {
    let mut read = FileContents { file: config::read_file(path, FLAG), pem: BTreeMap::new() };
    let built = read
        .file
        .clone()
        .and_then(|bytes| config::read_web(config::File { name: path, bytes: &bytes }))
        .and_then(|config| build(config, &mut read.pem));
    (read, built)
}

fn build(
    config: WebConfig,
    read: &mut BTreeMap<PathBuf, Result<Vec<u8>, String>>,
) -> Result<ActiveWebConfig, Problems> {
    let tls = config.tls.map(|found| ServerTls::new(&found, &mut |pem| pem_bytes(pem, read)));
    let tls = tls.transpose().map_err(Problems::new)?;
    Ok(ActiveWebConfig { tls, headers: config.headers, users: Users::new(config.users) })
}

/// The bytes of a PEM text; those of a file are added to `read`.
fn pem_bytes(
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
    named_file::read_at_most(path, MAX_PEM)
        .map_err(|why| format!("{} cannot be read: {why}", path.display()))
}

#[cfg(test)]
mod tests;
