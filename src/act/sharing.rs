//! Limits that several clusters share: the tasks of the keeper and of a member.
//!
//! The keeper's task owns what it granted, stores it before it answers, and never sends a request. The member's task
//! asks the keeper in enforce mode, stores what it may use without an answer, and publishes what is allowed; the
//! planner and the job state task keep to that.

mod keeper;
mod member;

pub(crate) use keeper::{KeeperHandle, KeeperTask, KeeperView, NotGranted};
pub(crate) use member::{MemberHandle, MemberInputs, MemberTask, MemberView};
