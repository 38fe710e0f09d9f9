//! Suppresses repeated log lines. The first occurrence is logged immediately; repeats within a
//! minute are summarised in one line with their count. The summary comes before a less severe line
//! of the same module, because that line may report the end of the problem.
//!
//! Remembers a bounded number of lines from the last minute; beyond that bound, lines are logged
//! without deduplication. Levels `debug` and `trace` are never suppressed.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};
use tokio::time::Instant;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context};

/// An identical line is logged once within this time.
const WINDOW: Duration = Duration::from_secs(60);
/// How often expired lines are collected and their counts logged.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of distinct lines remembered.
const MAX_LINES: usize = 512;
/// Maximum bytes remembered of a line, for use in its summary.
const MAX_LINE_BYTES: usize = 2_048;

/// Target of the summary lines, which are never suppressed.
const SUMMARY_TARGET: &str = module_path!();

/// Suppresses and counts repeated lines; clones share one state.
#[derive(Clone, Debug)]
pub(super) struct DeduplicateLayer {
    recent: Arc<Mutex<RecentLines>>,
    clock: fn() -> Instant,
}

impl Default for DeduplicateLayer {
    fn default() -> Self {
        Self { recent: Arc::default(), clock: Instant::now }
    }
}

/// Lines logged within the last minute, by hash.
#[derive(Debug, Default)]
struct RecentLines(HashMap<u64, RecentLine>);

#[derive(Debug)]
struct RecentLine {
    level: Level,
    target: &'static str,
    text: EventText,
    first_logged: Instant,
    repeats: u64,
}

/// A line that was repeated, with the number of repeats within its window.
#[derive(Debug, PartialEq, Eq)]
struct RepeatSummary {
    level: Level,
    text: EventText,
    repeats: u64,
    within: Duration,
}

/// The message and the fields of an event as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _written = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let gap = if self.fields.is_empty() { "" } else { " " };
            write!(self.fields, "{gap}{}={value:?}", field.name())
        };
    }
}

impl EventText {
    fn truncate(&mut self) {
        for text in [&mut self.message, &mut self.fields] {
            let end =
                (0..=MAX_LINE_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or_default());
        }
    }
}

impl RecentLines {
    /// Records an event. Returns the summaries to log before it, or `None` if the event is a repeat
    /// and must not be logged.
    fn record(&mut self, event: &Event<'_>, now: Instant) -> Option<Vec<RepeatSummary>> {
        let (mut text, metadata) = (EventText::default(), event.metadata());
        event.record(&mut text);
        let mut hasher = DefaultHasher::new();
        (metadata.level(), metadata.target(), &text.message, &text.fields).hash(&mut hasher);
        let key = hasher.finish();
        if let Some(line) = self.0.get_mut(&key)
            && now.duration_since(line.first_logged) < WINDOW
        {
            line.repeats += 1;
            return None;
        }
        let before = self.take_more_severe(metadata.level(), metadata.target(), now);
        // A line whose count has not been logged yet keeps its entry until then.
        let counted = self.0.get(&key).is_some_and(|line| line.repeats > 0);
        if self.0.len() >= MAX_LINES {
            self.0.retain(|_, line| {
                line.repeats > 0 || now.duration_since(line.first_logged) < WINDOW
            });
        }
        if !counted && self.0.len() < MAX_LINES {
            text.truncate();
            self.0.insert(
                key,
                RecentLine {
                    level: *metadata.level(),
                    target: metadata.target(),
                    text,
                    first_logged: now,
                    repeats: 0,
                },
            );
        }
        Some(before)
    }

    /// The pending repeats of a module's lines that are more severe than this level.
    fn take_more_severe(
        &mut self,
        level: &Level,
        target: &str,
        now: Instant,
    ) -> Vec<RepeatSummary> {
        let lines = self.0.values_mut().filter(|line| line.repeats > 0 && line.target == target);
        lines.filter(|line| line.level < *level).map(|line| line.take_repeats(now)).collect()
    }

