//! Real files with random damage: nothing panics, reads beyond bounds, or is accepted without a
//! valid checksum.

use super::{
    files::{expected, file},
    naive::{self, NaiveHeader},
    *,
};
use proptest::prelude::*;
use std::{
    cell::Cell,
    hash::{DefaultHasher, Hash, Hasher},
};

/// Reproducible random numbers, from a seed.
fn random_source(seed: u64) -> impl FnMut() -> u64 {
    let mut turn = 0_u64;
    move || {
        turn += 1;
        let mut hasher = DefaultHasher::new();
        (seed, turn).hash(&mut hasher);
        hasher.finish()
    }
}

/// A file that counts the reads from it.
struct Counted<'a> {
    bytes: &'a [u8],
    reads: Cell<u64>,
    read: Cell<u64>,
    largest: Cell<usize>,
}

impl<'a> Counted<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, reads: Cell::new(0), read: Cell::new(0), largest: Cell::new(0) }
    }
}

impl Bytes for Counted<'_> {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.reads.set(self.reads.get() + 1);
        self.largest.set(self.largest.get().max(buf.len()));
        let read = self.bytes.read_at(offset, buf)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

/// Reads a file and compares the result with the slow search.
fn read_and_compare(bytes: &[u8]) -> Result<FileHeader, HeaderError> {
    let counted = Counted::new(bytes);
    let read = read(&counted);
    let naive = naive::search(bytes);
    let size = bytes.len() as u64;
    let (place, rejected) = match &read {
        Ok(headed) => {
            assert_eq!(headed.file_bytes, size);
            (Some(headed.position), headed.position.false_headers)
        }
        Err(why) => match why {
            HeaderError::NoValidHeader { rejected } => (None, *rejected),
            HeaderError::NoHeaderWithin { .. } => panic!("{why}"),
            HeaderError::UndecodableHeader { place, .. }
            | HeaderError::UnknownDiskVersion { place, .. } => (Some(*place), place.false_headers),
            HeaderError::TooManyFalseHeaders { .. } => {
                assert!(naive.claimed > size + (64 << 20), "gave up after {}", naive.claimed);
                return read;
            }
            HeaderError::Read { .. } => panic!("memory does not fail: {why}"),
        },
    };
    assert_eq!(rejected, naive.rejected);
    match (place, &naive.found) {
        (Some(place), Some(NaiveHeader { at, bytes, checksum, tail, term })) => {
            assert_eq!(
                (place.at, place.length, place.checksum, place.bytes_after),
                (*at as u64, u32::try_from(*bytes).unwrap(), *checksum, *tail as u64)
            );
            // The header's values come from the term that the slow search found.
            match (&read, decode(term, place)) {
                (Ok(headed), decoded) => assert_eq!(headed.header, decoded.unwrap()),
                (Err(why), decoded) => {
                    assert_eq!(why.to_string(), decoded.unwrap_err().to_string());
                }
            }
        }
        (None, None) => {}
        (ours, theirs) => panic!("the search found {ours:?}, the slow search {theirs:?}"),
    }
    // One read of each block, and one of each record that a block claims.
    assert!(counted.read.get() <= size + naive.claimed * 2, "{} read", counted.read.get());
    let blocks = size / 4096 + 1;
    let batches = 5 + blocks / 256;
    assert!(counted.reads.get() <= batches + u64::from(rejected) + 1, "{:?}", counted.reads);
    assert!(counted.largest.get() as u64 <= size, "a buffer of {:?}", counted.largest);
    if let Ok(FileHeader { header: Header::Db(db), .. }) = &read {
        let before = counted.reads.get();
        let _purge = last_purge(&counted, db);
        assert!(counted.reads.get() <= before + 128, "at most two reads per level");
        assert!(counted.largest.get() as u64 <= size, "a buffer of {:?}", counted.largest);
    }
    read
}

/// An X-ray, sampled or not, either fails or its parts add up to the file.
pub(super) fn xray_adds_up(bytes: &[u8]) {
    let sample = Sample { share: 0.5, seed: bytes.len() as u64 };
    for sample in [None, Some(sample)] {
        let counted = Counted::new(bytes);
        let read = xray(&counted, sample);
        assert!(
            counted.largest.get() as u64 <= counted.size(),
            "a buffer of {:?}",
            counted.largest
        );
        let Ok(xray) = read else { continue };
        let sum: u64 = xray.parts.iter().map(|part| part.bytes).sum();
        assert_eq!((xray.file_bytes, sum), (bytes.len() as u64, bytes.len() as u64));
    }
}

/// The recorded files, with small ones more often than large ones.
fn originals() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = expected().keys().map(|name| file(name)).collect();
    all.sort_by_key(Vec::len);
    let small = all.iter().filter(|file| file.len() < 30_000).cloned().collect::<Vec<_>>();
    all.extend(small.iter().cloned());
    all.extend(small);
    all
}

/// One of the originals, damaged.
fn mutant(originals: &[Vec<u8>], next: &mut impl FnMut() -> u64) -> Vec<u8> {
    let mut one = {
        let mut below = |count: usize| usize::try_from(next() % count.max(1) as u64).unwrap();
        originals[below(originals.len())].clone()
    };
    for _ in 0..=next() % 3 {
        damage(&mut one, originals, next);
    }
    one
}

