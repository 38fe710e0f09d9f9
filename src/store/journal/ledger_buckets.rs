//! The ledger's books and buckets.
//!
//! Their content is not interpreted here: [`crate::ledger`] owns it.

use super::tables::{JournalReadError, META, META_LEDGER, META_LEDGER_BUCKET_PREFIX};
use redb::{Database, Error, ReadTransaction};

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

pub(super) fn save(database: &Database, changes: &LedgerWrite) -> Result<(), Error> {
    let tx = database.begin_write()?;
    {
        let mut meta = tx.open_table(META)?;
        meta.insert(META_LEDGER, changes.books.as_slice())?;
        for (number, bucket) in &changes.buckets {
            match bucket {
                Some(bytes) => meta.insert(name(*number).as_str(), bytes.as_slice())?,
                None => meta.remove(name(*number).as_str())?,
            };
        }
    }
    Ok(tx.commit()?)
}

/// The buckets with these numbers, as far as they are stored.
pub(super) fn read(
    tx: &ReadTransaction,
    numbers: &[u32],
) -> Result<Vec<(u32, Vec<u8>)>, JournalReadError> {
    let meta = tx.open_table(META)?;
    let mut found = Vec::new();
    for number in numbers {
        if let Some(bytes) = meta.get(name(*number).as_str())? {
            found.push((*number, bytes.value().to_vec()));
        }
    }
    Ok(found)
}