    /// Removes lines older than the window and returns those that were repeated.
    fn take_expired(&mut self, now: Instant) -> Vec<RepeatSummary> {
        let old = self.0.extract_if(|_, line| now.duration_since(line.first_logged) >= WINDOW);
        let repeated = old.filter(|(_, line)| line.repeats > 0);
        repeated.map(|(_, mut line)| line.take_repeats(now)).collect()
    }
}

impl RecentLine {
    fn take_repeats(&mut self, now: Instant) -> RepeatSummary {
        RepeatSummary {
            level: self.level,
            text: self.text.clone(),
            repeats: std::mem::take(&mut self.repeats),
            within: now.duration_since(self.first_logged).min(WINDOW),
        }
    }
}

impl<S: Subscriber> Layer<S> for DeduplicateLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == SUMMARY_TARGET {
            return true;
        }
        let now = (self.clock)();
        let recorded =
            self.recent.lock().unwrap_or_else(PoisonError::into_inner).record(event, now);
        if let Some(before) = recorded.as_ref().filter(|before| !before.is_empty()) {
            // `tracing` keeps the state of the current line per thread, so the summaries are logged
            // from another thread.
            thread::scope(|scope| {
                let log = || before.iter().for_each(RepeatSummary::log);
                // If the thread cannot be started, the counts are lost.
                let _lost = thread::Builder::new().spawn_scoped(scope, log);
            });
        }
        recorded.is_some()
    }
}

impl DeduplicateLayer {
    /// Logs the counts of repeated lines until the process ends. If the thread cannot be started,
    /// the counts are lost.
    pub(super) fn spawn_reporter(self) {
        let report = move || {
            loop {
                thread::park_timeout(FLUSH_INTERVAL);
                self.take_expired().iter().for_each(RepeatSummary::log);
            }
        };
        let _lost = thread::Builder::new().name("log".to_owned()).spawn(report);
    }

    fn take_expired(&self) -> Vec<RepeatSummary> {
        let now = (self.clock)();
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).take_expired(now)
    }
}

