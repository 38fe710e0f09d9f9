//! Explains the errors of CouchDB's client in recliner's terms.
//!
//! The client knows neither flags nor configuration keys: they are added here, wherever its errors are
//! shown. The counters of its requests are in `request_metrics`.

use couchdb_client::{Error, TlsError, TransportError};
use std::fmt;

/// The `User-Agent` of requests to CouchDB.
pub(crate) const USER_AGENT: &str = concat!("recliner/", env!("CARGO_PKG_VERSION"));

/// What to do if CouchDB requires a login and none was given.
pub(crate) const NO_USER: &str = "no user was given: set COUCHDB_USER and COUCHDB_PASSWORD, or --couchdb.username and --couchdb.password-file";

/// The error as text, with the settings that may fix it.
pub(crate) fn describe(error: &Error) -> String {
    match settings(error) {
        _ if matches!(error, Error::NoUser { .. }) => NO_USER.to_owned(),
        Some(settings) => format!("{error} ({settings})"),
        None => error.to_string(),
    }
}

/// The settings that may have caused an error.
fn settings(error: &Error) -> Option<&'static str> {
    match error {
        Error::Timeout { .. } => Some("couchdb.timeout"),
        Error::Tls { .. } => Some("couchdb.tls.ca_file, couchdb.tls.cert_file"),
        Error::NotCouchDb { .. } => Some("--couchdb.url"),
        Error::NoOwnAddress { .. } => Some("couchdb.nodes, or one more --couchdb.url"),
        Error::LoginClosed { .. } => Some("couchdb.username, couchdb.password_file"),
        Error::Unproved(why) => settings(why),
        Error::Hangs { .. }
        | Error::Resting { .. }
        | Error::Connect { .. }
        | Error::Status { .. }
        | Error::NodeDown { .. }
        | Error::UnknownNode { .. }
        | Error::NotFound { .. }
        | Error::Proxy { .. }
        | Error::SlashDecoded { .. }
        | Error::Forbidden { .. }
        | Error::NoUser { .. }
        | Error::TooLarge { .. }
        | Error::Malformed { .. }
        | Error::Redirect { .. }
        | Error::Unaddressable(_)
        | Error::Stopped => None,
    }
}

/// Why the client cannot be created, with the setting to change.
#[derive(Debug)]
pub struct SetupError(pub TransportError);

impl fmt::Display for SetupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match &self.0 {
            // The text of such an error starts with the rest of the key.
            TransportError::Tls(TlsError::File { .. } | TlsError::Half) => "couchdb.tls.",
            TransportError::Tls(TlsError::Refused(_)) => "couchdb.tls: ",
            TransportError::Http(_) => "couchdb: ",
        })?;
        self.0.fmt(out)
    }
}

impl std::error::Error for SetupError {}

impl From<TransportError> for SetupError {
    fn from(error: TransportError) -> Self {
        Self(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn errors_name_the_settings_that_fix_them() {
        let unknown = || Error::NoOwnAddress { node: "couchdb@b".to_owned() };
        let text = describe(&unknown());
        assert!(text.ends_with("(couchdb.nodes, or one more --couchdb.url)"), "{text}");
        let text = describe(&Error::Unproved(Arc::new(unknown())));
        assert!(text.ends_with("(couchdb.nodes, or one more --couchdb.url)"), "{text}");
        assert_eq!(describe(&Error::Stopped), Error::Stopped.to_string());
        let half = SetupError(TlsError::Half.into()).to_string();
        assert!(half.starts_with("couchdb.tls.cert_file and key_file"), "{half}");
    }
}
