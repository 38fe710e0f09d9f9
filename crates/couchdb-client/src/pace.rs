//! The pace of cold reads: each may cost the server an fsync.

use governor::{
    Quota, RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{InMemoryState, NotKeyed},
};
use std::num::NonZeroU32;
use tokio::time::Instant;

/// Tokio's clock for the limiter, so that paused time moves it.
#[derive(Clone, Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Lets so many through in a second.
#[derive(Debug)]
pub(super) struct Pace {
    limiter: RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Nanos>>,
    clock: TokioClock,
}

impl Pace {
    /// So many a second, evenly but for a tenth at once; `None` for 0, which is unpaced.
    pub(super) fn new(per_second: u32) -> Option<Self> {
        let rate = NonZeroU32::new(per_second)?;
        let burst = NonZeroU32::new(per_second / 10).unwrap_or(NonZeroU32::MIN);
        let clock = TokioClock(Instant::now());
        let quota = Quota::per_second(rate).allow_burst(burst);
        Some(Self { limiter: RateLimiter::direct_with_clock(quota, clock.clone()), clock })
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self) {
        while let Err(early) = self.limiter.check() {
            tokio::time::sleep(early.wait_time_from(self.clock.now())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pace_is_kept_on_paused_time() {
        let pace = Pace::new(50).unwrap();
        let start = Instant::now();
        for _ in 0..505 {
            pace.turn().await;
        }
        let took = start.elapsed().as_secs_f64();
        assert!((9.9..10.6).contains(&took), "{took}");
        assert!(Pace::new(0).is_none());
    }
}
