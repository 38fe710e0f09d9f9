//! What a reader asks for, and what is refused. Pure.
//!
//! The parameters are CouchDB's, and so is the order in which they are found to be wrong:
//! numbers, then the feed's name, then `since`. Of a parameter that comes twice the first
//! counts; one that is not known is passed over.

use super::seq;
use crate::store::journal::Since;
use std::time::Duration;

/// How long nothing may come before a feed without heartbeats ends, unless told, and at most
/// (CouchDB's `[chttpd] changes_timeout`); and from one heartbeat to the next for `true`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The shortest time between two heartbeats, whatever was asked for.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// How a feed is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All that is there, at once.
    Normal,
    /// The same, but not before there is something.
    Longpoll,
    /// A line for each event, as they come.
    Continuous,
    /// The same, as browsers listen to it.
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

/// A feed that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How it is told.
    pub kind: Kind,
    /// From where.
    pub since: Since,
    /// The newest first, whatever `since` says.
    pub descending: bool,
    /// How many events at most.
    pub limit: u64,
    /// How long nothing may come before it ends.
    pub timeout: Duration,
    /// From one sign of life to the next; the feed then goes on for as long as its reader.
    pub heartbeat: Option<Duration>,
}

/// Why nothing can be told; CouchDB's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// A number is none.
    #[error("invalid_integer")]
    Integer,
    /// There is no such feed.
    #[error("Supported `feed` types: normal, continuous, longpoll, eventsource")]
    Feed,
    /// Nobody gave this sequence out.
    #[error("Malformed sequence supplied in 'since' parameter.")]
    Sequence,
}

impl Ask {
    /// Reads decoded parameters in their order; `last_event_id` is the header that browsers
    /// send when they open an event source again, and counts more than `since`.
    ///
    /// # Errors
    /// Says which is wrong, as CouchDB does.
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

/// A number of Erlang's that is not below zero; what no time and no list can reach is cut off.
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
    fn parameters_mean_what_they_mean_to_couchdb() {
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
    fn what_is_wrong_is_found_in_couchdbs_order() {
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
    fn a_browser_that_comes_back_goes_on_where_it_was() {
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
        fn any_parameters_are_read_or_refused(pairs in proptest::collection::vec(
            ("(feed|since|limit|timeout|heartbeat|descending|x)", ".{0,12}"), 0..6
        )) {
            let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let _any = Ask::read(pairs, None);
        }
    }
}
