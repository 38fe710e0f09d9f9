//! Saved facts, block by block.
//!
//! The content of blocks is not interpreted here. Tables of an unknown format are deleted and
//! started again, because all facts can be measured again.

use super::{
    marks,
    tables::{BLOCK_TIMES, BLOCKS, JournalReadError},
};
use crate::table::TableBlock;
use redb::{Database, Error, ReadTransaction, ReadableTable as _, TableError, WriteTransaction};
use wall_clock::Moment;

/// Changes to the saved blocks.
#[derive(Debug, Default)]
pub struct MeasuredBlocks {
    /// Changed blocks; a block without bytes is removed.
    pub changed: Vec<TableBlock>,
    /// Blocks for which only the measurement time changed.
    pub measured_at: Vec<(u32, Moment)>,
    /// Total number of blocks, once known; blocks beyond it are removed.
    pub total: Option<u32>,
}

/// Saves the changes; `passes` is the number of completed passes.
pub(super) fn save(
    database: &Database,
    measured: &MeasuredBlocks,
    passes: u32,
) -> Result<(), Error> {
    let tx = database.begin_write()?;
    match write_blocks(&tx, measured) {
        Err(
            Error::TableTypeMismatch { .. }
            | Error::TypeDefinitionChanged { .. }
            | Error::TableIsMultimap(_),
        ) => {
            tracing::warn!("discarding the saved measurements: they have another format");
            for table in tx.list_tables()? {
                use redb::TableHandle as _;
                if [BLOCKS.name(), BLOCK_TIMES.name()].contains(&table.name()) {
                    tx.delete_table(table)?;
                }
            }
            write_blocks(&tx, measured)?;
        }
        written => written?,
    }
    if measured.total.is_some() {
        marks::trim(&tx, passes)?;
    }
    Ok(tx.commit()?)
}

fn write_blocks(tx: &WriteTransaction, measured: &MeasuredBlocks) -> Result<(), Error> {
    let (mut blocks, mut moments) = (tx.open_table(BLOCKS)?, tx.open_table(BLOCK_TIMES)?);
    let seconds = |at: Moment| u32::try_from(at.unix()).unwrap_or(u32::MAX);
    for block in &measured.changed {
        if block.bytes.is_empty() {
            blocks.remove(block.number)?;
            moments.remove(block.number)?;
        } else {
            blocks.insert(block.number, block.bytes.as_slice())?;
            moments.insert(block.number, seconds(block.at))?;
        }
    }
    for (number, at) in &measured.measured_at {
        moments.insert(*number, seconds(*at))?;
    }
    if let Some(total) = measured.total {
        blocks.retain_in(total.., |_, _| false)?;
        moments.retain_in(total.., |_, _| false)?;
    }
    Ok(())
}

/// Reads all blocks in order. A block without a measurement time is skipped.
pub(super) fn read(tx: &ReadTransaction) -> Result<Vec<TableBlock>, JournalReadError> {
    let (blocks, moments) = match (tx.open_table(BLOCKS), tx.open_table(BLOCK_TIMES)) {
        (Err(TableError::TableDoesNotExist(_)), _) | (_, Err(TableError::TableDoesNotExist(_))) => {
            return Ok(Vec::new());
        }
        (blocks, moments) => (blocks?, moments?),
    };
    let mut found = Vec::new();
    for entry in blocks.iter()? {
        let (number, bytes) = entry?;
        if let Some(at) = moments.get(number.value())? {
            let at = Moment::from_unix(u64::from(at.value()));
            found.push(TableBlock { number: number.value(), at, bytes: bytes.value().to_vec() });
        }
    }
    Ok(found)
}
