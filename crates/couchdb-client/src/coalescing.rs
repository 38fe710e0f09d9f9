//! Answers that come close together are read together.
//!
//! Owns how long the thread that reads answers may stay asleep although one has come; the
//! transport tells how many are awaited and how long they take. Never holds up a few requests
//! alone, nor any for more than a small part of what they take anyway. The commands that look
//! once use it (`cli`): a service has others to answer.
//!
//! Beside a busy CouchDB every wake-up finds the processor's caches full of CouchDB, and that
//! costs more than the answer itself. Network cards do the same with their interrupts (adaptive
//! interrupt moderation).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

/// With fewer requests in flight there is nothing to bring together.
const FEW: usize = 4;

/// The part of an answer's time that may be slept. A server that is busy has others to answer
/// meanwhile; one that is never busy is asked a little less often (a twentieth, measured where
/// every answer takes 2 or 5 ms).
const PART: u32 = 5;

/// The longest sleep: an answer may take minutes.
const LONGEST: Duration = Duration::from_millis(5);

/// How much the last answer counts against those before it: an eighth, as in TCP's round-trip
/// time (RFC 6298).
const WEIGHT: u64 = 8;

/// How many answers are awaited, and how long they take.
#[derive(Clone, Debug, Default)]
pub struct Coalescing(Arc<Answers>);

#[derive(Debug, Default)]
struct Answers {
    awaited: AtomicUsize,
    /// How many came since the thread last had nothing to do.
    came: AtomicUsize,
    /// How long one takes, in nanoseconds; 0 before the first.
    takes: AtomicU64,
}

/// A request whose answer is awaited, until this is dropped.
#[derive(Debug)]
pub(super) struct Awaited<'a> {
    answers: &'a Answers,
    since: Instant,
}

impl Coalescing {
    /// A request goes out.
    pub(super) fn awaited(&self) -> Awaited<'_> {
        self.0.awaited.fetch_add(1, Relaxed);
        Awaited { answers: &self.0, since: Instant::now() }
    }

    /// How long to sleep before looking for answers again: not at all where several came at once
    /// the last time, because what was sent at once mostly comes back so.
    fn pause(&self) -> Duration {
        let alone = self.0.came.swap(0, Relaxed) == 1;
        if !alone || self.0.awaited.load(Relaxed) < FEW {
            return Duration::ZERO;
        }
        (Duration::from_nanos(self.0.takes.load(Relaxed)) / PART).min(LONGEST)
    }

    /// Sleeps for as long as answers should be left to come together. For the thread of a
    /// runtime that has nothing to do but wait for them.
    pub fn rest(&self) {
        let pause = self.pause();
        if !pause.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "the runtime is to be asleep")]
            std::thread::sleep(pause);
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let Answers { awaited, came, takes } = self.answers;
        awaited.fetch_sub(1, Relaxed);
        came.fetch_add(1, Relaxed);
        let took = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let old = takes.load(Relaxed);
        let new = if old == 0 { took } else { old - old / WEIGHT + took / WEIGHT };
        takes.store(new, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The pause after the last of several answers that took so long each and came one by one,
    /// with so many other requests in flight.
    async fn pause(others: usize, times: &[Duration]) -> Duration {
        let coalescing = Coalescing::default();
        let _others: Vec<_> = (0..others).map(|_| coalescing.awaited()).collect();
        let mut pause = coalescing.pause();
        for time in times {
            let one = coalescing.awaited();
            advance(*time).await;
            drop(one);
            pause = coalescing.pause();
        }
        pause
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_what_an_answer_takes_is_slept() {
        for (others, times, expected) in [
            (8, vec![], Duration::ZERO),
            (8, vec![ms(10)], ms(2)),
            (FEW, vec![ms(10)], ms(2)),
            (FEW - 1, vec![ms(10)], Duration::ZERO),
            (0, vec![ms(10)], Duration::ZERO),
            (8, vec![Duration::from_micros(500)], Duration::from_micros(100)),
            (8, vec![ms(10), ms(10), ms(10)], ms(2)),
            (8, vec![ms(10), ms(50)], ms(3)),
            (8, vec![Duration::from_secs(60)], LONGEST),
            (8, [ms(20)].into_iter().chain([ms(5); 60]).collect(), ms(1)),
        ] {
            let pause = pause(others, &times).await;
            let off = pause.abs_diff(expected);
            assert!(off < Duration::from_micros(10), "{others}, {times:?}: {pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_slept_where_answers_come_together_or_none_came() {
        let coalescing = Coalescing::default();
        let mut all: Vec<_> = (0..2 * FEW).map(|_| coalescing.awaited()).collect();
        advance(ms(10)).await;
        all.truncate(2 * FEW - 2);
        assert_eq!(coalescing.pause(), Duration::ZERO, "two came");
        assert_eq!(coalescing.pause(), Duration::ZERO, "none came");
        all.truncate(2 * FEW - 3);
        assert_eq!(coalescing.pause(), ms(2), "one came");
        drop(all);
        assert_eq!(coalescing.pause(), Duration::ZERO, "nothing is awaited");
    }
}
