//! A described search index.

use couchdb_names::Engine;

/// A search index of a design document.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The engine.
    pub engine: Engine,
    /// The name in the design document.
    pub name: String,
    /// The share of the database's sequences that is indexed at the start, 0 to 1; at 0 it was never
    /// built.
    pub built: f64,
}

impl Search {
    /// A completely built index.
    pub fn new(engine: Engine, name: &str) -> Self {
        Self { engine, name: name.to_owned(), built: 1.0 }
    }
}
