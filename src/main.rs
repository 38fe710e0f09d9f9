//! The `recliner` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    recliner::cli::run(std::env::args_os()).into()
}
