//! The state of one connection: what it waits for, since when, and until when it may.
//!
//! Owns the times of a connection. Its own task alone writes them; the table of connections
//! reads them, to see which has waited longest. What comes of them is [`due`], which is pure.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::Poll,
    time::Duration,
};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

/// How long a whole head may take: from the connection's beginning, from the end of the
/// handshake, or from the first byte of a later request. A handshake has the same.
pub(super) const HEAD: Duration = Duration::from_secs(10);

/// How long a connection may rest between two requests: longer than scrapes usually lie
/// apart.
pub(super) const REST: Duration = Duration::from_secs(75);

/// How long a peer may take nothing of what waits to be sent to it.
pub(super) const STALL: Duration = Duration::from_secs(30);

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is open, and has not sent a whole request yet.
    Opening,
    /// Its last answer was handed out, and it has sent nothing since.
    Resting,
    /// It has begun to send another request.
    Asking,
    /// A request is worked on, or its answer is sent.
    Busy,
}

/// When a connection is closed that does this since then, and whose peer has taken nothing
/// since `stalled`.
pub(super) fn due(phase: Phase, since: Instant, stalled: Option<Instant>) -> Option<Instant> {
    let waits = match phase {
        Phase::Opening | Phase::Asking => Some(since + HEAD),
        Phase::Resting => Some(since + REST),
        Phase::Busy => None,
    };
    let stalls = stalled.map(|since| since + STALL);
    waits.into_iter().chain(stalls).min()
}

/// One connection's times.
#[derive(Debug)]
pub(super) struct Life {
    /// What the times below are counted from.
    base: Instant,
    phase: AtomicU64,
    /// Milliseconds since the base.
    since: AtomicU64,
    /// The same and one more; 0 where nothing waits to be sent.
    stalled: AtomicU64,
    /// Whether it was let in beyond the usual number, for probes and scrapes alone.
    pub(super) reserved: bool,
    /// Closes it.
    pub(super) closed: CancellationToken,
}

impl Life {
    /// Of a connection that begins now.
    pub(super) fn new(reserved: bool) -> Self {
        Self {
            base: Instant::now(),
            phase: AtomicU64::new(Phase::Opening as u64),
            since: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            reserved,
            closed: CancellationToken::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn at(&self, millis: u64) -> Instant {
        self.base + Duration::from_millis(millis)
    }

    fn phase(&self) -> Phase {
        let phase = self.phase.load(Relaxed);
        let all = [Phase::Opening, Phase::Resting, Phase::Asking];
        all.into_iter().find(|it| *it as u64 == phase).unwrap_or(Phase::Busy)
    }

    fn turns(&self, phase: Phase) {
        self.phase.store(phase as u64, Relaxed);
        self.since.store(self.now(), Relaxed);
    }

    /// It is encrypted from now on: the time for a head begins again.
    pub(super) fn agreed(&self) {
        self.turns(Phase::Opening);
    }

    /// Bytes came from the peer.
    pub(super) fn read(&self) {
        if self.phase() == Phase::Resting {
            self.turns(Phase::Asking);
        }
    }

    /// A whole head came.
    pub(super) fn asked(&self) {
        self.turns(Phase::Busy);
    }

    /// The whole answer was handed out.
    pub(super) fn answered(&self) {
        self.turns(Phase::Resting);
    }

    /// The peer takes nothing at the moment, or it took something.
    pub(super) fn stalls(&self, stalls: bool) {
        match (stalls, self.stalled.load(Relaxed)) {
            (true, 0) => self.stalled.store(self.now().saturating_add(1), Relaxed),
            (false, 1..) => self.stalled.store(0, Relaxed),
            (true, 1..) | (false, 0) => {}
        }
    }

    /// Whether its peer takes nothing at the moment.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled().is_some()
    }

    fn stalled(&self) -> Option<Instant> {
        self.stalled.load(Relaxed).checked_sub(1).map(|millis| self.at(millis))
    }

    fn due(&self) -> Option<Instant> {
        due(self.phase(), self.at(self.since.load(Relaxed)), self.stalled())
    }

    /// Since when it has waited for a request, if it does.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.phase() != Phase::Busy).then(|| self.at(self.since.load(Relaxed)))
    }

    /// Since when its peer has taken nothing, if that is longer than a pause.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        const PAUSE: Duration = Duration::from_secs(1);
        self.stalled().filter(|since| since.elapsed() >= PAUSE)
    }

    /// Goes on with a connection until it ends, is closed, or has used up its time.
    pub(super) async fn lasts(&self, connection: impl Future<Output = ()>) -> Ended {
        let (mut connection, mut closed) = (pin!(connection), pin!(self.closed.cancelled()));
        let mut timer = pin!(time::sleep_until(self.base + HEAD));
        poll_fn(|cx| {
            if closed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ended::Closed);
            }
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ended::Alone);
            }
            // The connection's times change in its own poll alone, which was just now.
            let Some(due) = self.due() else { return Poll::Pending };
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            timer.as_mut().poll(cx).map(|()| Ended::Late)
        })
        .await
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself, or by its peer.
    Alone,
    /// For another one, or with the server.
    Closed,
    /// It took too long.
    Late,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_time_and_so_has_a_peer_that_takes_nothing() {
        let now = Instant::now();
        let later = now + Duration::from_secs(5);
        for (phase, stalled, expected) in [
            (Phase::Opening, None, Some(now + HEAD)),
            (Phase::Asking, None, Some(now + HEAD)),
            (Phase::Resting, None, Some(now + REST)),
            (Phase::Resting, Some(later), Some(later + STALL)),
            (Phase::Busy, None, None),
            (Phase::Busy, Some(later), Some(later + STALL)),
            (Phase::Opening, Some(later), Some(now + HEAD)),
        ] {
            assert_eq!(due(phase, now, stalled), expected, "{phase:?} {stalled:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_lasts_as_long_as_its_phases_let_it() {
        let begun = Instant::now();
        let second = Duration::from_secs(1);
        let life = Life::new(false);
        // A request, an answer that takes an hour, a rest, and half of another head.
        let one = async {
            time::sleep(9 * second).await;
            life.asked();
            time::sleep(3_600 * second).await;
            life.answered();
            time::sleep(70 * second).await;
            life.read();
            std::future::pending::<()>().await;
        };
        assert_eq!(life.lasts(one).await, Ended::Late);
        assert_eq!(begun.elapsed(), (9 + 3_600 + 70 + 10) * second);

        let (begun, life) = (Instant::now(), Life::new(false));
        let stalled = async {
            life.asked();
            for _ in 0..3 {
                life.stalls(true);
                time::sleep(29 * second).await;
                life.stalls(false);
            }
            life.stalls(true);
            time::sleep(20 * second).await;
            // That nothing more could be written says nothing new.
            life.stalls(true);
            std::future::pending::<()>().await;
        };
        assert_eq!(life.lasts(stalled).await, Ended::Late);
        assert_eq!(begun.elapsed(), (3 * 29 + 30) * second);

        let life = Life::new(false);
        assert_eq!(life.lasts(async {}).await, Ended::Alone);
        life.closed.cancel();
        assert_eq!(life.lasts(std::future::pending()).await, Ended::Closed);
    }
}
