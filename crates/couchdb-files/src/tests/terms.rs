//! Tables of terms: the content of each tag, and invalid terms.

use super::*;

fn term(bytes: &[u8]) -> Term<'_> {
    match Term::decode(bytes) {
        Ok(term) => term,
        Err(why) => panic!("{bytes:?}: {why}"),
    }
}

/// A term after its version byte.
fn bare(bytes: &[u8]) -> Vec<u8> {
    [&[VERSION], bytes].concat()
}

#[test]
fn reads_numbers_of_every_size() {
    for (bytes, number) in [
        (&[97, 0][..], Some(0)),
        (&[97, 255], Some(255)),
        (&[98, 0, 0, 1, 0], Some(256)),
        (&[98, 127, 255, 255, 255], Some((1 << 31) - 1)),
        (&[98, 255, 255, 255, 255], None),
        (&[110, 4, 0, 0, 0, 0, 128], Some(1 << 31)),
        (&[110, 8, 0, 255, 255, 255, 255, 255, 255, 255, 255], Some(u64::MAX)),
        (&[110, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], None),
        (&[110, 9, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0], Some(7)),
        (&[110, 1, 1, 7], None),
        (&[110, 0, 0], Some(0)),
        (&[111, 0, 0, 0, 3, 0, 0, 0, 1], Some(1 << 16)),
        (&[70, 64, 0, 0, 0, 0, 0, 0, 0], None),
        (&[106], None),
    ] {
        assert_eq!(term(&bare(bytes)).number(), number, "{bytes:?}");
    }
}

#[test]
fn reads_only_proper_lists_as_lists() {
    for (bytes, numbers) in [
        (&[106][..], Some(vec![])),
        (&[107, 0, 3, 1, 2, 3], Some(vec![1, 2, 3])),
        (&[107, 0, 0], Some(vec![])),
        (&[108, 0, 0, 0, 2, 97, 9, 97, 106, 106], Some(vec![9, 106])),
        (&[108, 0, 0, 0, 0, 106], Some(vec![])),
        // `[9 | 106]`, which ends with the same byte as a proper list.
        (&[108, 0, 0, 0, 1, 97, 9, 97, 106], None),
        (&[104, 1, 97, 9], None),
    ] {
        let list = term(&bare(bytes))
            .list()
            .map(|list| list.map(|it| it.number().unwrap()).collect::<Vec<_>>());
        assert_eq!(list, numbers, "{bytes:?}");
    }
}

#[test]
fn reads_tuples_maps_binaries_and_atoms() {
    for bytes in [&[104, 2, 97, 1, 106][..], &[105, 0, 0, 0, 2, 97, 1, 106]] {
        let bytes = bare(bytes);
        let mut tuple = term(&bytes).tuple().unwrap();
        assert_eq!(tuple.len(), 2);
        assert_eq!(tuple.next().and_then(Term::number), Some(1));
        assert!(tuple.next().unwrap().list().is_some());
        assert!(tuple.next().is_none());
    }
    let map = bare(&[116, 0, 0, 0, 1, 100, 0, 1, b'k', 97, 5]);
    let mut pairs = term(&map).map().unwrap();
    assert!(pairs.next().unwrap().is_atom("k"));
    assert_eq!(pairs.next().and_then(Term::number), Some(5));
    assert_eq!(term(&bare(&[109, 0, 0, 0, 2, 1, 2])).binary(), Some(&[1, 2][..]));
    for bytes in [
        &[100, 0, 3, b'n', b'i', b'l'][..],
        &[118, 0, 3, b'n', b'i', b'l'],
        &[115, 3, b'n', b'i', b'l'],
        &[119, 3, b'n', b'i', b'l'],
    ] {
        assert!(term(&bare(bytes)).is_atom("nil"), "{bytes:?}");
    }
}

#[test]
fn incomplete_terms_are_refused() {
    for (bytes, why) in [
        (&[][..], DecodeError::NotATerm),
        (&[130, 106], DecodeError::NotATerm),
        (&[131], DecodeError::Truncated),
        (&[131, 97], DecodeError::Truncated),
        (&[131, 110, 255], DecodeError::Truncated),
        (&[131, 109, 255, 255, 255, 255, 0], DecodeError::Truncated),
        (&[131, 104, 255, 106], DecodeError::Truncated),
        (&[131, 105, 255, 255, 255, 255, 106], DecodeError::Truncated),
        (&[131, 108, 255, 255, 255, 255, 106, 106], DecodeError::Truncated),
        (&[131, 116, 255, 255, 255, 255], DecodeError::Truncated),
        (&[131, 108, 0, 0, 0, 1, 97, 1], DecodeError::Truncated),
        // A compressed term, a process, and a byte that is not a tag.
        (&[131, 80, 0, 0, 0, 1, 120, 156], DecodeError::UnknownTag(80)),
        (&[131, 88, 0], DecodeError::UnknownTag(88)),
        (&[131, 0], DecodeError::UnknownTag(0)),
    ] {
        assert_eq!(Term::decode(bytes).err(), Some(why), "{bytes:?}");
    }
}

#[test]
fn skips_terms_of_other_types() {
    for bytes in [
        &[70, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &[99; 32],
        &[77, 0, 0, 0, 1, 3, 0b1010_0000],
        &[116, 0, 0, 0, 0],
        &[104, 0],
        &[105, 0, 0, 0, 0],
    ] {
        let bytes = [&[VERSION, 104, 2], bytes, &[97, 42]].concat();
        assert_eq!(
            term(&bytes).tuple().unwrap().nth(1).and_then(Term::number),
            Some(42),
            "{bytes:?}"
        );
    }
}

#[test]
fn decodes_deeply_nested_terms() {
    let mut bytes = vec![VERSION];
    bytes.extend([104, 1].repeat(1 << 20));
    assert_eq!(Term::decode(&bytes).err(), Some(DecodeError::Truncated));
    bytes.push(106);
    let deep = term(&bytes).tuple().unwrap().next().unwrap();
    assert_eq!(deep.tuple().unwrap().len(), 1);
}
