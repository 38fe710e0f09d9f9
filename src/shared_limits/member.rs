//! What a member may do, according to the answers that it received. Pure.

use super::{Allowance, Lease};
use crate::model::share::Share;
use std::time::Duration;
use tokio::time::Instant;
use wall_clock::{Clock, Moment};

/// No keeper grants longer leases.
const MAX_LEASE: Duration = Duration::from_secs(3_600);

/// A moment on two clocks: one may stop while the machine sleeps, the other may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// On the clock that is never set.
    pub elapsed: Instant,
    /// On the wall clock.
    pub wall: Moment,
}

impl Now {
    /// The present.
    pub fn read(clock: Clock) -> Self {
        Self { elapsed: Instant::now(), wall: clock.now() }
    }

    /// How long ago an earlier moment is, by whichever clock says more.
    fn since(self, earlier: Self) -> Duration {
        let elapsed = self.elapsed.saturating_duration_since(earlier.elapsed);
        // Seconds of the wall clock are rounded down.
        let wall = earlier.wall.age(self.wall);
        elapsed.max(wall)
    }
}

/// The newest answer of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    asked_at: Now,
    lease: Lease,
    lasts: Duration,
}

/// The keeper's grant to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The keeper's last word on what it may use without a lease, in this process or an earlier one.
    own_share: Share,
    answer: Option<Answer>,
}

impl Granted {
    /// The share without a lease that an earlier process was granted; nothing if it never received an answer.
    pub const fn stored(own_share: Share) -> Self {
        Self { own_share, answer: None }
    }

    /// The share without a lease, to be stored.
    pub const fn own_share(&self) -> Share {
        self.own_share
    }

    /// Number of the newest lease; 0 if there was none.
    pub const fn acts_on(&self) -> u64 {
        match self.answer {
            Some(answer) => answer.lease.id,
            None => 0,
        }
    }

    /// How long the newest lease lasts, counted from its request.
    pub fn lasts(&self) -> Option<Duration> {
        Some(self.answer?.lasts)
    }

    /// The grant after the answer to the newest request.
    pub fn answered(asked_at: Now, lease: Lease) -> Self {
        let lasts = Duration::from_millis(lease.lasts_ms).min(MAX_LEASE);
        let answer = Answer { asked_at, lease, lasts };
        Self { own_share: lease.own_share, answer: Some(answer) }
    }

    /// What it may use now.
    pub fn allowed(&self, now: Now) -> Share {
        self.lease(now).map_or(self.own_share, |(lease, _)| lease)
    }

    /// What it may use now, and until when by the wall clock.
    pub fn allowance(&self, now: Now) -> Allowance {
        // The wall clock has whole seconds.
        let until = self.lease(now).map(|(_, left)| now.wall.plus(left + Duration::from_secs(1)));
        let most = self.answer.map_or(Share::ALL, |answer| answer.lease.most);
        Allowance { share: self.allowed(now), until, most }
    }

    /// The current lease, and how long it still lasts.
    pub fn lease(&self, now: Now) -> Option<(Share, Duration)> {
        let Answer { asked_at, lease, lasts } = self.answer?;
        let left = lasts.checked_sub(now.since(asked_at))?;
        (!left.is_zero()).then_some((lease.lease, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Share = Share { jobs: 1, bytes_per_hour: 10 };
    const LEASED: Share = Share { jobs: 4, bytes_per_hour: 40 };

    fn lease(id: u64) -> Lease {
        Lease { id, lease: LEASED, lasts_ms: 60_000, own_share: OWN, most: LEASED }
    }

    #[tokio::test(start_paused = true)]
    async fn lease_ends_when_either_of_two_clocks_says_so() {
        let (start, wall) = (Instant::now(), Moment::from_unix(1_000));
        let at = |elapsed: u64, wall: u64| Now {
            elapsed: start + Duration::from_secs(elapsed),
            wall: Moment::from_unix(wall),
        };
        let asked = Now { elapsed: start, wall };
        let never = Granted::default();
        assert_eq!((never.allowed(asked), never.acts_on()), (Share::NONE, 0));
        let granted = Granted::answered(asked, lease(7));
        for (now, allowed, what) in [
            (at(0, 1_000), LEASED, "at once"),
            (at(59, 1_059), LEASED, "before the end"),
            (at(60, 1_059), OWN, "at the end"),
            (at(1, 1_060), OWN, "the machine slept"),
            (at(59, 900), LEASED, "the clock was set back"),
            (at(60, 900), OWN, "the clock was set back, at the end"),
        ] {
            assert_eq!(granted.allowed(now), allowed, "{what}");
        }
        assert_eq!(granted.lease(at(45, 1_000)), Some((LEASED, Duration::from_secs(15))));
    }

    #[tokio::test(start_paused = true)]
    async fn lease_lasts_at_most_an_hour_whatever_the_keeper_says() {
        let now = Now { elapsed: Instant::now(), wall: Moment::from_unix(1_000) };
        let endless = Lease { lasts_ms: u64::MAX, ..lease(1) };
        let granted = Granted::answered(now, endless);
        assert_eq!(granted.lasts(), Some(MAX_LEASE));
        let until = Moment::from_unix(1_000 + 3_600 + 1);
        assert_eq!(
            granted.allowance(now),
            Allowance { share: LEASED, until: Some(until), most: LEASED }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn own_share_stored_without_a_lease_is_allowed_after_a_restart() {
        let now = Now { elapsed: Instant::now(), wall: Moment::from_unix(1_000) };
        assert_eq!(Granted::stored(OWN).allowed(now), OWN);
    }
}
