//! Renders events as text: once for all readers, sliced for each reader's position. Pure.

use super::sequence::FeedSeq;
use crate::{
    store::journal::{FeedEntry, FeedPage},
    text::escape,
};
use bytes::Bytes;
use serde::Serialize;
use std::{fmt::Write as _, sync::OnceLock};

/// Number of events read, rendered and held at a time.
pub(super) const PAGE_SIZE: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowFormat {
    /// An element of a list, followed by the separator.
    Element,
    Line,
    /// An event of an event source.
    Event,
}

/// Separator between the elements of a list.
pub(super) const SEPARATOR: &str = ",\r\n";

impl RowFormat {
    const ALL: [Self; 3] = [Self::Element, Self::Line, Self::Event];
}

/// A row as CouchDB writes it, with the keys in CouchDB's order.
#[derive(Serialize)]
struct Row<'a> {
    db_name: &'a str,
    r#type: &'static str,
    seq: &'a str,
}

#[derive(Debug, Default)]
pub(super) struct RenderedRows {
    bytes: Bytes,
    /// The number of each event, and its end offset.
    ends: Box<[(u64, usize)]>,
}

impl RenderedRows {
    pub(super) fn render(
        updates: &[FeedEntry],
        era: &str,
        removed_at_start: u64,
        format: RowFormat,
    ) -> Self {
        let mut text = String::with_capacity(updates.len() * 96);
        let mut ends = Vec::with_capacity(updates.len());
        let mut seq = String::new();
        for update in updates {
            seq.clear();
            // Writing to a String cannot fail.
            let _written = write!(seq, "{}", FeedSeq { number: update.seq, era, removed_at_start });
            let row = Row { db_name: &update.db, r#type: update.change.label(), seq: &seq };
            let row = serde_json::to_string(&row).unwrap_or_default();
            let row = escape::escape_json_line(&row);
            match format {
                RowFormat::Element => text.extend([&*row, SEPARATOR]),
                RowFormat::Line => text.extend([&*row, "\n"]),
                RowFormat::Event => text.extend(["data: ", &*row, "\nid: \"", &seq, "\"\n\n"]),
            }
            ends.push((update.seq, text.len()));
        }
        Self { bytes: text.into(), ends: ends.into() }
    }

    /// The events after a number, at most `at_most` of them. The bytes are not copied.
    pub(super) fn slice_after(&self, after: u64, at_most: u64) -> Option<RowSlice> {
        let first = self.ends.partition_point(|(seq, _)| *seq <= after);
        let rest = self.ends.get(first..)?;
        let count = rest.len().min(usize::try_from(at_most).unwrap_or(usize::MAX));
        let begin = first.checked_sub(1).and_then(|at| self.ends.get(at)).map_or(0, |it| it.1);
        let (last, end) = *rest.get(count.checked_sub(1)?)?;
        Some(RowSlice { count: count as u64, last_seq: last, bytes: self.bytes.slice(begin..end) })
    }

    /// All events, which may be in any order.
    pub(super) fn all(&self) -> Option<RowSlice> {
        let (last, _) = *self.ends.last()?;
        Some(RowSlice { count: self.ends.len() as u64, last_seq: last, bytes: self.bytes.clone() })
    }
}

/// A slice of rendered events.
#[derive(Clone, Debug)]
pub(super) struct RowSlice {
    pub(super) count: u64,
    /// Number of the last event.
    pub(super) last_seq: u64,
    pub(super) bytes: Bytes,
}

/// New events shared by all current readers. Each format is rendered by the first reader that needs
/// it.
#[derive(Debug)]
pub(super) struct FeedChunk {
    /// Contains every event after this number, except those in later chunks.
    pub(super) after_seq: u64,
    /// Contains every event up to this number.
    pub(super) up_to_seq: u64,
    /// Highest number removed so far.
    pub(super) highest_removed_seq: u64,
    pub(super) era: String,
    updates: Vec<FeedEntry>,
    formats: [OnceLock<RenderedRows>; RowFormat::ALL.len()],
}

impl FeedChunk {
    /// Creates a chunk from a page with all events between these numbers.
    pub(super) fn new((after_seq, up_to_seq): (u64, u64), page: FeedPage) -> Self {
        let FeedPage { highest_removed_seq, era, entries: updates, .. } = page;
        Self {
            after_seq,
            up_to_seq,
            highest_removed_seq,
            era,
            updates,
            formats: Default::default(),
        }
    }

