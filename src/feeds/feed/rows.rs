//! Renders events as text: once for all readers, sliced for each reader's position. Pure.

use super::seq::Seq;
use crate::{
    store::journal::{FeedPage, Update},
    text::escape,
};
use bytes::Bytes;
use serde::Serialize;
use std::{fmt::Write as _, sync::OnceLock};

/// Format of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An element of a list, followed by the separator.
    Element,
    /// A line.
    Line,
    /// An event of an event source.
    Event,
}

/// Separator between the elements of a list.
pub(super) const BETWEEN: &str = ",\r\n";

impl Form {
    const ALL: [Self; 3] = [Self::Element, Self::Line, Self::Event];
}

/// A row as CouchDB writes it, with the keys in CouchDB's order.
#[derive(Serialize)]
struct Row<'a> {
    db_name: &'a str,
    r#type: &'static str,
    seq: &'a str,
}

/// Rendered events.
#[derive(Debug, Default)]
pub(super) struct Text {
    bytes: Bytes,
    /// The number of each event, and its end offset.
    ends: Box<[(u64, usize)]>,
}

impl Text {
    pub(super) fn of(updates: &[Update], era: &str, floor: u64, form: Form) -> Self {
        let mut text = String::with_capacity(updates.len() * 96);
        let mut ends = Vec::with_capacity(updates.len());
        let mut seq = String::new();
        for update in updates {
            seq.clear();
            // Writing to a String cannot fail.
            let _written = write!(seq, "{}", Seq { number: update.seq, era, floor });
            let row = Row { db_name: &update.db, r#type: update.change.label(), seq: &seq };
            let row = serde_json::to_string(&row).unwrap_or_default();
            let row = escape::json_line(&row);
            match form {
                Form::Element => text.extend([&*row, BETWEEN]),
                Form::Line => text.extend([&*row, "\n"]),
                Form::Event => text.extend(["data: ", &*row, "\nid: \"", &seq, "\"\n\n"]),
            }
            ends.push((update.seq, text.len()));
        }
        Self { bytes: text.into(), ends: ends.into() }
    }

    /// The events after a number, at most `at_most` of them. The bytes are not copied.
    pub(super) fn behind(&self, after: u64, at_most: u64) -> Option<Part> {
        let first = self.ends.partition_point(|(seq, _)| *seq <= after);
        let rest = self.ends.get(first..)?;
        let count = rest.len().min(usize::try_from(at_most).unwrap_or(usize::MAX));
        let begin = first.checked_sub(1).and_then(|at| self.ends.get(at)).map_or(0, |it| it.1);
        let (last, end) = *rest.get(count.checked_sub(1)?)?;
        Some(Part { count: count as u64, last, bytes: self.bytes.slice(begin..end) })
    }

    /// All events, in any order.
    pub(super) fn all(&self) -> Option<Part> {
        let (last, _) = *self.ends.last()?;
        Some(Part { count: self.ends.len() as u64, last, bytes: self.bytes.clone() })
    }
}

/// A slice of rendered events.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) count: u64,
    /// Number of the last event.
    pub(super) last: u64,
    pub(super) bytes: Bytes,
}

/// New events shared by all current readers. Each format is rendered by the first reader that needs
/// it.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Contains every event after this number, except those in later chunks.
    pub(super) after: u64,
    /// Contains every event up to this number.
    pub(super) upto: u64,
    /// Highest number removed so far.
    pub(super) removed: u64,
    pub(super) era: String,
    updates: Vec<Update>,
    forms: [OnceLock<Text>; Form::ALL.len()],
}

impl Chunk {
    /// Creates a chunk from a page with all events between these numbers.
    pub(super) fn new((after, upto): (u64, u64), page: FeedPage) -> Self {
        let FeedPage { removed, era, updates, .. } = page;
        Self { after, upto, removed, era, updates, forms: Default::default() }
    }

    pub(super) fn text(&self, form: Form) -> &Text {
        let [element, line, event] = &self.forms;
        let place = match form {
            Form::Element => element,
            Form::Line => line,
            Form::Event => event,
        };
        place.get_or_init(|| Text::of(&self.updates, &self.era, 0, form))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use couchdb_client::wire::DbChange;

    const ERA: &str = "0123456789abcdef";

    fn updates() -> Vec<Update> {
        let update = |seq, change, db: &str| Update { seq, change, db: db.into() };
        vec![
            update(3, DbChange::Created, "a/\"b"),
            update(5, DbChange::Updated, "\u{fc}"),
            update(9, DbChange::Deleted, "c"),
        ]
    }

    fn text(form: Form) -> String {
        String::from_utf8(Text::of(&updates(), ERA, 4, form).bytes.to_vec()).unwrap()
    }

    #[test]
    fn rows_have_couchdbs_format() {
        assert_eq!(
            text(Form::Line),
            "{\"db_name\":\"a/\\\"b\",\"type\":\"created\",\"seq\":\"3-0123456789abcdef.4\"}\n\
             {\"db_name\":\"\u{fc}\",\"type\":\"updated\",\"seq\":\"5-0123456789abcdef\"}\n\
             {\"db_name\":\"c\",\"type\":\"deleted\",\"seq\":\"9-0123456789abcdef\"}\n"
        );
        assert!(text(Form::Element).starts_with("{\"db_name\":\"a/\\\"b\","));
        assert!(text(Form::Element).ends_with("\"9-0123456789abcdef\"},\r\n"));
        assert!(text(Form::Event).ends_with(
            "data: {\"db_name\":\"c\",\"type\":\"deleted\",\"seq\":\"9-0123456789abcdef\"}\n\
             id: \"9-0123456789abcdef\"\n\n"
        ));
    }

    #[test]
    fn hidden_characters_in_names_are_escaped() {
        let db = "a\u{1b}[1m\u{9b}\u{202e}\u{200b}";
        let updates = [Update { seq: 3, change: DbChange::Created, db: db.into() }];
        for form in Form::ALL {
            let bytes = Text::of(&updates, ERA, 0, form).bytes.to_vec();
            let text = String::from_utf8(bytes).unwrap();
            let hides = |letter| !matches!(letter, '\n' | '\r') && escape::is_hidden(letter);
            assert!(!text.contains(hides), "{text:?}");
            let row = text.lines().next().unwrap();
            let row = row.trim_start_matches("data: ").trim_end_matches(',');
            assert_eq!(serde_json::from_str::<serde_json::Value>(row).unwrap()["db_name"], db);
        }
    }

    #[test]
    fn rendered_rows_are_sliced_at_the_readers_position() {
        let text = Text::of(&updates(), ERA, 0, Form::Line);
        let lines = |after, at_most| {
            let part = text.behind(after, at_most)?;
            let read = std::str::from_utf8(&part.bytes).unwrap().lines().count() as u64;
            assert_eq!(read, part.count);
            Some((part.count, part.last))
        };
        assert_eq!(lines(0, u64::MAX), Some((3, 9)));
        assert_eq!(lines(0, 2), Some((2, 5)));
        assert_eq!(lines(3, u64::MAX), Some((2, 9)));
        assert_eq!(lines(4, 1), Some((1, 5)));
        assert_eq!(lines(9, 1), None);
        assert_eq!(lines(0, 0), None);
        assert!(Text::of(&[], ERA, 0, Form::Line).all().is_none());
    }
}
