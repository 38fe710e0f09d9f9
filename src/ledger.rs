//! The ledger: every change of used bytes, by cause; the causes add up exactly.
//!
//! Owns the accounts, one for the files of each node and one for each volume of known size, and the buckets of entries
//! by node, database, design document and cause: hourly ones for two weeks, daily ones for 400 days, in the journal.
//! Never reads a disk or CouchDB: files' changes come from the scanner's tables
//! ([`crate::table::Movements`]), used space from the measured volumes, and who compacted from the journal's events.
//!
//! # Why it adds up
//!
//! An account's bytes change only by entries. The bytes of a node are the sum of its counted files; a
//! difference that no movement explains, as after a restart, is an entry of its own ([`Cause::NotWatched`]).
//! The bytes of a volume are its used space, as of the last sweep; what no file explains is
//! [`Cause::Unaccounted`]. So the bytes at the start of any bucket are those of now without all entries
//! since, to the byte.
//!
//! Buckets are ordered by number and not by time: a clock that is set back or forward misplaces a bucket, and loses
//! none.

mod books;
mod bucket;
mod changes;
mod history;
mod task;

pub use books::{Account, Books, CauseTotals};
pub use bucket::{Bucket, EntryKey, Sum};
pub use changes::{AccountChanges, ChangeEntry, ChangesBy, ChangesQuery, changes};
pub(crate) use task::{Ledger, LedgerInputs, LedgerTask};

#[cfg(doc)]
use crate::model::cause::Cause;

#[cfg(test)]
mod tests;
