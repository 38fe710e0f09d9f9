//! The settings of one smoosh channel: which targets it takes and at what priority.

mod starts;

use super::BrokenChannel;
use crate::{
    ChannelKind, NeverStarts, NodeConfig, Opening, Priority, Rules, SmooshChannel,
    channel::section_of,
    finding::Findings,
    number::{Number, integer, number},
};

/// A setting that makes smoosh fail on every file that reaches its channel.
pub(super) struct BrokenSetting {
    key: &'static str,
    value: String,
    /// Databases with fewer changes than this never reach the setting.
    min_changes: u64,
}

impl BrokenSetting {
    /// Adds a finding about the setting, and returns the broken channel.
    pub(super) fn found(
        self,
        name: &str,
        kind: ChannelKind,
        not_reached: Vec<String>,
        findings: &mut Findings,
    ) -> BrokenChannel {
        let Self { key, value, min_changes } = self;
        let (what, numbers) = match key {
            "min_changes" => ("integer", "7"),
            _ => ("number", "2.5, 7, 1.0e9 (not 1e9) or infinity"),
        };
        let after = match not_reached.as_slice() {
            [] => String::new(),
            after => format!(", and neither do those tried after it: {}", after.join(", ")),
        };
        let message = format!(
            "{value:?} is not a valid {what} for smoosh, which reads {numbers}: it fails on every {kind} that reaches this channel, so the channel takes nothing{after}"
        );
        findings.warn(&section_of(name), key, message);
        BrokenChannel { name: name.to_owned(), kind, key, min_changes, not_reached }
    }
}

/// The priority of a built-in channel, which no setting changes
/// (`smoosh_server:get_priority/1`).
pub(crate) fn builtin_priority(name: &str, rules: Rules) -> Option<Priority> {
    match name {
        "ratio_dbs" | "ratio_views" => Some(Priority::Ratio),
        "slack_dbs" | "slack_views" => Some(Priority::Slack),
        "upgrade_dbs" | "upgrade_views" => Some(Priority::Upgrade),
        "ratio_schemas" if !rules.adds_channels() => Some(Priority::Ratio),
        "slack_schemas" if !rules.adds_channels() => Some(Priority::Slack),
        _ => None,
    }
}

/// Reads the settings of the channel `name`.
pub(super) fn read(
    node: &NodeConfig,
    rules: Rules,
    name: &str,
    kind: ChannelKind,
    findings: &mut Findings,
) -> Result<SmooshChannel, BrokenSetting> {
    let section = section_of(name);
    if name.is_empty() {
        let message = format!(
            "an empty name in the list of {} channels creates a ratio channel without a name",
            kind
        );
        findings.warn("smoosh", None, message);
    }
    let mut reader = Reader { node, rules, section: &section, findings };
    let mut channel = with_defaults(name, kind);
    if kind != ChannelKind::Cleanup {
        reader.scored(&mut channel)?;
    }
    reader.limits(&mut channel);
    reader.window(&mut channel);
    if reader.has_infinite_minimum() && kind != ChannelKind::Cleanup {
        channel.only_empty_files = channel.priority != Some(Priority::Upgrade);
        if rules.adds_channels() {
            reader.infinite_minimum(&mut channel);
        }
    }
    if channel.never_starts.is_some() {
        channel.concurrency = 0;
    }
    Ok(channel)
}

/// A channel with default settings.
fn with_defaults(name: &str, kind: ChannelKind) -> SmooshChannel {
    SmooshChannel {
        name: name.to_owned(),
        kind,
        priority: (kind == ChannelKind::Cleanup).then_some(Priority::Cleanup),
        min_priority: 0.0,
        max_priority: f64::INFINITY,
        min_size: 0,
        max_size: None,
        min_changes: 0,
        capacity: 9_999,
        concurrency: 1,
        opens: Opening::Always,
        strict_window: false,
        never_starts: None,
        only_empty_files: false,
        drops_empty_files: false,
        has_default_min_priority: false,
    }
}

struct Reader<'a> {
    node: &'a NodeConfig,
    rules: Rules,
    section: &'a str,
    findings: &'a mut Findings,
}

