//! A described search index.

use couchdb_names::Engine;

/// A search index of a design document.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// What builds it.
    pub engine: Engine,
    /// Its name there.
    pub name: String,
    /// The share of the database's sequences that it has seen at the start, 0 to 1; at 0 it
    /// was never built.
    pub built: f64,
}

impl Search {
    /// A built one.
    #[must_use]
    pub fn new(engine: Engine, name: &str) -> Self {
        Self { engine, name: name.to_owned(), built: 1.0 }
    }
}
