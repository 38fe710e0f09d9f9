//! A simulated cluster's machines in recliner's words: its directories and its disks.
//!
//! Owns nothing: every number is the simulator's (`couchdb_sim`). Never asked over HTTP, which
//! the client does as with any cluster. Called by `recliner demo` and by tests.

mod directories;
mod disks;

pub use directories::Directories;
pub use disks::Disks;
