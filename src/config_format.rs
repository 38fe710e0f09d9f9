//! The notation of configuration files: YAML whose every value has a place, and keys that are
//! described once.
//!
//! A [`Form`](form::Form) says how one type of value is read, written and described to an editor;
//! a [`Key`](form::Key) is a form at its place in a section, with a sentence and the moment from
//! which a changed value is in force. Reading, writing, the JSON Schema and what a reload changed
//! all walk the same keys. All problems are collected, each with its place. Never knows a
//! particular key and opens no file.

pub(crate) mod form;
pub(crate) mod output;
pub(crate) mod problem;
pub(crate) mod section;
pub(crate) mod tree;
pub(crate) mod values;

use strum::{EnumString, IntoStaticStr, VariantArray};

/// From when a changed key is in force.
#[derive(
    EnumString,
    IntoStaticStr,
    VariantArray,
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
)]
pub enum When {
    /// At once.
    #[strum(serialize = "at once")]
    Live,
    /// When the next sweep begins.
    #[strum(serialize = "next sweep")]
    NextSweep,
    /// After a restart; until then the old value stays in force.
    #[strum(serialize = "restart")]
    Restart,
}

/// A key whose value differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// The key, as in the file, or the flag.
    pub key: &'static str,
    /// From when the new value is in force.
    pub when: When,
}
