//! The gate that every request with a login passes.
//!
//! Owns whether the login may be used. No request goes out before one request has proved the
//! login. A 401 or 403 closes the gate at once for every request not yet sent. One request then
//! finds out whether the login, its session or only its privileges were refused. An expired
//! session is renewed once. A refused login stays unused until its password changes, or for
//! longer than CouchDB locks an account. The [`LoginTask`](login_task::LoginTask) decides;
//! requests wait or fail here.

pub(super) mod login_task;
mod proven_login;

pub(super) use proven_login::ProvenLogin;

use super::{Error, credential::Credential, directory::Destination, wire};
use std::sync::Arc;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

/// Length of the queue of refused requests. Each waits for its verdict, so there are never more
/// than are in flight, and a full queue only makes them wait.
const COMMAND_QUEUE: usize = 64;

/// How long a refusal for lack of privileges is believed without checking the login again.
const PRIVILEGE_REFUSAL_TTL: std::time::Duration = std::time::Duration::from_secs(60);

/// Whether requests may go out.
#[derive(Clone, Debug)]
pub(super) enum GateState {
    /// The login is not proved yet, or no server answered the last attempt.
    Unproved {
        /// How many attempts were made.
        attempt: u64,
        /// Why the last attempt failed.
        why: Option<Error>,
    },
    /// One request that proves the login is in flight.
    Proving {
        /// How many attempts were made before.
        attempt: u64,
        /// The generation of the login being proved again; 0 for the first.
        generation: u64,
    },
    /// Proved.
    Open(Arc<ProvenLogin>),
    /// Refused.
    Closed {
        /// Who refused it, and what to do.
        why: Arc<str>,
    },
}

/// What to do with a refused request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Send it again: the login has changed, or the refusal was not final.
    Again,
    /// Give up: the login is valid but lacks the privilege.
    Forbidden,
    /// Give up: the login cannot be used.
    Failed(Error),
}

/// A message from a request to the login task.
#[derive(Debug)]
pub(super) enum GateCommand {
    /// A request waits for the login to be proved.
    ProofWanted {
        /// How many attempts had been made when the request arrived.
        attempt: u64,
    },
    /// A request was refused.
    Refused {
        /// Where it was sent.
        destination: Destination,
        /// The login it carried.
        proven: Arc<ProvenLogin>,
        /// How it carried the login.
        credential: Credential,
        /// What the server answered.
        rejection: Rejection,
        /// Where the verdict goes.
        verdict: oneshot::Sender<Verdict>,
    },
}

/// A 401 or 403 answer.
#[derive(Clone, Debug)]
pub(super) struct Rejection {
    /// 401 or 403.
    pub(super) status: u16,
    /// The server's reason, with the login redacted.
    pub(super) reason: Arc<str>,
    /// Whether the reason is about the login itself, not its privileges.
    pub(super) about_login: bool,
}

/// The handle of the gate that requests hold.
#[derive(Clone, Debug)]
pub(super) struct AuthGate {
    state: watch::Sender<GateState>,
    commands: mpsc::Sender<GateCommand>,
}

/// Whether a refusal is about the login itself, not its privileges
/// (`couch_httpd_auth:default_authentication_handler/2`,
/// `chttpd_auth_lockout`'s "temporarily locked").
pub(super) fn is_about_login(refusal: &wire::ErrorBody) -> bool {
    let reason = refusal.reason.as_deref().unwrap_or_default().to_ascii_lowercase();
    reason.contains("password") || reason.contains("locked")
}

impl AuthGate {
    pub(super) fn new() -> (Self, mpsc::Receiver<GateCommand>) {
        let (commands, orders) = mpsc::channel(COMMAND_QUEUE);
        let state = watch::Sender::new(GateState::Unproved { attempt: 0, why: None });
        (Self { state, commands }, orders)
    }

    /// The generation of the login in use; 0 where none is.
    pub(super) fn generation(&self) -> u64 {
        match &*self.state.borrow() {
            GateState::Open(proven) => proven.generation,
            GateState::Proving { generation, .. } => *generation,
            GateState::Unproved { .. } | GateState::Closed { .. } => 0,
        }
    }

    /// Whether `proven` is the login in use now.
    pub(super) fn is_current(&self, proven: &ProvenLogin) -> bool {
        matches!(&*self.state.borrow(), GateState::Open(open) if open.epoch == proven.epoch)
    }

    /// Whether the login was refused, or could not be proved.
    pub(super) fn is_unusable(&self) -> bool {
        matches!(&*self.state.borrow(), GateState::Closed { .. } | GateState::Unproved { .. })
    }

    /// Why nothing is sent, if the login was refused.
    pub(super) fn refusal(&self) -> Option<Error> {
        match &*self.state.borrow() {
            GateState::Closed { why } => Some(Error::LoginClosed { why: Arc::clone(why) }),
            GateState::Open(_) | GateState::Unproved { .. } | GateState::Proving { .. } => None,
        }
    }

    /// Waits until the login is proved.
    pub(super) async fn proven_login(&self) -> Result<Arc<ProvenLogin>, Error> {
        let first = match &*self.state.borrow() {
            GateState::Open(proven) => return Ok(Arc::clone(proven)),
            GateState::Closed { why } => return Err(Error::LoginClosed { why: Arc::clone(why) }),
            GateState::Unproved { attempt, .. } | GateState::Proving { attempt, .. } => *attempt,
        };
        let mut states = self.state.subscribe();
        // A full queue holds refusals, and these make the task prove the login anyway.
        let _full = self.commands.try_send(GateCommand::ProofWanted { attempt: first });
        loop {
            match &*states.borrow_and_update() {
                GateState::Open(proven) => return Ok(Arc::clone(proven)),
                GateState::Closed { why } => {
                    return Err(Error::LoginClosed { why: Arc::clone(why) });
                }
                GateState::Unproved { attempt, why: Some(why) } if *attempt > first => {
                    return Err(Error::unproved(why.clone()));
                }
                GateState::Unproved { .. } | GateState::Proving { .. } => {}
            }
            tokio::select! {
                changed = states.changed() => changed.map_err(|_| Error::Stopped)?,
                () = self.commands.closed() => return Err(Error::Stopped),
            }
        }
    }

    /// Closes the gate for every request not yet sent, and waits for the verdict on one refused
    /// request.
    pub(super) async fn refused(
        &self,
        destination: &Destination,
        proven: &Arc<ProvenLogin>,
        credential: &Credential,
        rejection: Rejection,
    ) -> Verdict {
        if !proven.is_login()
            || (!rejection.about_login && proven.is_known_privilege_refusal(&rejection.reason))
        {
            return Verdict::Forbidden;
        }
        self.state.send_if_modified(|state| {
            let current = matches!(state, GateState::Open(open) if open.epoch == proven.epoch);
            if current {
                *state =
                    GateState::Proving { attempt: proven.epoch, generation: proven.generation };
            }
            current
        });
        let (verdict, answer) = oneshot::channel();
        let (proven, credential) = (Arc::clone(proven), credential.clone());
        let command = GateCommand::Refused {
            destination: destination.clone(),
            proven,
            credential,
            rejection,
            verdict,
        };
        if self.commands.send(command).await.is_err() {
            return Verdict::Failed(Error::Stopped);
        }
        answer.await.unwrap_or(Verdict::Failed(Error::Stopped))
    }
}

/// A reason that was found to be about privileges, and until when it is believed.
#[derive(Clone, Debug)]
pub(super) struct PrivilegeRefusal {
    reason: Arc<str>,
    until: Instant,
}

#[cfg(test)]
mod tests;
