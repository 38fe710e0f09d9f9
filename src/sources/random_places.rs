//! Random places in the changes of a database, for samples of its documents.

use couchdb_client::{Client, Error};
use couchdb_files::random_bits;
use std::collections::BTreeMap;

/// A copy of a shard, weighted by the number of wanted documents in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighed<'a> {
    pub(super) node: &'a str,
    pub(super) shard: &'a str,
    pub(super) weight: u64,
    /// The sequence of its last change.
    pub(super) end: u64,
}

/// A pseudo-random number below `end`.
pub(super) fn place(seed: u64, step: u64, end: u64) -> u64 {
    random_bits(seed, step) % end.max(1)
}

/// Calls `read` with a copy and a sequence, at random places, until `read` has had enough. The
/// probability of a copy is proportional to its weight.
pub(super) async fn read_places<'a>(
    client: &Client,
    copies: &[Weighed<'a>],
    (count, seed): (usize, u64),
    mut read: impl AsyncFnMut(Weighed<'a>, u64) -> Result<bool, Error>,
) -> Result<(), Error> {
    let all: u64 = copies.iter().map(|copy| copy.weight).sum();
    // The first sequence of each copy: smaller ones belong to changes that were replaced.
    let mut begins: BTreeMap<&str, u64> = BTreeMap::new();
    for step in 0..if all > 0 { count as u64 } else { 0 } {
        let mut index = place(seed, step * 2, all);
        let copy = copies.iter().find(|copy| {
            let is_here = index < copy.weight;
            index = index.saturating_sub(copy.weight);
            is_here
        });
        let Some(copy) = copy else { continue };
        let begin = match begins.get(copy.shard) {
            Some(begin) => *begin,
            None => first_seq(client, copy).await?,
        };
        begins.insert(copy.shard, begin);
        let since = begin + place(seed, step * 2 + 1, copy.end.saturating_sub(begin));
        if !read(*copy, since).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// The sequence before the first change of a copy.
async fn first_seq(client: &Client, copy: &Weighed<'_>) -> Result<u64, Error> {
    let first = client.shard_changes(copy.node, copy.shard, 0, 1).await?;
    Ok(first.first().and_then(|change| change.seq).unwrap_or_default().saturating_sub(1))
}
