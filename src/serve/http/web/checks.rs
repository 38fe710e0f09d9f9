//! Whose password is checked next.
//!
//! Owns the line of those who wait for it. A check takes a core for a while, and whoever likes
//! can send wrong passwords: addresses take turns, so that one that sends many delays itself;
//! of one address the newest is next, and those that are too many are refused, the oldest
//! first. What is remembered as right never comes here.

use crate::serve::http::peer::Peer;
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::available_parallelism,
};
use tokio_util::sync::CancellationToken;

/// How many of one address may wait, and how many of all.
const OF_ONE: usize = 8;
const OF_ALL: usize = 256;

/// At most so many are checked at a time, and half the cores.
const AT_A_TIME: usize = 4;

/// One that waits.
#[derive(Clone, Debug)]
struct Ticket {
    of: Peer,
    /// It is its turn.
    called: CancellationToken,
    /// There is no place for it any more.
    refused: CancellationToken,
}

/// Who wait, and how many are being checked.
#[derive(Debug, Default)]
struct Line {
    /// Who wait, each address with its own in the order in which they came; the address whose
    /// turn is next stands first.
    waiting: Vec<(Peer, Vec<Arc<Ticket>>)>,
    /// How many are being checked.
    checked: usize,
}

impl Line {
    /// Takes one more in; answers who has to go for it.
    fn join(&mut self, ticket: &Arc<Ticket>) -> Option<Arc<Ticket>> {
        let at = self.waiting.iter().position(|(of, _)| *of == ticket.of);
        let at = at.unwrap_or_else(|| {
            self.waiting.push((ticket.of, Vec::new()));
            self.waiting.len() - 1
        });
        let (_, own) = self.waiting.get_mut(at)?;
        own.push(Arc::clone(ticket));
        let one_too_many = own.len() > OF_ONE;
        let all: usize = self.waiting.iter().map(|(_, own)| own.len()).sum();
        let longest = self.waiting.iter_mut().max_by_key(|(_, own)| own.len());
        let goes = match (one_too_many, longest) {
            (true, _) => self.waiting.get_mut(at).map(|(_, own)| own.remove(0)),
            (false, Some((_, own))) if all > OF_ALL => Some(own.remove(0)),
            (false, _) => None,
        };
        self.waiting.retain(|(_, own)| !own.is_empty());
        goes
    }

    /// Calls the next one, where there is one and room for it.
    fn call(&mut self, at_a_time: usize) -> Option<Arc<Ticket>> {
        if self.checked >= at_a_time || self.waiting.is_empty() {
            return None;
        }
        let (of, mut own) = self.waiting.remove(0);
        let next = own.pop();
        if !own.is_empty() {
            self.waiting.push((of, own));
        }
        self.checked += usize::from(next.is_some());
        next
    }

    /// Lets one go that waits no longer, or whose check is over.
    fn leave(&mut self, ticket: &Arc<Ticket>) {
        if ticket.called.is_cancelled() {
            self.checked = self.checked.saturating_sub(1);
            return;
        }
        for (_, own) in &mut self.waiting {
            own.retain(|other| !Arc::ptr_eq(other, ticket));
        }
        self.waiting.retain(|(_, own)| !own.is_empty());
    }
}

/// The line, to wait in.
#[derive(Debug)]
pub(super) struct Checks {
    line: Mutex<Line>,
    at_a_time: usize,
}

impl Default for Checks {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self::new((cores / 2).clamp(1, AT_A_TIME))
    }
}

impl Checks {
    pub(super) fn new(at_a_time: usize) -> Self {
        Self { line: Mutex::default(), at_a_time }
    }

    /// Waits for a turn; `None` where there is no place to wait.
    pub(super) async fn turn(self: &Arc<Self>, of: Peer) -> Option<Turn> {
        let (called, refused) = (CancellationToken::new(), CancellationToken::new());
        let ticket = Arc::new(Ticket { of, called, refused });
        // Before it waits: whoever goes away leaves the line, or gives the turn on.
        let turn = Turn { checks: Arc::clone(self), ticket: Arc::clone(&ticket) };
        self.change(|line| {
            if let Some(goes) = line.join(&ticket) {
                goes.refused.cancel();
            }
        });
        tokio::select! {
            biased;
            () = ticket.called.cancelled() => Some(turn),
            () = ticket.refused.cancelled() => None,
        }
    }

    /// Changes the line, and calls whoever may then be checked. All under the lock: one that is
    /// called has left the line for all who look.
    fn change(&self, change: impl FnOnce(&mut Line)) {
        // Nothing in here panics; where it did, the line would still be one.
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut line);
        while let Some(next) = line.call(self.at_a_time) {
            next.called.cancel();
        }
    }
}

/// A turn, or the wait for it; given on when it is over.
#[derive(Debug)]
pub(super) struct Turn {
    checks: Arc<Checks>,
    ticket: Arc<Ticket>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.checks.change(|line| line.leave(&self.ticket));
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
    fn waits(checks: &Arc<Checks>, last: u8) -> BoxFuture<'static, Option<Turn>> {
        let checks = Arc::clone(checks);
        let mut waits = async move { checks.turn(peer(last)).await }.boxed();
        // It stands in the line from its first look on.
        assert!((&mut waits).now_or_never().is_none(), "somebody is checked");
        waits
    }

    #[tokio::test]
    async fn addresses_take_turns_and_of_one_the_newest_is_next() {
        let checks = Arc::new(Checks::new(1));
        let first = checks.turn(peer(1)).await.unwrap();
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
        let checks = Arc::new(Checks::new(1));
        let first = checks.turn(peer(1)).await.unwrap();
        let (two, three) = (waits(&checks, 2), waits(&checks, 3));
        drop(two);
        drop(first);
        // It was called, and never looked.
        drop(three);
        let four = checks.turn(peer(4)).now_or_never().expect("nobody is checked");
        drop(four);
        let line = checks.line.lock().unwrap();
        assert_eq!((line.checked, line.waiting.len()), (0, 0));
    }

    #[tokio::test]
    async fn so_many_wait_at_most() {
        let checks = Arc::new(Checks::new(1));
        let _first = checks.turn(peer(1)).await.unwrap();
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
