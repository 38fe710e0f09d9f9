//! Sequences of the feed as its readers see them. Pure.
//!
//! The format is `<number>-<era>`: the journal's number and sixteen hexadecimal digits that
//! identify one lifetime of one file. For a reader that started after some events were removed,
//! `.<number>` is appended with the highest removed number, until it has read that far.

use crate::store::journal::FeedStart;
use base64::Engine as _;
use std::fmt;

/// Number of characters of an era.
const ERA_LEN: usize = 16;

/// The first byte of Erlang's external term format, which CouchDB's sequences use.
const ERLANG_TERM_TAG: u8 = 131;

/// A sequence sent to a reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeedSeq<'a> {
    pub(super) number: u64,
    pub(super) era: &'a str,
    /// Removals up to this number happened before the reader started.
    pub(super) removed_at_start: u64,
}

impl fmt::Display for FeedSeq<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, era, removed_at_start } = self;
        if removed_at_start > number {
            write!(out, "{number}-{era}.{removed_at_start}")
        } else {
            write!(out, "{number}-{era}")
        }
    }
}

/// Parses a `since` parameter; `None` if it is malformed. Quotes around a sequence are accepted as
/// in CouchDB, because event ids contain them.
pub(super) fn parse_since(text: &str) -> Option<FeedStart> {
    match text {
        "0" => return Some(FeedStart::Beginning),
        "now" => return Some(FeedStart::End),
        _ => {}
    }
    let bare = text.strip_prefix('"').unwrap_or(text);
    let bare = bare.strip_suffix('"').unwrap_or(bare);
    parse_own(bare).or_else(|| is_couchdb_seq(bare).then_some(FeedStart::InvalidSequence))
}

fn parse_own(text: &str) -> Option<FeedStart> {
    let (seq, opaque) = text.split_once('-')?;
    let (era, removed_at_start) = match opaque.split_once('.') {
        Some((era, removed)) => (era, parse_digits(removed)?),
        None => (opaque, 0),
    };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (era.len() == ERA_LEN && era.bytes().all(is_hex)).then_some(FeedStart::AfterSequence {
        number: parse_digits(seq)?,
        era: era.to_owned(),
        removed_at_start,
    })
}

fn parse_digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Whether the text looks like one of CouchDB's sequences: a packed term, optionally preceded by a
/// number.
fn is_couchdb_seq(text: &str) -> bool {
    let packed = match text.split_once('-') {
        Some((seq, packed)) if !seq.is_empty() && parse_digits(seq).is_some() => packed,
        _ => text,
    };
    let decoded = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(packed.trim_end_matches('='));
    decoded.is_ok_and(|bytes| bytes.first() == Some(&ERLANG_TERM_TAG))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COUCHDBS: &str = "30-g1AAAACTeJzLYWBgYMpgTmHgz8tPSTVxMDQy1zMAQsMckEQiQ1L9____szKYE_lzgQLsZmaplikWFpjKcRqRxwIkGRqA1H8UkwySTRJTTEwxdWUBAFkGJHc";

    fn after(number: u64, removed_at_start: u64) -> FeedStart {
        FeedStart::AfterSequence { number, era: "0123456789abcdef".into(), removed_at_start }
    }

    #[test]
    fn distinguishes_own_couchdb_and_malformed_sequences() {
        for (text, read) in [
            ("0", Some(FeedStart::Beginning)),
            ("now", Some(FeedStart::End)),
            ("17-0123456789abcdef", Some(after(17, 0))),
            ("\"17-0123456789abcdef\"", Some(after(17, 0))),
            ("17-0123456789abcdef.40", Some(after(17, 40))),
            ("0-0123456789abcdef", Some(after(0, 0))),
            (COUCHDBS, Some(FeedStart::InvalidSequence)),
            (&format!("\"{COUCHDBS}\""), Some(FeedStart::InvalidSequence)),
            (COUCHDBS.split_once('-').unwrap().1, Some(FeedStart::InvalidSequence)),
            (&COUCHDBS[..40], None),
            ("", None),
            ("5", None),
            ("-1", None),
            ("0-", None),
            ("5-abc", None),
            ("Now", None),
            ("garbage", None),
            ("17-0123456789ABCDEF", None),
            ("17-0123456789abcde", None),
            ("17-0123456789abcdef.", None),
            ("17-0123456789abcdef.x", None),
            ("+17-0123456789abcdef", None),
            ("99999999999999999999-0123456789abcdef", None),
        ] {
            assert_eq!(parse_since(text), read, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_sequence_sent_to_a_reader_is_parsed_back(number in 1_u64.., removed: u64, era in "[0-9a-f]{16}") {
            let text = FeedSeq { number, era: &era, removed_at_start: removed }.to_string();
            let removed = if removed > number { removed } else { 0 };
            prop_assert_eq!(parse_since(&text), Some(FeedStart::AfterSequence { number, era, removed_at_start: removed }));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text: String) {
            let _any = parse_since(&text);
        }
    }
}
