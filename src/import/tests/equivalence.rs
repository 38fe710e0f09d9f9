//! Compares imported channels and their scores with a second, independent implementation of
//! smoosh's rules that works directly on settings.

use super::*;
use crate::model::{
    facts::{Facts, OptionalU64},
    score::{RentNow, score},
    target::TargetKind,
};
use proptest::prelude::*;
use wall_clock::Moment;

/// An Erlang number, or the atom `infinity`, which is greater than all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Erl {
    Int(i64),
    Float(f64),
    Infinity,
}

impl Erl {
    fn read(text: &str) -> Option<Self> {
        if text == "infinity" {
            return Some(Self::Infinity);
        }
        if text.contains('.') {
            return text.parse().ok().map(Self::Float);
        }
        text.parse().ok().map(Self::Int)
    }

    fn value(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
            Self::Infinity => f64::INFINITY,
        }
    }
}

struct Server<'a> {
    node: &'a NodeConfig,
    new: bool,
    min_slack: &'a str,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    kind: TargetKind,
    file: u64,
    active: u64,
    changes: u64,
    upgrade: bool,
}

/// smoosh failed on the object and does not try later channels.
struct Crash;

impl Server<'_> {
    fn get(&self, channel: &str, key: &str) -> Option<&str> {
        self.node.sections.get(&format!("smoosh.{channel}"))?.get(key).map(String::as_str)
    }

    fn number(&self, channel: &str, key: &str, default: &str) -> Result<Erl, Crash> {
        Erl::read(self.get(channel, key).unwrap_or(default)).ok_or(Crash)
    }

    fn list(&self, kind: TargetKind) -> Vec<String> {
        let (key, builtin) = match kind {
            TargetKind::Db => ("db_channels", ["upgrade_dbs", "ratio_dbs", "slack_dbs"]),
            TargetKind::View | TargetKind::Cleanup | TargetKind::Search => {
                ("view_channels", ["upgrade_views", "ratio_views", "slack_views"])
            }
        };
        let written = self.node.sections.get("smoosh").and_then(|keys| keys.get(key));
        let mut list: Vec<String> = match written {
            Some(text) => text.split(',').map(|name| name.trim().to_owned()).collect(),
            None => Vec::new(),
        };
        if self.new || written.is_none() {
            list.extend(builtin.map(str::to_owned));
        }
        if self.new {
            list.sort();
            list.dedup();
        }
        list
    }

    fn priority(&self, channel: &str, object: Object) -> Result<Erl, Crash> {
        let changes = self.get(channel, "min_changes").unwrap_or("0");
        if object.kind == TargetKind::Db {
            let least: i64 = changes.parse().map_err(|_| Crash)?;
            if (object.changes as i64) < least {
                return Ok(Erl::Int(0));
            }
        }
        let by = match channel {
            "ratio_dbs" | "ratio_views" => "ratio",
            "slack_dbs" | "slack_views" => "slack",
            "upgrade_dbs" | "upgrade_views" => "upgrade",
            _ => self.get(channel, "priority").unwrap_or("ratio"),
        };
        let min_size = self.number(channel, "min_size", "1048576")?;
        let max_size = self.number(channel, "max_size", "infinity")?;
        let floor = if by == "slack" { self.min_slack } else { "2.0" };
        let min = self.number(channel, "min_priority", floor)?;
        let max = self.number(channel, "max_priority", "infinity")?;
        let upgrades = self.node.sections.get("view_upgrade").is_none_or(|keys| {
            keys.get("compact_on_collator_upgrade").is_none_or(|value| value != "false")
        });
        let upgrade = object.upgrade && (object.kind == TargetKind::Db || upgrades);
        let (file, active) = (object.file as f64, object.active as f64);
        let within = |value: f64, erl: Erl| {
            if value <= min.value() || value > max.value() { Erl::Int(0) } else { erl }
        };
        Ok(if by == "upgrade" && upgrade {
            Erl::Int(1)
        } else if file <= min_size.value() || file > max_size.value() {
            Erl::Int(0)
        } else if object.active == 0 {
            min
        } else if by == "ratio" {
            within(file / active, Erl::Float(file / active))
        } else if by == "slack" {
            within(file - active, Erl::Int(object.file as i64 - object.active as i64))
        } else {
            Erl::Int(0)
        })
    }

    fn open(&self, channel: &str, minute: u32) -> bool {
        let read = |key: &str, default: (i64, i64)| {
            let Some((hour, minute)) = self.get(channel, key).and_then(|at| at.split_once(':'))
            else {
                return default;
            };
            match (hour.parse(), minute.parse()) {
                (Ok(hour), Ok(minute)) => (hour, minute),
                _ => default,
            }
        };
        let (from, to) = (read("from", (0, 0)), read("to", (24, 0)));
        let now = (i64::from(minute / 60), i64::from(minute % 60));
        if from < to { now >= from && now < to } else { now >= from || now < to }
    }

    fn starts(&self, channel: &str, minute: u32) -> bool {
        let positive =
            |key: &str| self.get(channel, key).unwrap_or("1").parse::<i64>().is_ok_and(|n| n > 0);
        positive("capacity") && positive("concurrency") && self.open(channel, minute)
    }

    /// The channel that smoosh would start the object in at this minute, and the object's priority.
    fn started(&self, object: Object, minute: u32) -> Option<(String, f64)> {
        for channel in self.list(object.kind) {
            match self.priority(&channel, object) {
                Err(Crash) => return None,
                Ok(Erl::Int(0)) => {}
                Ok(Erl::Infinity) if self.new => return None,
                Ok(priority) => {
                    return self
                        .starts(&channel, minute)
                        .then(|| (channel.clone(), priority.value()));
                }
            }
        }
        None
    }
}

