//! Prometheus's envelope around every response of the API, and errors.

use super::{MissLine, RefusalLine, words, words::Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An answer that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Answer")]
pub struct Success<T> {
    /// Always `success`.
    #[schemars(extend("const" = "success"))]
    pub status: Word,
    /// What was asked for.
    pub data: T,
}

impl<T> Success<T> {
    /// The envelope around the data of a response.
    pub const fn of(data: T) -> Self {
        Self { status: Word::Borrowed("success"), data }
    }
}

/// An answer that says why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Failed {
    /// Always `error`.
    #[schemars(extend("const" = "error"))]
    pub status: Word,
    /// What kind of error it is.
    #[serde(rename = "errorType")]
    #[schemars(with = "words::ErrorType")]
    pub error_type: Word,
    /// What failed and what to do about it, in a sentence.
    pub error: String,
    /// What an order runs into, where it is refused with status 409.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<Conflict>>,
}

/// Why `/_db_updates` answers nothing, in CouchDB's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CouchDbError {
    /// CouchDB's word for the error.
    pub error: Word,
    /// Why, in CouchDB's words where it has some.
    pub reason: String,
}

/// What an order runs into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Conflict {
    /// The target may not start now.
    Refused {
        /// The target's id.
        target: String,
        /// What keeps it from starting.
        refusal: RefusalLine,
        /// The request that would be sent, where recliner only advises.
        request: Option<String>,
    },
    /// No channel takes the target.
    NotTaken {
        /// The target's id.
        target: String,
        /// Why not, channel by channel.
        misses: Vec<MissLine>,
    },
    /// The name means several targets.
    Ambiguous {
        /// The ids of the first hundred of them.
        candidates: Vec<String>,
    },
    /// The error says it all.
    Plain {},
}

impl Conflict {
    /// The request that would be sent, if recliner only advises.
    #[must_use]
    pub fn request(&self) -> Option<&str> {
        match self {
            Self::Refused { request, .. } => request.as_deref(),
            Self::NotTaken { .. } | Self::Ambiguous { .. } | Self::Plain {} => None,
        }
    }

    /// The ids of the targets to choose from.
    #[must_use]
    pub fn candidates(&self) -> &[String] {
        match self {
            Self::Ambiguous { candidates } => candidates,
            Self::Refused { .. } | Self::NotTaken { .. } | Self::Plain {} => &[],
        }
    }
}
