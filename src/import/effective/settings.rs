//! The settings of one smoosh channel: what it takes and at what priority.

mod starts;

use super::Effective;
use crate::{
    import::{
        NodeConfig, Rules,
        finding::{Remarks, Severity},
        number::{Number, integer, number},
    },
    model::{channel::Channel, priority::PriorityKind, target::TargetKind},
};
use std::collections::BTreeSet;

/// A setting that makes smoosh fail on every object that comes to its channel.
pub(super) struct Broken {
    section: String,
    key: &'static str,
    value: String,
    /// Databases with fewer changes never get as far as the setting, and go on to the
    /// next channel.
    min_changes: u64,
}

impl Broken {
    pub(super) fn remark(self, after: &[String], kind: TargetKind, remarks: &mut Remarks) {
        let Self { section, key, value, min_changes } = self;
        let (what, numbers) = match key {
            "min_changes" => ("integer", "7"),
            _ => ("number", "2.5, 7, 1.0e9 (not 1e9) or infinity"),
        };
        if min_changes > 0 && !after.is_empty() {
            remarks.add(
                Severity::Impossible,
                &section,
                key,
                format!("databases with fewer than {min_changes} changes escape the failure and reach {}, which no channel can say: correct the setting", after.join(", ")),
            );
        }
        remarks.add(
            Severity::Warning,
            &section,
            key,
            format!(
                "{value:?} is no {what} to smoosh, which reads {numbers}: it fails on every {} that comes this far, so this channel takes nothing and is left out{}",
                kind.label(),
                match after {
                    [] => String::new(),
                    after => format!(", and so do those tried after it: {}", after.join(", ")),
                }
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
pub(in crate::import) fn builtin_priority(name: &str, rules: Rules) -> Option<PriorityKind> {
    match name {
        "ratio_dbs" | "ratio_views" => Some(PriorityKind::Ratio),
        "slack_dbs" | "slack_views" => Some(PriorityKind::Slack),
        "upgrade_dbs" | "upgrade_views" => Some(PriorityKind::Upgrade),
        "ratio_schemas" if !rules.adds_channels() => Some(PriorityKind::Ratio),
        "slack_schemas" if !rules.adds_channels() => Some(PriorityKind::Slack),
        _ => None,
    }
}

/// Reads the settings of the channel `name`, which is called `unique` in `recliner.yml`.
pub(super) fn read(
    node: &NodeConfig,
    rules: Rules,
    name: &str,
    unique: &str,
    kind: TargetKind,
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
    let (mut channel, unscored) = match kind {
        TargetKind::Cleanup => (Channel::with_defaults(unique, kind, PriorityKind::Cleanup), false),
        TargetKind::Db | TargetKind::View | TargetKind::Search => {
            reader.scored(rules, name, unique, kind, remarks)?
        }
    };
    let mut stopped = None;
    reader.limits(&mut channel, &mut stopped, remarks);
    reader.window(&mut channel, &mut stopped, remarks);
    let mut floor_only = unscored;
    if reader.infinite_floor() && kind != TargetKind::Cleanup {
        floor_only = channel.priority != PriorityKind::Upgrade;
        if rules.adds_channels() {
            reader.unroundable(&mut channel, &mut stopped, remarks);
        }
    }
    if stopped.is_some() {
        channel.concurrency = 0;
        channel.windows.clear();
    }
    let (include, exclude) = (BTreeSet::new(), BTreeSet::new());
    let default_floor = reader.value("min_priority").is_none();
    Ok(Effective {
        channel,
        include,
        exclude,
        section,
        stopped,
        floor_only,
        unscored,
        default_floor,
    })
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
        if channel.priority != PriorityKind::Upgrade {
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

    fn broken(&self, key: &'static str, value: &str, min_changes: u64) -> Broken {
        let (section, value) = (self.section.to_owned(), value.to_owned());
        Broken { section, key, value, min_changes }
    }

    fn number(
        &self,
        key: &'static str,
        default: Number,
        min_changes: u64,
    ) -> Result<Number, Broken> {
        let Some(text) = self.value(key) else { return Ok(default) };
        number(text).ok_or_else(|| self.broken(key, text, min_changes))
    }

    /// What decides whether a db or a view is taken, and at what priority; and whether
    /// smoosh has no score for it.
    fn scored(
        &self,
        rules: Rules,
        name: &str,
        unique: &str,
        kind: TargetKind,
        remarks: &mut Remarks,
    ) -> Result<(Channel, bool), Broken> {
        let priority = self.priority(name, rules, kind, remarks);
        let mut channel =
            Channel::with_defaults(unique, kind, priority.unwrap_or(PriorityKind::Ratio));
        if kind == TargetKind::Db
            && let Some(text) = self.value("min_changes")
        {
            let changes = integer(text).ok_or_else(|| self.broken("min_changes", text, 0))?;
            channel.min_changes = u64::try_from(changes.max(0)).unwrap_or(u64::MAX);
        }
        let changes = channel.min_changes;
        channel.min_size =
            self.number("min_size", Number::Integer(1_048_576), changes)?.min_bytes();
        channel.max_size = self.number("max_size", Number::Infinity, changes)?.max_bytes();
        let floor = match priority {
            Some(PriorityKind::Slack) => rules.min_slack(),
            _ => rules.min_ratio(),
        };
        channel.min_priority =
            self.number("min_priority", Number::Float(floor), changes)?.min_priority();
        channel.max_priority =
            self.number("max_priority", Number::Infinity, changes)?.max_priority();
        if priority.is_none() {
            // Takes only what has no live bytes, at its least priority, as smoosh does:
            // every ratio is either not above the minimum or above the maximum.
            channel.max_priority = channel.min_priority;
        }
        Ok((channel, priority.is_none()))
    }

    /// The priority in effect; `None` where it is zero for all that has live bytes.
    fn priority(
        &self,
        name: &str,
        rules: Rules,
        kind: TargetKind,
        remarks: &mut Remarks,
    ) -> Option<PriorityKind> {
        let written = self.value("priority");
        let builtin = builtin_priority(name, rules);
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
            (None, "ratio") => Some(PriorityKind::Ratio),
            (None, "slack") => Some(PriorityKind::Slack),
            (None, "upgrade") => Some(PriorityKind::Upgrade),
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
        if priority == Some(PriorityKind::Upgrade) {
            return self.upgrade(kind, remarks);
        }
        priority
    }

    fn upgrade(&self, kind: TargetKind, remarks: &mut Remarks) -> Option<PriorityKind> {
        if kind == TargetKind::Db {
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
        Some(PriorityKind::Upgrade)
    }
}
