//! The `recliner` command.

use std::process::ExitCode;

/// Each sweep rewrites every chunk of the tables while readers still hold the previous version.
/// glibc's allocator never returns all of that memory: a million targets need two thirds more with
/// it. `build/jemalloc.rs` tunes this one.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    recliner::cli::run(std::env::args_os().collect()).into()
}