impl<'a> Reader<'a> {
    fn value(&self, key: &str) -> Option<&'a str> {
        self.node.value(self.section, key)
    }

    fn has_infinite_minimum(&self) -> bool {
        self.value("min_priority") == Some("infinity")
    }

    /// Since 3.3, priorities are rounded when they are enqueued (`smoosh_server:quantize/1`). That
    /// fails for `infinity`, the priority of a file without live bytes here, so such files are
    /// dropped.
    fn infinite_minimum(&mut self, channel: &mut SmooshChannel) {
        if channel.priority != Some(Priority::Upgrade) {
            channel.never_starts = Some(NeverStarts::InfiniteMinimum);
            return;
        }
        channel.min_priority = 0.0;
        channel.drops_empty_files = true;
        let message = "infinity makes smoosh drop files without live bytes that reach this channel, but still take those that need an upgrade: remove the key, which does not affect upgrades";
        self.findings.warn(self.section, "min_priority", message);
    }

    fn number(
        &self,
        key: &'static str,
        default: Number,
        min_changes: u64,
    ) -> Result<Number, BrokenSetting> {
        let Some(text) = self.value(key) else { return Ok(default) };
        number(text).ok_or_else(|| BrokenSetting { key, value: text.to_owned(), min_changes })
    }

    /// Reads which databases or views the channel takes, and at what priority.
    fn scored(&mut self, channel: &mut SmooshChannel) -> Result<(), BrokenSetting> {
        let priority = self.priority(channel);
        channel.priority = priority;
        if channel.kind == ChannelKind::Db
            && let Some(text) = self.value("min_changes")
        {
            let changes = integer(text).ok_or_else(|| BrokenSetting {
                key: "min_changes",
                value: text.to_owned(),
                min_changes: 0,
            })?;
            channel.min_changes = u64::try_from(changes.max(0)).unwrap_or(u64::MAX);
        }
        let changes = channel.min_changes;
        channel.min_size =
            self.number("min_size", Number::Integer(1_048_576), changes)?.min_bytes();
        channel.max_size = self.number("max_size", Number::Infinity, changes)?.max_bytes();
        let default_minimum = match priority {
            Some(Priority::Slack) => self.rules.min_slack(),
            _ => self.rules.min_ratio(),
        };
        channel.min_priority =
            self.number("min_priority", Number::Float(default_minimum), changes)?.min_priority();
        channel.max_priority =
            self.number("max_priority", Number::Infinity, changes)?.max_priority();
        if priority.is_none() {
            // Like smoosh, takes only files without live bytes, at the minimum priority: every
            // ratio is either not above the minimum or above the maximum.
            channel.max_priority = channel.min_priority;
        }
        channel.only_empty_files = priority.is_none();
        channel.has_default_min_priority = self.value("min_priority").is_none();
        Ok(())
    }

    /// The priority in effect; `None` if it is zero for every file with live bytes.
    fn priority(&mut self, channel: &SmooshChannel) -> Option<Priority> {
        let (name, kind) = (&channel.name, channel.kind);
        let written = self.value("priority");
        let builtin = builtin_priority(name, self.rules);
        if let (Some(builtin), Some(written)) = (builtin, written)
            && written.parse() != Ok(builtin)
        {
            let message = format!(
                "{written:?} does nothing: the priority of the built-in channel {name} is {builtin}"
            );
            self.findings.warn(self.section, "priority", message);
        }
        let priority = match (builtin, written.unwrap_or("ratio")) {
            (Some(priority), _) => Some(priority),
            (None, word @ ("ratio" | "slack" | "upgrade")) => word.parse().ok(),
            (None, other) => {
                let message = format!(
                    "{other:?} is not ratio, slack or upgrade: the channel takes only files without live bytes"
                );
                self.findings.warn(self.section, "priority", message);
                None
            }
        };
        if priority == Some(Priority::Upgrade) {
            return self.upgrade(kind);
        }
        priority
    }

    fn upgrade(&mut self, kind: ChannelKind) -> Option<Priority> {
        if kind == ChannelKind::Db {
            let message =
                "matches nothing on CouchDB 3: older file formats read as the newest once opened";
            self.findings.note(self.section, None, message);
        } else if self.node.value("view_upgrade", "compact_on_collator_upgrade") == Some("false") {
            let message = "takes only files without live bytes, since [view_upgrade] compact_on_collator_upgrade is false";
            self.findings.note(self.section, None, message);
            return None;
        }
        Some(Priority::Upgrade)
    }
}
