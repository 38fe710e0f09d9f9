//! The program's own log: what goes to standard error, and in which form.
//!
//! Owns the choice of level and format and the one subscriber. Never formats a message;
//! everyone else uses `tracing`. Called once, by `main`'s command, before anything runs.
//!
//! A line says what happened and not in which module: that is added from `debug` on, where
//! whoever changes the program reads. Hidden letters of names are escaped on the way out.
//!
//! Secrets stay out by design rather than by care: other crates' events are shown at
//! `warn` at most and no environment variable changes that, because HTTP and TLS
//! libraries write headers and bodies at their finer levels; and passwords are held in
//! types that do not print.

mod repeats;

use crate::text::escape;
use repeats::Repeats;
use std::io::{self, Write};
use tracing::Subscriber;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt,
    registry::LookupSpan,
};

/// How important a line of the log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed and someone should look.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What happened.
    #[default]
    Info,
    /// Why it happened.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// Every level, the most important first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// The word in flags.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    const fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `key=value` pairs.
    #[default]
    Logfmt,
    /// One JSON object a line.
    Json,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::Logfmt, Self::Json];

    /// The word in flags.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Logfmt => "logfmt",
            Self::Json => "json",
        }
    }
}

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A subscriber is installed already.
    #[error("the log is set up already: it can be set up once in a process")]
    Twice(#[source] tracing::subscriber::SetGlobalDefaultError),
}

/// Sends the process's events to standard error from here on.
///
/// # Errors
/// When the process has a subscriber already.
pub fn init(level: Level, format: Format) -> Result<(), LogError> {
    let repeats = Repeats::default();
    let shown = subscriber(level, format, io::stderr).with(repeats.clone());
    tracing::subscriber::set_global_default(shown).map_err(LogError::Twice)?;
    repeats.report();
    Ok(())
}

/// The crates of this workspace that log: their lines are the program's own.
const OWN_CRATES: [&str; 2] = ["recliner", "couchdb_client"];

/// The subscriber, writing anywhere.
fn subscriber<W>(level: Level, format: Format, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Clone + Send + Sync + 'static,
{
    // Whose a line of another crate is says its module alone.
    let own = layer(format, level >= Level::Debug, Escaping { inner: writer.clone(), format });
    let others = layer(format, true, Escaping { inner: writer, format });
    let of_own = Targets::new().with_targets(OWN_CRATES.map(|own| (own, level.filter())));
    // The lesser of two filters is the one that shows less.
    let of_others = Targets::new()
        .with_targets(OWN_CRATES.map(|own| (own, LevelFilter::OFF)))
        .with_default(level.filter().min(LevelFilter::WARN));
    tracing_subscriber::registry().with(own.with_filter(of_own)).with(others.with_filter(of_others))
}

/// One of the two forms, with or without the module that a line comes from.
fn layer<S, W>(format: Format, modules: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    match format {
        Format::Logfmt => {
            tracing_logfmt::builder().with_target(modules).layer().with_writer(writer).boxed()
        }
        Format::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_target(modules)
            .with_writer(writer)
            .boxed(),
    }
}

/// Makes writers that escape what a terminal would obey or not show.
#[derive(Clone, Debug)]
struct Escaping<M> {
    inner: M,
    format: Format,
}

impl<'w, M: MakeWriter<'w>> MakeWriter<'w> for Escaping<M> {
    type Writer = EscapingWriter<M::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        EscapingWriter { inner: self.inner.make_writer(), format: self.format }
    }
}

