//! Bodies that a proxy has compressed.

use super::Failure;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use std::io::Read as _;

/// A plain body that is larger is no more than [`DENSEST`] times as large as the packed one.
const LARGE: usize = 16 << 20;

/// How many times as large a large body is in plain at most: lists of shards' names make a
/// twentieth of themselves, a text made for it a thousandth.
const DENSEST: usize = 100;

/// The body in plain, of `limit` bytes at most.
pub(super) fn unpacked(body: &Bytes, limit: usize) -> Result<Bytes, Failure> {
    let limit = limit.min(body.len().saturating_mul(DENSEST).max(LARGE));
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut plain = Vec::new();
    match MultiGzDecoder::new(&**body).take(most).read_to_end(&mut plain) {
        Ok(size) if size > limit => Err(Failure::TooLarge),
        Ok(_) => Ok(plain.into()),
        Err(error) => Err(Failure::Garbage(format!("its compressed body: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_body_is_unpacked_up_to_its_limit() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&[b'x'; 1000]).unwrap();
        let packed = Bytes::from(gzip.finish().unwrap());
        assert_eq!(unpacked(&packed, 1000).unwrap().len(), 1000);
        assert!(matches!(unpacked(&packed, 999), Err(Failure::TooLarge)));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&vec![b' '; LARGE + 1]).unwrap();
        let bomb = Bytes::from(gzip.finish().unwrap());
        assert!(matches!(unpacked(&bomb, 512 << 20), Err(Failure::TooLarge)));
        let cut = packed.slice(..packed.len() / 2);
        assert!(matches!(unpacked(&cut, 1000), Err(Failure::Garbage(_))));
        assert!(matches!(unpacked(&Bytes::from_static(b"no"), 9), Err(Failure::Garbage(_))));
    }
}
