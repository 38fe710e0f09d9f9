//! The queue of password checks.
//!
//! Owns the logins that wait for their check. A check uses a core for a while, and anybody can
//! send wrong passwords. So addresses take turns, and one that sends many delays only itself. Of
//! one address the newest login is next; if too many wait, the oldest is refused: whoever logs in
//! behind the same proxy as an attacker is not always last. A semaphore for each address would
//! refuse the newest, and a flood would lock out all others behind the proxy. Passwords that were
//! verified before are not queued.

use crate::serve::http::peer::Peer;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    thread::available_parallelism,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The maximum number of waiting logins of one address, and of addresses with such logins.
const MAX_PER_ADDRESS: usize = 8;
const MAX_ADDRESSES: usize = 256;

/// The maximum number of concurrent checks; also at most half the cores.
const MAX_CONCURRENT: usize = 4;

/// The permission to check a password; dropping it lets the next check start.
pub(super) type CheckSlot = OwnedSemaphorePermit;

/// The waiting logins of one address, the newest last.
#[derive(Debug)]
struct Address {
    waiting: VecDeque<oneshot::Sender<CheckSlot>>,
    /// Held by the login that waits for a slot on behalf of all.
    turn: Arc<Semaphore>,
}

/// The shared queue.
#[derive(Debug)]
pub(super) struct PasswordQueue {
    addresses: Mutex<HashMap<Peer, Address>>,
    slots: Arc<Semaphore>,
}

impl Default for PasswordQueue {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self::new((cores / 2).clamp(1, MAX_CONCURRENT))
    }
}

impl PasswordQueue {
    pub(super) fn new(max_concurrent: usize) -> Self {
        Self { addresses: Mutex::default(), slots: Arc::new(Semaphore::new(max_concurrent)) }
    }

    /// Waits until the password may be checked; `None` if the queue is full.
    pub(super) async fn acquire(&self, of: Peer) -> Option<CheckSlot> {
        let (called, mut call) = oneshot::channel();
        let turn = self.push(of, called)?;
        loop {
            tokio::select! {
                biased;
                slot = &mut call => return slot.ok(),
                slot = self.next_slot(&turn) => self.call_newest(of, slot?),
            }
        }
    }

    /// Waits for a slot on behalf of an address. `None` never occurs, because nothing closes the
    /// semaphores.
    async fn next_slot(&self, turn: &Semaphore) -> Option<CheckSlot> {
        let _turn = turn.acquire().await.ok()?;
        Arc::clone(&self.slots).acquire_owned().await.ok()
    }

    /// Adds a login, and refuses the oldest of its address if too many wait.
    fn push(&self, of: Peer, called: oneshot::Sender<CheckSlot>) -> Option<Arc<Semaphore>> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.retain(|_, it| {
            it.waiting.retain(|called| !called.is_closed());
            !it.waiting.is_empty()
        });
        if addresses.len() >= MAX_ADDRESSES && !addresses.contains_key(&of) {
            return None;
        }
        let address = addresses.entry(of).or_insert_with(|| Address {
            waiting: VecDeque::new(),
            turn: Arc::new(Semaphore::new(1)),
        });
        address.waiting.push_back(called);
        if address.waiting.len() > MAX_PER_ADDRESS {
            address.waiting.pop_front();
        }
        Some(Arc::clone(&address.turn))
    }

    /// Gives the slot to the newest login of the address that still waits.
    fn call_newest(&self, of: Peer, mut slot: CheckSlot) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = addresses.get_mut(&of).map(|address| &mut address.waiting);
        for called in waiting.into_iter().flat_map(|all| std::iter::from_fn(|| all.pop_back())) {
            match called.send(slot) {
                Ok(()) => return,
                Err(unused) => slot = unused,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinSet, yield_now};

    fn peer(last: u8) -> Peer {
        Peer::Tcp(std::net::Ipv4Addr::new(10, 0, 0, last).into())
    }

    /// Logins that wait, numbered in order of arrival.
    struct Waiting {
        checks: Arc<PasswordQueue>,
        tasks: JoinSet<()>,
        /// Which were called (`true`) or refused, in this order.
        ended: Arc<Mutex<Vec<(usize, bool)>>>,
    }

    impl Waiting {
        async fn new(addresses: impl Iterator<Item = u8>) -> (CheckSlot, Self) {
            let checks = Arc::new(PasswordQueue::new(1));
            let first = checks.acquire(peer(0)).await.unwrap();
            let mut waiting = Self { checks, tasks: JoinSet::new(), ended: Arc::default() };
            for (number, address) in addresses.enumerate() {
                let (checks, ended) = (Arc::clone(&waiting.checks), Arc::clone(&waiting.ended));
                waiting.tasks.spawn(async move {
                    let slot = checks.acquire(peer(address)).await;
                    ended.lock().unwrap().push((number, slot.is_some()));
                });
                yield_now().await;
            }
            (first, waiting)
        }

        /// Waits for all logins; returns the numbers of those that were called and of those that
        /// were refused, in order.
        async fn ends(mut self) -> [Vec<usize>; 2] {
            while let Some(ended) = self.tasks.join_next().await {
                ended.unwrap();
            }
            let ended = self.ended.lock().unwrap();
            let of = |called| ended.iter().filter(|it| it.1 == called).map(|it| it.0).collect();
            [true, false].map(of)
        }
    }

    #[tokio::test]
    async fn addresses_take_turns_and_newest_request_of_each_goes_first() {
        let (first, waiting) = Waiting::new([1; 400].into_iter().chain([2, 2, 1])).await;
        drop(first);
        let [called, refused] = waiting.ends().await;
        assert_eq!(called, [401, 402, 400, 399, 398, 397, 396, 395, 394, 393]);
        assert_eq!(refused, (0..393).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_client_that_goes_away_leaves_the_queue_and_frees_its_slot() {
        let (first, mut waiting) = Waiting::new([1, 2, 3].into_iter()).await;
        drop(first);
        // The first of them has a slot now, and was not run yet.
        waiting.tasks.shutdown().await;
        let checks = Arc::clone(&waiting.checks);
        assert_eq!(waiting.ends().await, [[0; 0], [0; 0]]);
        assert!(checks.acquire(peer(4)).await.is_some());
        assert_eq!(checks.addresses.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn each_password_check_takes_one_slot() {
        let checks = PasswordQueue::new(3);
        let [one, two] = [checks.acquire(peer(1)).await, checks.acquire(peer(1)).await];
        assert!(one.is_some() && two.is_some());
        assert_eq!(checks.slots.available_permits(), 1);
        drop(one);
        assert_eq!(checks.slots.available_permits(), 2);
    }

    #[tokio::test]
    async fn number_of_waiting_addresses_is_limited() {
        let (_first, waiting) = Waiting::new(0..=255).await;
        assert!(waiting.checks.acquire(Peer::Socket { uid: 0 }).await.is_none());
        assert_eq!(*waiting.ended.lock().unwrap(), []);
    }
}
