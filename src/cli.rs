//! The command line: parsing, output and exit codes.
//!
//! Owns flags, tables and exit codes; the only module that prints. Everything else is done by the
//! service and the modules below it. `main` calls [`run`].

mod admin_socket;
mod args;
mod check;
#[cfg(feature = "simulator")]
mod demo;
mod explain;
mod health;
mod import;
mod inspect;
mod journal;
mod orders;
mod output;
mod plan;
mod read_once;
mod restore_smoosh;
mod scan;
mod serve;
mod service_client;
mod table;

/// The configuration of `recliner demo`.
#[cfg(feature = "simulator")]
pub use demo::CONFIG as DEMO_CONFIG;

use crate::{config, serve::report::Conflict};
use args::{Args, Command};
use clap::Parser;
use output::{print, print_error, print_json, print_note, printable};
use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};
use tokio::runtime::Builder;

/// Threads of a service for requests, answers and timers; tables and rendering have their own
/// threads. CouchDB is slower than one thread, and two threads would wake each other at every
/// answer.
const WORKER_THREADS: usize = 1;

/// The runtime of a command. A service needs other threads to answer while its tables are being
/// processed; every other command waits for one thing, and a second thread would only add
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
    /// Done.
    Done,
    /// Failed.
    Failed,
    /// Part of the cluster could not be read.
    Incomplete,
    /// Bad usage or configuration.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Incomplete => 2,
            Exit::Usage => 64,
        })
    }
}

/// Why a command ends early: a sentence for the user, and the exit code.
#[derive(Debug)]
struct CommandError {
    exit: Exit,
    why: String,
    /// The conflict that an order met, if the service reported one.
    conflict: Option<Box<Conflict>>,
    /// Whether the same request may succeed later.
    is_transient: bool,
}

impl CommandError {
    fn usage(why: impl ToString) -> Self {
        Self { exit: Exit::Usage, why: why.to_string(), conflict: None, is_transient: false }
    }

    fn failed(why: impl ToString) -> Self {
        Self { exit: Exit::Failed, why: why.to_string(), conflict: None, is_transient: false }
    }
}

/// Runs one command line.
pub fn run(words: impl IntoIterator<Item = OsString>) -> Exit {
    let words: Vec<OsString> = words.into_iter().collect();
    let args = match Args::try_parse_from(&words) {
        Ok(args) => args,
        Err(refused) => {
            let exit = if refused.use_stderr() { Exit::Usage } else { Exit::Done };
            return if print_usage_error(&refused, &words).is_ok() { exit } else { Exit::Failed };
        }
    };
    // One TLS provider is selected once: with two in one program, rustls refuses both.
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
            Command::Plan(args) => plan::run(args).await,
            Command::Explain(args) => explain::run(args).await,
            Command::History(args) => journal::history(args).await,
            Command::Events(args) => journal::events(args).await,
            Command::Health(args) => health::run(args).await,
            Command::Import(args) => import::run(args).await,
            Command::RestoreSmoosh(args) => restore_smoosh::run(&args).await,
            Command::Inspect(args) => inspect::run(&args),
            Command::CheckConfig(args) => check::run(&args),
            Command::Suspend(args) => orders::suspend(args).await,
            Command::Resume(args) => orders::resume(args).await,
            Command::Compact(args) => orders::compact(args).await,
            Command::Release(args) => orders::release(args).await,
            Command::Rescan(args) => orders::rescan(args).await,
            Command::Flush(args) => orders::flush(args).await,
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

/// Prints a command line error, or the help that was requested. Words of the command line may be
/// URLs with a password in them.
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
