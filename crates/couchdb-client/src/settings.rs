//! The settings of a client: addresses, login, limits.

use super::{Address, HostPattern};
use secrecy::{ExposeSecret as _, SecretString};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Checked settings of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    /// The URLs of the cluster, its entries; at least one.
    pub urls: Vec<Address>,
    /// Nodes' own addresses; each is used once the server there confirms the node's name.
    pub nodes: BTreeMap<String, Address>,
    /// Hosts that get the login although they are known only from a node's name.
    pub trust_node_hosts: Vec<HostPattern>,
    /// The login.
    pub login: Login,
    /// Trusted authorities and client certificate.
    pub tls: Tls,
    /// The longest wait for a complete answer.
    pub timeout: Duration,
    /// Maximum number of requests in flight for each node: through it as an entry, and about it.
    pub requests_in_flight: usize,
    /// The most cold reads a second for each node; 0 for no limit.
    pub cold_reads_per_second: u32,
}

impl ClientSettings {
    /// The defaults, with these URLs.
    pub fn new(urls: Vec<Address>) -> Self {
        Self {
            urls,
            nodes: BTreeMap::new(),
            trust_node_hosts: Vec::new(),
            login: Login::None,
            tls: Tls::default(),
            timeout: Duration::from_secs(30),
            requests_in_flight: 8,
            cold_reads_per_second: 50,
        }
    }
}

/// A possible own address of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddressCandidate {
    pub(super) address: Address,
    /// Whether it is known only from the node's name.
    pub(super) guessed: bool,
}

impl ClientSettings {
    /// Where to search for `node` itself: the address in the settings, then the host in its name with
    /// the first URL's port, if that host may get the login.
    ///
    /// The name comes from the cluster, and the network decides who answers at its host. So an
    /// address that is guessed this way counts only if the settings list it too, if they trust the
    /// host, or if TLS `proves` the host under the operator's own authorities.
    pub(super) fn candidates(&self, node: &str, proves: bool) -> Vec<AddressCandidate> {
        let given = self.nodes.get(node).cloned();
        let guess = self.urls.first().and_then(|first| first.of_node(node));
        let guess = guess.filter(|guess| given.as_ref() != Some(guess)).and_then(|address| {
            let listed = self.urls.iter().chain(self.nodes.values()).any(|it| *it == address);
            let trusted = || self.trust_node_hosts.iter().any(|it| it.takes(address.host()));
            let proved = || proves && address.is_https();
            let counts = listed || trusted() || proved();
            counts.then_some(AddressCandidate { address, guessed: !listed })
        });
        given
            .map(|address| AddressCandidate { address, guessed: false })
            .into_iter()
            .chain(guess)
            .collect()
    }

    /// Whether there is any address at which to search for `node` itself. Assumes that a CA file
    /// contains the operator's own authorities.
    pub fn has_address_for(&self, node: &str) -> bool {
        !self.candidates(node, self.tls.ca_file.is_some()).is_empty()
    }

    /// Whether any server is reached over TLS. Addresses derived from these have the same scheme.
    pub(super) fn uses_tls(&self) -> bool {
        self.urls.iter().chain(self.nodes.values()).any(Address::is_https)
    }
}

/// The maximum size of a password file, in bytes.
const MAX_PASSWORD_FILE: u64 = 64 << 10;

/// Where the login comes from. `Debug` never shows a password.
#[derive(Clone, Debug, Default)]
pub enum Login {
    /// Requests carry no login.
    #[default]
    None,
    /// A fixed password.
    Password {
        /// The user.
        username: String,
        /// The password.
        password: SecretString,
    },
    /// A password in a file, read again when it changes. A line break at its end is ignored.
    File {
        /// The user.
        username: String,
        /// The file.
        path: PathBuf,
    },
}

/// Equal when user and password are, or user and file: reading the file notices a changed password.
impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (
                Self::Password { username, password },
                Self::Password { username: name, password: word },
            ) => username == name && password.expose_secret() == word.expose_secret(),
            (Self::File { username, path }, Self::File { username: name, path: file }) => {
                username == name && path == file
            }
            (Self::None | Self::Password { .. } | Self::File { .. }, _) => false,
        }
    }
}

impl Login {
    /// A fixed password.
    ///
    /// # Errors
    /// When Basic authentication cannot carry the user name.
    pub fn password(username: &str, password: &str) -> Result<Self, LoginError> {
        Ok(Self::Password { username: checked(username)?, password: password.into() })
    }

    /// A password file.
    ///
    /// # Errors
    /// When Basic authentication cannot carry the user name.
    pub fn file(username: &str, path: impl Into<PathBuf>) -> Result<Self, LoginError> {
        Ok(Self::File { username: checked(username)?, path: path.into() })
    }

    /// The user, if there is a login.
    pub fn username(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Password { username, .. } | Self::File { username, .. } => Some(username),
        }
    }

    /// Whether the password comes from a pipe, which gives it once.
    pub(super) fn is_piped(&self) -> bool {
        match self {
            Self::File { path, .. } => std::fs::metadata(path).is_ok_and(|found| !found.is_file()),
            Self::None | Self::Password { .. } => false,
        }
    }

    /// Reads the current password; `None` without a login.
    pub(super) async fn read(&self) -> Result<Option<SecretString>, LoginError> {
        match self {
            Self::None => Ok(None),
            Self::Password { password, .. } => {
                Ok(Some(SecretString::from(password.expose_secret())))
            }
            Self::File { path, .. } => {
                let refused = |reason| LoginError::File { path: path.clone(), reason };
                let password = read_password(path.clone()).await.map_err(refused)?;
                Ok(Some(password.into()))
            }
        }
    }
}

/// The password in a file, which may be a pipe or an endless device.
async fn read_password(path: PathBuf) -> Result<String, String> {
    let read = move || named_file::read_secret(&path, MAX_PASSWORD_FILE);
    tokio::task::spawn_blocking(read).await.map_err(|why| why.to_string())?
}

fn checked(username: &str) -> Result<String, LoginError> {
    let carried =
        !username.is_empty() && !username.contains(':') && !username.contains(char::is_control);
    if carried { Ok(username.to_owned()) } else { Err(LoginError::Username(username.to_owned())) }
}

/// Why a login cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum LoginError {
    /// Basic authentication cannot carry the user name.
    #[error(
        "the user name {0:?} cannot be used: it must not be empty or contain a colon or control characters"
    )]
    Username(String),
    /// The password file cannot be used.
    #[error("the password file {} cannot be used: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Files for TLS, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The only authorities to trust; the system's if not given.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate chain; only with `key_file`.
    pub cert_file: Option<PathBuf>,
    /// The client's private key.
    pub key_file: Option<PathBuf>,
}
