//! X-rays of recorded files, and of files made for the purpose.

use super::{
    files::{expected, file},
    mutate::xray_adds_up,
    *,
};
use crate::design::Encoder;
use proptest::prelude::*;

fn whole(bytes: &[u8]) -> Xray {
    xray(&bytes, None).unwrap()
}

/// Bytes and count of a part.
fn part(xray: &Xray, part: Part) -> (u64, u64) {
    let found = xray.parts.iter().find(|it| it.part == part);
    found.map_or((0, 0), |it| (it.bytes, it.count))
}

#[test]
fn part_discriminants_follow_the_order_of_part_all() {
    for (index, part) in Part::ALL.iter().enumerate() {
        assert_eq!(*part as usize, index, "{part:?}");
    }
}

#[test]
fn the_parts_of_recorded_files_add_up_and_agree_with_the_header() {
    let mut read = 0;
    for (name, expected) in expected() {
        let bytes = file(&name);
        xray_adds_up(&bytes);
        let Ok(xray) = xray(&bytes.as_slice(), None) else { continue };
        if name.ends_with(".meta") {
            assert!(!xray.exact, "its trees are in another file");
            continue;
        }
        assert!(xray.exact, "{name}: {xray:?}");
        let parsed = &expected["parsed"];
        // A synthetic file has an invented `active`, and CouchDB counts attachments without their chunks' lengths.
        let synthetic = |name: &str| name.starts_with("syn_") || name == "attachments.couch";
        let (_, winning) = part(&xray, Part::WinningBodies);
        let (_, with) = part(&xray, Part::TombstonesWithBody);
        let (_, without) = part(&xray, Part::TombstonesWithoutBody);
        // Before its last phase, a compaction has written no tree of ids.
        if name.ends_with(".couch") {
            assert_eq!(parsed["doc_count"].as_u64(), Some(winning), "{name}");
            assert_eq!(parsed["doc_del_count"].as_u64(), Some(with + without), "{name}");
        }
        if let Some(active) = parsed["sizes"]["active"].as_u64().filter(|_| !synthetic(&name)) {
            let other = [Part::Header, Part::Uncommitted, Part::SecurityAndProperties];
            let counted =
                xray.parts.iter().filter(|it| !it.part.is_dead() && !other.contains(&it.part));
            assert_eq!(counted.map(|it| it.bytes).sum::<u64>(), active, "{name}");
        }
        read += 1;
    }
    assert!(read > 30, "{read}");
}

/// A tree of more than a megabyte, so that a sample reads only part of it.
fn large() -> Vec<u8> {
    let (file, root) = large_tree(|leaf, _| {
        // Rows of very different lengths that do not compress.
        let length = 50 + leaf * 37 % 190;
        let bytes = (0..length).map(|it| (it * it % 251).try_into().unwrap());
        let head = [&[109][..], &u32::try_from(length).unwrap().to_be_bytes()].concat();
        head.into_iter().chain(bytes).collect()
    });
    with_local_tree(file, &root)
}

/// A compacted database of one tree of sequences, whose last third of documents has larger bodies.
fn bodies_of_two_sizes() -> Vec<u8> {
    let (file, root) = large_tree(|leaf, row| {
        let (id, body) = (leaf * 8 + usize::from(row), if leaf < 1000 { 200 } else { 1_500 });
        let mut out = Encoder::part(Vec::new());
        let sizes = |out: &mut Encoder| {
            out.tuple(2);
            out.integer(body);
            out.integer(2 * body);
        };
        out.tuple(4);
        let noise = |seed: u64| random_bits(seed, id as u64).to_be_bytes();
        out.bytes(&[noise(1), noise(2), noise(3), noise(4)].concat());
        out.integer(0);
        sizes(&mut out);
        out.begin_list(1);
        out.tuple(2);
        out.integer(1);
        out.tuple(3);
        out.bytes(&[7; 16]);
        out.tuple(5);
        out.integer(0);
        out.integer(10);
        out.integer(1);
        sizes(&mut out);
        // No attachments, no successors, and the end of the list.
        (0..3).for_each(|_| out.nil());
        out.finish()
    });
    with_trees(file, &root, NIL)
}

