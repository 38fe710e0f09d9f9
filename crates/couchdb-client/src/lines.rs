//! Splits a body that arrives in pieces into lines of limited length.

use bytes::{Bytes, BytesMut};
use tokio_util::codec::{AnyDelimiterCodec, Decoder as _};

/// The bytes that are not a whole line yet.
#[derive(Debug)]
pub(super) struct Lines {
    held: BytesMut,
    codec: AnyDelimiterCodec,
}

/// A line is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineTooLong;

impl Lines {
    /// An empty buffer for lines of at most `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        let codec = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), longest);
        Self { held: BytesMut::new(), codec }
    }

    pub(super) fn add(&mut self, piece: &Bytes) {
        self.held.extend_from_slice(piece);
    }

    /// The next whole line, without its end.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        let mut line = self.codec.decode(&mut self.held).map_err(|_| LineTooLong)?;
        if let Some(line) = &mut line
            && line.ends_with(b"\r")
        {
            line.truncate(line.len() - 1);
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(lines: &mut Lines) -> Result<Vec<Bytes>, LineTooLong> {
        let mut found = Vec::new();
        while let Some(line) = lines.next()? {
            found.push(line);
        }
        Ok(found)
    }

    #[test]
    fn refuses_too_long_line_before_its_end_arrives() {
        let mut lines = Lines::new(4);
        lines.add(&Bytes::from_static(b"1234\r\n12345"));
        assert_eq!(lines.next(), Err(LineTooLong), "the carriage return counts");
        let mut lines = Lines::new(4);
        lines.add(&Bytes::from_static(b"1234\n1234"));
        assert_eq!(lines.next(), Ok(Some(Bytes::from_static(b"1234"))));
        assert_eq!(lines.next(), Ok(None));
        lines.add(&Bytes::from_static(b"5"));
        assert_eq!(lines.next(), Err(LineTooLong));
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_a_body_is_split(
            texts in proptest::collection::vec("[a-z]{0,9}", 0..20),
            rest in "[a-z]{0,9}",
            cuts in proptest::collection::vec(1_usize..7, 1..9),
        ) {
            let whole = texts.iter().fold(String::new(), |all, text| all + text + "\n") + &rest;
            let mut lines = Lines::new(9);
            let mut found = Vec::new();
            let mut left = Bytes::from(whole);
            for cut in cuts.iter().cycle() {
                if left.is_empty() {
                    break;
                }
                lines.add(&left.split_to((*cut).min(left.len())));
                found.extend(all(&mut lines).unwrap());
            }
            prop_assert_eq!(found, texts);
        }
    }
}
