//! The listener: one task that hears what happens to databases.
//!
//! Owns the feeds of CouchDB: `_db_updates`, where the cluster has it, for what is written,
//! and one node's `_dbs/_changes` for what is made, deleted or moved. Tells the scanner which
//! databases were named, and since when nothing was missed. The journal gets the events; where
//! there is no `_db_updates`, those that the scanner notices by itself. Never reads a target
//! and never decides what a change means for it.
//!
//! A feed may break, go back in time, repeat itself, stall or vanish: it rests longer each
//! time, is resumed where it was, or is begun anew from now, and as long as something may have
//! been missed the scanner reads everything in each sweep, as it would without feeds.

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

/// Steps of feeds that wait to be taken in; a feed that is further ahead waits itself.
const STEPS: usize = 64;

/// What the listener goes by.
pub type Settings = Follow;

/// The way to read what the listener says of itself.
#[derive(Clone, Debug)]
pub struct Handle {
    /// What it said last.
    pub status: watch::Receiver<Arc<Status>>,
}

/// Owns the feeds.
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
    /// Makes the task and its handle. Without a journal events are not written down.
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

    /// Listens until `stop`, or until nobody sends settings any more.
    pub async fn run(mut self, stop: CancellationToken) {
        // Without a sender of settings nobody wants it any more.
        while !stop.is_cancelled() && self.settings.has_changed().is_ok() {
            let follow = *self.settings.borrow_and_update();
            if follow.enabled {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.listen() => {}
                }
                // What waits is written before its time.
                self.write(Instant::now() + follow.max_write_delay);
                continue;
            }
            self.listener.begin_anew();
            self.tell(Instant::now());
            self.status.send_replace(Arc::default());
            tokio::select! {
                () = stop.cancelled() => {}
                changed = self.settings.changed() => if changed.is_err() { return },
                // It is not to be written down.
                noticed = next_of(&mut self.noticed) => self.scanner.settle(noticed.number),
            }
        }
    }

    /// Follows the feeds that are there now, until others are, or none are to be followed.
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

    /// Tells the scanner what is due.
    fn tell(&mut self, now: Instant) {
        let Some(news) = self.listener.news(now) else { return };
        if let Some(Command::Heard(news)) = self.scanner.send(Command::Heard(news)) {
            let follow = *self.settings.borrow();
            self.listener.not_told(news, &follow, now);
        }
    }

    /// Writes down what is due.
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

/// What the scanner noticed next; waits for ever where it is gone. Cancel-safe.
async fn next_of(noticed: &mut broadcast::Receiver<Noticed>) -> Noticed {
    loop {
        match noticed.recv().await {
            Ok(noticed) => return noticed,
            Err(broadcast::error::RecvError::Lagged(batches)) => {
                tracing::warn!(batches, "what the scanner noticed of databases was missed");
            }
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
