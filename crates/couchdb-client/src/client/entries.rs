//! How the URLs of the settings answer, and what else is known without asking.

use super::Client;
use crate::Address;

/// How one of the URLs in the settings answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The URL, which never has credentials.
    pub url: Address,
    /// Whether a server there answered when it was last asked; none before the first try.
    pub up: Option<bool>,
    /// Why it did not, where it did not.
    pub why: Option<String>,
}

impl Client {
    /// The URLs of the settings, each with how it answered when it was last asked.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let entries = self.shared.directory.entries.iter();
        let shown = entries.map(|server| {
            let answers = server.answers();
            let failure = answers.as_ref().and_then(|it| it.as_ref().err()?.as_ref());
            Entry {
                url: server.address.clone(),
                up: answers.as_ref().map(Result::is_ok),
                why: failure.map(ToString::to_string),
            }
        });
        shown.collect()
    }

    /// Whether the login was refused or cannot be read, so that nothing is sent.
    #[must_use]
    pub fn is_login_refused(&self) -> bool {
        self.shared.gate.is_closed()
    }

    /// The names of the nodes that were asked about so far.
    #[must_use]
    pub fn known_nodes(&self) -> Vec<String> {
        self.shared.directory.nodes().iter().map(|node| node.name.to_string()).collect()
    }
}
