//! Feeds: database events (`_db_updates`) and changes of the shard map (`_dbs/_changes`).

use super::lenient::{self, lenient};
use couchdb_names::check_db_name_length;

/// The default name of the database with the events of `_db_updates`.
pub const GLOBAL_CHANGES: &str = "_global_changes";

/// The kind of a database event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// The database was created.
    Created,
    /// A document was written.
    Updated,
    /// The database was deleted.
    Deleted,
}

impl Change {
    /// Every change.
    pub const ALL: [Self; 3] = [Self::Created, Self::Updated, Self::Deleted];

    /// CouchDB's name of the event.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }

    /// The event with this name.
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.label() == label)
    }
}

/// One line of the continuous feed of database events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateLine {
    /// An empty line, which shows that the connection is alive.
    Heartbeat,
    /// A database event.
    Update {
        /// The database.
        db: String,
        /// The kind; `None` if the name is unknown.
        change: Option<Change>,
        /// The sequence to continue from.
        seq: String,
    },
    /// The end of the feed.
    End {
        /// The sequence to continue from.
        seq: String,
    },
}

impl UpdateLine {
    /// Parses one line.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::Heartbeat);
        }
        let raw: RawLine = lenient::read(line).map_err(|why| why.to_string())?;
        match (raw.db_name, raw.seq, raw.last_seq) {
            (Some(db), Some(seq), _) => {
                check_db_name_length(&db).map_err(|why| why.to_string())?;
                let change = raw.kind.as_deref().and_then(Change::from_label);
                Ok(Self::Update { db, change, seq })
            }
            (None, None, Some(seq)) => Ok(Self::End { seq }),
            _ => Err("it has neither a database with a sequence nor last_seq".to_owned()),
        }
    }
}

lenient! {
    /// All fields that a line may have.
    struct RawLine {
        db_name: Option<String>,
        #[serde(rename = "type")]
        kind: Option<String>,
        seq: Option<String>,
        last_seq: Option<String>,
    }

    /// The part of a normal response of `_db_updates` that is used: the sequence it reached.
    pub(crate) struct UpdatesEnd {
        pub(crate) last_seq: Option<String>,
    }

    /// A response of `_dbs/_changes`.
    pub struct MapChanges {
        /// Databases whose entry changed, by ascending sequence.
        pub results: Vec<MapChange>,
        /// The node's own sequence to continue from.
        pub last_seq: Option<u64>,
    }

    /// A database whose entry in the shard map changed.
    pub struct MapChange {
        /// The database; also ids of design documents.
        pub id: Option<String>,
        /// The node's own sequence.
        pub seq: Option<u64>,
        /// Whether the entry was deleted.
        pub deleted: Option<bool>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_feed_lines_of_couchdb() {
        let update = |db: &str, change, seq: &str| {
            Ok(UpdateLine::Update { db: db.into(), change, seq: seq.into() })
        };
        for (line, expected) in [
            ("", Ok(UpdateLine::Heartbeat)),
            (" \r", Ok(UpdateLine::Heartbeat)),
            (
                r#"{"db_name":"e_00119","type":"created","seq":"53-g1AAAACTeJ"}"#,
                update("e_00119", Some(Change::Created), "53-g1AAAACTeJ"),
            ),
            (r#"{"db_name":"a","type":"renamed","seq":"54-x"}"#, update("a", None, "54-x")),
            (r#"{"last_seq":"55-x"}"#, Ok(UpdateLine::End { seq: "55-x".into() })),
        ] {
            assert_eq!(UpdateLine::read(line.as_bytes()), expected, "{line}");
        }
        for line in [
            "<html>",
            "{",
            "[]",
            "{}",
            r#"{"db_name":"a","type":"created"}"#,
            r#"{"db_name":7,"seq":"1-x"}"#,
            r#"{"error":"unauthorized","reason":"You are not a server admin."}"#,
        ] {
            assert!(UpdateLine::read(line.as_bytes()).is_err(), "{line}");
        }
        let line = format!(r#"{{"db_name":"{}","type":"created","seq":"1-x"}}"#, "x".repeat(5_000));
        let why = "a database name of 5000 bytes is longer than file systems allow";
        assert_eq!(UpdateLine::read(line.as_bytes()), Err(why.to_owned()));
    }

    #[test]
    fn parses_odd_map_changes_leniently() {
        let text = r#"{"results":[{"seq":5,"id":"a","changes":[{"rev":"1-x"}]},
            {"seq":"6-g1AA","id":"b","deleted":true,"changes":[]}, 7, {}],"last_seq":"6-g1AA"}"#;
        let read: MapChanges = serde_json::from_str(text).unwrap();
        let row =
            |id: &str, seq, deleted| MapChange { id: Some(id.into()), seq: Some(seq), deleted };
        let expected = vec![row("a", 5, None), row("b", 6, Some(true)), MapChange::default()];
        assert_eq!(read, MapChanges { results: expected, last_seq: Some(6) });
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_refused(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _any = UpdateLine::read(&line);
        }
    }
}
