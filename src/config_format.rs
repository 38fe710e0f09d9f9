//! The format of configuration files: YAML in which every value has a place, and keys that are
//! described once.
//!
//! A [`Form`](form::Form) defines how a type of value is read, written and described to an editor;
//! a [`Key`](form::Key) is a form at its place in a section, with a description and the time at
//! which a changed value takes effect. Reading, writing, the JSON Schema and the changes at a
//! reload all use the same keys. All problems are collected, each with its place. Never knows a
//! particular key and opens no file.

pub(crate) mod form;
pub(crate) mod output;
pub(crate) mod problem;
pub(crate) mod section;
pub(crate) mod tree;
pub(crate) mod values;

use strum::{EnumString, IntoStaticStr, VariantArray};

/// When a changed key takes effect.
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
    /// Immediately.
    #[strum(serialize = "at once")]
    Live,
    /// When the next sweep begins.
    #[strum(serialize = "next sweep")]
    NextSweep,
    /// After a restart; until then the old value stays in effect.
    #[strum(serialize = "restart")]
    Restart,
}

/// A key whose value changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// The key as in the file, or the flag.
    pub key: &'static str,
    /// When the new value takes effect.
    pub when: When,
}
