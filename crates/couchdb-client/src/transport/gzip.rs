//! Decompresses bodies that a proxy has compressed.

use super::SendFailure;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, header};
use std::io::Read as _;

/// Decompressed bodies larger than this may be at most [`MAX_RATIO`] times the compressed size.
const LARGE_BODY: usize = 16 << 20;

/// The highest compression ratio of a large body: lists of shard names compress to a twentieth, a
/// decompression bomb to a thousandth.
const MAX_RATIO: usize = 100;

/// Whether these headers are of a compressed body.
pub(super) fn is_gzip(headers: &HeaderMap) -> bool {
    let encoding = headers.get(header::CONTENT_ENCODING);
    encoding.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"))
}

/// The decompressed body, at most `limit` bytes.
pub(super) fn decompress(body: &Bytes, limit: usize) -> Result<Bytes, SendFailure> {
    let limit = limit.min(body.len().saturating_mul(MAX_RATIO).max(LARGE_BODY));
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut plain = Vec::new();
    match MultiGzDecoder::new(&**body).take(most).read_to_end(&mut plain) {
        Ok(size) if size > limit => Err(SendFailure::TooLarge),
        Ok(_) => Ok(plain.into()),
        Err(error) => Err(SendFailure::Malformed(format!("its compressed body: {error}"))),
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
        assert_eq!(decompress(&packed, 1000).unwrap().len(), 1000);
        assert!(matches!(decompress(&packed, 999), Err(SendFailure::TooLarge)));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&vec![b' '; LARGE_BODY + 1]).unwrap();
        let bomb = Bytes::from(gzip.finish().unwrap());
        assert!(matches!(decompress(&bomb, 512 << 20), Err(SendFailure::TooLarge)));
        let cut = packed.slice(..packed.len() / 2);
        assert!(matches!(decompress(&cut, 1000), Err(SendFailure::Malformed(_))));
        assert!(matches!(
            decompress(&Bytes::from_static(b"no"), 9),
            Err(SendFailure::Malformed(_))
        ));
    }
}
