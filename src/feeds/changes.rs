//! The feed client: one task that follows CouchDB's feeds.
//!
//! Owns two feeds: `_db_updates`, if the cluster has it, for writes; and `_dbs/_changes` of one
//! node for databases that are created, deleted or moved. It tells the scanner which databases
//! changed, and since when no change was missed. The journal receives the events; without
//! `_db_updates`, it receives the changes that the scanner detects on its own. Never reads a target
//! and never decides what a change means for it.
//!
//! A feed may break, go back in time, repeat itself, stall or disappear. It is then reopened after
//! increasing pauses, at its last position or from now. While changes may have been missed, the
//! scanner reads everything in each sweep, as it would without feeds.

mod batch;
mod feeds;
mod heard;
mod listener;
mod map;
mod pauses;
mod resumed;
mod status;
mod updates;
mod witness;

pub use feeds::{Feeds, Lines};
pub use status::{Feed, Status};

use crate::{
    model::settings::work::Follow,
    scan::{self, Command, Noticed},
    store::journal::Journal,
};
use heard::Heard;
use listener::Listener;
use std::sync::Arc;
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Capacity of the queue of feed steps; a feed that is further ahead waits.
const STEPS: usize = 64;

/// Settings of the feed client.
pub type Settings = Follow;

/// Handle for reading the client's status.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The last published status.
    pub status: watch::Receiver<Arc<Status>>,
}

/// The task that follows the feeds.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    feeds: watch::Receiver<Arc<dyn Feeds>>,
    settings: watch::Receiver<Settings>,
    scanner: scan::Handle,
    journal: Option<Journal>,
    noticed: broadcast::Receiver<Noticed>,
    status: watch::Sender<Arc<Status>>,
    listener: Listener,
}

enum Event {
    Heard(Heard),
    Noticed(Noticed),
    Due,
    Anew,
}

impl Task {
    /// Creates the task and its handle. Without a journal, events are not recorded.
    #[must_use]
    pub fn new(
        clock: Clock,
        feeds: watch::Receiver<Arc<dyn Feeds>>,
        settings: watch::Receiver<Settings>,
        scanner: scan::Handle,
        journal: Option<Journal>,
    ) -> (Self, Handle) {
        let (status, reader) = watch::channel(Arc::default());
        let listener = Listener::default();
        let noticed = scanner.noticed();
        let task = Self { clock, feeds, settings, scanner, journal, noticed, status, listener };
        (task, Handle { status: reader })
    }

    /// Runs until `stop`, or until the sender of settings is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        // The service is gone if nobody can send settings.
        while !stop.is_cancelled() && self.settings.has_changed().is_ok() {
            let follow = *self.settings.borrow_and_update();
            if follow.enabled {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.listen() => {}
                }
                // Pending events are written early, because nothing follows.
                self.write(Instant::now() + follow.max_write_delay);
                continue;
            }
            self.listener.begin_anew();
            self.tell(Instant::now());
            self.status.send_replace(Arc::default());
            tokio::select! {
                () = stop.cancelled() => {}
                changed = self.settings.changed() => if changed.is_err() { return },
                // With feeds disabled, detected changes are not recorded.
                noticed = next_of(&mut self.noticed) => self.scanner.settle(noticed.number),
            }
        }
    }

    /// Follows the current feeds until they are replaced or disabled.
    async fn listen(&mut self) {
        self.listener.begin_anew();
        let feeds = Arc::clone(&self.feeds.borrow_and_update());
        let (out, mut heard) = mpsc::channel(STEPS);
        let snapshots = self.scanner.snapshots.clone();
        let before = resumed::recall(self.journal.clone());
        let updates = updates::follow(Arc::clone(&feeds), self.clock, before, out.clone());
        let map = map::follow(feeds, self.clock, snapshots, out);
        let following = async { tokio::join!(updates, map) };
        tokio::pin!(following);
        loop {
            let next = self.listener.next(Instant::now());
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                Some(heard) = heard.recv() => Event::Heard(heard),
                noticed = next_of(&mut self.noticed) => Event::Noticed(noticed),
                () = time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    Event::Due
                }
                Ok(()) = self.feeds.changed() => Event::Anew,
                changed = self.settings.changed() => {
                    if changed.is_err() || !self.settings.borrow().enabled {
                        return;
                    }
                    Event::Due
                }
                _ = &mut following => return,
            };
            let now = Instant::now();
            match event {
                Event::Anew => return,
                Event::Heard(heard) => {
                    let follow = *self.settings.borrow();
                    self.listener.heard(heard, &follow, (now, self.clock.now()));
                }
                Event::Noticed(noticed) => {
                    let follow = *self.settings.borrow();
                    self.listener.noticed(&noticed, &follow, (now, self.clock.now()));
                }
                Event::Due => {}
            }
            self.tell(now);
            self.write(now);
            let status = self.listener.status(now);
            self.status.send_if_modified(|shown| {
                let news = **shown != status;
                if news {
                    *shown = Arc::new(status);
                }
                news
            });
        }
    }

    /// Sends due news to the scanner.
    fn tell(&mut self, now: Instant) {
        let Some(news) = self.listener.news(now) else { return };
        if let Some(Command::Heard(news)) = self.scanner.send(Command::Heard(news)) {
            let follow = *self.settings.borrow();
            self.listener.not_told(news, &follow, now);
        }
    }

    /// Sends due events to the journal.
    fn write(&mut self, now: Instant) {
        let batch = self.listener.batch((now, self.clock.now()));
        if let Some((journal, (events, reached))) = self.journal.as_ref().zip(batch) {
            journal.publish_up_to(events, reached);
        }
        if let Some(number) = self.listener.settled() {
            self.scanner.settle(number);
        }
    }
}

/// The next changes detected by the scanner; waits forever if the scanner is gone. Cancel-safe.
async fn next_of(noticed: &mut broadcast::Receiver<Noticed>) -> Noticed {
    loop {
        match noticed.recv().await {
            Ok(noticed) => return noticed,
            Err(broadcast::error::RecvError::Lagged(batches)) => {
                tracing::warn!(
                    batches,
                    "some database changes detected by the scanner were missed"
                );
            }
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
