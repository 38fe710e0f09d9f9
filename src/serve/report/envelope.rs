//! Prometheus's envelope around every response of the API, and errors.

use super::{MissLine, RefusalLine, vocabulary, vocabulary::Word};
use crate::model::records::LeftOut;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A successful response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Answer")]
pub struct Success<T> {
    /// Always `success`.
    #[schemars(extend("const" = "success"))]
    pub status: Word,
    /// The requested data.
    pub data: T,
}

impl<T> Success<T> {
    /// The envelope around the data of a response.
    pub const fn of(data: T) -> Self {
        Self { status: Word::Borrowed("success"), data }
    }
}

/// A failed response, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Failed {
    /// Always `error`.
    #[schemars(extend("const" = "error"))]
    pub status: Word,
    /// The kind of error.
    #[serde(rename = "errorType")]
    #[schemars(with = "vocabulary::ErrorType")]
    pub error_type: Word,
    /// What failed and what to do about it, as a sentence.
    pub error: String,
    /// Details of a conflict, if an order is refused with status 409; otherwise null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<Conflict>>,
}

/// An error of `/_db_updates`, in CouchDB's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CouchDbError {
    /// CouchDB's word for the error.
    pub error: Word,
    /// The reason, in CouchDB's words where it has some.
    pub reason: String,
}

/// Why an order is refused with status 409.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Conflict {
    /// The target may not start now.
    Refused {
        /// The target's id.
        target: String,
        /// Why the target does not start.
        refusal: RefusalLine,
        /// The request that would be sent, if recliner only advises; otherwise null.
        request: Option<String>,
    },
    /// No channel takes the target.
    NotTaken {
        /// The target's id.
        target: String,
        /// Why each channel does not take the target.
        misses: Vec<MissLine>,
    },
    /// A run may not begin.
    Run {
        /// The requests that it would send, if recliner only advises; at most about a thousand, which the
        /// error mentions.
        requests: Vec<String>,
        /// What it would leave out.
        left_out: Vec<LeftOut>,
    },
    /// The name matches several targets.
    Ambiguous {
        /// The ids of these targets, at most a hundred.
        candidates: Vec<String>,
    },
    /// The error has no further details.
    Plain {},
}

impl Conflict {
    /// The requests that would be sent, if recliner only advises.
    pub fn requests(&self) -> &[String] {
        match self {
            Self::Refused { request, .. } => request.as_slice(),
            Self::Run { requests, .. } => requests,
            Self::NotTaken { .. } | Self::Ambiguous { .. } | Self::Plain {} => &[],
        }
    }

    /// The ids of the targets to choose from.
    pub fn candidates(&self) -> &[String] {
        match self {
            Self::Ambiguous { candidates } => candidates,
            Self::Refused { .. } | Self::NotTaken { .. } | Self::Run { .. } | Self::Plain {} => &[],
        }
    }
}