fn imported_starts(channels: &Channels, object: Object, minute: u32) -> Option<(String, f64)> {
    let mut facts = Facts {
        update_seq: OptionalU64::new(1000 + object.changes),
        compacted_seq: OptionalU64::new(1000),
        ..Facts::sized(object.file, object.active)
    };
    facts.flags.needs_upgrade = object.upgrade;
    let (channel, priority) = channels.list.iter().find_map(|channel| {
        Some((channel, score(channel, object.kind, &facts, RentNow::UNKNOWN).ok()?))
    })?;
    let now = Moment::from_unix(1_700_006_400 + u64::from(minute) * 60);
    let open =
        channel.windows.is_empty() || channel.windows.iter().any(|window| window.is_open_at(now));
    (open && channel.concurrency > 0).then(|| (channel.name.to_string(), priority))
}

/// A setting that is absent in most cases.
fn setting(
    key: &'static str,
    values: &'static [&'static str],
) -> impl Strategy<Value = Option<(String, String)>> {
    prop_oneof![
        4 => Just(None),
        1 => prop::sample::select(values).prop_map(move |value| Some((key.to_owned(), value.to_owned()))),
    ]
}

fn settings() -> impl Strategy<Value = Vec<Option<(String, String)>>> {
    (
        setting("priority", &["ratio", "slack", "upgrade", "custom"]),
        setting("min_priority", &["2.0", "0", "0.0", "-1", "1e9", "infinity", "1000", "1.5", "3"]),
        setting("max_priority", &["infinity", "5", "2.0", "x", "100000"]),
        setting("min_size", &["0", "1000", "1000.5", "infinity", "-3", "1e6", "1000000"]),
        setting("max_size", &["2000000", "infinity", "-1", "0.5", "2000000.9"]),
        setting("min_changes", &["0", "10", "-1", "1.5"]),
        setting("capacity", &["10", "0", "x"]),
        setting("concurrency", &["0", "2", "-1", "y"]),
        setting("from", &["20:00", "24:00", "bad", "03:61"]),
        setting("to", &["06:00", "24:01", "20:00", "bad"]),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i, j)| vec![a, b, c, d, e, f, g, h, i, j])
}

