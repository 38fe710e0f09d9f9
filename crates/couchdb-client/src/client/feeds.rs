//! Feeds: answers that come bit by bit, or after a long wait.
//!
//! They go through the gate of the login as all requests do, but take no place among those
//! in flight: one feed stays open for as long as the process runs.

use super::{Client, Whom};
use crate::{Asked, Error, Route, directory::Way, lines::Lines, sender::Answer, transport, wire};
use http_body_util::BodyExt as _;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// The longest line of a feed: a sequence grows with the shards of `_global_changes`.
const LONGEST_LINE: usize = 64 << 10;

/// How many heartbeats may be missed before a feed counts as silent.
const MISSED: u32 = 3;

/// How much longer than it was told to a long poll may wait.
const LATE: Duration = Duration::from_secs(10);

/// Rows of one answer.
const ROWS: usize = 1_000;

/// The continuous feed of database events, open.
#[derive(Debug)]
pub struct Updates {
    body: transport::Coming,
    lines: Lines,
    silence: Duration,
    asked: Arc<Asked>,
    /// What is wrong with the line behind those that were given.
    bad: Option<String>,
}

impl Updates {
    /// The lines that came, in their order, at least one; `None` at the end of the body. Half
    /// a line at the end is none.
    ///
    /// # Errors
    /// [`Error::Timeout`] where no line comes for three heartbeats; [`Error::Garbage`] at a line
    /// that makes no sense or is too long, once those before it were given.
    pub async fn next(&mut self) -> Result<Option<Vec<wire::UpdateLine>>, Error> {
        // Bytes without the end of a line are no sign of life.
        let until = Instant::now() + self.silence;
        loop {
            if let Some(detail) = self.bad.clone() {
                return Err(Error::Garbage { asked: Arc::clone(&self.asked), detail });
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

    /// The whole lines that are here, up to the first that makes no sense.
    fn read(&mut self) -> Vec<wire::UpdateLine> {
        let mut read = Vec::new();
        while self.bad.is_none() {
            match self.lines.next() {
                Ok(Some(line)) => match wire::UpdateLine::read(&line) {
                    Ok(line) => read.push(line),
                    Err(why) => self.bad = Some(why),
                },
                Ok(None) => break,
                Err(_) => self.bad = Some(format!("a line is longer than {LONGEST_LINE} bytes")),
            }
        }
        read
    }
}

impl Client {
    /// How far `_db_updates` is: the sequence behind everything that happened.
    ///
    /// # Errors
    /// As [`Error`] says; [`crate::Kind::NotFound`] where the cluster has no
    /// `_global_changes`.
    pub async fn db_updates_now(&self) -> Result<String, Error> {
        let told = |end: &wire::UpdatesEnd| match end.last_seq {
            Some(_) => Ok(()),
            None => Err("it has no last_seq".to_owned()),
        };
        let end = self.get_checked(Route::DbUpdatesNow, Whom::Any, false, told).await?;
        Ok(end.last_seq.unwrap_or_default())
    }

    /// Opens `_db_updates` behind this sequence, with a sign of life every `heartbeat`. While
    /// nothing happens, the answer's head comes with the first of those.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn db_updates(&self, since: &str, heartbeat: Duration) -> Result<Updates, Error> {
        let millis = u64::try_from(heartbeat.as_millis()).unwrap_or(u64::MAX);
        let route = Route::DbUpdates { since, heartbeat: millis };
        let silence = heartbeat.saturating_mul(MISSED);
        let (_, asked, body) = self.opened(route, Whom::Any, silence).await?;
        Ok(Updates { body, lines: Lines::new(LONGEST_LINE), silence, asked, bad: None })
    }

    /// How far the shard map on `node` is, in the node's own count.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn map_changes_now(&self, node: &str) -> Result<u64, Error> {
        let route = Route::MapChangesNow { node };
        let read = self.get_checked(route, Whom::Node(node), false, has_seq).await?;
        Ok(read.last_seq.unwrap_or_default())
    }

    /// Databases whose entry in the shard map on `node` changed behind `since`; waits for the
    /// first of them, but not longer than `wait`.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn map_changes(
        &self,
        node: &str,
        since: u64,
        wait: Duration,
    ) -> Result<wire::MapChanges, Error> {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let route = Route::MapChanges { node, since, limit: ROWS, timeout: millis };
        let within = wait.saturating_add(LATE);
        let (way, asked, body) = self.opened(route, Whom::Node(node), within).await?;
        let limit = route.body_limit();
        let sender = &self.shared.sender;
        let body = match timeout(within, transport::collected(body, 0, limit)).await {
            Ok(Ok(body)) => body,
            Ok(Err(failure)) => return Err(sender.failed(route, &asked.path, &way, failure)),
            Err(_) => return Err(Error::Timeout { asked, after: within }),
        };
        let read: Result<wire::MapChanges, String> =
            wire::read(&body).map_err(|why| why.to_string());
        read.and_then(|read| has_seq(&read).map(|()| read))
            .map_err(|detail| Error::Garbage { asked, detail })
    }

    /// The body of a feed. An entry that refuses a login which others accept is passed over.
    async fn opened(
        &self,
        route: Route<'_>,
        whom: Whom<'_>,
        within: Duration,
    ) -> Result<(Way, Arc<Asked>, transport::Coming), Error> {
        let shared = &self.shared;
        let path = route.path()?;
        let node = match whom {
            Whom::Node(name) | Whom::Own(name) => Some(shared.directory.node(name)),
            Whom::Any => None,
        };
        if let Some(node) = &node {
            node.sought.get_or_init(|| self.seek(node)).await;
        }
        shared.gate.pass().await?;
        let mut tried = Vec::new();
        loop {
            let generation = shared.gate.generation();
            let way = match &node {
                Some(node) => shared.directory.way_to(node, &tried, generation)?,
                None => Way::direct(shared.directory.any(&tried, generation)?),
            };
            let asked = Asked::new(&route, &path, &way.server.address);
            match self.answered(route, &path, &way, Some(within)).await {
                Ok(Answer::Coming(body)) => return Ok((way, asked, body)),
                Ok(Answer::Whole { .. } | Answer::Refused { .. }) => {
                    return Err(Error::Garbage { asked, detail: "it is no feed".to_owned() });
                }
                Err(error) => {
                    let first_there = !tried.contains(&way.server.address);
                    let refused =
                        matches!(error, Error::LoginClosed { .. }) && !shared.gate.is_shut();
                    if !(refused && first_there) {
                        return Err(error);
                    }
                    tried.push(way.server.address.clone());
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
