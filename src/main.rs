//! The `recliner` command.

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

/// A sweep writes every chunk of the tables anew while others hold the old one. glibc's
/// allocator never gets all of that back: a million targets take two thirds more there.
/// `.cargo/config.toml` has how this one is tuned.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    recliner::cli::run(std::env::args_os()).into()
}
