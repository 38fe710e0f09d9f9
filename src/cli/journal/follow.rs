//! `recliner events --follow`: what comes, as it comes, over restarts of the service.
//!
//! Owns where the reading stands, and how long a service that does not answer is waited for.

use super::Shown;
use crate::{
    cli::{Exit, Failure, complain, service_client::ServiceClient},
    serve::report::Events,
};
use std::time::Duration;
use tokio::time::{self, Instant};

/// How long the service holds back an answer in which nothing would be.
const WAIT: &str = "30s";

/// How many events one answer has.
const LIMIT: &str = "1000";

/// The first pause before a service that does not answer is asked again, and the longest.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// How long it is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// From one question to the next at least, where the answer was empty.
const AT_LEAST: Duration = Duration::from_secs(1);

/// Where to go on after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Behind this number.
    Behind(u64),
    /// At the beginning: what was read so far was of a memory that is no more.
    Anew,
}

/// Where to go on after an answer to a question for what is behind `since`.
fn next(answer: &Events, since: Option<u64>) -> Next {
    let newest = answer.last_seq;
    if since.is_some_and(|since| since > newest) {
        return Next::Anew;
    }
    let last = answer.events.last().map(|event| event.seq);
    Next::Behind(last.filter(|_| answer.more).unwrap_or(newest))
}

/// Which events are followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// Their types, with commas; empty for all.
    pub(super) types: &'a str,
    /// What they are about.
    pub(super) target: Option<&'a str>,
}

/// Prints what is there, from `from` on where that is given, then what comes, for as long as there
/// is a service and a reader.
pub(super) async fn follow(
    client: &ServiceClient,
    wanted: Wanted<'_>,
    from: Option<String>,
    limit: &str,
    mut shown: Shown,
) -> Result<Exit, Failure> {
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
            ("limit", Some(if waits { LIMIT } else { limit })),
            ("wait", waits.then_some(WAIT)),
        ];
        let asked = Instant::now();
        let answer: Events = match client.get("/api/v1/events", &super::given(query)).await {
            Ok(answer) => answer,
            Err(why) if first || !why.passes => return Err(why),
            Err(why) => {
                let (begun, pause) = silent.unwrap_or_else(|| {
                    complain(&format!("{}; trying again", why.why));
                    (Instant::now(), FIRST)
                });
                if begun.elapsed() >= PATIENCE {
                    return Err(why);
                }
                time::sleep(pause).await;
                silent = Some((begun, (pause * 2).min(LONGEST)));
                continue;
            }
        };
        if silent.take().is_some() {
            complain("it answers again; nothing was missed");
        }
        first = false;
        match next(&answer, since) {
            Next::Behind(seq) => since = Some(seq),
            Next::Anew => {
                complain("it has another memory than before, which follows from its beginning");
                since = Some(0);
            }
        }
        if !shown.print(&answer.events)? {
            return Ok(Exit::Done);
        }
        if answer.events.is_empty() {
            time::sleep_until(asked + AT_LEAST).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::report::EventLine;

    #[test]
    fn the_next_question_goes_on_where_the_answer_ends() {
        let answer = |seqs: &[u64], more: bool, last_seq: u64| {
            let event = |seq: &u64| EventLine { seq: *seq, ..EventLine::default() };
            Events { limit: 100, events: seqs.iter().map(event).collect(), more, last_seq }
        };
        for (answer, since, expected) in [
            (answer(&[3, 5], false, 9), None, Next::Behind(9)),
            (answer(&[3, 5], true, 9), Some(2), Next::Behind(5)),
            (answer(&[], false, 9), Some(9), Next::Behind(9)),
            (answer(&[], false, 0), Some(0), Next::Behind(0)),
            (answer(&[], false, 3), Some(9), Next::Anew),
        ] {
            assert_eq!(next(&answer, since), expected, "{answer:?}");
        }
    }
}
