//! Adapts a simulated cluster's directories and disks to recliner's traits.
//!
//! Owns no numbers: all of them come from the simulator (`couchdb_sim`). HTTP is not handled here,
//! because the client talks to a simulated cluster like to any other. Used by `recliner demo` and
//! by tests.

mod directories;
mod disks;

pub use directories::SimulatedDirectories;
pub use disks::SimulatedDisks;
