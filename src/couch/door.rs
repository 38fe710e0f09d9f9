//! One way in at which a login is checked: a server, or the node behind it.
//!
//! CouchDB checks a login where a request arrives and once more on the node it is
//! forwarded to, and each node counts bad ones by itself. So each way in is tried with
//! one request before others follow, and one that refuses is left alone for longer than
//! an account stays locked.

use arc_swap::ArcSwapOption;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Semaphore, time::Instant};

/// How long nothing is sent where a login was refused: CouchDB locks an account for five
/// minutes after five bad logins (`[chttpd_auth_lockout] max_lifetime`), and each further
/// one would keep it locked.
pub(super) const LOCKOUT: Duration = Duration::from_secs(6 * 60);

/// A way in.
#[derive(Debug)]
pub(super) struct Door {
    /// The generation of the login that was accepted here; 0 for none.
    proved: AtomicU64,
    /// Lets one proof run at a time.
    pub(super) proof: Semaphore,
    refusal: ArcSwapOption<Refusal>,
}

#[derive(Debug)]
struct Refusal {
    generation: u64,
    at: Instant,
    why: Arc<str>,
}

impl Door {
    pub(super) fn new() -> Self {
        Self {
            proved: AtomicU64::new(0),
            proof: Semaphore::new(1),
            refusal: ArcSwapOption::empty(),
        }
    }

    /// Whether the login of `generation` was accepted here.
    pub(super) fn is_open(&self, generation: u64) -> bool {
        self.proved.load(Ordering::Acquire) == generation
    }

    /// Why the login of `generation` is not tried here now.
    pub(super) fn refusal(&self, generation: u64) -> Option<Arc<str>> {
        let refusal = self.refusal.load();
        let refusal = refusal.as_ref()?;
        (refusal.generation == generation && refusal.at.elapsed() < LOCKOUT)
            .then(|| Arc::clone(&refusal.why))
    }

    /// The login of `generation` was accepted.
    pub(super) fn open(&self, generation: u64) {
        self.refusal.store(None);
        self.proved.store(generation, Ordering::Release);
    }

    /// It has to be tried again before others follow.
    pub(super) fn doubt(&self) {
        self.proved.store(0, Ordering::Release);
    }

    /// The login of `generation` was refused.
    pub(super) fn refuse(&self, generation: u64, why: Arc<str>) {
        self.doubt();
        self.refusal.store(Some(Arc::new(Refusal { generation, at: Instant::now(), why })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_lasts_longer_than_a_lockout_or_until_the_login_changes() {
        let door = Door::new();
        assert!(!door.is_open(1));
        door.refuse(1, "no".into());
        assert_eq!(door.refusal(1).as_deref(), Some("no"));
        assert_eq!(door.refusal(2), None);
        tokio::time::advance(LOCKOUT).await;
        assert_eq!(door.refusal(1), None);
        door.open(1);
        assert!(door.is_open(1) && !door.is_open(2));
    }
}
