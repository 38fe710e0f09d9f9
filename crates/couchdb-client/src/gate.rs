//! The gate every request of a login passes.
//!
//! Owns whether the login may be used. Nothing goes out before one request has proved
//! it. A 401 or 403 closes the gate at once for all that has not been sent; then one
//! request decides whether the login, its session or only its privileges fell short. A
//! session that ended is begun again once. A login that is refused stays unused until its
//! password changes, or for longer than CouchDB locks an account.
//! [`Task`](keeper::Keeper) decides; requests wait here or fail here.

pub(super) mod keeper;
mod pass;

pub(super) use pass::Pass;

use super::{Error, credential::Credential, directory::Way, wire};
use std::sync::Arc;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

/// Requests that were refused at the same time; each waits for its verdict, so there are
/// never more than are in flight, and a full queue only makes them wait.
const COMMANDS: usize = 64;

/// How long an answer "you may not" is taken for the same without asking again.
const EXCUSED_FOR: std::time::Duration = std::time::Duration::from_secs(60);

/// Whether requests may go out.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Nobody has proved the login yet, or no server answered when it was tried.
    Unproved {
        /// How often it was tried.
        attempt: u64,
        /// What the last try ended with.
        why: Option<Error>,
    },
    /// One request is on its way.
    Proving {
        /// How often it was tried before.
        attempt: u64,
        /// The generation of the login that is tried again; 0 for the first.
        generation: u64,
    },
    /// Proved.
    Open(Arc<Pass>),
    /// Refused.
    Closed {
        /// By whom, and what to do.
        why: Arc<str>,
    },
}

/// What becomes of a request that was refused.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Send it again: the login has changed, or the refusal needs another look.
    Again,
    /// The login is right but may not read this.
    Forbidden,
    /// Nothing more is sent.
    Failed(Error),
}

/// What a request tells the keeper.
#[derive(Debug)]
pub(super) enum Command {
    /// A request waits for the login to be proved.
    Wanted {
        /// How often it had been tried when the request came.
        attempt: u64,
    },
    /// A request was refused.
    Refused {
        /// The way it went.
        way: Way,
        /// The pass it had.
        pass: Arc<Pass>,
        /// How it showed it.
        credential: Credential,
        /// What was answered.
        said: Said,
        /// For the verdict.
        verdict: oneshot::Sender<Verdict>,
    },
}

/// A refusal.
#[derive(Clone, Debug)]
pub(super) struct Said {
    /// 401 or 403.
    pub(super) status: u16,
    /// The words, without the login.
    pub(super) reason: Arc<str>,
    /// Whether the words speak of the login itself.
    pub(super) of_login: bool,
}

/// The side of the gate that requests see.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    state: watch::Sender<State>,
    commands: mpsc::Sender<Command>,
}

/// Whether a refusal speaks of the login, and not of what it may do
/// (`couch_httpd_auth:default_authentication_handler/2`,
/// `chttpd_auth_lockout`'s "temporarily locked").
pub(super) fn speaks_of_login(refusal: &wire::Refusal) -> bool {
    let reason = refusal.reason.as_deref().unwrap_or_default().to_ascii_lowercase();
    reason.contains("password") || reason.contains("locked")
}

impl Gate {
    pub(super) fn new() -> (Self, mpsc::Receiver<Command>) {
        let (commands, orders) = mpsc::channel(COMMANDS);
        let state = watch::Sender::new(State::Unproved { attempt: 0, why: None });
        (Self { state, commands }, orders)
    }

    /// The generation of the login in use; 0 where none is.
    pub(super) fn generation(&self) -> u64 {
        match &*self.state.borrow() {
            State::Open(pass) => pass.generation,
            State::Proving { generation, .. } => *generation,
            State::Unproved { .. } | State::Closed { .. } => 0,
        }
    }

    /// Whether `pass` is the one to use at this moment.
    pub(super) fn is_current(&self, pass: &Pass) -> bool {
        matches!(&*self.state.borrow(), State::Open(open) if open.epoch == pass.epoch)
    }

    /// Whether the login was refused, or could not be proved.
    pub(super) fn is_shut(&self) -> bool {
        matches!(&*self.state.borrow(), State::Closed { .. } | State::Unproved { .. })
    }

    /// Whether the login was refused, so that nothing is sent.
    pub(super) fn is_closed(&self) -> bool {
        matches!(&*self.state.borrow(), State::Closed { .. })
    }

    /// Waits until the login is proved.
    pub(super) async fn pass(&self) -> Result<Arc<Pass>, Error> {
        let first = match &*self.state.borrow() {
            State::Open(pass) => return Ok(Arc::clone(pass)),
            State::Closed { why } => return Err(Error::LoginClosed { why: Arc::clone(why) }),
            State::Unproved { attempt, .. } | State::Proving { attempt, .. } => *attempt,
        };
        let mut states = self.state.subscribe();
        // A full queue holds refusals, which make the keeper prove the login anyway.
        let _full = self.commands.try_send(Command::Wanted { attempt: first });
        loop {
            match &*states.borrow_and_update() {
                State::Open(pass) => return Ok(Arc::clone(pass)),
                State::Closed { why } => return Err(Error::LoginClosed { why: Arc::clone(why) }),
                State::Unproved { attempt, why: Some(why) } if *attempt > first => {
                    return Err(Error::unproved(why.clone()));
                }
                State::Unproved { .. } | State::Proving { .. } => {}
            }
            tokio::select! {
                changed = states.changed() => changed.map_err(|_| Error::Stopped)?,
                () = self.commands.closed() => return Err(Error::Stopped),
            }
        }
    }

    /// Closes the gate for everything not yet sent, and asks what the refusal of one
    /// request means.
    pub(super) async fn refused(
        &self,
        way: &Way,
        pass: &Arc<Pass>,
        credential: &Credential,
        said: Said,
    ) -> Verdict {
        if !pass.is_login() || (!said.of_login && pass.excuses(&said.reason)) {
            return Verdict::Forbidden;
        }
        self.state.send_if_modified(|state| {
            let current = matches!(state, State::Open(open) if open.epoch == pass.epoch);
            if current {
                *state = State::Proving { attempt: pass.epoch, generation: pass.generation };
            }
            current
        });
        let (verdict, answer) = oneshot::channel();
        let (pass, credential) = (Arc::clone(pass), credential.clone());
        let command = Command::Refused { way: way.clone(), pass, credential, said, verdict };
        if self.commands.send(command).await.is_err() {
            return Verdict::Failed(Error::Stopped);
        }
        answer.await.unwrap_or(Verdict::Failed(Error::Stopped))
    }
}

/// What stands behind "you may not": a reason that was looked into, for a while.
#[derive(Clone, Debug)]
pub(super) struct Excuse {
    reason: Arc<str>,
    until: Instant,
}

#[cfg(test)]
mod tests;
