//! The requests to the journal's task, and their answers.

use super::{
    ClaimError, ClusterIdentity, EventDetails, EventProgress, FeedPosition, NamedValues,
    MeasuredBlocks, OverriddenSetting,
};
use crate::model::records::{RecoveredState, StateChange, StoreError};
use redb::ReadTransaction;
use std::fmt;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use wall_clock::Moment;

/// Receives the result of a write.
pub(super) type WriteAnswer = oneshot::Sender<Result<(), StoreError>>;

/// The room that events occupy in the queue, released when this is dropped.
pub(super) type EventRoom = Option<OwnedSemaphorePermit>;

/// A request to the task.
#[derive(Debug)]
pub(super) enum JournalRequest {
    ApplyChanges(Vec<StateChange>, WriteAnswer),
    RecordEvents(Vec<EventDetails>, EventProgress, EventRoom),
    RecordBackup(Moment),
    SetOverridden(Vec<(OverriddenSetting, bool)>, WriteAnswer),
    Query(Query),
}

/// A request that is served alone. It sees everything that was requested before it.
#[derive(Debug)]
pub(super) enum Query {
    Claim(Box<ClusterIdentity>, oneshot::Sender<Result<RecoveredState, ClaimError>>),
    FeedPosition(oneshot::Sender<Result<Option<FeedPosition>, StoreError>>),
    OverriddenSettings(oneshot::Sender<Result<Vec<OverriddenSetting>, StoreError>>),
    BeginRead(oneshot::Sender<Result<ReadTransaction, StoreError>>),
    SaveMeasurements(Box<MeasuredBlocks>, WriteAnswer),
    Value(&'static str, oneshot::Sender<Result<Option<Vec<u8>>, StoreError>>),
    SaveValues(NamedValues, WriteAnswer),
}

impl Query {
    /// The answer to a query that cannot be served.
    pub(super) fn refuse(self, why: StoreError) -> Reply {
        match self {
            Self::Claim(_, answer) => Reply::new(answer, Err(why.into())),
            Self::FeedPosition(answer) => Reply::new(answer, Err(why)),
            Self::OverriddenSettings(answer) => Reply::new(answer, Err(why)),
            Self::BeginRead(answer) => Reply::new(answer, Err(why)),
            Self::SaveMeasurements(_, answer) | Self::SaveValues(_, answer) => {
                Reply::new(answer, Err(why))
            }
            Self::Value(_, answer) => Reply::new(answer, Err(why)),
        }
    }
}

/// An answer that is ready to be sent.
pub(super) struct Reply(Box<dyn FnOnce() + Send>);

impl Reply {
    pub(super) fn new<T: Send + 'static>(answer: oneshot::Sender<T>, value: T) -> Self {
        Self(Box::new(move || {
            // The requester may be gone; its request is done anyway.
            let _gone = answer.send(value);
        }))
    }

    pub(super) fn send(self) {
        (self.0)();
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}