impl RepeatSummary {
    fn log(&self) {
        let Self { level, text: EventText { message, fields }, repeats, within } = self;
        let times = if *repeats == 1 { "once".to_owned() } else { format!("{repeats} times") };
        let seconds = within.as_secs();
        // `tracing` needs the level at compile time.
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    target: SUMMARY_TARGET, repeats, fields,
                    "{message} (repeated {times} within {seconds}s)"
                )
            };
        }
        match *level {
            Level::ERROR => log!(error),
            Level::WARN => log!(warn),
            _ => log!(info),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LogFormat, LogLevel as Shown, subscriber};
    use std::{cell::Cell, io, sync::mpsc};
    use tracing_subscriber::layer::SubscriberExt as _;

    thread_local! {
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    fn now() -> Instant {
        NOW.with(|now| now.get().unwrap())
    }

    fn pass(seconds: u64) {
        NOW.with(|at| at.set(Some(now() + Duration::from_secs(seconds))));
    }

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

    /// The lines logged by `work`, without their times.
    fn logged(level: Shown, work: impl FnOnce(&DeduplicateLayer)) -> Vec<String> {
        NOW.with(|at| at.set(Some(Instant::now())));
        let repeats = DeduplicateLayer { recent: Arc::default(), clock: now };
        let (lines, read) = mpsc::channel();
        let shown = subscriber(level, LogFormat::Logfmt, move || Lines(lines.clone()));
        let shown = shown.with(repeats.clone());
        tracing::subscriber::with_default(shown, || work(&repeats));
        let text = String::from_utf8(read.try_iter().flatten().collect()).unwrap();
        let parts = text.lines().map(|line| line.split_once(" message=").unwrap().1.to_owned());
        parts.collect()
    }

    fn fail(why: &str) {
        tracing::error!(target: "recliner::test", why, "it failed");
    }

    #[test]
    fn logs_first_line_and_counts_repeats_after_a_minute() {
        let lines = logged(Shown::Info, |repeats| {
            for _ in 0..8_258 {
                fail("no answer");
            }
            pass(59);
            fail("no answer");
            assert_eq!(repeats.take_expired(), []);
            pass(1);
            repeats.take_expired().iter().for_each(RepeatSummary::log);
            assert_eq!(repeats.take_expired(), []);
            // After the window, the line is logged again.
            fail("no answer");
            pass(60);
            assert_eq!(repeats.take_expired(), [], "the line was not repeated");
            fail("no answer");
            fail("no answer");
            pass(70);
            // The line repeats before its count is logged.
            fail("no answer");
            repeats.take_expired().iter().for_each(RepeatSummary::log);
        });
        assert_eq!(lines.len(), 6, "{lines:#?}");
        assert!(lines[0].contains("it failed") && lines[0].contains("why=\"no answer\""));
        assert!(lines[1].contains("it failed (repeated 8258 times within 60s)"), "{lines:#?}");
        assert!(lines[1].contains("no answer") && lines[1].contains("repeats=8258"), "{lines:#?}");
        assert!(lines[5].contains("it failed (repeated once within 60s)"), "{lines:#?}");
    }

    #[test]
    fn suppresses_only_identical_lines_and_never_debug() {
        let work = |_: &DeduplicateLayer| {
            for _ in 0..3 {
                fail("no answer");
                fail("refused");
                tracing::warn!(target: "recliner::test", why = "no answer", "it failed");
                tracing::error!(target: "recliner::other", why = "no answer", "it failed");
                tracing::error!(target: "recliner::test", why = "no answer", "it failed again");
                tracing::debug!(target: "recliner::test", "looked");
            }
        };
        assert_eq!(logged(Shown::Info, work).len(), 5);
        assert_eq!(logged(Shown::Debug, work).len(), 5 + 3);
    }

    #[test]
    fn logs_failure_count_before_less_severe_line() {
        NOW.with(|at| at.set(Some(Instant::now())));
        let repeats = DeduplicateLayer { recent: Arc::default(), clock: now };
        let recent = Arc::clone(&repeats.recent);
        // The test counts pending repeats instead of reading summaries: the subscriber belongs to
        // this thread, and summaries are logged from another one.
        let shown = subscriber(Shown::Info, LogFormat::Logfmt, io::sink).with(repeats);
        tracing::subscriber::with_default(shown, || {
            for _ in 0..3 {
                fail("no answer");
            }
            let pending = |recent: &Mutex<RecentLines>| -> u64 {
                recent.lock().unwrap().0.values().map(|line| line.repeats).sum()
            };
            tracing::info!(target: "recliner::other", "it works");
            assert_eq!(pending(&recent), 2, "a line of another module leaves the count pending");
            pass(12);
            tracing::info!(target: "recliner::test", "it works again");
            assert_eq!(pending(&recent), 0);
            fail("no answer");
            assert_eq!(pending(&recent), 1, "the window of the failure is still open");
        });
        let mut line = RecentLine {
            level: Level::ERROR,
            target: "recliner::test",
            text: EventText::default(),
            first_logged: now(),
            repeats: 3,
        };
        pass(12);
        let summary = line.take_repeats(now());
        assert_eq!((summary.repeats, summary.within, line.repeats), (3, WINDOW / 5, 0));
    }

    #[test]
    fn bounds_memory_and_logs_lines_beyond_the_bound() {
        let lines = logged(Shown::Info, |repeats| {
            for at in 0..2 * MAX_LINES {
                fail(&format!("{at} {}", "x".repeat(3 * MAX_LINE_BYTES)));
            }
            let seen = repeats.recent.lock().unwrap();
            assert_eq!(seen.0.len(), MAX_LINES);
            assert!(seen.0.values().all(|line| line.text.fields.len() <= MAX_LINE_BYTES));
            drop(seen);
            fail("last");
            fail("last");
            // Expired lines make room for new ones.
            pass(60);
            fail("new");
            fail("new");
        });
        assert_eq!(lines.len(), 2 * MAX_LINES + 3);
    }
}
