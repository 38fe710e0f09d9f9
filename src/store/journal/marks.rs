//! Marks: the state of a database at its last event, if the saved facts are older.
//!
//! A mark is written in the same commit as its events. It is removed after newer facts were saved:
//! facts are saved in passes, and a pass that began after the mark was written includes its state.

use super::tables::{JournalReadError, MARKS};
use crate::table::PublishedDbState;
use redb::{Error, ReadTransaction, ReadableTable as _, TableError, WriteTransaction};

/// Writes marks; `passes` is the number of completed passes.
pub(super) fn write(
    tx: &WriteTransaction,
    marks: &[PublishedDbState],
    passes: u32,
) -> Result<(), Error> {
    if marks.is_empty() {
        return Ok(());
    }
    let mut table = tx.open_table(MARKS)?;
    for mark in marks {
        let bytes = postcard::to_stdvec(mark).map_err(|why| Error::Corrupted(why.to_string()))?;
        table.insert((&*mark.db, &*mark.suffix), (passes, bytes.as_slice()))?;
    }
    Ok(())
}

/// Called at the end of a pass, with the number of passes completed before it. Removes the marks
/// written before the pass began.
pub(super) fn trim(tx: &WriteTransaction, passes: u32) -> Result<(), Error> {
    tx.open_table(MARKS)?.retain(|_, (at, _)| at == passes)?;
    Ok(())
}

/// Reads all marks. Unreadable ones are skipped, which at worst repeats an event.
pub(super) fn read(tx: &ReadTransaction) -> Result<Vec<PublishedDbState>, JournalReadError> {
    let table = match tx.open_table(MARKS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        table => table?,
    };
    let mut marks = Vec::new();
    for entry in table.iter()? {
        marks.extend(postcard::from_bytes(entry?.1.value().1).ok());
    }
    Ok(marks)
}
