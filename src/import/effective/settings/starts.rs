//! When and how many: the settings that a channel of smoosh reads as it enqueues and
//! starts, and that decide nothing about what it takes.

use super::Reader;
use crate::{
    import::{
        clock_time::{DAY_BEGINS, DAY_ENDS, Daily, HourMinute, daily, hour_minute},
        finding::{Remarks, Severity},
        number::integer,
    },
    model::channel::Channel,
};
use jiff::tz::TimeZone;

impl Reader<'_> {
    /// Capacity and concurrency, which smoosh's channel reads as it enqueues and starts.
    pub(super) fn limits(
        &self,
        channel: &mut Channel,
        stopped: &mut Option<&'static str>,
        remarks: &mut Remarks,
    ) {
        if let Some(text) = self.value("capacity") {
            match integer(text) {
                Some(capacity) if capacity > 0 => channel.capacity = count(capacity),
                _ => {
                    *stopped = Some("its capacity makes it crash");
                    remarks.add(
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
                Some(_) => *stopped = Some("its concurrency is below 1"),
                None => {
                    *stopped = Some("its concurrency makes it crash");
                    remarks.add(
                        Severity::Warning,
                        self.section,
                        "concurrency",
                        format!("{text:?} is no integer: smoosh's channel crashes at whatever it is given"),
                    );
                }
            }
        }
    }

    fn time(&self, key: &'static str, default: HourMinute, remarks: &mut Remarks) -> HourMinute {
        let Some(text) = self.value(key) else { return default };
        hour_minute(text).unwrap_or_else(|| {
            remarks.add(
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

    pub(super) fn window(
        &self,
        channel: &mut Channel,
        stopped: &mut Option<&'static str>,
        remarks: &mut Remarks,
    ) {
        let from = self.time("from", DAY_BEGINS, remarks);
        let to = self.time("to", DAY_ENDS, remarks);
        let daily = daily(from, to, &TimeZone::UTC);
        let strict = self.value("strict_window");
        channel.strict_window = strict == Some("true");
        if let Some(other) = strict
            && !["true", "false"].contains(&other)
        {
            remarks.add(
                Severity::Warning,
                self.section,
                "strict_window",
                format!("{other:?} is not exactly \"true\" and does nothing"),
            );
        }
        match daily {
            Daily::Always => {
                if channel.strict_window {
                    channel.strict_window = false;
                    let why = "does nothing in a channel that is always open";
                    remarks.add(Severity::Note, self.section, "strict_window", why);
                }
            }
            Daily::Never => {
                channel.strict_window = false;
                *stopped = Some("its window never opens");
            }
            Daily::Within(window) => {
                remarks.add(
                    Severity::Note,
                    self.section,
                    "from",
                    "the window is UTC; smoosh also starts jobs for up to a minute after each start of CouchDB, and at a window's opening waits for the next write; recliner does neither",
                );
                if channel.strict_window {
                    remarks.add(
                        Severity::Warning,
                        self.section,
                        "strict_window",
                        "smoosh suspends running jobs when the window closes; that is not possible over HTTP, so recliner does not start what would not end inside the window: the same targets are queued, but one that needs longer than a whole window never starts",
                    );
                }
                channel.windows = vec![window];
            }
        }
    }
}

/// A count of jobs or places in a queue; more than four billion are as good as that.
fn count(value: i128) -> usize {
    let value = u32::try_from(value).unwrap_or(u32::MAX);
    usize::try_from(value).unwrap_or(usize::MAX)
}
