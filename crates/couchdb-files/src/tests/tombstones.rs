//! Deleted documents as HTTP showed them, against the file that a compaction wrote.

use super::{super::*, files::file};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Deleted {
    id: String,
    seq: u64,
    leaves: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Leaf {
    _revisions: Revisions,
}

#[derive(Deserialize)]
struct Revisions {
    start: u64,
    ids: Vec<String>,
}

fn recorded() -> Vec<DeletedDoc> {
    let all: Vec<Deleted> = serde_json::from_slice(&file("tombstones.json")).unwrap();
    let leaf = |text: Box<RawValue>| {
        let Leaf { _revisions: Revisions { start, ids } } =
            serde_json::from_str(text.get()).unwrap();
        DeletedLeaf {
            depth: start,
            revisions: ids.iter().map(|id| u128::from_str_radix(id, 16).unwrap()).collect(),
            body: text.get().to_owned(),
            attachment_bytes: 0,
        }
    };
    let doc = |Deleted { id, seq, leaves }| DeletedDoc {
        id,
        seq,
        leaves: leaves.into_iter().map(leaf).collect(),
    };
    all.into_iter().map(doc).collect()
}

#[test]
fn tombstone_bytes_estimated_from_http_match_the_file() {
    let docs = recorded();
    let bytes = compacted_bytes(&docs).unwrap();
    let xray = xray(&file("tombstones.couch").as_slice(), None).unwrap();
    let wanted = [
        Part::TombstoneRows,
        Part::TombstonesWithBody,
        Part::TombstonesWithoutBody,
        Part::DeletedConflicts,
    ];
    let found = xray.parts.iter().filter(|part| wanted.contains(&part.part));
    let stored: u64 = found.map(|part| part.bytes).sum();
    let off = bytes as f64 / stored as f64 - 1.0;
    assert!(off.abs() < 0.1, "{bytes} against {stored}: {off:+.3}");
    let none =
        DeletedLeaf { depth: 1, revisions: vec![1], body: "[]".to_owned(), attachment_bytes: 0 };
    let wrong = DeletedDoc { id: "a".to_owned(), seq: 1, leaves: vec![none] };
    assert_eq!(compacted_bytes(&[wrong]), None);
}

#[test]
fn packed_sequence_decodes_to_range_and_sequence_of_each_shard() {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let packed = "g1AAAACZeJzLYWBgYMpgTmHgz8tPSTV2MDQy1zMAQsMckEQiQ1L9____szKYkxgYxF_kAsXYLc3NU1JNjTB1wE0xQjMljwVIMjQAqf9ww8R-gA0zsUg2SbVMxtSYBQBVOCZq";
    let packed = URL_SAFE_NO_PAD.decode(packed).unwrap();
    let shard = |node: &str, range, seq, uuid: &str| ShardSequence {
        node: node.to_owned(),
        range,
        seq,
        uuid: Some(uuid.into()),
    };
    assert_eq!(
        shard_sequences(&packed).unwrap(),
        [
            shard("node3@127.0.0.1", (0, 0x7fff_ffff), 6120, "977de52"),
            shard("node2@127.0.0.1", (0x8000_0000, 0xffff_ffff), 5880, "48c4e9c"),
        ]
    );
    for end in 0..packed.len() {
        assert_eq!(shard_sequences(&packed[..end]), None, "{end}");
    }
}
