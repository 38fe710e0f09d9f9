//! The command line: parsing, output and exit codes.
//!
//! Owns flags, tables and exit codes; the only module that prints. Everything else is done by the
//! service and the modules below it. `main` calls [`run`].

mod address;
mod admin_socket;
mod advise;
mod answer;
mod args;
mod backup;
mod changes;
mod check;
mod completions;
mod databases;
#[cfg(feature = "simulator")]
mod demo;
mod deploy_indexes;
mod explain;
mod first_help;
mod fleet;
mod health;
mod import;
mod inspect;
mod journal;
mod man;
mod mcp;
mod mixin;
mod next_step;
mod orders;
mod output;
mod plan;
mod preflight;
mod read_once;
mod reads;
mod report;
mod restore_smoosh;
mod scan;
mod serve;
mod service_client;
mod table;
mod tidy;
mod tombstones;
mod top;
mod what_if;
mod xray;

/// The configuration of `recliner demo`.
#[cfg(feature = "simulator")]
pub use demo::CONFIG as DEMO_CONFIG;

use crate::{config, serve::report::Conflict};
use args::{Args, Command};
use clap::{CommandFactory as _, FromArgMatches as _};
use output::{print, print_error, print_note, printable};
use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};
use tokio::runtime::Builder;

/// Threads of a service for requests, answers and timers; tables and rendering have their own
/// threads. One thread keeps up with CouchDB, and two would wake each other at every response.
const WORKER_THREADS: usize = 1;

/// The runtime of a command. A service needs a second thread to answer requests while its tables
/// are being processed; every other command waits for one thing, and a second thread would only add
/// wake-ups.
fn runtime(command: &Command) -> Builder {
    if !command.serves() {
        return Builder::new_current_thread();
    }
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(WORKER_THREADS);
    builder
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did what it should.
    Done,
    /// The command failed, or the service refused the request.
    Failed,
    /// Part of the cluster could not be read, or part of the work was not done.
    Incomplete,
    /// The result meets a condition on which the user asked the command to fail, such as `--fail-on` or
    /// `--fail-if-idle`.
    Found,
    /// Bad usage or configuration.
    Usage,
}

impl Exit {
    /// Every exit, in the order of the manual.
    const ALL: [Self; 5] = [Self::Done, Self::Failed, Self::Incomplete, Self::Found, Self::Usage];

    /// The exit status of the process, and what it tells a caller.
    const fn status(self) -> (u8, &'static str) {
        match self {
            Self::Done => (0, "Done."),
            Self::Failed => (1, "Failed, or refused by the service."),
            Self::Incomplete => (
                2,
                "Done, but part of the cluster could not be read, or tidy left work undone; the output says what and why.",
            ),
            Self::Found => (
                3,
                "Done, and there is advice of the --fail-on severity or worse, or --fail-if-idle found nothing to do.",
            ),
            Self::Usage => (64, "Wrong usage or configuration. Nothing was sent."),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status().0)
    }
}

/// Why a command ends early: a sentence for the user, and the exit code.
#[derive(Debug)]
struct CommandError {
    exit: Exit,
    why: String,
    /// The conflict with another order, if the service reported one.
    conflict: Option<Box<Conflict>>,
    /// Whether the same request may succeed later.
    is_transient: bool,
    /// How long to wait before the service may carry out the order, if it said so.
    retry_after: Option<Duration>,
}

impl CommandError {
    fn usage(why: impl ToString) -> Self {
        Self { exit: Exit::Usage, ..Self::failed(why) }
    }

    fn failed(why: impl ToString) -> Self {
        Self {
            exit: Exit::Failed,
            why: why.to_string(),
            conflict: None,
            is_transient: false,
            retry_after: None,
        }
    }
}

/// The commands and flags, for manual pages, completions and documentation.
pub fn command_line() -> clap::Command {
    Args::command()
}

