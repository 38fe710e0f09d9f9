//! The `recliner` command.

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

/// Each sweep rewrites every chunk of the tables while readers still hold the previous version.
/// glibc's allocator never returns all of that memory: a million targets need two thirds more with
/// it. `.cargo/config.toml` has the tuning of this allocator.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    recliner::cli::run(std::env::args_os()).into()
}
