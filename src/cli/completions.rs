//! `recliner completions`: a script that completes commands, flags and values in a shell.

use super::{
    CommandError, Exit,
    args::{Args, CompletionArgs, Shell},
    output::print_own,
};
use clap::CommandFactory as _;
use clap_complete::aot;

pub(super) fn run(args: &CompletionArgs) -> Result<Exit, CommandError> {
    let shell = match args.shell {
        Shell::Bash => aot::Shell::Bash,
        Shell::Zsh => aot::Shell::Zsh,
        Shell::Fish => aot::Shell::Fish,
    };
    let mut script = Vec::new();
    aot::generate(shell, &mut Args::command(), "recliner", &mut script);
    print_own(&script)?;
    Ok(Exit::Done)
}
