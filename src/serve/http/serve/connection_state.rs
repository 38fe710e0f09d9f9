//! The state of one connection: its phase, when that began, and when it times out.
//!
//! Owns the timestamps of a connection. Only the connection's task writes them; the table of
//! connections reads them to find the longest idle one. [`deadline`] is a pure function of them.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::Poll,
    time::Duration,
};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

/// The time for a complete request head: from the start of the connection, from the end of the
/// TLS handshake, or from the first byte of a later request. Also the time for a handshake.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be idle between two requests: longer than the usual scrape
/// interval.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a peer may leave sent data unread.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is open, and its first request is incomplete.
    Opening,
    /// Its last response was sent, and no byte has arrived since.
    Idle,
    /// Part of another request has arrived.
    ReadingHead,
    /// A request is being processed, or its response is being sent.
    Busy,
}

/// When a connection times out that has been in `phase` since `since`, and whose peer has not
/// read since `stalled`.
pub(super) fn deadline(phase: Phase, since: Instant, stalled: Option<Instant>) -> Option<Instant> {
    let waits = match phase {
        Phase::Opening | Phase::ReadingHead => Some(since + HEAD_TIMEOUT),
        Phase::Idle => Some(since + IDLE_TIMEOUT),
        Phase::Busy => None,
    };
    let stalls = stalled.map(|since| since + STALL_TIMEOUT);
    waits.into_iter().chain(stalls).min()
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// The origin of the timestamps below.
    base: Instant,
    phase: AtomicU64,
    /// Milliseconds since `base`.
    since: AtomicU64,
    /// Milliseconds since `base`, plus one; 0 if no data waits to be sent.
    stalled: AtomicU64,
    /// Whether it was accepted above the limit, for probes and scrapes only.
    pub(super) reserved: bool,
    /// Closes the connection when cancelled.
    pub(super) close: CancellationToken,
}

impl ConnectionState {
    /// The state of a connection that begins now.
    pub(super) fn new(reserved: bool) -> Self {
        Self {
            base: Instant::now(),
            phase: AtomicU64::new(Phase::Opening as u64),
            since: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            reserved,
            close: CancellationToken::new(),
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
        let all = [Phase::Opening, Phase::Idle, Phase::ReadingHead];
        all.into_iter().find(|it| *it as u64 == phase).unwrap_or(Phase::Busy)
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u64, Relaxed);
        self.since.store(self.now(), Relaxed);
    }

    /// The TLS handshake is complete; the time for a head begins again.
    pub(super) fn tls_established(&self) {
        self.set_phase(Phase::Opening);
    }

    /// Bytes arrived from the peer.
    pub(super) fn bytes_received(&self) {
        if self.phase() == Phase::Idle {
            self.set_phase(Phase::ReadingHead);
        }
    }

    /// A complete head arrived.
    pub(super) fn request_received(&self) {
        self.set_phase(Phase::Busy);
    }

    /// The complete response was sent.
    pub(super) fn response_finished(&self) {
        self.set_phase(Phase::Idle);
    }

    /// Records whether the peer currently reads what is sent to it.
    pub(super) fn set_stalled(&self, stalls: bool) {
        match (stalls, self.stalled.load(Relaxed)) {
            (true, 0) => self.stalled.store(self.now().saturating_add(1), Relaxed),
            (false, 1..) => self.stalled.store(0, Relaxed),
            (true, 1..) | (false, 0) => {}
        }
    }

    /// Whether the peer currently does not read.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled().is_some()
    }

    fn stalled(&self) -> Option<Instant> {
        self.stalled.load(Relaxed).checked_sub(1).map(|millis| self.at(millis))
    }

    fn deadline(&self) -> Option<Instant> {
        deadline(self.phase(), self.at(self.since.load(Relaxed)), self.stalled())
    }

    /// When the connection became idle, if it is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.phase() != Phase::Busy).then(|| self.at(self.since.load(Relaxed)))
    }

    /// When the peer stopped reading, if that was longer ago than a short pause.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        const PAUSE: Duration = Duration::from_secs(1);
        self.stalled().filter(|since| since.elapsed() >= PAUSE)
    }

    /// Polls a connection until it ends, is closed, or times out.
    pub(super) async fn run(&self, connection: impl Future<Output = ()>) -> Ended {
        let (mut connection, mut closed) = (pin!(connection), pin!(self.close.cancelled()));
        let mut timer = pin!(time::sleep_until(self.base + HEAD_TIMEOUT));
        poll_fn(|cx| {
            if closed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ended::Closed);
            }
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ended::Finished);
            }
            // Only the connection's own poll, just above, changes its state.
            let Some(due) = self.deadline() else { return Poll::Pending };
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            timer.as_mut().poll(cx).map(|()| Ended::TimedOut)
        })
        .await
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself, or by its peer.
    Finished,
    /// In favour of another connection, or at shutdown.
    Closed,
    /// It timed out.
    TimedOut,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_time_and_so_has_a_peer_that_takes_nothing() {
        let now = Instant::now();
        let later = now + Duration::from_secs(5);
        for (phase, stalled, expected) in [
            (Phase::Opening, None, Some(now + HEAD_TIMEOUT)),
            (Phase::ReadingHead, None, Some(now + HEAD_TIMEOUT)),
            (Phase::Idle, None, Some(now + IDLE_TIMEOUT)),
            (Phase::Idle, Some(later), Some(later + STALL_TIMEOUT)),
            (Phase::Busy, None, None),
            (Phase::Busy, Some(later), Some(later + STALL_TIMEOUT)),
            (Phase::Opening, Some(later), Some(now + HEAD_TIMEOUT)),
        ] {
            assert_eq!(deadline(phase, now, stalled), expected, "{phase:?} {stalled:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_lasts_as_long_as_its_phases_let_it() {
        let begun = Instant::now();
        let second = Duration::from_secs(1);
        let state = ConnectionState::new(false);
        // A request, an answer that takes an hour, a rest, and half of another head.
        let one = async {
            time::sleep(9 * second).await;
            state.request_received();
            time::sleep(3_600 * second).await;
            state.response_finished();
            time::sleep(70 * second).await;
            state.bytes_received();
            std::future::pending::<()>().await;
        };
        assert_eq!(state.run(one).await, Ended::TimedOut);
        assert_eq!(begun.elapsed(), (9 + 3_600 + 70 + 10) * second);

        let (begun, state) = (Instant::now(), ConnectionState::new(false));
        let stalled = async {
            state.request_received();
            for _ in 0..3 {
                state.set_stalled(true);
                time::sleep(29 * second).await;
                state.set_stalled(false);
            }
            state.set_stalled(true);
            time::sleep(20 * second).await;
            // That nothing more could be written says nothing new.
            state.set_stalled(true);
            std::future::pending::<()>().await;
        };
        assert_eq!(state.run(stalled).await, Ended::TimedOut);
        assert_eq!(begun.elapsed(), (3 * 29 + 30) * second);

        let state = ConnectionState::new(false);
        assert_eq!(state.run(async {}).await, Ended::Finished);
        state.close.cancel();
        assert_eq!(state.run(std::future::pending()).await, Ended::Closed);
    }
}
