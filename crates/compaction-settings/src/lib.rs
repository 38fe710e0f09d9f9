//! Interprets CouchDB's own compaction settings: those of smoosh (3.x) and of the compaction daemon
//! (2.x).
//!
//! Owns the reading of ini files and of configuration responses, the values in effect with the
//! defaults from CouchDB's code, and the findings about them. Opens no file and makes no request.
//!
//! ```
//! use compaction_settings::{NodeConfig, read_smoosh};
//!
//! let node = NodeConfig::from_ini("couchdb@a", "3.5.0", []);
//! assert_eq!(read_smoosh(&node).channels[0].name, "ratio_dbs");
//! ```

mod channel;
mod clock_time;
mod daemon;
mod finding;
mod ignored;
mod ini;
mod lint;
mod node_config;
mod number;
mod rules;
mod smoosh;
mod term;

pub use channel::{ChannelKind, NeverStarts, Priority, SmooshChannel};
pub use clock_time::{Opening, Window};
pub use daemon::{DaemonRule, DaemonSettings, read_daemon};
pub use finding::{Fault, Finding, Findings, Severity};
pub use ignored::Ignored;
pub use ini::{IniProblem, IniProblemKind, Sections};
pub use node_config::NodeConfig;
pub use smoosh::{BrokenChannel, SmooshSettings, read_smoosh, smoosh_channels, smoosh_sections};

use rules::Rules;

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

#[cfg(test)]
mod tests;
