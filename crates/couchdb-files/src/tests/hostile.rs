//! Files with one anomaly each.

use super::*;

fn reason(file: &[u8]) -> &'static str {
    read(&file).err().map_or("read", |why| why.label())
}

/// The term of a header: `{db_header, Version, Seq, 0, nil, nil, nil, …}`.
fn db_header(version: u8, more: &[&[u8]]) -> Vec<u8> {
    let nil: &[u8] = &[100, 0, 3, b'n', b'i', b'l'];
    let first: &[&[u8]] =
        &[&[100, 0, 9], b"db_header", &[97, version], &[97, 5], &[97, 0], nil, nil, nil];
    let fields = u8::try_from(first.len() - 1 + more.len()).unwrap();
    [&[131, 104, fields][..], &first.concat(), &more.concat()].concat()
}

#[test]
fn reports_files_without_any_header() {
    for file in [vec![], vec![1], vec![1; 5], vec![0; 4096], vec![1; 4096], vec![1; 40_000]] {
        assert_eq!(reason(&file), "no_valid_header", "{} bytes", file.len());
    }
}

#[test]
fn a_header_is_found_wherever_it_begins() {
    let record = db_header(8, &[]);
    for blocks in [0, 1, 2, 3, 17, 18, 19, 100, 341, 342, 343, 900] {
        let mut file = Vec::new();
        append_header(&mut file, &record);
        file.resize(file.len() + blocks * 4096, 0);
        let headed = read(&file.as_slice()).unwrap();
        assert_eq!(
            (headed.position.at, headed.position.false_headers),
            (0, 0),
            "{blocks} blocks behind"
        );
        let behind = file.len() as u64 - 5 - 16 - record.len() as u64;
        assert_eq!(headed.position.bytes_after, behind);
    }
}

/// An endless source of zeros that counts the bytes read.
struct Zeros(std::cell::Cell<u64>);

impl Bytes for Zeros {
    fn size(&self) -> u64 {
        1 << 40
    }

    fn read_at(&self, _: u64, buf: &mut [u8]) -> io::Result<usize> {
        buf.fill(0);
        self.0.set(self.0.get() + buf.len() as u64);
        Ok(buf.len())
    }
}

#[test]
fn search_stops_at_its_limit() {
    let zeros = Zeros(std::cell::Cell::default());
    let why = read_within(&zeros, 5 << 20).unwrap_err();
    assert_eq!(why.label(), "no_header_within");
    assert_eq!(
        why.to_string(),
        "no valid header in the last 5242880 bytes; there may be one further back"
    );
    assert_eq!(zeros.0.get(), 5 << 20);
}

proptest::proptest! {
    #[test]
    fn a_header_is_found_within_the_search_limit(
        before in 0_usize..5, blocks in 0_usize..400, more in 0_usize..4096,
        furthest in 0_u64..1_700_000,
    ) {
        let mut file = vec![0; before * 4096];
        append_header(&mut file, &db_header(8, &[]));
        file.resize((before + 1 + blocks) * 4096 + more, 0);
        let at = before as u64 * 4096;
        let looked = (file.len() as u64).saturating_sub(furthest) / 4096 * 4096;
        match read_within(&file.as_slice(), furthest) {
            Ok(headed) => proptest::prop_assert!(headed.position.at == at && looked <= at),
            Err(HeaderError::NoHeaderWithin { searched, rejected: 0 }) => {
                proptest::prop_assert!(looked > at);
                proptest::prop_assert_eq!(searched, file.len() as u64 - looked);
            }
            Err(why) => panic!("{why}"),
        }
    }
}

#[test]
fn headers_of_every_length_are_read_across_blocks() {
    for length in [4071, 4072, 4073, 4075, 4076, 8170, 8171, 8172, 200_000] {
        let mut record = db_header(8, &[]);
        record.resize(length, 0);
        let file = with_header(&record);
        let headed = read(&file.as_slice()).unwrap();
        assert_eq!((headed.position.at, headed.position.bytes_after), (4096, 0), "{length}");
        assert_eq!(headed.position.length as usize, length + 16);
    }
}

