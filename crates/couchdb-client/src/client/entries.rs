//! What is known without a request: how the URLs of the settings answer, and which nodes exist.

use super::Client;
use crate::{Address, Error};
use std::sync::Arc;

/// How one of the URLs in the settings answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryStatus {
    /// The URL, which never has credentials.
    pub url: Address,
    /// Whether the last answer came from a usable CouchDB; `None` before the first answer.
    pub up: Option<bool>,
    /// Why the last answer was unusable, if it was.
    pub why: Option<String>,
}

impl Client {
    /// The URLs of the settings, each with whether its last answer was usable. `describe` gives the
    /// words for an error.
    pub fn entries(&self, describe: impl Fn(&Error) -> String) -> Vec<EntryStatus> {
        let entries = self.shared.directory.entries.iter();
        let refused = self.shared.auth.refusal().map(Arc::new);
        let shown = entries.map(|server| {
            let answers =
                refused.clone().map_or_else(|| server.last_result(), |it| Some(Err(Some(it))));
            let failure = answers.as_ref().and_then(|it| it.as_ref().err()?.as_ref());
            EntryStatus {
                url: server.address.clone(),
                up: answers.as_ref().map(Result::is_ok),
                why: failure.map(|failure| describe(failure)),
            }
        });
        shown.collect()
    }

    /// Whether the login was refused or cannot be read, so that nothing is sent.
    pub fn is_login_refused(&self) -> bool {
        self.shared.auth.refusal().is_some()
    }

    /// The names of the nodes that requests have named so far.
    pub fn known_nodes(&self) -> Vec<String> {
        self.shared.directory.nodes().iter().map(|node| node.name.to_string()).collect()
    }
}
