//! The names of what a CouchDB cluster stores: shard files and their ranges, view indexes, and
//! search indexes' engines; also CouchDB's version.
//!
//! Owns reading and writing their text forms. Does no I/O and knows no measurements.
//!
//! ```
//! use couchdb_names::ShardName;
//!
//! let name = ShardName::split("shards/00000000-7fffffff/orders.1687453210").unwrap();
//! assert_eq!(name.range.to_string(), "00000000-7fffffff");
//! ```

mod db_name;
mod engine;
mod name_list;
mod range;
mod segment;
mod signature;
mod version;

pub use db_name::{DbNameTooLong, check_db_name_length, is_db_name};
pub use engine::Engine;
pub use name_list::NameList;
pub use range::{ParseRangeError, Range, RangeText, ShardName};
pub use segment::encode_part;
pub use signature::{ParseSignatureError, Signature};
pub use version::{Build, ParseVersionError, Version};

/// The name of a design document: its id without `_design/`, which people leave out.
pub fn design_name(id: &str) -> &str {
    id.strip_prefix("_design/").unwrap_or(id)
}

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
