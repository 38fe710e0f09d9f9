//! The limit of open files and connections of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to the maximum the system allows, and returns it. The usual default is too low
/// for hundreds of waiting readers. `None` if there is no limit.
pub(super) fn raise_file_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            Ok(()) => return maximum,
            Err(why) => tracing::debug!(%why, "the limit of open files could not be raised"),
        }
    }
    current
}
