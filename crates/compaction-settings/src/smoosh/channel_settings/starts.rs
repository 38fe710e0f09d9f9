//! When a channel starts jobs and how many: settings that smoosh reads when it enqueues and starts,
//! and that do not affect which targets the channel takes.

use super::Reader;
use crate::{
    NeverStarts, Opening, SmooshChannel,
    clock_time::{DAY_BEGINS, DAY_ENDS, HourMinute, daily, hour_minute},
    number::integer,
};

impl Reader<'_> {
    /// Reads capacity and concurrency.
    pub(super) fn limits(&mut self, channel: &mut SmooshChannel) {
        if let Some(text) = self.value("capacity") {
            match integer(text) {
                Some(capacity) if capacity > 0 => channel.capacity = count(capacity),
                _ => {
                    channel.never_starts = Some(NeverStarts::Capacity);
                    let message = format!(
                        "{text:?} is not an integer above 0: smoosh's channel crashes at every target"
                    );
                    self.findings.warn(self.section, "capacity", message);
                }
            }
        }
        if let Some(text) = self.value("concurrency") {
            match integer(text) {
                Some(concurrency) if concurrency > 0 => channel.concurrency = count(concurrency),
                Some(_) => channel.never_starts = Some(NeverStarts::Concurrency),
                None => {
                    channel.never_starts = Some(NeverStarts::InvalidConcurrency);
                    let message = format!(
                        "{text:?} is not an integer: smoosh's channel crashes at every target"
                    );
                    self.findings.warn(self.section, "concurrency", message);
                }
            }
        }
    }

    fn time(&mut self, key: &'static str, default: HourMinute) -> HourMinute {
        let Some(text) = self.value(key) else { return default };
        hour_minute(text).unwrap_or_else(|| {
            let message = format!(
                "{text:?} is not a time in the form HH:MM, so {:02}:{:02} applies",
                default.0, default.1
            );
            self.findings.warn(self.section, key, message);
            default
        })
    }

    /// Reads when the channel is open, and whether it suspends jobs when it closes.
    pub(super) fn window(&mut self, channel: &mut SmooshChannel) {
        let from = self.time("from", DAY_BEGINS);
        let to = self.time("to", DAY_ENDS);
        channel.opens = daily(from, to);
        let strict = self.value("strict_window");
        channel.strict_window = strict == Some("true");
        if let Some(other) = strict
            && !["true", "false"].contains(&other)
        {
            let message = format!("{other:?} is not exactly \"true\" and does nothing");
            self.findings.warn(self.section, "strict_window", message);
        }
        match channel.opens {
            Opening::Always => {
                if channel.strict_window {
                    channel.strict_window = false;
                    let why = "does nothing in a channel that is always open";
                    self.findings.note(self.section, "strict_window", why);
                }
            }
            Opening::Never => {
                channel.strict_window = false;
                channel.never_starts = Some(NeverStarts::Window);
            }
            Opening::Daily(_) => {}
        }
    }
}

/// A number of jobs or queue places, clamped to about four billion.
fn count(value: i128) -> usize {
    let value = u32::try_from(value).unwrap_or(u32::MAX);
    usize::try_from(value).unwrap_or(usize::MAX)
}
