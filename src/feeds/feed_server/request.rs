//! Parses the parameters of a feed request. Pure.
//!
//! The parameters are CouchDB's, and errors are found in CouchDB's order: numbers, then the feed
//! type, then `since`. The first of repeated parameters counts; unknown ones are ignored.

use super::sequence;
use crate::store::journal::FeedStart;
use std::time::Duration;
use strum::EnumString;

/// Default and maximum time without events after which a feed without heartbeats ends (CouchDB's
/// `[chttpd] changes_timeout`), and the heartbeat interval for `heartbeat=true`.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// Shortest heartbeat interval, whatever was requested.
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);

/// Type of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// All existing events, at once.
    Normal,
    /// All existing events; waits until there is at least one.
    Longpoll,
    /// One line per event, as they happen.
    Continuous,
    /// One message per event, as they happen, in the format of browser event sources.
    EventSource,
}

/// A request for a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRequest {
    /// Type of the feed.
    pub kind: Kind,
    /// Where to start.
    pub start: FeedStart,
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
pub enum BadRequest {
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

impl FeedRequest {
    /// Parses decoded parameters in their order. `last_event_id` is the header that browsers send
    /// when they reopen an event source; it takes precedence over `since`.
    ///
    /// # Errors
    /// If a parameter is invalid, with CouchDB's message.
    pub fn parse<'a>(
        parameters: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        last_event_id: Option<&str>,
    ) -> Result<Self, BadRequest> {
        let first = |name| parameters.clone().find(|(it, _)| *it == name).map(|(_, value)| value);
        let mut heartbeat = None;
        for (name, value) in parameters.clone() {
            match (name, value) {
                ("limit" | "timeout", _) => {
                    parse_number(value)?;
                }
                ("heartbeat", "true") => heartbeat = heartbeat.or(Some(MAX_TIMEOUT)),
                ("heartbeat", "false") => {}
                ("heartbeat", _) => {
                    let requested = Duration::from_millis(parse_number(value)?);
                    heartbeat = heartbeat.or_else(|| Some(requested.max(MIN_HEARTBEAT)));
                }
                _ => {}
            }
        }
        let kind: Kind = first("feed").unwrap_or("normal").parse().map_err(|_| BadRequest::Feed)?;
        let descending = parameters.clone().any(|it| it == ("descending", "true"));
        let since = last_event_id.filter(|_| kind == Kind::EventSource).or_else(|| first("since"));
        let since = match since {
            Some(_) if descending => FeedStart::Beginning,
            Some(text) => sequence::parse_since(text).ok_or(BadRequest::Sequence)?,
            None => FeedStart::Beginning,
        };
        let timeout = first("timeout").map(parse_number).transpose()?.map(Duration::from_millis);
        Ok(Self {
            kind,
            start: since,
            descending,
            limit: first("limit").map(parse_number).transpose()?.unwrap_or(u64::MAX),
            timeout: timeout.map_or(MAX_TIMEOUT, |requested| requested.min(MAX_TIMEOUT)),
            heartbeat,
        })
    }
}

