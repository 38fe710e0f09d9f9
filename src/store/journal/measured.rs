//! What was measured, kept block by block.
//!
//! The blocks' bytes mean nothing here. Tables of another form are taken out and begun anew:
//! all of it can be measured again.

use super::{
    marks,
    query::Unread,
    tables::{BLOCKS, MOMENTS},
};
use crate::table::Block;
use redb::{Database, Error, ReadTransaction, ReadableTable as _, TableError, WriteTransaction};
use wall_clock::Moment;

/// What is new of the blocks that are kept.
#[derive(Debug, Default)]
pub struct Measured {
    /// Blocks that changed; one without bytes goes.
    pub changed: Vec<Block>,
    /// Blocks of which only the moment did.
    pub moments: Vec<(u32, Moment)>,
    /// How many blocks there are, once that is known: those beyond go.
    pub total: Option<u32>,
}

/// Keeps it; so many passes have ended before.
pub(super) fn keep(database: &Database, measured: &Measured, passes: u32) -> Result<(), Error> {
    let tx = database.begin_write()?;
    match written(&tx, measured) {
        Err(
            Error::TableTypeMismatch { .. }
            | Error::TypeDefinitionChanged { .. }
            | Error::TableIsMultimap(_),
        ) => {
            tracing::warn!("what was measured is kept in another form: it is begun anew");
            for table in tx.list_tables()? {
                use redb::TableHandle as _;
                if [BLOCKS.name(), MOMENTS.name()].contains(&table.name()) {
                    tx.delete_table(table)?;
                }
            }
            written(&tx, measured)?;
        }
        written => written?,
    }
    if measured.total.is_some() {
        marks::trim(&tx, passes)?;
    }
    Ok(tx.commit()?)
}

fn written(tx: &WriteTransaction, measured: &Measured) -> Result<(), Error> {
    let (mut blocks, mut moments) = (tx.open_table(BLOCKS)?, tx.open_table(MOMENTS)?);
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
    for (number, at) in &measured.moments {
        moments.insert(*number, seconds(*at))?;
    }
    if let Some(total) = measured.total {
        blocks.retain_in(total.., |_, _| false)?;
        moments.retain_in(total.., |_, _| false)?;
    }
    Ok(())
}

/// Every block, in order. One without its moment is left out.
pub(super) fn read(tx: &ReadTransaction) -> Result<Vec<Block>, Unread> {
    let (blocks, moments) = match (tx.open_table(BLOCKS), tx.open_table(MOMENTS)) {
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
            found.push(Block { number: number.value(), at, bytes: bytes.value().to_vec() });
        }
    }
    Ok(found)
}