    pub(super) fn rendered(&self, format: RowFormat) -> &RenderedRows {
        let [element, line, event] = &self.formats;
        let rows = match format {
            RowFormat::Element => element,
            RowFormat::Line => line,
            RowFormat::Event => event,
        };
        rows.get_or_init(|| RenderedRows::render(&self.updates, &self.era, 0, format))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use couchdb_client::wire::DbChange;

    const ERA: &str = "0123456789abcdef";

    fn updates() -> Vec<FeedEntry> {
        let update = |seq, change, db: &str| FeedEntry { seq, change, db: db.into() };
        vec![
            update(3, DbChange::Created, "a/\"b"),
            update(5, DbChange::Updated, "\u{fc}"),
            update(9, DbChange::Deleted, "c"),
        ]
    }

    fn text(format: RowFormat) -> String {
        String::from_utf8(RenderedRows::render(&updates(), ERA, 4, format).bytes.to_vec()).unwrap()
    }

    #[test]
    fn rows_have_couchdbs_format() {
        assert_eq!(
            text(RowFormat::Line),
            "{\"db_name\":\"a/\\\"b\",\"type\":\"created\",\"seq\":\"3-0123456789abcdef.4\"}\n\
             {\"db_name\":\"\u{fc}\",\"type\":\"updated\",\"seq\":\"5-0123456789abcdef\"}\n\
             {\"db_name\":\"c\",\"type\":\"deleted\",\"seq\":\"9-0123456789abcdef\"}\n"
        );
        assert!(text(RowFormat::Element).starts_with("{\"db_name\":\"a/\\\"b\","));
        assert!(text(RowFormat::Element).ends_with("\"9-0123456789abcdef\"},\r\n"));
        assert!(text(RowFormat::Event).ends_with(
            "data: {\"db_name\":\"c\",\"type\":\"deleted\",\"seq\":\"9-0123456789abcdef\"}\n\
             id: \"9-0123456789abcdef\"\n\n"
        ));
    }

    #[test]
    fn hidden_characters_in_names_are_escaped() {
        let db = "a\u{1b}[1m\u{9b}\u{202e}\u{200b}";
        let updates = [FeedEntry { seq: 3, change: DbChange::Created, db: db.into() }];
        for format in RowFormat::ALL {
            let bytes = RenderedRows::render(&updates, ERA, 0, format).bytes.to_vec();
            let text = String::from_utf8(bytes).unwrap();
            let hides = |letter| !matches!(letter, '\n' | '\r') && escape::is_hidden(letter);
            assert!(!text.contains(hides), "{text:?}");
            let row = text.lines().next().unwrap();
            let row = row.trim_start_matches("data: ").trim_end_matches(',');
            assert_eq!(serde_json::from_str::<serde_json::Value>(row).unwrap()["db_name"], db);
        }
    }

    #[test]
    fn reader_gets_only_rendered_rows_after_its_position() {
        let text = RenderedRows::render(&updates(), ERA, 0, RowFormat::Line);
        let lines = |after, at_most| {
            let part = text.slice_after(after, at_most)?;
            let read = std::str::from_utf8(&part.bytes).unwrap().lines().count() as u64;
            assert_eq!(read, part.count);
            Some((part.count, part.last_seq))
        };
        assert_eq!(lines(0, u64::MAX), Some((3, 9)));
        assert_eq!(lines(0, 2), Some((2, 5)));
        assert_eq!(lines(3, u64::MAX), Some((2, 9)));
        assert_eq!(lines(4, 1), Some((1, 5)));
        assert_eq!(lines(9, 1), None);
        assert_eq!(lines(0, 0), None);
        assert!(RenderedRows::render(&[], ERA, 0, RowFormat::Line).all().is_none());
    }
}
