//! The ledger's books and buckets.
//!
//! Their content is not interpreted here: [`crate::ledger`] owns it.

use super::{
    named_values::{self, NamedValues},
    tables::{JournalReadError, META_LEDGER, META_LEDGER_BUCKET_PREFIX},
};
use redb::ReadTransaction;

/// A change of the stored ledger, in one transaction.
#[derive(Debug, Default)]
pub struct LedgerWrite {
    /// The books.
    pub books: Vec<u8>,
    /// Buckets by number; one without content is removed.
    pub buckets: Vec<(u32, Option<Vec<u8>>)>,
}

/// The name of a bucket; names sort as numbers do.
fn name(number: u32) -> String {
    format!("{META_LEDGER_BUCKET_PREFIX}{number:010}")
}

impl LedgerWrite {
    /// The changes as single values.
    pub(super) fn into_values(self) -> NamedValues {
        let buckets = self.buckets.into_iter().map(|(number, bucket)| (name(number), bucket));
        std::iter::once((META_LEDGER.to_owned(), Some(self.books))).chain(buckets).collect()
    }
}

/// The buckets with these numbers, as far as they are stored.
pub(super) fn read(
    tx: &ReadTransaction,
    numbers: &[u32],
) -> Result<Vec<(u32, Vec<u8>)>, JournalReadError> {
    let found = named_values::read(tx, numbers.iter().map(|number| name(*number)))?;
    let stored = numbers.iter().copied().zip(found);
    Ok(stored.filter_map(|(number, bytes)| Some((number, bytes?))).collect())
}