#[test]
fn overlapping_false_headers_end_the_search() {
    let mut file = vec![0; 16 << 20];
    for block in file.chunks_mut(4096) {
        block[..5].copy_from_slice(&[1, 0, 0x80, 0, 0]);
    }
    assert_eq!(reason(&file), "too_many_false_headers");
}

#[test]
fn error_contains_the_unknown_version() {
    for (version, known) in [(0, false), (3, false), (4, true), (6, true), (8, true), (9, false)] {
        let read = read(&with_header(&db_header(version, &[])).as_slice());
        match read {
            Ok(_) => assert!(known, "{version}"),
            Err(HeaderError::UnknownDiskVersion { version: named, place }) => {
                assert!(!known && named == u64::from(version));
                assert_eq!(place.at, 4096);
            }
            Err(why) => panic!("{version}: {why}"),
        }
    }
}

#[test]
fn an_undecodable_valid_header_hides_earlier_headers() {
    let mut file = with_header(&db_header(8, &[]));
    for (record, why) in [
        (&b"no term"[..], DecodeError::NotATerm),
        (&[131, 104, 3, 106], DecodeError::Truncated),
        (&[131, 106], DecodeError::NotAHeader),
        (&[131, 104, 0], DecodeError::NotAHeader),
        (
            &[131, 104, 1, 100, 0, 9, b'd', b'b', b'_', b'h', b'e', b'a', b'd', b'e', b'r'],
            DecodeError::Field("disk_version"),
        ),
    ] {
        append_header(&mut file, record);
        let Err(HeaderError::UndecodableHeader { why: got, place }) = read(&file.as_slice()) else {
            panic!("{record:?} is no header");
        };
        assert_eq!((got, place.false_headers, place.bytes_after), (why, 0, 0), "{record:?}");
    }
}

#[test]
fn a_header_with_unknown_fields_belongs_to_a_newer_couchdb() {
    let zero: &[u8] = &[97, 0];
    let nil: &[u8] = &[100, 0, 3, b'n', b'i', b'l'];
    let mut more = vec![nil, nil, nil, &[98, 0, 0, 3, 232], nil, nil, zero, zero, zero, zero];
    let read_with = |more: &[&[u8]]| read(&with_header(&db_header(8, more)).as_slice());
    more.pop();
    let known = read_with(&more);
    assert_eq!(OpenAction::of(Role::Db, &known), OpenAction::Opens);
    more.push(zero);
    let newer = read_with(&more);
    let Ok(FileHeader { header: Header::Db(db), .. }) = &newer else { panic!("{newer:?}") };
    assert_eq!((db.fields, db.update_seq), (17, 5));
    assert_eq!(OpenAction::of(Role::Db, &newer), OpenAction::Refuses);
}

/// A file that fails or shrinks during a read.
struct Failing(io::ErrorKind, u64);

impl Bytes for Failing {
    fn size(&self) -> u64 {
        self.1
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        if self.0 == io::ErrorKind::UnexpectedEof { Ok(0) } else { Err(self.0.into()) }
    }
}

#[test]
fn a_read_error_contains_its_offset() {
    for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::PermissionDenied] {
        for size in [100, 8192, u64::MAX] {
            match read(&Failing(kind, size)) {
                Err(HeaderError::Read { at, why, .. }) => {
                    assert_eq!(why.kind(), kind);
                    assert_eq!(at, (size - 1) / 4096 * 4096);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn role_depends_on_file_name() {
    let sig = "0f045e3b41d71d93aaa32f23021ba536";
    let named = sig.parse().ok();
    for (name, role) in [
        ("a.1795222434.couch".to_owned(), Role::Db),
        ("a.1795222434.couch.compact".to_owned(), Role::Compacted),
        ("a.1795222434.couch.compact.data".to_owned(), Role::CompactData),
        ("a.1795222434.couch.compact.meta".to_owned(), Role::CompactMeta),
        (format!("{sig}.view"), Role::View(named)),
        (format!("{sig}.compact.view"), Role::CompactView(named)),
        ("mango.view".to_owned(), Role::View(None)),
        (sig.to_owned(), Role::Unnamed),
    ] {
        assert_eq!(Role::of(&name), role, "{name}");
    }
}
