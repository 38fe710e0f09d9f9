//! Other recliners, each for its own cluster, seen together.
//!
//! Asks each for its status, keeps the last answer or why there is none, and orders them by what needs a person.
//! Only reads them: no order is given through it.

mod answer;
mod attention;
mod discovery;
mod schedule;
mod task;

pub use answer::{LastNight, MemberAnswer, OpenAdvice, Overview, WorstAdvice};
pub use attention::Attention;
pub use task::{FleetTask, ask_once};

use couchdb_client::Address;
use std::sync::Arc;
use wall_clock::Moment;

/// All members, and what could not be read of the lists that name them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    /// Whether any member is configured.
    pub is_configured: bool,
    /// The members, by address.
    pub members: Vec<Arc<Member>>,
    /// Why a list of members could not be read; its last content is used.
    pub problems: Vec<String>,
}

/// Another recliner.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The URL of its API and console.
    pub address: Address,
    /// The name that a list gives it.
    pub name: Option<String>,
    /// Whether the login is sent to it.
    pub has_login: bool,
    /// The state of the last request.
    pub state: MemberState,
}

/// The result of the last request to a member.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberState {
    /// No request so far.
    Unasked,
    /// The last request was not answered.
    Silent(Silence),
    /// Its last answer.
    Answered(Arc<MemberAnswer>),
}

/// Why a member gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// When it last answered; if it never did, when it was first asked.
    pub since: Moment,
    /// Whether it refuses the login.
    pub is_refused: bool,
    /// Why there is no answer.
    pub why: String,
}

impl Member {
    /// Its name for people: the one in a list, or the address.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.address.authority())
    }

    /// Its last answer; `None` if the newest request was not answered.
    pub fn answer(&self) -> Option<&MemberAnswer> {
        match &self.state {
            MemberState::Answered(answer) => Some(answer),
            MemberState::Unasked | MemberState::Silent(_) => None,
        }
    }
}
