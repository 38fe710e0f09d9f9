//! Parses the parameters of a feed request. Pure.
//!
//! The parameters are CouchDB's, and errors are found in CouchDB's order: numbers, then the feed
//! type, then `since`. The first of repeated parameters counts; unknown ones are ignored.

use super::seq;
use crate::store::journal::Since;
use std::time::Duration;

/// Default and maximum time without events after which a feed without heartbeats ends (CouchDB's
/// `[chttpd] changes_timeout`), and the heartbeat interval for `heartbeat=true`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Shortest heartbeat interval, whatever was requested.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// Type of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All existing events, at once.
    Normal,
    /// The same, but waits until there is at least one event.
    Longpoll,
    /// One line per event, as they happen.
    Continuous,
    /// The same in the format of browser event sources.
    EventSource,
}

impl Kind {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "normal" => Self::Normal,
            "longpoll" => Self::Longpoll,
            "continuous" => Self::Continuous,
            "eventsource" => Self::EventSource,
            _ => return None,
        })
    }
}

/// A request for a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Type of the feed.
    pub kind: Kind,
    /// Where to start.
    pub since: Since,
    /// Newest first; `since` is ignored.
    pub descending: bool,
    /// Maximum number of events.
    pub limit: u64,
    /// Time without events after which the feed ends.
    pub timeout: Duration,
    /// Heartbeat interval; a feed with heartbeats lasts as long as its reader.
    pub heartbeat: Option<Duration>,
}

/// Why a request is invalid, in CouchDB's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// A number is invalid.
    #[error("invalid_integer")]
    Integer,
    /// The feed type does not exist.
    #[error("Supported `feed` types: normal, continuous, longpoll, eventsource")]
    Feed,
    /// The sequence is malformed.
    #[error("Malformed sequence supplied in 'since' parameter.")]
    Sequence,
}

impl Ask {
    /// Parses decoded parameters in their order. `last_event_id` is the header that browsers send
    /// when they reopen an event source; it takes precedence over `since`.
    ///
    /// # Errors
    /// If a parameter is invalid, with CouchDB's message.
    pub fn read<'a>(
        parameters: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        last_event_id: Option<&str>,
    ) -> Result<Self, Bad> {
        let first = |name| parameters.clone().find(|(it, _)| *it == name).map(|(_, value)| value);
        let mut heartbeat = None;
        for (name, value) in parameters.clone() {
            match (name, value) {
                ("limit" | "timeout", _) => {
                    whole(value)?;
                }
                ("heartbeat", "true") => heartbeat = heartbeat.or(Some(TIMEOUT)),
                ("heartbeat", "false") => {}
                ("heartbeat", _) => {
                    let asked = Duration::from_millis(whole(value)?);
                    heartbeat = heartbeat.or_else(|| Some(asked.max(HEARTBEAT_MIN)));
                }
                _ => {}
            }
        }
        let kind = Kind::from_name(first("feed").unwrap_or("normal")).ok_or(Bad::Feed)?;
        let descending = parameters.clone().any(|it| it == ("descending", "true"));
        let since = last_event_id.filter(|_| kind == Kind::EventSource).or_else(|| first("since"));
        let since = match since {
            Some(_) if descending => Since::Start,
            Some(text) => seq::since(text).ok_or(Bad::Sequence)?,
            None => Since::Start,
        };
        let timeout = first("timeout").map(whole).transpose()?.map(Duration::from_millis);
        Ok(Self {
            kind,
            since,
            descending,
            limit: first("limit").map(whole).transpose()?.unwrap_or(u64::MAX),
            timeout: timeout.map_or(TIMEOUT, |asked| asked.min(TIMEOUT)),
            heartbeat,
        })
    }
}

