//! How databases stood when something of them was told, where what was measured is older.
//!
//! A mark is written with its events, and goes once what is newer was kept: what is measured is
//! kept in passes, and one that began after the mark was written holds what it says.

use super::{query::Unread, tables::MARKS};
use crate::table::Mark;
use redb::{Error, ReadTransaction, ReadableTable as _, TableError, WriteTransaction};

/// Writes marks; `passes` have ended so far.
pub(super) fn write(tx: &WriteTransaction, marks: &[Mark], passes: u32) -> Result<(), Error> {
    if marks.is_empty() {
        return Ok(());
    }
    let mut table = tx.open_table(MARKS)?;
    for mark in marks {
        let said = postcard::to_stdvec(mark).map_err(|why| Error::Corrupted(why.to_string()))?;
        table.insert((&*mark.db, &*mark.suffix), (passes, said.as_slice()))?;
    }
    Ok(())
}

/// A pass has ended, before which so many had: what was written before it began goes.
pub(super) fn trim(tx: &WriteTransaction, passes: u32) -> Result<(), Error> {
    tx.open_table(MARKS)?.retain(|_, (at, _)| at == passes)?;
    Ok(())
}

/// All of them. One that cannot be read is left out: it may cost that something is told twice.
pub(super) fn read(tx: &ReadTransaction) -> Result<Vec<Mark>, Unread> {
    let table = match tx.open_table(MARKS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        table => table?,
    };
    let mut found = Vec::new();
    for entry in table.iter()? {
        found.extend(postcard::from_bytes(entry?.1.value().1).ok());
    }
    Ok(found)
}
