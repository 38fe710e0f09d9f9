//! Feeds: answers that arrive bit by bit, or after a long wait.
//!
//! They pass the auth gate like all requests, but do not count as requests in flight: one feed
//! stays open for as long as the process runs.

use super::{Client, ServerChoice, reads::check_db_names};
use crate::{
    Error, RequestInfo, Route,
    active_login::ActiveLogin,
    credential::Credential,
    directory::{Call, Destination},
    lines::Lines,
    route::{DbUpdates, MapPoll},
    transport, wire,
};
use http_body_util::BodyExt as _;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// The longest line of a feed: a sequence grows with the shards of `_global_changes`.
const MAX_LINE_BYTES: usize = 64 << 10;

/// How many heartbeats may be missed before a feed counts as silent.
const MAX_MISSED_HEARTBEATS: u32 = 3;

/// How much longer than requested a long poll may take.
const LONG_POLL_SLACK: Duration = Duration::from_secs(10);

/// Maximum number of rows in one answer.
const MAX_ROWS: usize = 1_000;

/// The open, continuous feed of database events.
#[derive(Debug)]
pub struct Updates {
    body: transport::BodyStream,
    lines: Lines,
    silence: Duration,
    asked: Arc<RequestInfo>,
    /// What is wrong with the line after the returned ones.
    bad: Option<String>,
}

impl Updates {
    /// The lines that have arrived, in order, at least one; `None` at the end of the body. Half a
    /// line at the end is dropped.
    ///
    /// # Errors
    /// [`Error::Timeout`] where no line comes for three heartbeats; [`Error::Malformed`] at a line
    /// that makes no sense or is too long, once those before it were returned.
    pub async fn next(&mut self) -> Result<Option<Vec<wire::UpdateLine>>, Error> {
        // Bytes without the end of a line do not count as a sign of life.
        let until = Instant::now() + self.silence;
        loop {
            if let Some(detail) = self.bad.clone() {
                return Err(Error::Malformed { asked: Arc::clone(&self.asked), detail });
            }
            let read = self.read();
            if !read.is_empty() {
                return Ok(Some(read));
            }
            if self.bad.is_some() {
                continue;
            }
            match timeout_at(until, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        self.lines.add(&piece);
                    }
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(why))) => {
                    let asked = Arc::clone(&self.asked);
                    return Err(Error::Connect { asked, detail: why.detail() });
                }
                Err(_) => {
                    let asked = Arc::clone(&self.asked);
                    return Err(Error::Timeout { asked, after: self.silence });
                }
            }
        }
    }

    /// The complete lines that have arrived, up to the first invalid one.
    fn read(&mut self) -> Vec<wire::UpdateLine> {
        let mut read = Vec::new();
        while self.bad.is_none() {
            match self.lines.next() {
                Ok(Some(line)) => match wire::UpdateLine::read(&line) {
                    Ok(line) => read.push(line),
                    Err(why) => self.bad = Some(why),
                },
                Ok(None) => break,
                Err(_) => self.bad = Some(format!("a line is longer than {MAX_LINE_BYTES} bytes")),
            }
        }
        read
    }
}

impl Client {
    /// The current sequence of `_db_updates`, after everything that has happened.
    ///
    /// # Errors
    /// As [`Error`] says; [`crate::ErrorKind::NotFound`] where the cluster has no
    /// `_global_changes`.
    pub async fn db_updates_seq(&self) -> Result<String, Error> {
        let has_seq = |end: &wire::UpdatesEnd| match end.last_seq {
            Some(_) => Ok(()),
            None => Err("it has no last_seq".to_owned()),
        };
        let end = self.get_checked(Route::DbUpdates(DbUpdates::Now), has_seq).await?;
        Ok(end.last_seq.unwrap_or_default())
    }

