//! The settings of one smoosh channel.

use super::Effective;
use crate::{
    channel::{Channel, Priority},
    smoosh::{
        NodeConfig, Version,
        clock_time::{DAY_BEGINS, DAY_ENDS, Daily, HourMinute, daily, hour_minute},
        finding::{Remarks, Severity},
        number::{Number, integer, number},
    },
    target::Kind,
};
use jiff::tz::TimeZone;
use std::collections::BTreeSet;

/// A setting that makes smoosh fail on every object that comes to its channel.
pub(super) struct Broken {
    section: String,
    key: &'static str,
    value: String,
}

impl Broken {
    pub(super) fn remark(self, after: &[String], kind: Kind, remarks: &mut Remarks) {
        let Self { section, key, value } = self;
        let after = if after.is_empty() {
            String::new()
        } else {
            format!(", and so do those tried after it: {}", after.join(", "))
        };
        let (what, numbers) = match key {
            "min_changes" => ("integer", "7"),
            _ => ("number", "2.5, 7, 1.0e9 (not 1e9) or infinity"),
        };
        remarks.add(
            Severity::Warning,
            &section,
            key,
            format!(
                "{value:?} is no {what} to smoosh, which reads {numbers}: it fails on every {} that comes this far, so this channel takes nothing and is left out{after}",
                kind.label()
            ),
        );
    }
}

/// The section of a channel's settings.
pub(super) fn section_of(name: &str) -> String {
    format!("smoosh.{name}")
}

/// The priority of a built-in channel, which no setting changes
/// (`smoosh_server:get_priority/1`).
pub(in crate::smoosh) fn builtin_priority(name: &str, version: Version) -> Option<Priority> {
    match name {
        "ratio_dbs" | "ratio_views" => Some(Priority::Ratio),
        "slack_dbs" | "slack_views" => Some(Priority::Slack),
        "upgrade_dbs" | "upgrade_views" => Some(Priority::Upgrade),
        "ratio_schemas" if !version.adds_channels() => Some(Priority::Ratio),
        "slack_schemas" if !version.adds_channels() => Some(Priority::Slack),
        _ => None,
    }
}

/// Reads the settings of the channel `name`, which is called `unique` in `recliner.yml`.
pub(super) fn read(
    node: &NodeConfig,
    version: Version,
    name: &str,
    unique: &str,
    kind: Kind,
    remarks: &mut Remarks,
) -> Result<Effective, Broken> {
    let section = section_of(name);
    if name.is_empty() {
        remarks.add(
            Severity::Warning,
            "smoosh",
            None,
            format!("an empty name in the list of {} channels makes a ratio channel without a name; it becomes {unique}", kind.label()),
        );
    }
    let reader = Reader { node, section: &section };
    let mut channel = match kind {
        Kind::Cleanup => Channel::with_defaults(unique, kind, Priority::Cleanup),
        Kind::Db | Kind::View => reader.scored(version, name, unique, kind, remarks)?,
    };
    let mut stopped = None;
    reader.limits(&mut channel, &mut stopped, remarks);
    reader.window(&mut channel, &mut stopped, remarks);
    let mut floor_only = channel.max_priority == channel.min_priority;
    if reader.infinite_floor() && kind != Kind::Cleanup {
        floor_only = channel.priority != Priority::Upgrade;
        if version.adds_channels() {
            reader.unroundable(&mut channel, &mut stopped, remarks);
        }
    }
    if stopped.is_some() {
        channel.concurrency = 0;
        channel.windows.clear();
    }
    let (include, exclude) = (BTreeSet::new(), BTreeSet::new());
    let default_floor = reader.value("min_priority").is_none();
    Ok(Effective { channel, include, exclude, section, stopped, floor_only, default_floor })
}

struct Reader<'a> {
    node: &'a NodeConfig,
    section: &'a str,
}

