//! The queue of password checks.
//!
//! Owns the logins that wait for their check. A check uses a core for a while, and anybody can
//! send wrong passwords. So addresses take turns, and one that sends many delays only itself. Of
//! one address the newest login is next; if too many wait, the oldest is refused. Passwords that
//! were verified before are not queued.

use crate::serve::http::peer::Peer;
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::available_parallelism,
};
use tokio_util::sync::CancellationToken;

/// The maximum number of waiting logins of one address, and of all.
const MAX_PER_ADDRESS: usize = 8;
const MAX_WAITING: usize = 256;

/// The maximum number of concurrent checks; also at most half the cores.
const MAX_CONCURRENT: usize = 4;

/// A waiting login.
#[derive(Clone, Debug)]
struct WaitingLogin {
    address: Peer,
    /// Cancelled when its check may begin.
    called: CancellationToken,
    /// Cancelled when it is dropped from the queue.
    refused: CancellationToken,
}

/// The waiting logins, and the number of running checks.
#[derive(Debug, Default)]
struct LoginQueue {
    /// The waiting logins of each address, in order of arrival. The address whose turn is next is
    /// first.
    waiting: Vec<(Peer, Vec<Arc<WaitingLogin>>)>,
    /// The number of running checks.
    running: usize,
}

impl LoginQueue {
    /// Adds a login; returns the one that is dropped for it.
    fn push(&mut self, waiter: &Arc<WaitingLogin>) -> Option<Arc<WaitingLogin>> {
        let at = self.waiting.iter().position(|(of, _)| *of == waiter.address);
        let at = at.unwrap_or_else(|| {
            self.waiting.push((waiter.address, Vec::new()));
            self.waiting.len() - 1
        });
        let (_, own) = self.waiting.get_mut(at)?;
        own.push(Arc::clone(waiter));
        let one_too_many = own.len() > MAX_PER_ADDRESS;
        let all: usize = self.waiting.iter().map(|(_, own)| own.len()).sum();
        let longest = self.waiting.iter_mut().max_by_key(|(_, own)| own.len());
        let dropped = match (one_too_many, longest) {
            (true, _) => self.waiting.get_mut(at).map(|(_, own)| own.remove(0)),
            (false, Some((_, own))) if all > MAX_WAITING => Some(own.remove(0)),
            (false, _) => None,
        };
        self.waiting.retain(|(_, own)| !own.is_empty());
        dropped
    }

    /// Takes the next login to check, if there is one and another check may run.
    fn start_next(&mut self, at_a_time: usize) -> Option<Arc<WaitingLogin>> {
        if self.running >= at_a_time || self.waiting.is_empty() {
            return None;
        }
        let (of, mut own) = self.waiting.remove(0);
        let next = own.pop();
        if !own.is_empty() {
            self.waiting.push((of, own));
        }
        self.running += usize::from(next.is_some());
        next
    }

    /// Removes a login that no longer waits, or whose check has ended.
    fn remove(&mut self, waiter: &Arc<WaitingLogin>) {
        if waiter.called.is_cancelled() {
            self.running = self.running.saturating_sub(1);
            return;
        }
        for (_, own) in &mut self.waiting {
            own.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        self.waiting.retain(|(_, own)| !own.is_empty());
    }
}

/// The shared queue.
#[derive(Debug)]
pub(super) struct PasswordQueue {
    queue: Mutex<LoginQueue>,
    max_concurrent: usize,
}

impl Default for PasswordQueue {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self::new((cores / 2).clamp(1, MAX_CONCURRENT))
    }
}

impl PasswordQueue {
    pub(super) fn new(max_concurrent: usize) -> Self {
        Self { queue: Mutex::default(), max_concurrent }
    }

