//! The program's own log: what goes to standard error, and in which form.
//!
//! Owns the choice of level and format and the one subscriber. Never formats a message;
//! everyone else uses `tracing`. Called once, by `main`'s command, before anything runs.
//!
//! Secrets stay out by design rather than by care: other crates' events are shown at
//! `warn` at most and no environment variable changes that, because HTTP and TLS
//! libraries write headers and bodies at their finer levels; and passwords are held in
//! types that do not print.

mod repeats;

use repeats::Repeats;
use tracing::Subscriber;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt,
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
    let shown = subscriber(level, format, std::io::stderr).with(repeats.clone());
    tracing::subscriber::set_global_default(shown).map_err(LogError::Twice)?;
    repeats.report();
    Ok(())
}

/// The subscriber, writing anywhere.
fn subscriber<W>(level: Level, format: Format, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = match format {
        Format::Logfmt => tracing_logfmt::builder().layer().with_writer(writer).boxed(),
        Format::Json => {
            tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(writer).boxed()
        }
    };
    // The lesser of two filters is the one that shows less.
    let others = level.filter().min(LevelFilter::WARN);
    let shown = Targets::new().with_target("recliner", level.filter()).with_default(others);
    tracing_subscriber::registry().with(layer.with_filter(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io, sync::mpsc};

    /// A writer whose lines a test can read.
    struct Lines(mpsc::Sender<Vec<u8>>);

    impl io::Write for Lines {
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
        tracing::debug!(target: "recliner::couch", "sent");
        tracing::info!(target: "recliner::couch", node = "couchdb@a", "answered");
        tracing::error!(target: "recliner::couch", "gave up");
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
        assert!(text.contains(" level=info target=recliner "), "{text}");
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
            ("target", serde_json::json!("recliner")),
        ] {
            assert_eq!(line.get(key), Some(&value), "{text}");
        }
    }
}