impl Reader<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        self.node.value(self.section, key)
    }

    fn infinite_floor(&self) -> bool {
        self.value("min_priority") == Some("infinity")
    }

    /// Since 3.3 a priority is rounded as it is enqueued, which fails for `infinity`, the
    /// answer for a file without live bytes (`smoosh_server:quantize/1`): such files end
    /// here and are dropped.
    fn unroundable(
        &self,
        channel: &mut Channel,
        stopped: &mut Option<&'static str>,
        remarks: &mut Remarks,
    ) {
        if channel.priority != Priority::Upgrade {
            *stopped = Some("its min_priority is infinity, which fails on what it takes");
            return;
        }
        channel.min_priority = 0.0;
        remarks.add(
            Severity::Impossible,
            self.section,
            "min_priority",
            "infinity makes smoosh drop files without live bytes that come to this channel and still take those that need an upgrade; recliner leaves the former to the channels after it: remove the key, it says nothing about upgrades",
        );
    }

    fn number(&self, key: &'static str, default: Number) -> Result<Number, Broken> {
        let Some(text) = self.value(key) else { return Ok(default) };
        number(text).ok_or_else(|| Broken {
            section: self.section.to_owned(),
            key,
            value: text.to_owned(),
        })
    }

    /// What decides whether a db or a view is taken, and at what priority.
    fn scored(
        &self,
        version: Version,
        name: &str,
        unique: &str,
        kind: Kind,
        remarks: &mut Remarks,
    ) -> Result<Channel, Broken> {
        let priority = self.priority(name, version, kind, remarks);
        let mut channel = Channel::with_defaults(unique, kind, priority.unwrap_or(Priority::Ratio));
        if kind == Kind::Db
            && let Some(text) = self.value("min_changes")
        {
            let changes = integer(text).ok_or_else(|| Broken {
                section: self.section.to_owned(),
                key: "min_changes",
                value: text.to_owned(),
            })?;
            channel.min_changes = u64::try_from(changes.max(0)).unwrap_or(u64::MAX);
        }
        channel.min_size = self.number("min_size", Number::Integer(1_048_576))?.min_bytes();
        channel.max_size = self.number("max_size", Number::Infinity)?.max_bytes();
        let floor = match priority {
            Some(Priority::Slack) => version.min_slack(),
            _ => version.min_ratio(),
        };
        channel.min_priority = self.number("min_priority", Number::Float(floor))?.min_priority();
        channel.max_priority = self.number("max_priority", Number::Infinity)?.max_priority();
        if priority.is_none() {
            // Takes only what has no live bytes, at its least priority, as smoosh does:
            // every ratio is either not above the minimum or above the maximum.
            channel.max_priority = channel.min_priority;
        }
        Ok(channel)
    }

    /// The priority in effect; `None` where it is zero for all that has live bytes.
    fn priority(
        &self,
        name: &str,
        version: Version,
        kind: Kind,
        remarks: &mut Remarks,
    ) -> Option<Priority> {
        let written = self.value("priority");
        let builtin = builtin_priority(name, version);
        if let (Some(builtin), Some(written)) = (builtin, written)
            && written != builtin.label()
        {
            remarks.add(
                Severity::Warning,
                self.section,
                "priority",
                format!(
                    "{written:?} does nothing: the priority of the built-in channel {name} is {}",
                    builtin.label()
                ),
            );
        }
        let priority = match (builtin, written.unwrap_or("ratio")) {
            (Some(priority), _) => Some(priority),
            (None, "ratio") => Some(Priority::Ratio),
            (None, "slack") => Some(Priority::Slack),
            (None, "upgrade") => Some(Priority::Upgrade),
            (None, other) => {
                remarks.add(
                    Severity::Warning,
                    self.section,
                    "priority",
                    format!(
                        "{other:?} is none of ratio, slack and upgrade: the channel takes only files without live bytes, and is written with equal min_priority and max_priority to the same effect"
                    ),
                );
                None
            }
        };
        if priority == Some(Priority::Upgrade) {
            return self.upgrade(kind, remarks);
        }
        priority
    }

    fn upgrade(&self, kind: Kind, remarks: &mut Remarks) -> Option<Priority> {
        if kind == Kind::Db {
            remarks.add(
                Severity::Note,
                self.section,
                None,
                "takes no database on CouchDB 3.x: older file formats read as the newest once opened",
            );
        } else if self.node.value("view_upgrade", "compact_on_collator_upgrade") == Some("false") {
            remarks.add(
                Severity::Note,
                self.section,
                None,
                "takes only files without live bytes, since [view_upgrade] compact_on_collator_upgrade is false",
            );
            return None;
        }
        Some(Priority::Upgrade)
    }

    /// Capacity and concurrency, which smoosh's channel reads as it enqueues and starts.
    fn limits(
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
                Some(_) => *stopped = Some("its concurrency is 0"),
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
                    "{text:?} is no time as HH:MM, so {:02}:{:02} applies",
                    default.0, default.1
                ),
            );
            default
        })
    }

    fn window(
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
                        "smoosh suspends running jobs when the window closes; nobody can over HTTP, so recliner holds back before the start what would not end inside the window: the same targets are queued, but one that needs longer than a whole window never starts",
                    );
                }
                channel.windows = vec![window];
            }
        }
    }
}

/// A count of jobs or places in a queue; more than four billion are as good as that.
fn count(value: i128) -> usize {
    u32::try_from(value).map_or(usize::try_from(u32::MAX).unwrap_or(usize::MAX), |value| {
        usize::try_from(value).unwrap_or(usize::MAX)
    })
}
