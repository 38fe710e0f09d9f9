//! The simulated cluster with its HTTP servers.
//!
//! Owns the [`World`], the users, the planned faults and the request log, and advances the world to the
//! current time before every access. The HTTP routes are in `http`. Tests, benches and the demo hold a
//! [`Cluster`], which is cheap to clone.

use super::{
    Config, ConfigError, DiskWalk, Exchange, World, access::Access, fault::Planned, wire::Log,
};
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};
use wall_clock::{Clock, Moment};

/// Marks a response as a refused connection, for transports that call a router in process: it is in the
/// response's extensions, with status 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRefused;

/// A simulated CouchDB cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    timeline: std::sync::Mutex<Timeline>,
    /// A lock instead of a task: computing a shard's numbers takes about a microsecond, a task's channel
    /// several, and benches compare clients with this server. It is held for one synchronous closure and
    /// never over an await.
    inner: std::sync::Mutex<Inner>,
}

/// How the world's time follows from tokio's clock.
#[derive(Clone, Copy, Debug)]
struct Timeline {
    /// Wall time at the world's start.
    wall: Moment,
    /// The world's age when it was last connected to a clock, and when that was.
    age: Duration,
    since: tokio::time::Instant,
}

impl Timeline {
    fn of(age: Duration, clock: Clock) -> Self {
        let wall = Moment::from_unix(clock.now().unix().saturating_sub(age.as_secs()));
        Self { wall, age, since: tokio::time::Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        self.age.saturating_add(self.since.elapsed())
    }
}

/// The state under the lock.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) world: World,
    pub(super) planned: Planned,
    pub(super) access: Access,
    pub(super) log: Log,
}

impl Cluster {
    /// A cluster that starts now, according to `clock`.
    ///
    /// # Errors
    /// The errors of [`Config::check`].
    pub fn new(config: Config, seed: u64, clock: Clock) -> Result<Self, ConfigError> {
        let (access, log) = (Access::new(&config.users), Log::of(config.records));
        let inner =
            Inner { world: World::new(config, seed)?, planned: Planned::default(), access, log };
        Ok(Self {
            shared: Arc::new(Shared {
                timeline: std::sync::Mutex::new(Timeline::of(Duration::ZERO, clock)),
                inner: std::sync::Mutex::new(inner),
            }),
        })
    }

    /// Lets the world's time continue from its last access with another clock and runtime, as after a time that was
    /// simulated ahead.
    pub fn continue_on(&self, clock: Clock) {
        let age = locked(&self.shared.inner).world.now();
        *locked(&self.shared.timeline) = Timeline::of(age, clock);
    }

    /// The latest requests, oldest first.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.locked(|inner| inner.log.kept())
    }

    /// The latest requests that were neither a read nor a login.
    pub fn write_requests(&self) -> Vec<Exchange> {
        self.locked(|inner| inner.log.orders())
    }

    /// The total number of requests.
    pub fn requests(&self) -> u64 {
        self.locked(|inner| inner.log.seen())
    }

    /// The number of failed logins of `user` that this node counts; at five it locks the user.
    pub fn failed_logins(&self, node: &str, user: &str) -> u32 {
        self.locked(|inner| inner.access.failures(node, user))
    }

    /// Clears the log of requests.
    pub fn clear_exchanges(&self) {
        self.locked(|inner| inner.log.clear());
    }

    /// Reads or changes the current world.
    pub fn world<T>(&self, read: impl FnOnce(&mut World) -> T) -> T {
        self.locked(|inner| read(&mut inner.world))
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        locked(&self.shared.timeline).elapsed()
    }

    /// What a walk over a node's directories finds; `None`: no such node.
    pub fn walk(&self, node: &str) -> Option<DiskWalk> {
        let start = self.wall_at_start();
        self.world(|world| world.walk(node, start))
    }

    /// Wall time at the start.
    pub(super) fn wall_at_start(&self) -> Moment {
        locked(&self.shared.timeline).wall
    }

    /// Wall time now, as the nodes' clocks show it.
    pub fn wall(&self) -> Moment {
        let timeline = *locked(&self.shared.timeline);
        timeline.wall.plus(timeline.elapsed())
    }

    pub(super) fn locked<T>(&self, read: impl FnOnce(&mut Inner) -> T) -> T {
        let now = self.elapsed();
        let mut inner = locked(&self.shared.inner);
        inner.world.advance(now);
        read(&mut inner)
    }
}

/// A panic inside a closure leaves only plain numbers, and tests want to continue.
fn locked<T>(state: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
