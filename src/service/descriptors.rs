//! How many files and connections the process may hold open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to as much as the system lets the process have, and answers with it: what
/// is usual is for programs that look at descriptors one by one, and too little for readers
/// that wait in their hundreds. `None` where there is no limit.
pub(super) fn raised() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            Ok(()) => return maximum,
            Err(why) => tracing::debug!(%why, "the limit of open files stays as it was"),
        }
    }
    current
}
