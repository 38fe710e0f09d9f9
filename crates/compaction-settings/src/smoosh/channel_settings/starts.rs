//! When and how many: the settings that a channel of smoosh reads as it enqueues and
//! starts, and that decide nothing about what it takes.

use super::Reader;
use crate::{
    Opening, Severity, SmooshChannel,
    clock_time::{DAY_BEGINS, DAY_ENDS, HourMinute, daily, hour_minute},
    finding::Findings,
    number::integer,
};

impl Reader<'_> {
    /// Capacity and concurrency, which smoosh's channel reads as it enqueues and starts.
    pub(super) fn limits(&self, channel: &mut SmooshChannel, findings: &mut Findings) {
        if let Some(text) = self.value("capacity") {
            match integer(text) {
                Some(capacity) if capacity > 0 => channel.capacity = count(capacity),
                _ => {
                    channel.never_starts = Some("its capacity makes it crash");
                    findings.add(
                        Severity::Warning,
                        self.section,
                        "capacity",
                        format!("{text:?} is no integer above 0: smoosh's channel crashes at whatever it is given"),
                    );
                }
            }
        }
        if let Some(text) = self.value("concurrency") {
            match integer(text) {
                Some(concurrency) if concurrency > 0 => channel.concurrency = count(concurrency),
                Some(_) => channel.never_starts = Some("its concurrency is below 1"),
                None => {
                    channel.never_starts = Some("its concurrency makes it crash");
                    findings.add(
                        Severity::Warning,
                        self.section,
                        "concurrency",
                        format!("{text:?} is no integer: smoosh's channel crashes at whatever it is given"),
                    );
                }
            }
        }
    }

    fn time(&self, key: &'static str, default: HourMinute, findings: &mut Findings) -> HourMinute {
        let Some(text) = self.value(key) else { return default };
        hour_minute(text).unwrap_or_else(|| {
            findings.add(
                Severity::Warning,
                self.section,
                key,
                format!(
                    "{text:?} is not a time in the form HH:MM, so {:02}:{:02} applies",
                    default.0, default.1
                ),
            );
            default
        })
    }

    /// When it is open, and whether it suspends jobs when it closes.
    pub(super) fn window(&self, channel: &mut SmooshChannel, findings: &mut Findings) {
        let from = self.time("from", DAY_BEGINS, findings);
        let to = self.time("to", DAY_ENDS, findings);
        channel.opens = daily(from, to);
        let strict = self.value("strict_window");
        channel.strict_window = strict == Some("true");
        if let Some(other) = strict
            && !["true", "false"].contains(&other)
        {
            findings.add(
                Severity::Warning,
                self.section,
                "strict_window",
                format!("{other:?} is not exactly \"true\" and does nothing"),
            );
        }
        match channel.opens {
            Opening::Always => {
                if channel.strict_window {
                    channel.strict_window = false;
                    let why = "does nothing in a channel that is always open";
                    findings.add(Severity::Note, self.section, "strict_window", why);
                }
            }
            Opening::Never => {
                channel.strict_window = false;
                channel.never_starts = Some("its window never opens");
            }
            Opening::Daily(_) => {}
        }
    }
}

/// A count of jobs or places in a queue; more than four billion are as good as that.
fn count(value: i128) -> usize {
    let value = u32::try_from(value).unwrap_or(u32::MAX);
    usize::try_from(value).unwrap_or(usize::MAX)
}