    /// Waits until the password may be checked; `None` if the queue is full.
    pub(super) async fn acquire(self: &Arc<Self>, of: Peer) -> Option<CheckSlot> {
        let (called, refused) = (CancellationToken::new(), CancellationToken::new());
        let waiter = Arc::new(WaitingLogin { address: of, called, refused });
        // Created before the wait: a client that disconnects leaves the queue or frees its slot.
        let turn = CheckSlot { queue: Arc::clone(self), waiter: Arc::clone(&waiter) };
        self.update(|queue| {
            if let Some(dropped) = queue.push(&waiter) {
                dropped.refused.cancel();
            }
        });
        tokio::select! {
            biased;
            () = waiter.called.cancelled() => Some(turn),
            () = waiter.refused.cancelled() => None,
        }
    }

    /// Changes the queue, then starts the next checks, all under the lock: a started login has
    /// left the queue for every other caller.
    fn update(&self, change: impl FnOnce(&mut LoginQueue)) {
        // Nothing in here panics. If it did, the queue would still be valid.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut queue);
        while let Some(next) = queue.start_next(self.max_concurrent) {
            next.called.cancel();
        }
    }
}

/// A running check, or the wait for it. Dropping it lets the next one start.
#[derive(Debug)]
pub(super) struct CheckSlot {
    queue: Arc<PasswordQueue>,
    waiter: Arc<WaitingLogin>,
}

impl Drop for CheckSlot {
    fn drop(&mut self) {
        self.queue.update(|queue| queue.remove(&self.waiter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, future::BoxFuture};

    fn peer(last: u8) -> Peer {
        Peer::Tcp(std::net::Ipv4Addr::new(10, 0, 0, last).into())
    }

    /// A login that waits.
    fn waits(checks: &Arc<PasswordQueue>, last: u8) -> BoxFuture<'static, Option<CheckSlot>> {
        let checks = Arc::clone(checks);
        let mut waits = async move { checks.acquire(peer(last)).await }.boxed();
        // It stands in the line from its first look on.
        assert!((&mut waits).now_or_never().is_none(), "somebody is checked");
        waits
    }

    #[tokio::test]
    async fn addresses_take_turns_and_of_one_the_newest_is_next() {
        let checks = Arc::new(PasswordQueue::new(1));
        let first = checks.acquire(peer(1)).await.unwrap();
        let mut many: Vec<_> = (0..400).map(|_| waits(&checks, 1)).collect();
        let other = waits(&checks, 2);
        let right = waits(&checks, 1);
        // All but the newest eight of the address were told so.
        for old in many.drain(..393) {
            assert!(old.now_or_never().is_some_and(|turn| turn.is_none()));
        }
        drop(first);
        let newest = right.now_or_never().expect("the newest of the address is next").unwrap();
        drop(newest);
        let other = other.now_or_never().expect("then the other address").unwrap();
        drop(other);
        let last = many.pop().unwrap();
        assert!(last.now_or_never().expect("then the next of the first").is_some());
    }

    #[tokio::test]
    async fn who_goes_away_gives_the_turn_on() {
        let checks = Arc::new(PasswordQueue::new(1));
        let first = checks.acquire(peer(1)).await.unwrap();
        let (two, three) = (waits(&checks, 2), waits(&checks, 3));
        drop(two);
        drop(first);
        // It was called, and never looked.
        drop(three);
        let four = checks.acquire(peer(4)).now_or_never().expect("nobody is checked");
        drop(four);
        let queue = checks.queue.lock().unwrap();
        assert_eq!((queue.running, queue.waiting.len()), (0, 0));
    }

    #[tokio::test]
    async fn so_many_wait_at_most() {
        let checks = Arc::new(PasswordQueue::new(1));
        let _first = checks.acquire(peer(1)).await.unwrap();
        let mut all: Vec<_> = (0..=255).map(|last| waits(&checks, last)).collect();
        let same = waits(&checks, 200);
        let gone: Vec<_> = all
            .iter_mut()
            .enumerate()
            .filter_map(|(at, it)| it.now_or_never().map(|turn| (at, turn.is_none())))
            .collect();
        assert_eq!(gone, [(200, true)], "the oldest of whoever has most");
        drop(same);
    }
}