/// Parses a non-negative integer as Erlang does; very large values are capped.
fn whole(text: &str) -> Result<u64, Bad> {
    let (below, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Bad::Integer);
    }
    let number = digits.parse().unwrap_or(u64::MAX);
    if below && number != 0 { Err(Bad::Integer) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(query: &str) -> Result<Ask, Bad> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Ask::read(pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))), None)
    }

    fn ask() -> Ask {
        Ask {
            kind: Kind::Normal,
            since: Since::Start,
            descending: false,
            limit: u64::MAX,
            timeout: TIMEOUT,
            heartbeat: None,
        }
    }

    const OWN: &str = "7-0123456789abcdef";

    #[test]
    fn parameters_mean_the_same_as_in_couchdb() {
        let millis = Duration::from_millis;
        let own = Since::Behind { number: 7, era: "0123456789abcdef".into(), floor: 0 };
        for (query, read_as) in [
            ("", ask()),
            ("feed=normal&include_docs=true&filter=x&style=all_docs", ask()),
            ("feed=longpoll", Ask { kind: Kind::Longpoll, ..ask() }),
            (
                "feed=continuous&since=now",
                Ask { kind: Kind::Continuous, since: Since::Now, ..ask() },
            ),
            ("feed=eventsource", Ask { kind: Kind::EventSource, ..ask() }),
            ("feed=normal&feed=nonsense", ask()),
            ("limit=0", Ask { limit: 0, ..ask() }),
            ("limit=1&limit=2", Ask { limit: 1, ..ask() }),
            ("limit=+1", Ask { limit: 1, ..ask() }),
            ("limit=-0", Ask { limit: 0, ..ask() }),
            ("limit=99999999999999999999999", ask()),
            ("since=0", ask()),
            ("since=7-0123456789abcdef", Ask { since: own, ..ask() }),
            ("since=46-g1AAAACTeJzLYWBg", Ask { since: Since::Foreign, ..ask() }),
            ("descending=true", Ask { descending: true, ..ask() }),
            ("descending=true&since=garbage", Ask { descending: true, ..ask() }),
            ("descending=false", ask()),
            ("timeout=500", Ask { timeout: millis(500), ..ask() }),
            ("timeout=0", Ask { timeout: millis(0), ..ask() }),
            ("timeout=3600000", ask()),
            ("heartbeat=true", Ask { heartbeat: Some(TIMEOUT), ..ask() }),
            ("heartbeat=false", ask()),
            ("heartbeat=false&heartbeat=900", Ask { heartbeat: Some(millis(900)), ..ask() }),
            ("heartbeat=400", Ask { heartbeat: Some(millis(400)), ..ask() }),
            ("heartbeat=0", Ask { heartbeat: Some(HEARTBEAT_MIN), ..ask() }),
        ] {
            assert_eq!(read(query), Ok(read_as), "{query}");
        }
    }

    #[test]
    fn errors_are_found_in_couchdbs_order() {
        for (query, bad) in [
            ("feed=nonsense", Bad::Feed),
            ("feed=", Bad::Feed),
            ("feed=live", Bad::Feed),
            ("feed=Normal", Bad::Feed),
            ("limit=x", Bad::Integer),
            ("limit=", Bad::Integer),
            ("limit=-1", Bad::Integer),
            ("limit= 1", Bad::Integer),
            ("limit=1.0", Bad::Integer),
            ("limit=1&limit=x", Bad::Integer),
            ("timeout=x", Bad::Integer),
            ("timeout=-1", Bad::Integer),
            ("feed=continuous&heartbeat=-5", Bad::Integer),
            ("heartbeat=yes", Bad::Integer),
            ("feed=nonsense&limit=x", Bad::Integer),
            ("limit=x&feed=nonsense", Bad::Integer),
            ("since=garbage&limit=x", Bad::Integer),
            ("since=garbage&feed=nonsense", Bad::Feed),
            ("since=garbage", Bad::Sequence),
            ("since=5", Bad::Sequence),
            ("since=", Bad::Sequence),
        ] {
            assert_eq!(read(query), Err(bad), "{query}");
        }
    }

    #[test]
    fn a_returning_browser_continues_at_its_position() {
        let parameters = |feed| [("feed", feed), ("since", "now")].into_iter();
        let quoted = format!("\"{OWN}\"");
        for id in [OWN, &quoted] {
            let back = Ask::read(parameters("eventsource"), Some(id)).unwrap();
            assert!(matches!(back.since, Since::Behind { number: 7, .. }), "{id}");
        }
        assert_eq!(Ask::read(parameters("eventsource"), Some("x")), Err(Bad::Sequence));
        let other = Ask::read(parameters("continuous"), Some(OWN)).unwrap();
        assert_eq!(other.since, Since::Now);
    }

    proptest! {
        #[test]
        fn any_parameters_are_parsed_or_refused(pairs in proptest::collection::vec(
            ("(feed|since|limit|timeout|heartbeat|descending|x)", ".{0,12}"), 0..6
        )) {
            let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let _any = Ask::read(pairs, None);
        }
    }
}
