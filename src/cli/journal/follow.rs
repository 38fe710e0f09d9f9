//! `recliner events --follow`: prints events as they happen, across restarts of the service.
//!
//! Owns the position in the journal, and how long to wait for a service that does not answer.

use super::EventOutput;
use crate::{
    cli::{CommandError, Exit, print_error, service_client::ServiceClient},
    serve::report::Events,
};
use std::time::Duration;
use tokio::time::{self, Instant};

/// How long the service may delay an empty answer.
pub(in crate::cli) const LONG_POLL_WAIT: &str = "30s";

/// Maximum number of events in one answer.
const EVENTS_PER_ANSWER: &str = "1000";

/// The shortest and the longest pause before retrying a service that does not answer.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);

const MAX_OUTAGE: Duration = Duration::from_secs(300);

/// Minimum interval between two requests if an answer is empty.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum NextPosition {
    After(u64),
    /// At the beginning, because the earlier events came from a journal that no longer exists.
    Restart,
}

/// The position after `answer`, which lists the events after `since`.
pub(in crate::cli) fn next_position(answer: &Events, since: Option<u64>) -> NextPosition {
    let newest = answer.last_seq;
    if since.is_some_and(|since| since > newest) {
        return NextPosition::Restart;
    }
    let last = answer.events.last().map(|event| event.seq);
    NextPosition::After(last.filter(|_| answer.more).unwrap_or(newest))
}

/// Which events to follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventFilter<'a> {
    /// Types of events, separated by commas; empty for all.
    pub(super) types: &'a str,
    /// Target of the events; `None` for all.
    pub(super) target: Option<&'a str>,
}

/// Prints existing events, starting at `from` if given, then new ones, until the service is gone or
/// the output is closed.
pub(super) async fn follow(
    client: &ServiceClient,
    wanted: EventFilter<'_>,
    from: Option<String>,
    limit: &str,
    mut shown: EventOutput,
) -> Result<Exit, CommandError> {
    let types = Some(wanted.types).filter(|types| !types.is_empty());
    let mut since = from.as_deref().and_then(|text| text.parse::<u64>().ok());
    let mut silent: Option<(Instant, Duration)> = None;
    let mut first = true;
    loop {
        let behind = since.map(|since| since.to_string());
        let waits = behind.is_some() && !first;
        let query = [
            ("types", types),
            ("target", wanted.target),
            ("since", behind.as_deref().or(from.as_deref())),
            ("limit", Some(if waits { EVENTS_PER_ANSWER } else { limit })),
            ("wait", waits.then_some(LONG_POLL_WAIT)),
        ];
        let asked = Instant::now();
        let answer: Events = match client.get("/api/v1/events", &super::present_params(query)).await
        {
            Ok(answer) => answer,
            Err(why) if first || !why.is_transient => return Err(why),
            Err(why) => {
                let (begun, pause) = silent.unwrap_or_else(|| {
                    print_error(&format!("{}; trying again", why.why));
                    (Instant::now(), FIRST_PAUSE)
                });
                if begun.elapsed() >= MAX_OUTAGE {
                    return Err(why);
                }
                time::sleep(pause).await;
                silent = Some((begun, (pause * 2).min(MAX_PAUSE)));
                continue;
            }
        };
        if silent.take().is_some() {
            print_error("recliner is answering again; no event was missed");
        }
        first = false;
        match next_position(&answer, since) {
            NextPosition::After(seq) => since = Some(seq),
            NextPosition::Restart => {
                print_error(
                    "recliner's journal was replaced; continuing from the beginning of the new one",
                );
                since = Some(0);
            }
        }
        if !shown.print(&answer.events)? {
            return Ok(Exit::Done);
        }
        if answer.events.is_empty() {
            time::sleep_until(asked + MIN_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::report::EventLine;

    #[test]
    fn next_request_continues_after_the_last_event() {
        let answer = |seqs: &[u64], more: bool, last_seq: u64| {
            let event = |seq: &u64| EventLine { seq: *seq, ..EventLine::default() };
            Events { limit: 100, events: seqs.iter().map(event).collect(), more, last_seq }
        };
        for (answer, since, expected) in [
            (answer(&[3, 5], false, 9), None, NextPosition::After(9)),
            (answer(&[3, 5], true, 9), Some(2), NextPosition::After(5)),
            (answer(&[], false, 9), Some(9), NextPosition::After(9)),
            (answer(&[], false, 0), Some(0), NextPosition::After(0)),
            (answer(&[], false, 3), Some(9), NextPosition::Restart),
        ] {
            assert_eq!(next_position(&answer, since), expected, "{answer:?}");
        }
    }
}