fn damage(file: &mut Vec<u8>, originals: &[Vec<u8>], next: &mut impl FnMut() -> u64) {
    let kind = next() % 12;
    let mut below = |count: usize| usize::try_from(next() % count.max(1) as u64).unwrap();
    let blocks = file.len() / 4096 + 1;
    let header = naive::search(file).found;
    match kind {
        // Flipped bits anywhere, in the header, or in a length.
        0 => {
            let at = below(file.len());
            flip(file, at, below(8));
        }
        1 | 2 => {
            if let Some(found) = header {
                let at = found.at + below(found.bytes + 5);
                flip(file, at, below(8));
            }
        }
        3 => {
            let at = below(blocks) * 4096 + 1 + below(4);
            flip(file, at, below(8));
        }
        // Markers without headers, with a length.
        4 => {
            let at = below(blocks) * 4096;
            let length = u32::try_from(below(1 << 20)).unwrap().to_be_bytes();
            let record = [&[1][..], &length].concat();
            for (byte, new) in file.iter_mut().skip(at).zip(record) {
                *byte = new;
            }
        }
        // A file truncated anywhere or near the header.
        5 => file.truncate(below(file.len())),
        6 => {
            if let Some(found) = header {
                file.truncate(found.at + below(found.bytes + 8));
            }
        }
        // Garbage at the end.
        7 => {
            let more = below(20_000);
            let step = below(256);
            let at = file.len();
            file.extend((0..more).map(|it| (it * step % 256).try_into().unwrap_or(0_u8)));
            if below(2) == 0 {
                file.iter_mut()
                    .skip(at.next_multiple_of(4096))
                    .step_by(4096)
                    .for_each(|it| *it = 1);
            }
        }
        // Part of one file in another.
        8 => {
            let other = &originals[below(originals.len())];
            let from = below(other.len() / 4096 + 1) * 4096;
            let part = other.get(from..).unwrap_or_default();
            let at = (below(blocks) * 4096).min(file.len());
            file.splice(at.., part.iter().copied());
        }
        // A header with a damaged term and a valid checksum.
        9 | 10 => {
            if let Some(NaiveHeader { mut term, .. }) = header {
                for _ in 0..=below(4) {
                    damage_term(&mut term, &mut below);
                }
                append_header(file, &term);
            }
        }
        // Nested terms.
        _ => {
            let depth = below(30_000);
            let mut term = vec![131, 104, 3, 100, 0, 9];
            term.extend(b"db_header");
            let open: &[u8] = match below(4) {
                0 => &[104, 1],
                1 => &[108, 0, 0, 0, 1],
                2 => &[116, 0, 0, 0, 1, 106],
                _ => &[104, 255],
            };
            term.extend(open.iter().copied().cycle().take(depth * open.len()));
            term.push(106);
            append_header(file, &term);
        }
    }
}

fn flip(file: &mut [u8], at: usize, bit: usize) {
    if let Some(byte) = file.get_mut(at) {
        *byte ^= 1 << bit;
    }
}

fn damage_term(term: &mut Vec<u8>, below: &mut impl FnMut(usize) -> usize) {
    let at = below(term.len());
    match below(6) {
        0 => flip(term, at, below(8)),
        // Tags of other terms; or, in the next case, the largest lengths.
        1 => {
            let tags =
                [70, 77, 80, 97, 98, 99, 100, 104, 105, 106, 107, 108, 109, 110, 111, 115, 116];
            if let Some(byte) = term.get_mut(at) {
                *byte = tags[below(tags.len())];
            }
        }
        2 => term.iter_mut().skip(at).take(4).for_each(|byte| *byte = 255),
        3 => term.truncate(at),
        // A part repeated or removed.
        4 => {
            let part: Vec<u8> = term.iter().skip(at).take(below(40)).copied().collect();
            let to = below(term.len());
            term.splice(to..to, part);
        }
        _ => {
            let end = (at + below(12)).min(term.len());
            term.drain(at.min(end)..end);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_files_are_read_in_bounds_or_refused(seed: u64) {
        let originals = originals();
        let mut next = random_source(seed);
        for _ in 0..8 {
            let mutant = mutant(&originals, &mut next);
            let _read = read_and_compare(&mutant);
            xray_adds_up(&mutant);
        }
    }

    #[test]
    fn arbitrary_terms_with_valid_checksum_cause_no_panic(
        term in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _read = read_and_compare(&with_header(&term));
        let _read = read_and_compare(&with_header(&versioned(&term)));
    }
}

#[test]
fn fast_and_slow_search_agree_on_recorded_files() {
    for name in expected().keys() {
        let _read = read_and_compare(&file(name));
    }
}

/// The number of files is in `RECLINER_MUTATIONS`, the seed in `RECLINER_SEED`.
#[test]
#[ignore = "takes a minute: RECLINER_MUTATIONS=1000000 cargo test --release --lib -- --ignored --nocapture many_damaged"]
fn many_damaged_files_are_read_in_bounds_or_refused() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("RECLINER_MUTATIONS").unwrap_or(1_000_000);
    let seed = number("RECLINER_SEED").unwrap_or(1);
    let originals = originals();
    let mut kinds = std::collections::BTreeMap::new();
    for each in 0..count {
        let mut next = random_source(seed.wrapping_mul(1 << 40).wrapping_add(each));
        let mutant = mutant(&originals, &mut next);
        xray_adds_up(&mutant);
        let kind = match read_and_compare(&mutant) {
            Ok(FileHeader { header: Header::Db(_), .. }) => "db",
            Ok(FileHeader { header: Header::Compaction(_), .. }) => "compaction",
            Ok(FileHeader { header: Header::View(_), .. }) => "view",
            Err(why) => why.label(),
        };
        *kinds.entry(kind).or_insert(0_u64) += 1;
    }
    println!("{count} damaged files from seed {seed}: {kinds:?}");
}
