//! Requests to other recliners: one answer in the API's envelope.
//!
//! Owns the login for them. Follows no redirect, so that the login reaches only the address that was given.

use super::fetch;
use crate::model::settings::fleet::{FleetSettings, ListUrl};
use couchdb_client::{Address, Tls};
use reqwest::{Client, RequestBuilder, StatusCode, header::HeaderMap};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};

/// A user and a password.
pub(crate) type Login = (String, SecretString);

/// The login in the environment, the same one that commands use for a running recliner.
pub(crate) fn login_in_environment() -> Option<Login> {
    let env = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    Some((env("RECLINER_USER")?, env("RECLINER_PASSWORD")?.into()))
}

/// The reason given if a recliner requires another login than the fleet's.
const REFUSED: &str = "it rejects the login; give fleet.username and fleet.password_file, or RECLINER_USER and RECLINER_PASSWORD";

/// Maximum size of a file with a password.
const MAX_PASSWORD_BYTES: u64 = 4_096;

/// The login for the recliners of a fleet.
fn login(settings: &FleetSettings) -> Result<Option<Login>, String> {
    let (Some(user), Some(path)) = (&settings.username, &settings.password_file) else {
        return Ok(login_in_environment());
    };
    let password = named_file::read_secret(path, MAX_PASSWORD_BYTES)
        .map_err(|why| format!("fleet.password_file {} cannot be read: {why}", path.display()))?;
    Ok(Some((user.clone(), password.into())))
}

/// A client of other recliners.
#[derive(Clone, Debug)]
pub(crate) struct ReclinerClient {
    http: Client,
    login: Option<Arc<Login>>,
}

/// The data of an answer.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    pub(crate) data: T,
    pub(crate) headers: HeaderMap,
    /// The size of the answer.
    pub(crate) bytes: usize,
}

/// Why there is no data.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum NoReply {
    #[error("it rejects the login; give RECLINER_USER and RECLINER_PASSWORD")]
    Login,
    /// Its API answered with an error of this kind.
    #[error("{says}")]
    Refused { kind: String, says: String },
    #[error("{0}")]
    Other(String),
}

impl NoReply {
    /// The reason to show if the request used the login of a fleet.
    pub(crate) fn into_fleet_reason(self) -> String {
        match self {
            Self::Login => REFUSED.to_owned(),
            Self::Refused { says, .. } | Self::Other(says) => says,
        }
    }
}

impl From<NoReply> for String {
    fn from(why: NoReply) -> Self {
        why.to_string()
    }
}

/// The part of the API's envelope that is used.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Envelope<T> {
    data: Option<T>,
    #[serde(default, rename = "errorType")]
    error_type: String,
    error: Option<String>,
}

impl ReclinerClient {
    /// A client whose requests fail unless they are answered within this time.
    ///
    /// # Errors
    /// If the HTTP library cannot be set up.
    pub(crate) fn new(within: Duration, login: Option<Login>) -> Result<Self, reqwest::Error> {
        Ok(Self { http: fetch::client(within)?, login: login.map(Arc::new) })
    }

    /// Like [`new`](Self::new), but with these authorities and this client certificate.
    ///
    /// # Errors
    /// If a file cannot be used, or the HTTP library cannot be set up.
    pub(crate) fn with_tls(
        within: Duration,
        login: Option<Login>,
        tls: &Tls,
    ) -> Result<Self, String> {
        let files = fetch::TlsFiles::read(tls)
            .map_err(|unusable| format!("{} {}", unusable.path.display(), unusable.why))?;
        let http = fetch::build(|| files.apply(fetch::builder(within))).map_err(fetch::describe)?;
        Ok(Self { http, login: login.map(Arc::new) })
    }

    /// A client with the login and the authorities of a fleet.
    ///
    /// # Errors
    /// If a file cannot be used, or the HTTP library cannot be set up.
    pub(crate) fn of_fleet(settings: &FleetSettings, within: Duration) -> Result<Self, String> {
        let client = Self::with_tls(within, login(settings)?, &settings.tls);
        client.map_err(|why| format!("fleet.tls: {why}"))
    }

    /// The same client without the login.
    #[must_use]
    pub(crate) fn without_login(&self) -> Self {
        Self { http: self.http.clone(), login: None }
    }

    /// A server's response to a GET of a list, without the login; at most `max_bytes`.
    ///
    /// # Errors
    /// If there is no successful response.
    pub(crate) async fn document(&self, at: &ListUrl, max_bytes: usize) -> Result<Vec<u8>, String> {
        let answer = self.http.get(at.with_query()).send().await.map_err(fetch::describe)?;
        match answer.status() {
            StatusCode::OK => fetch::read_body(answer, max_bytes).await,
            status => Err(format!("it answered {status}")),
        }
    }

    /// A GET of a path of the API.
    pub(crate) fn get(&self, at: &Address, path: &str) -> RequestBuilder {
        self.http.get(route(at, path))
    }

    /// A POST to a path of the API.
    pub(crate) fn post(&self, at: &Address, path: &str) -> RequestBuilder {
        self.http.post(route(at, path))
    }

    /// Sends a request with the login; returns the answer, up to `max_bytes`.
    ///
    /// # Errors
    /// If there is no data; the error says why.
    pub(crate) async fn answer<T: DeserializeOwned>(
        &self,
        mut request: RequestBuilder,
        max_bytes: usize,
    ) -> Result<Reply<T>, NoReply> {
        if let Some(login) = &self.login {
            request = request.basic_auth(&login.0, Some(login.1.expose_secret()));
        }
        let answer = request.send().await.map_err(|why| NoReply::Other(fetch::describe(why)))?;
        let status = answer.status();
        if status == StatusCode::UNAUTHORIZED {
            return Err(NoReply::Login);
        }
        if status.is_redirection() {
            let why = format!("it answered {status}, a redirect, which recliner does not follow");
            return Err(NoReply::Other(why));
        }
        let headers = answer.headers().clone();
        let body = fetch::read_body(answer, max_bytes).await.map_err(NoReply::Other)?;
        let strange = || format!("it answered {status}, but not as a recliner does");
        let read: Envelope<T> =
            serde_json::from_slice(&body).map_err(|_| NoReply::Other(strange()))?;
        match (read.data, read.error) {
            (Some(data), _) if status.is_success() => {
                Ok(Reply { data, headers, bytes: body.len() })
            }
            (_, Some(why)) => {
                let why = why.chars().take(300).collect::<String>();
                let says = format!("it answered {status}: {why}");
                Err(NoReply::Refused { kind: read.error_type, says })
            }
            (_, None) => Err(NoReply::Other(strange())),
        }
    }
}

fn route(at: &Address, path: &str) -> String {
    format!("{}/api/v1/{path}", at.as_str())
}