/// Escapes each line of the log, which is written at once.
#[derive(Debug)]
struct EscapingWriter<W> {
    inner: W,
    format: Format,
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = match self.format {
            Format::Logfmt => escape::lines(&text),
            Format::Json => escape::json_line(&text),
        };
        self.inner.write_all(line.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A writer whose lines a test can read.
    struct Lines(mpsc::Sender<Vec<u8>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: Level, format: Format, work: impl FnOnce()) -> String {
        let (lines, read) = mpsc::channel();
        let subscriber = subscriber(level, format, move || Lines(lines.clone()));
        tracing::subscriber::with_default(subscriber, work);
        String::from_utf8(read.try_iter().flatten().collect()).unwrap()
    }

    fn events() {
        tracing::debug!(target: "couchdb_client", "sent");
        tracing::info!(target: "couchdb_client", node = "couchdb@a", "answered");
        tracing::error!(target: "couchdb_client", "gave up");
        tracing::debug!(target: "hyper::proto", "authorization: Basic YWRtaW46aHVudGVyMg==");
        tracing::info!(target: "reqwest::connect", "connecting");
        tracing::warn!(target: "rustls::conn", "odd handshake");
    }

    fn messages(text: &str) -> Vec<&str> {
        let messages = ["sent", "answered", "gave up", "Basic", "connecting", "odd handshake"];
        messages.into_iter().filter(|message| text.contains(message)).collect()
    }

    #[test]
    fn other_crates_are_never_shown_below_warn() {
        for (level, expected) in [
            (Level::Debug, vec!["sent", "answered", "gave up", "odd handshake"]),
            (Level::Info, vec!["answered", "gave up", "odd handshake"]),
            (Level::Warn, vec!["gave up", "odd handshake"]),
            (Level::Error, vec!["gave up"]),
        ] {
            for format in [Format::Logfmt, Format::Json] {
                assert_eq!(messages(&logged(level, format, events)), expected, "{level:?}");
            }
        }
    }

    #[test]
    fn a_name_with_a_line_break_stays_on_one_line() {
        let name = "_design/a\nlevel=error b=\"c\"";
        let text = logged(Level::Info, Format::Logfmt, || {
            tracing::info!(target: "recliner", ddoc = name, other = %name, "seen");
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        let quoted = r#""_design/a\nlevel=error b=\"c\"""#;
        assert!(text.contains(&format!("ddoc={quoted} other={quoted}")), "{text}");
        assert!(text.contains(" level=info "), "{text}");
    }

    #[test]
    fn modules_are_named_where_the_program_is_looked_into_and_for_other_crates() {
        for format in [Format::Logfmt, Format::Json] {
            let modules = |level| {
                let text = logged(level, format, events);
                ["couchdb_client", "rustls::conn"].map(|module| text.contains(module))
            };
            assert_eq!(modules(Level::Info), [false, true], "{format:?}");
            assert_eq!(modules(Level::Debug), [true, true], "{format:?}");
        }
    }

    #[test]
    fn what_a_terminal_would_obey_or_hide_is_written_out() {
        let name = "a\u{202e}b\u{200b}c\u{9b}d\u{1b}e\u{7f}";
        for format in [Format::Logfmt, Format::Json] {
            let text = logged(Level::Info, format, || {
                tracing::info!(target: "recliner", node = name, other = %name, why = ?name, "x\u{202e}");
            });
            assert_eq!(text.lines().count(), 1, "{text}");
            let line = text.strip_suffix('\n').unwrap();
            assert!(!line.contains(escape::is_hidden), "{line:?}");
        }
        let text = logged(Level::Info, Format::Json, || {
            tracing::info!(target: "recliner", node = name, "x");
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["node"], name);
    }

    #[test]
    fn json_lines_carry_the_fields_beside_the_message() {
        let text = logged(Level::Info, Format::Json, || {
            tracing::info!(target: "recliner", ddoc = "a\nb", bytes = 17, "seen");
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text.lines().count(), 1);
        for (key, value) in [
            ("level", serde_json::json!("INFO")),
            ("message", serde_json::json!("seen")),
            ("ddoc", serde_json::json!("a\nb")),
            ("bytes", serde_json::json!(17)),
        ] {
            assert_eq!(line.get(key), Some(&value), "{text}");
        }
    }
}
