//! Why the journal cannot be used.

/// Why the journal cannot be used. Nothing starts until it can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalFailure {
    /// The state of the previous process is not loaded yet; the text says what loading waits for.
    /// Orders wait for it too.
    #[error("the state of the previous process is not loaded yet: {0}")]
    NotLoaded(String),
    /// The journal belongs to another cluster; the text names both. Nothing in it is read or
    /// written.
    #[error("{0}")]
    OtherCluster(String),
    /// It cannot be written.
    #[error("{0}")]
    NotWritable(String),
}