    /// Opens `_db_updates` after this sequence, with a sign of life every `heartbeat`. While nothing
    /// happens, the head of the answer comes with the first of these.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn db_updates(&self, since: &str, heartbeat: Duration) -> Result<Updates, Error> {
        let millis = u64::try_from(heartbeat.as_millis()).unwrap_or(u64::MAX);
        let route = Route::DbUpdates(DbUpdates::Feed { since, heartbeat: millis });
        let silence = heartbeat.saturating_mul(MAX_MISSED_HEARTBEATS);
        let (_, asked, body) = self.open_feed(route, silence).await?;
        Ok(Updates { body, lines: Lines::new(MAX_LINE_BYTES), silence, asked, bad: None })
    }

    /// The current sequence of the shard map on `node`, in the node's own count.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn shard_map_seq(&self, node: &str) -> Result<u64, Error> {
        let route = Route::MapChanges { node, poll: None };
        let read = self.get_checked(route, has_seq).await?;
        Ok(read.last_seq.unwrap_or_default())
    }

    /// The databases whose entry in the shard map on `node` changed after `since`. Waits for the
    /// first of them, but not longer than `wait`.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn shard_map_changes(
        &self,
        node: &str,
        since: u64,
        wait: Duration,
    ) -> Result<wire::MapChanges, Error> {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let poll = MapPoll { since, limit: MAX_ROWS, timeout: millis };
        let route = Route::MapChanges { node, poll: Some(poll) };
        let within = wait.saturating_add(LONG_POLL_SLACK);
        let (destination, asked, body) = self.open_feed(route, within).await?;
        let body = match timeout(within, transport::read_body(body, 0, route.body_limit())).await {
            Ok(Ok(body)) => body,
            Ok(Err(failure)) => {
                let call = Call { route, path: &asked.path, destination: &destination };
                return Err(self.shared.sender.failed(call, failure));
            }
            Err(_) => return Err(Error::Timeout { asked, after: within }),
        };
        let read: Result<wire::MapChanges, String> =
            wire::read(&body).map_err(|why| why.to_string());
        read.and_then(|read| is_answer(&read).map(|()| read))
            .map_err(|detail| Error::Malformed { asked, detail })
    }

    /// The body of a feed. Skips an entry that refuses a login that others accept.
    async fn open_feed(
        &self,
        route: Route<'_>,
        within: Duration,
    ) -> Result<(Destination, Arc<RequestInfo>, transport::BodyStream), Error> {
        let (path, target) = (route.path()?, ServerChoice::of(&route));
        let node = self.node(target).await;
        self.shared.auth.login().await?;
        let mut tried = Vec::new();
        loop {
            let destination = self.choose(target, node.as_ref(), &tried)?;
            let call = Call { route, path: &path, destination: &destination };
            let sender = &self.shared.sender;
            let open = |login: Arc<ActiveLogin>, credential: Credential| async move {
                sender.open(call, &login, &credential, within).await
            };
            match self.with_login(call, open).await {
                Ok(body) => {
                    let asked = call.info();
                    return Ok((destination, asked, body));
                }
                Err(error) => {
                    let first_there = !tried.contains(&destination.server.address);
                    if !(first_there && self.is_refused_there_alone(&error)) {
                        return Err(error);
                    }
                    tried.push(destination.server.address.clone());
                }
            }
        }
    }
}

fn has_seq(read: &wire::MapChanges) -> Result<(), String> {
    match read.last_seq {
        Some(_) => Ok(()),
        None => Err("it has no last_seq".to_owned()),
    }
}

/// Checks that changes of the map have a sequence, are no more than requested, and name valid
/// databases.
fn is_answer(read: &wire::MapChanges) -> Result<(), String> {
    has_seq(read)?;
    let rows = read.results.len();
    if rows > MAX_ROWS {
        return Err(format!("it has {rows} rows, but at most {MAX_ROWS} were requested"));
    }
    check_db_names(read.results.iter().filter_map(|row| row.id.as_deref()))
}
