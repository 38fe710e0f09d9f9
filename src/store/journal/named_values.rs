//! Single values by name, whose content is not interpreted here.

use super::tables::{JournalReadError, META};
use redb::{Database, Error, ReadTransaction};

/// Values by name; one without content is removed.
pub type NamedValues = Vec<(String, Option<Vec<u8>>)>;

/// Stores them in one transaction.
pub(super) fn save(database: &Database, values: &NamedValues) -> Result<(), Error> {
    let tx = database.begin_write()?;
    {
        let mut meta = tx.open_table(META)?;
        for (name, value) in values {
            match value {
                Some(bytes) => meta.insert(name.as_str(), bytes.as_slice())?,
                None => meta.remove(name.as_str())?,
            };
        }
    }
    Ok(tx.commit()?)
}

/// Calls `see` with each value whose name follows the prefix, in the order of names.
pub(super) fn for_each(
    tx: &ReadTransaction,
    prefix: &'static str,
    mut see: impl FnMut(&str, &[u8]),
) -> Result<(), JournalReadError> {
    let meta = tx.open_table(META)?;
    for entry in meta.range(prefix..)? {
        let (name, bytes) = entry?;
        let Some(rest) = name.value().strip_prefix(prefix) else { break };
        see(rest, bytes.value());
    }
    Ok(())
}

/// The values of these names, as far as they are stored.
pub(super) fn read(
    tx: &ReadTransaction,
    names: impl Iterator<Item = String>,
) -> Result<Vec<Option<Vec<u8>>>, JournalReadError> {
    let meta = tx.open_table(META)?;
    names.map(|name| Ok(meta.get(name.as_str())?.map(|bytes| bytes.value().to_vec()))).collect()
}