/// The leaves and the root of a tree with these rows.
fn large_tree(row: impl Fn(usize, u8) -> Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let mut file = vec![7; 100];
    let mut references = Vec::new();
    for leaf in 0..1500_usize {
        let rows: Vec<(u8, Vec<u8>)> = (0..8_u8).map(|at| (at, row(leaf, at))).collect();
        let begin = file.len() as u64;
        let at = append(&mut file, &node(b"kv_node", &rows));
        references
            .push((u8::try_from(leaf % 256).unwrap(), state(at, file.len() as u64 - begin, 8)));
    }
    let before = file.len() as u64;
    let root = append(&mut file, &node(b"kp_node", &references));
    let all = before - 100 + (file.len() as u64 - root);
    (file, state(root, all, 0))
}

/// What a compaction copies beside the rows varies more than the rows.
#[test]
fn error_of_a_sample_includes_bodies_that_are_clustered_by_sequence() {
    let file = bodies_of_two_sizes();
    let after = whole(&file).after_compaction.unwrap();
    assert!(after > 8 << 20, "{after}");
    let outside = (0..100).filter(|seed| {
        let sampled = xray(&file.as_slice(), Some(Sample { share: 0.01, seed: *seed })).unwrap();
        sampled.after_compaction.unwrap().abs_diff(after) > sampled.error
    });
    let outside = outside.count();
    assert!((1..=10).contains(&outside), "{outside} of 100 runs are outside");
}

#[test]
fn sampled_xray_is_mostly_within_its_stated_error() {
    let file = large();
    let whole = whole(&file);
    let (bytes, count) = part(&whole, Part::LocalDocuments);
    assert_eq!(count, 12_000);
    let after = whole.after_compaction.unwrap();
    let (mut outside, mut outside_after) = (0, 0);
    for seed in 0..40 {
        let sample = Some(Sample { share: 0.01, seed });
        let sampled = xray(&file.as_slice(), sample).unwrap();
        assert!(!sampled.exact);
        let sum: u64 = sampled.parts.iter().map(|it| it.bytes).sum();
        assert_eq!(sum, file.len() as u64);
        let found = sampled.parts.iter().find(|it| it.part == Part::LocalDocuments).unwrap();
        outside += u32::from(found.bytes.abs_diff(bytes) > found.error + bytes / 100);
        let estimate = sampled.after_compaction.unwrap();
        assert!(sampled.error > 0 && sampled.error < after / 5, "{sampled:?}");
        outside_after += u32::from(estimate.abs_diff(after) > sampled.error);
    }
    assert!(outside <= 6 && outside_after <= 6, "{outside} and {outside_after} of 40 are outside");
}

/// Compacting a file that a real compaction wrote does not shrink it.
#[test]
fn xray_predicts_no_change_for_a_compacted_file() {
    for name in ["compacted_local.couch", "compacted_no_local.couch"] {
        let bytes = file(name);
        assert_eq!(whole(&bytes).after_compaction, Some(bytes.len() as u64), "{name}");
    }
}

/// Two copies of a shard with 400 purges of at most 5, and the files that CouchDB 3.5.2 made of them. In the first, a
/// checkpoint names its own node, because the other side wrote it.
#[test]
fn xray_predicts_the_purges_that_a_compaction_keeps() {
    for (name, after) in [("purges_kept.couch", 41_193), ("purges_forgotten.couch", 20_701)] {
        let xray = whole(&file(name));
        let differs = xray.after_compaction.map(|it| it.abs_diff(after));
        // Numbers in the new header may be a few bytes longer.
        assert!(xray.exact && differs.is_some_and(|it| it < 16), "{name}: {differs:?}");
    }
}

/// Appends a chunk with its markers; returns its offset.
fn append(file: &mut Vec<u8>, data: &[u8]) -> u64 {
    let at = file.len() as u64;
    for byte in u32::try_from(data.len()).unwrap().to_be_bytes().iter().chain(data) {
        if file.len().is_multiple_of(4096) {
            file.push(0);
        }
        file.push(*byte);
    }
    at
}

