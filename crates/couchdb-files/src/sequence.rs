//! The packed sequences of clustered databases (`fabric_view_changes:pack_seqs/1`), which are terms
//! like those in files.

use super::{
    chunk::decompress,
    term::{Elements, Term},
};

/// Maximum length of a sequence after decompression; one of 1,000 shards has 100 KB.
const MAX_BYTES: usize = 16 << 20;
/// Maximum number of shards, many more than a database can have.
const MAX_SHARDS: usize = 100_000;

/// The sequence of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSequence {
    /// The node of the copy that was read.
    pub node: String,
    /// First and last hash of the range.
    pub range: (u64, u64),
    /// The sequence in the copy that was read.
    pub seq: u64,
    /// The beginning of the copy's UUID; `None` before CouchDB 1.6.
    pub uuid: Option<Vec<u8>>,
}

/// The shards of a sequence, from its part after the dash, base64-decoded. `None` if it has another
/// form.
#[must_use]
pub fn shard_sequences(packed: &[u8]) -> Option<Vec<ShardSequence>> {
    let (term, _) = decompress(packed, MAX_BYTES)?;
    let shards = Term::decode(&term).ok()?.bounded_list(MAX_SHARDS)?;
    shards.map(|shard| shard_sequence(shard.tuple()?)).collect()
}

/// `{Node, [Begin, End], {Seq, Uuid, Node}}`, or a number in place of the last tuple.
fn shard_sequence(mut fields: Elements<'_>) -> Option<ShardSequence> {
    let node = String::from_utf8_lossy(fields.next()?.atom()?).into_owned();
    let mut range = fields.next()?.list()?;
    let range = (range.next()?.number()?, range.next()?.number()?);
    let seq = fields.next()?;
    let Some(mut parts) = seq.tuple() else {
        return Some(ShardSequence { node, range, seq: seq.number()?, uuid: None });
    };
    let seq = parts.next()?.number()?;
    let uuid = parts.next()?.binary().map(<[u8]>::to_vec);
    Some(ShardSequence { node, range, seq, uuid })
}
