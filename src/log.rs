//! The program's own log on standard error: level, format and the subscriber.
//!
//! Never writes messages of its own; all other modules use `tracing`. Called once, by the command
//! that `main` runs, before anything else starts.
//!
//! A line names its module only at level `debug` and finer, because operators do not need it.
//! Hidden characters in names are escaped when a line is written.
//!
//! Secrets stay out of the log by design. Events of other crates are shown only at `warn` and
//! above, and no environment variable can change that, because HTTP and TLS libraries log headers
//! and bodies at finer levels. Passwords are held in types that do not print their value.

mod deduplicate;

use crate::text::escape;
use deduplicate::DeduplicateLayer;
use std::io::{self, Write};
use strum::{EnumString, IntoStaticStr, VariantArray};
use tracing::Subscriber;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt,
    registry::LookupSpan,
};

/// Severity of a log line.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something failed and needs attention.
    Error,
    /// Something is not as it should be, but work continues.
    Warn,
    /// Normal events.
    #[default]
    Info,
    /// Reasons behind the events.
    Debug,
    /// Every detail.
    Trace,
}

impl LogLevel {
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

/// Output format of the log.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of `key=value` pairs per event.
    #[default]
    Logfmt,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// A subscriber is already installed.
    #[error("the log is already set up; a process can set it up only once")]
    AlreadyInitialized(#[source] tracing::subscriber::SetGlobalDefaultError),
}

/// Sends the process's log events to standard error from now on.
///
/// # Errors
/// If the process already has a subscriber.
pub(crate) fn init(level: LogLevel, format: LogFormat) -> Result<(), LogError> {
    let repeats = DeduplicateLayer::default();
    let shown = subscriber(level, format, io::stderr).with(repeats.clone());
    tracing::subscriber::set_global_default(shown).map_err(LogError::AlreadyInitialized)?;
    repeats.spawn_reporter();
    Ok(())
}

/// Crates of this workspace that log; their lines are treated as the program's own.
const OWN_CRATES: [&str; 2] = ["recliner", "couchdb_client"];

/// Builds the subscriber for any writer.
fn subscriber<W>(level: LogLevel, format: LogFormat, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Clone + Send + Sync + 'static,
{
    // Without its module, a line of another crate would be hard to place.
    let own = format_layer(
        format,
        level >= LogLevel::Debug,
        MakeEscapingWriter { inner: writer.clone(), format },
    );
    let others = format_layer(format, true, MakeEscapingWriter { inner: writer, format });
    let of_own = Targets::new().with_targets(OWN_CRATES.map(|own| (own, level.filter())));
    // Other crates are shown at the chosen level or `warn`, whichever is more severe.
    let of_others = Targets::new()
        .with_targets(OWN_CRATES.map(|own| (own, LevelFilter::OFF)))
        .with_default(level.filter().min(LevelFilter::WARN));
    tracing_subscriber::registry().with(own.with_filter(of_own)).with(others.with_filter(of_others))
}

/// Builds the layer for one format, with or without the module of each line.
fn format_layer<S, W>(
    format: LogFormat,
    modules: bool,
    writer: W,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    match format {
        LogFormat::Logfmt => {
            tracing_logfmt::builder().with_target(modules).layer().with_writer(writer).boxed()
        }
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_target(modules)
            .with_writer(writer)
            .boxed(),
    }
}

/// Creates writers that escape control and invisible characters.
#[derive(Clone, Debug)]
struct MakeEscapingWriter<M> {
    inner: M,
    format: LogFormat,
}

impl<'w, M: MakeWriter<'w>> MakeWriter<'w> for MakeEscapingWriter<M> {
    type Writer = EscapingWriter<M::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        EscapingWriter { inner: self.inner.make_writer(), format: self.format }
    }
}

/// Escapes log lines. Each line arrives in a single write.
#[derive(Debug)]
struct EscapingWriter<W> {
    inner: W,
    format: LogFormat,
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = match self.format {
            LogFormat::Logfmt => escape::escape_lines(&text),
            LogFormat::Json => escape::escape_json_line(&text),
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

    /// A writer that sends each line to the test.
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

    fn logged(level: LogLevel, format: LogFormat, work: impl FnOnce()) -> String {
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
    fn other_crates_are_never_logged_below_warn() {
        for (level, expected) in [
            (LogLevel::Debug, vec!["sent", "answered", "gave up", "odd handshake"]),
            (LogLevel::Info, vec!["answered", "gave up", "odd handshake"]),
            (LogLevel::Warn, vec!["gave up", "odd handshake"]),
            (LogLevel::Error, vec!["gave up"]),
        ] {
            for format in [LogFormat::Logfmt, LogFormat::Json] {
                assert_eq!(messages(&logged(level, format, events)), expected, "{level:?}");
            }
        }
    }

    #[test]
    fn escapes_line_breaks_in_names() {
        let name = "_design/a\nlevel=error b=\"c\"";
        let text = logged(LogLevel::Info, LogFormat::Logfmt, || {
            tracing::info!(target: "recliner", ddoc = name, other = %name, "seen");
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        let quoted = r#""_design/a\nlevel=error b=\"c\"""#;
        assert!(text.contains(&format!("ddoc={quoted} other={quoted}")), "{text}");
        assert!(text.contains(" level=info "), "{text}");
    }

    #[test]
    fn shows_modules_at_debug_and_for_other_crates() {
        for format in [LogFormat::Logfmt, LogFormat::Json] {
            let modules = |level| {
                let text = logged(level, format, events);
                ["couchdb_client", "rustls::conn"].map(|module| text.contains(module))
            };
            assert_eq!(modules(LogLevel::Info), [false, true], "{format:?}");
            assert_eq!(modules(LogLevel::Debug), [true, true], "{format:?}");
        }
    }

    #[test]
    fn control_and_invisible_characters_are_escaped() {
        let name = "a\u{202e}b\u{200b}c\u{9b}d\u{1b}e\u{7f}";
        for format in [LogFormat::Logfmt, LogFormat::Json] {
            let text = logged(LogLevel::Info, format, || {
                tracing::info!(target: "recliner", node = name, other = %name, why = ?name, "x\u{202e}");
            });
            assert_eq!(text.lines().count(), 1, "{text}");
            let line = text.strip_suffix('\n').unwrap();
            assert!(!line.contains(escape::is_hidden), "{line:?}");
        }
        let text = logged(LogLevel::Info, LogFormat::Json, || {
            tracing::info!(target: "recliner", node = name, "x");
        });
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["node"], name);
    }

    #[test]
    fn json_lines_put_fields_next_to_the_message() {
        let text = logged(LogLevel::Info, LogFormat::Json, || {
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
