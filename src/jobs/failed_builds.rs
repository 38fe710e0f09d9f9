//! Index builds that keep failing.

use crate::table::TargetIx;
use std::collections::BTreeMap;
use wall_clock::Moment;

/// Builds of one index that this process requested and that failed in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedBuilds {
    /// Number of failures since the last success.
    pub count: u32,
    /// Time of the first of them.
    pub since: Moment,
    /// CouchDB's answer to the last request, if it refused the build. A build that CouchDB accepts
    /// and that fails later has no reason: only CouchDB's log tells it.
    pub refused_because: Option<String>,
}

/// The indexes whose last build failed.
pub(crate) type FailedBuildsByIndex = BTreeMap<TargetIx, FailedBuilds>;