/// Runs one command line.
pub fn run(words: Vec<OsString>) -> Exit {
    if words.len() <= 1 {
        // A script that passes no command does so by mistake, so this counts as bad usage.
        print_note(&next_step::introduction());
        return Exit::Usage;
    }
    let command = Args::command();
    let help = first_help::of(&command, &next_step::program_name());
    let parsed = command.override_help(help).try_get_matches_from(&words);
    let args = match parsed.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(refused) => {
            let exit = if refused.use_stderr() { Exit::Usage } else { Exit::Done };
            return if print_usage_error(&refused, &words).is_ok() { exit } else { Exit::Failed };
        }
    };
    // One TLS provider is selected explicitly: if a program contains two, rustls chooses neither.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        print_error("the TLS provider was installed twice");
    }
    let runtime = match runtime(&args.command).enable_all().build() {
        Ok(runtime) => runtime,
        Err(why) => {
            print_error(&format!("cannot start the runtime: {why}"));
            return Exit::Failed;
        }
    };
    let ended = runtime.block_on(async {
        match args.command {
            Command::Serve(args) => serve::run(args).await,
            #[cfg(feature = "simulator")]
            Command::Demo(args) => demo::run(args).await,
            Command::Scan(args) => scan::run(args).await,
            Command::Tidy(args) => tidy::run(args).await,
            Command::Databases(args) => databases::run(args).await,
            Command::Plan(args) => plan::run(args).await,
            Command::Explain(args) => explain::run(args).await,
            Command::Changes(args) => changes::run(args).await,
            Command::Report(args) => report::run(args).await,
            Command::Fleet(args) => fleet::run(args).await,
            Command::WhatIf(args) => what_if::run(args).await,
            Command::Top(args) => top::run(args).await,
            Command::Advise(args) => advise::run(args).await,
            Command::Preflight(args) => preflight::run(args).await,
            Command::DeployIndexes(args) => deploy_indexes::run(args).await,
            Command::Tombstones(args) => tombstones::run(args).await,
            Command::Mcp(args) => mcp::run(args).await,
            Command::Indexes(args) => reads::indexes(args).await,
            Command::Reads(args) => reads::run(args).await,
            Command::History(args) => journal::history(args).await,
            Command::Events(args) => journal::events(args).await,
            Command::Health(args) => health::run(args).await,
            Command::Import(args) => import::run(args).await,
            Command::RestoreSmoosh(args) => restore_smoosh::run(&args).await,
            Command::Inspect(args) => inspect::run(&args),
            Command::Xray(args) => xray::run(&args),
            Command::CheckConfig(args) => check::run(&args).await,
            Command::Suspend(args) => orders::suspend(args).await,
            Command::Resume(args) => orders::resume(args).await,
            Command::Compact(args) => orders::compact(args).await,
            Command::Runs(args) => orders::runs(args).await,
            Command::Release(args) => orders::release(args).await,
            Command::Rescan(args) => orders::rescan(args).await,
            Command::Flush(args) => orders::flush(args).await,
            Command::Backup(args) => backup::run(args).await,
            Command::Mixin(args) => mixin::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    });
    // Pending name lookups and file reads must not delay the exit.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => exit,
        Err(failure) => {
            print_error(&failure.why);
            failure.exit
        }
    }
}

/// Prints a command line error, or the help that was requested. Passwords are removed, because the
/// arguments may be URLs that contain one.
fn print_usage_error(refused: &clap::Error, words: &[OsString]) -> io::Result<()> {
    let rendered = refused.render().to_string();
    let words = words.iter().filter_map(|word| word.to_str());
    let values = words.flat_map(|word| {
        let value = word.split_once('=').map(|(_, value)| value);
        value.into_iter().chain([word])
    });
    let shown = values.fold(rendered.clone(), |rendered, value| {
        let shown = config::redact_secrets(value);
        if shown == value { rendered } else { rendered.replace(value, &shown) }
    });
    // Only the original rendering has colours.
    if shown == rendered { refused.print() } else { io::stderr().write_all(shown.as_bytes()) }
}
