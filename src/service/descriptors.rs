//! The limit of open files and connections of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit to request on macOS if the process has none: macOS grants no more than `OPEN_MAX`.
const MACOS_OPEN_MAX: u64 = 10_240;

/// Raises the limit to the maximum the system allows, and returns it. The usual default is too low
/// for hundreds of waiting readers. `None` if there is no limit.
pub(super) fn raise_file_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = match maximum {
        None if cfg!(target_os = "macos") => Some(MACOS_OPEN_MAX),
        maximum => maximum,
    };
    let is_lower = current.is_some_and(|now| wanted.is_none_or(|wanted| now < wanted));
    if is_lower {
        match setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum }) {
            Ok(()) => return wanted,
            Err(why) => tracing::debug!(%why, "cannot raise the limit of open files"),
        }
    }
    current
}