fn object() -> impl Strategy<Value = Object> {
    let file = prop::sample::select(vec![
        1_u64,
        999,
        1000,
        1001,
        1_000_000,
        1_048_576,
        1_048_577,
        2_000_000,
        2_000_001,
        40_000_000,
        600_000_000,
        1_073_741_826,
        1_100_000_000,
    ]);
    let active = prop::sample::select(vec![0_u64, 1, 2, 3, 4, 5, 6, 7]);
    (prop::bool::ANY, file, active, prop::sample::select(vec![0_u64, 9, 10, 50]), prop::bool::ANY)
        .prop_map(|(view, file, active, changes, upgrade)| Object {
            kind: if view { TargetKind::View } else { TargetKind::Db },
            file,
            active: match active {
                0 => 0,
                1 => 1,
                2 => file,
                3 => file / 2 + 1,
                4 => file / 3 + 1,
                5 => file.saturating_sub(536_870_913),
                6 => file * 2,
                _ => file / 2,
            },
            changes,
            upgrade,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn imported_channels_start_the_same_targets_as_smoosh(
        version in prop::sample::select(vec!["3.0.1", "3.1.2", "3.2.2", "3.3.3", "3.5.0"]),
        dbs in prop::sample::select(vec![
            None, Some("big_dbs"), Some("zz_dbs,ratio_dbs"), Some("slack_dbs , big_dbs"),
            Some("upgrade_dbs,slack_dbs,ratio_dbs"),
        ]),
        views in prop::sample::select(vec![None, Some("a_views,ratio_views"), Some("upgrade_views")]),
        channels in prop::collection::btree_map(
            prop::sample::select(vec![
                "big_dbs", "zz_dbs", "ratio_dbs", "slack_dbs", "upgrade_dbs", "a_views",
                "ratio_views", "slack_views", "upgrade_views",
            ]),
            settings(),
            0..5,
        ),
        collator in prop::sample::select(vec![None, Some("false"), Some("true")]),
        objects in prop::collection::vec((object(), 0_u32..1440), 12),
    ) {
        let mut sections = Sections::new();
        for (key, list) in [("db_channels", dbs), ("view_channels", views)] {
            if let Some(list) = list {
                sections.entry("smoosh".to_owned()).or_default().insert(key.to_owned(), list.to_owned());
            }
        }
        for (name, settings) in channels {
            sections.insert(format!("smoosh.{name}"), settings.into_iter().flatten().collect());
        }
        if let Some(collator) = collator {
            let upgrade = [("compact_on_collator_upgrade".to_owned(), collator.to_owned())];
            sections.insert("view_upgrade".to_owned(), upgrade.into());
        }
        let node = NodeConfig {
            node: "n".to_owned(), version: version.to_owned(), sections, problems: Vec::new(),
        };
        let imported = import_smoosh(std::slice::from_ref(&node)).unwrap();
        let new = version >= "3.3";
        let server = Server {
            node: &node,
            new,
            min_slack: if version >= "3.2" { "536870912" } else { "16777216" },
        };
        for (mut object, minute) in objects {
            // Before 3.3, a view's collator versions are unknown.
            object.upgrade &= object.kind == TargetKind::Db || new;
            if !imported.is_equal() {
                continue;
            }
            let smoosh = server.started(object, minute);
            let recliner = imported_starts(&imported.channels, object, minute);
            if let Some((name, _)) = &smoosh {
                let section = format!("smoosh.{name}");
                let reports = |what: &str| imported.findings.iter().any(|finding| {
                    finding.section == section && finding.message.starts_with(what)
                });
                prop_assert!(!reports("takes nothing"), "{name} takes {object:?}");
                let only = reports("takes only files without live bytes");
                prop_assert!(!only || object.active == 0, "{name} takes {object:?}");
            }
            let name = |started: &Option<(String, f64)>| started.as_ref().map(|(name, _)| name.clone());
            prop_assert_eq!(name(&recliner), name(&smoosh), "{:?} at {}", object, minute);
            if let (Some((_, recliner)), Some((_, smoosh))) = (recliner, smoosh)
                && smoosh.is_finite()
            {
                prop_assert!((recliner - smoosh).abs() < 1e-9, "{recliner} {smoosh}");
            }
        }
    }
}