/// The encoded state of a tree or reference to a node: `{At, 1, Bytes}`.
fn state(at: u64, bytes: u64, rows: u8) -> Vec<u8> {
    let number = |value: u64| [&[98][..], &u32::try_from(value).unwrap().to_be_bytes()].concat();
    [&[104, 3][..], &number(at), &[97, rows], &number(bytes)].concat()
}

fn node(kind: &[u8; 7], pairs: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let count = u32::try_from(pairs.len()).unwrap().to_be_bytes();
    let mut out = [&[131, 104, 2, 100, 0, 7][..], kind, &[108], &count].concat();
    for (key, value) in pairs {
        out.extend([104, 2, 97, *key]);
        out.extend(value);
    }
    out.push(106);
    out
}

/// A header with this tree of `_local` documents.
fn with_local_tree(file: Vec<u8>, root: &[u8]) -> Vec<u8> {
    with_trees(file, NIL, root)
}

const NIL: &[u8] = &[100, 0, 3, b'n', b'i', b'l'];

/// A header with a tree of sequences and one of `_local` documents.
fn with_trees(mut file: Vec<u8>, seq: &[u8], local: &[u8]) -> Vec<u8> {
    let head: &[&[u8]] = &[&[131, 104, 9, 100, 0, 9], b"db_header", &[97, 8, 97, 5, 97, 0]];
    let record = [&head.concat(), NIL, seq, local, NIL, NIL];
    append_header(&mut file, &record.concat());
    file
}

#[test]
fn tree_with_a_loop_counts_as_unreadable_and_terminates() {
    let mut file = vec![7; 100];
    let own = file.len() as u64;
    append(&mut file, &node(b"kp_node", &[(1, state(own, 40, 1)), (2, state(own + 8, 50, 1))]));
    let file = with_local_tree(file, &state(own, 90, 2));
    let xray = whole(&file);
    assert_eq!(part(&xray, Part::Unreadable), (90, 2));
    assert!(!xray.exact && xray.after_compaction.is_none());
    xray_adds_up(&file);
}

#[test]
fn tree_nodes_referenced_twice_fail_fast() {
    // Sixty levels whose two references lead to the same node: 2^60 visits.
    let mut file = vec![7; 100];
    let mut at = append(&mut file, &node(b"kv_node", &[(1, vec![106])]));
    for _ in 0..60 {
        at = append(&mut file, &node(b"kp_node", &[(1, state(at, 40, 1)), (2, state(at, 40, 1))]));
    }
    let file = with_local_tree(file, &state(at, 90, 2));
    let read = xray(&file.as_slice(), None);
    assert!(matches!(read, Err(XrayError::Overlap)), "{read:?}");
}

#[test]
fn a_damaged_node_hides_only_what_is_below_it() {
    let mut bytes = file("updates.couch");
    let before = whole(&bytes);
    let header = read(&bytes.as_slice()).unwrap();
    let Header::Db(db) = header.header else { panic!("a database") };
    // The root of the tree of sequences.
    let at = usize::try_from(db.roots.seq.unwrap()).unwrap();
    bytes[at + 8..at + 40].fill(0xff);
    let after = whole(&bytes);
    assert!(part(&after, Part::Unreadable).1 > 0 && !after.exact, "{after:?}");
    assert_eq!(part(&after, Part::WinningBodies), part(&before, Part::WinningBodies));
    assert_eq!(after.after_compaction, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn parts_of_files_with_damaged_trees_add_up(seed: u64, hits in 1_usize..20) {
        let names: Vec<String> = expected().into_keys().collect();
        let mut random = seed;
        let mut below = |most: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from((random >> 33) % most.max(1) as u64).unwrap()
        };
        let mut bytes = file(&names[below(names.len())]);
        let end = read(&bytes.as_slice()).map_or(0, |it| usize::try_from(it.position.at).unwrap());
        for _ in 0..hits.min(end) {
            bytes[below(end)] = u8::try_from(below(256)).unwrap();
        }
        xray_adds_up(&bytes);
    }
}