/// Parses a non-negative integer as Erlang does; very large values are capped.
fn parse_number(text: &str) -> Result<u64, BadRequest> {
    let (below, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadRequest::Integer);
    }
    let number = digits.parse().unwrap_or(u64::MAX);
    if below && number != 0 { Err(BadRequest::Integer) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(query: &str) -> Result<FeedRequest, BadRequest> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        FeedRequest::parse(pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))), None)
    }

    fn defaults() -> FeedRequest {
        FeedRequest {
            kind: Kind::Normal,
            start: FeedStart::Beginning,
            descending: false,
            limit: u64::MAX,
            timeout: MAX_TIMEOUT,
            heartbeat: None,
        }
    }

    const OWN: &str = "7-0123456789abcdef";

    #[test]
    fn parameters_mean_the_same_as_in_couchdb() {
        let millis = Duration::from_millis;
        let own = FeedStart::AfterSequence {
            number: 7,
            era: "0123456789abcdef".into(),
            removed_at_start: 0,
        };
        for (query, read_as) in [
            ("", defaults()),
            ("feed=normal&include_docs=true&filter=x&style=all_docs", defaults()),
            ("feed=longpoll", FeedRequest { kind: Kind::Longpoll, ..defaults() }),
            (
                "feed=continuous&since=now",
                FeedRequest { kind: Kind::Continuous, start: FeedStart::End, ..defaults() },
            ),
            ("feed=eventsource", FeedRequest { kind: Kind::EventSource, ..defaults() }),
            ("feed=normal&feed=nonsense", defaults()),
            ("limit=0", FeedRequest { limit: 0, ..defaults() }),
            ("limit=1&limit=2", FeedRequest { limit: 1, ..defaults() }),
            ("limit=+1", FeedRequest { limit: 1, ..defaults() }),
            ("limit=-0", FeedRequest { limit: 0, ..defaults() }),
            ("limit=99999999999999999999999", defaults()),
            ("since=0", defaults()),
            ("since=7-0123456789abcdef", FeedRequest { start: own, ..defaults() }),
            (
                "since=46-g1AAAACTeJzLYWBg",
                FeedRequest { start: FeedStart::InvalidSequence, ..defaults() },
            ),
            ("descending=true", FeedRequest { descending: true, ..defaults() }),
            ("descending=true&since=garbage", FeedRequest { descending: true, ..defaults() }),
            ("descending=false", defaults()),
            ("timeout=500", FeedRequest { timeout: millis(500), ..defaults() }),
            ("timeout=0", FeedRequest { timeout: millis(0), ..defaults() }),
            ("timeout=3600000", defaults()),
            ("heartbeat=true", FeedRequest { heartbeat: Some(MAX_TIMEOUT), ..defaults() }),
            ("heartbeat=false", defaults()),
            (
                "heartbeat=false&heartbeat=900",
                FeedRequest { heartbeat: Some(millis(900)), ..defaults() },
            ),
            ("heartbeat=400", FeedRequest { heartbeat: Some(millis(400)), ..defaults() }),
            ("heartbeat=0", FeedRequest { heartbeat: Some(MIN_HEARTBEAT), ..defaults() }),
        ] {
            assert_eq!(read(query), Ok(read_as), "{query}");
        }
    }

    #[test]
    fn reports_parameter_errors_in_the_same_order_as_couchdb() {
        for (query, bad) in [
            ("feed=nonsense", BadRequest::Feed),
            ("feed=", BadRequest::Feed),
            ("feed=live", BadRequest::Feed),
            ("feed=Normal", BadRequest::Feed),
            ("limit=x", BadRequest::Integer),
            ("limit=", BadRequest::Integer),
            ("limit=-1", BadRequest::Integer),
            ("limit= 1", BadRequest::Integer),
            ("limit=1.0", BadRequest::Integer),
            ("limit=1&limit=x", BadRequest::Integer),
            ("timeout=x", BadRequest::Integer),
            ("timeout=-1", BadRequest::Integer),
            ("feed=continuous&heartbeat=-5", BadRequest::Integer),
            ("heartbeat=yes", BadRequest::Integer),
            ("feed=nonsense&limit=x", BadRequest::Integer),
            ("limit=x&feed=nonsense", BadRequest::Integer),
            ("since=garbage&limit=x", BadRequest::Integer),
            ("since=garbage&feed=nonsense", BadRequest::Feed),
            ("since=garbage", BadRequest::Sequence),
            ("since=5", BadRequest::Sequence),
            ("since=", BadRequest::Sequence),
        ] {
            assert_eq!(read(query), Err(bad), "{query}");
        }
    }

    #[test]
    fn reconnecting_browser_resumes_at_its_last_event_id() {
        let parameters = |feed| [("feed", feed), ("since", "now")].into_iter();
        let quoted = format!("\"{OWN}\"");
        for id in [OWN, &quoted] {
            let back = FeedRequest::parse(parameters("eventsource"), Some(id)).unwrap();
            assert!(matches!(back.start, FeedStart::AfterSequence { number: 7, .. }), "{id}");
        }
        assert_eq!(
            FeedRequest::parse(parameters("eventsource"), Some("x")),
            Err(BadRequest::Sequence)
        );
        let other = FeedRequest::parse(parameters("continuous"), Some(OWN)).unwrap();
        assert_eq!(other.start, FeedStart::End);
    }

    proptest! {
        #[test]
        fn any_parameters_are_parsed_or_refused(pairs in proptest::collection::vec(
            ("(feed|since|limit|timeout|heartbeat|descending|x)", ".{0,12}"), 0..6
        )) {
            let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let _any = FeedRequest::parse(pairs, None);
        }
    }
}
