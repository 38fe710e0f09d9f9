//! The cluster that `recliner demo` shows.

use super::{Config, Database};

/// Three nodes with databases of every kind, numbers only, that move within a minute.
#[must_use]
pub fn demo_config() -> Config {
    Config::new(&["couchdb@sim-1.local", "couchdb@sim-2.local", "couchdb@sim-3.local"])
        .with(Database::new("orders"))
}
