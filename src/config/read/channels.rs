//! `channels` and `ignore`: what is worth compacting.

use super::set;
use crate::{
    config::{
        problem::FindingKind,
        section::{Report, Section, Spanned},
        tree::{At, Node},
        value,
    },
    model::{
        channel::{Channel, Mode, Priority},
        target::Kind,
        window::{Days, Edge, Window, shown_time, time, zone},
    },
    text::pattern::{Names, Patterns},
};
use jiff::{civil::Time, tz::TimeZone};
use std::collections::BTreeMap;

/// The channels in their order; `None` when the key is left out.
pub(super) fn list(root: &mut Section<'_, '_>) -> Option<Vec<Channel>> {
    let found = root.list("channels", |report, node, path| {
        let channel = channel(report, node, path)?;
        Some((channel, node.at, path.to_owned()))
    })?;
    let mut lines: BTreeMap<std::sync::Arc<str>, usize> = BTreeMap::new();
    let mut list = Vec::with_capacity(found.len());
    for (channel, at, path) in found {
        if let Some(line) = lines.get(&channel.name) {
            let says = format!(
                "the channel {} is there twice, first on line {line}; names are unique",
                channel.name
            );
            root.report.refuse(at, &format!("{path}.name"), says);
        } else {
            lines.insert(channel.name.clone(), at.line);
        }
        list.push(channel);
    }
    Some(list)
}

/// A list of patterns.
pub(super) fn patterns(section: &mut Section<'_, '_>, key: &'static str) -> Option<Patterns> {
    let texts = texts(section, key)?;
    match Patterns::new(&texts) {
        Ok(patterns) => Some(patterns),
        Err(why) => {
            section.refuse(why.to_string());
            None
        }
    }
}

fn texts(section: &mut Section<'_, '_>, key: &'static str) -> Option<Vec<String>> {
    Some(section.values(key, value::pattern)?.into_iter().map(|found| found.value).collect())
}

/// Whether a key can change anything in a channel of this kind and priority
/// (`smoosh_server:get_priority/2` and `/4`: an upgrade's sizes and least priority still
/// decide about files without live bytes).
pub(in crate::config) fn has_effect(key: &str, kind: Kind, priority: Priority) -> bool {
    match key {
        "designs" => kind == Kind::View,
        "min_changes" => kind == Kind::Db,
        "min_size" | "max_size" | "min_priority" => kind != Kind::Cleanup,
        "max_priority" => matches!(priority, Priority::Ratio | Priority::Slack),
        _ => true,
    }
}

fn channel(report: &mut Report, node: &Node, path: &str) -> Option<Channel> {
    let (mut section, is_mapping) = Section::open(report, node, path);
    let channel = if is_mapping { keys(&mut section) } else { None };
    section.close(is_mapping);
    channel
}

fn keys(section: &mut Section<'_, '_>) -> Option<Channel> {
    let places: Vec<(&str, At)> =
        ["designs", "min_changes", "min_size", "max_size", "min_priority", "max_priority"]
            .into_iter()
            .filter_map(|key| Some((key, section.key_at(key)?)))
            .collect();
    let name_is_there = section.key_at("name").is_some();
    let kind_is_there = section.key_at("kind").is_some();
    let name = section.value("name", value::channel_name);
    let kind = section.value("kind", value::one_of(Kind::COMPACTED, Kind::label));
    if !name_is_there {
        section.refuse("the key name is missing; every channel has one");
    }
    if !kind_is_there {
        section.refuse("the key kind is missing; db, view or cleanup says what the channel takes");
    }
    let priority = section.spanned("priority", value::one_of(Priority::ALL, Priority::label));
    let sound = kind.is_none_or(|kind| fits(section, kind, priority.as_ref()));
    let implied = if kind == Some(Kind::Cleanup) { Priority::Cleanup } else { Priority::Ratio };
    let priority = priority.map_or(implied, |found| found.value);

    let mut channel =
        Channel::with_defaults(name.as_deref().unwrap_or("x"), kind.unwrap_or(Kind::Db), priority);
    bounds(section, &mut channel);
    set(&mut channel.min_changes, section.value("min_changes", value::count));
    set(&mut channel.capacity, section.value("capacity", value::integer(1..=10_000_000)));
    set(&mut channel.concurrency, section.value("concurrency", value::integer(0..=10_000)));
    set(&mut channel.mode, section.value("mode", value::one_of(Mode::ALL, Mode::label)));
    set(&mut channel.databases, section.section("databases", names));
    set(&mut channel.designs, section.section("designs", names));
    let windows = section.list("windows", window);
    let strict_at = section.key_at("strict_window");
    set(&mut channel.strict_window, section.value("strict_window", value::boolean));
    set(&mut channel.windows, windows);
    if let Some(at) = strict_at
        && channel.windows.is_empty()
        && channel.strict_window
    {
        let path = section.path_of("strict_window");
        section.report.note(
            at,
            &path,
            FindingKind::NoEffect,
            "without windows there is nothing to be strict about",
        );
    }
    if let Some(kind) = kind
        && sound
    {
        // Findings, not problems: smoosh takes these silently, and settings moved from
        // there keep working.
        for (key, at) in places {
            if !has_effect(key, kind, priority) {
                let path = section.path_of(key);
                let says = format!(
                    "no effect in a channel of kind {} and priority {}",
                    kind.label(),
                    priority.label()
                );
                section.report.note(at, &path, FindingKind::NoEffect, says);
            }
        }
    }
    (name.is_some() && kind.is_some() && sound).then_some(channel)
}

/// Whether a priority can rank targets of a kind.
fn fits(section: &mut Section<'_, '_>, kind: Kind, priority: Option<&Spanned<Priority>>) -> bool {
    let Some(priority) = priority else {
        return true;
    };
    let allowed = match kind {
        Kind::Db | Kind::View | Kind::Search => "ratio, slack or upgrade",
        Kind::Cleanup => "cleanup",
    };
    let fits = (kind == Kind::Cleanup) == (priority.value == Priority::Cleanup);
    if !fits {
        let says = format!(
            "found \"{}\", but a channel of kind {} ranks by {allowed}",
            priority.value.label(),
            kind.label()
        );
        section.report.refuse(priority.at, &priority.path, says);
    }
    fits
}

/// The bounds of priority and size.
fn bounds(section: &mut Section<'_, '_>, channel: &mut Channel) {
    let slack = channel.priority == Priority::Slack;
    let read = move |text: &str| {
        if slack {
            value::number(text).or_else(|_| value::bytes(text).map(|bytes| bytes as f64))
        } else {
            value::number(text)
        }
    };
    let least = section.spanned("min_priority", read);
    let most = section.spanned("max_priority", |text| {
        if value::is_infinity(text) { Ok(f64::INFINITY) } else { read(text) }
    });
    set(&mut channel.min_priority, least.as_ref().map(|found| found.value));
    set(&mut channel.max_priority, most.as_ref().map(|found| found.value));
    let compares = matches!(channel.priority, Priority::Ratio | Priority::Slack);
    if compares && channel.min_priority >= channel.max_priority {
        let shown = |bound: f64| match bound.to_string().parse() {
            Ok(bytes) if slack => value::exact_bytes(bytes),
            _ => bound.to_string(),
        };
        let says = format!(
            "the channel takes nothing, for max_priority is {} and not above min_priority, which is {}",
            shown(channel.max_priority),
            shown(channel.min_priority)
        );
        refuse_at(section, most.as_ref().or(least.as_ref()), says);
    }

    let least = section.spanned("min_size", value::bytes);
    let most = section.spanned("max_size", value::bytes_or_infinity);
    set(&mut channel.min_size, least.as_ref().map(|found| found.value));
    set(&mut channel.max_size, most.as_ref().map(|found| found.value));
    if let Some(max) = channel.max_size
        && compares
        && channel.min_size >= max
    {
        let says = format!(
            "the channel takes nothing, for max_size is {} and not above min_size, which is {}",
            value::exact_bytes(max),
            value::exact_bytes(channel.min_size)
        );
        refuse_at(section, most.as_ref(), says);
    }
}

/// Adds a problem where a value is written, or at the section where none is.
fn refuse_at<T>(section: &mut Section<'_, '_>, found: Option<&Spanned<T>>, says: String) {
    match found {
        Some(found) => section.report.refuse(found.at, &found.path, says),
        None => section.refuse(says),
    }
}

fn names(section: &mut Section<'_, '_>) -> Names {
    let include = texts(section, "include").unwrap_or_default();
    let exclude = texts(section, "exclude").unwrap_or_default();
    match Names::new(&include, &exclude) {
        Ok(names) => names,
        Err(why) => {
            section.refuse(why.to_string());
            Names::default()
        }
    }
}

fn window(report: &mut Report, node: &Node, path: &str) -> Option<Window> {
    let (mut section, is_mapping) = Section::open(report, node, path);
    let days_at = section.key_at("days");
    let problems = section.report.problems.len();
    let days = section.values("days", |text| text.parse::<Days>().map_err(|why| why.to_string()));
    let days = days.map_or(Days::ALL, |days| {
        days.into_iter().map(|found| found.value).fold(Days::NONE, Days::and)
    });
    let read_time = |edge| move |text: &str| time(text, edge).map_err(|why| why.to_string());
    let days_are_sound = section.report.problems.len() == problems;
    let from = section.value("from", read_time(Edge::From)).unwrap_or(Time::midnight());
    let to = section.value("to", read_time(Edge::To)).unwrap_or(Time::midnight());
    let zone = section
        .value("zone", |text| zone(text).map_err(|why| why.to_string()))
        .unwrap_or(TimeZone::UTC);
    let window = Window { days, from, to, zone };
    if let Some(at) = days_at
        && days == Days::NONE
        && days_are_sound
    {
        let path = section.path_of("days");
        section.report.refuse(at, &path, "found no day; leave the key out for every day");
    }
    if is_mapping && window.never_closes() {
        let says = format!(
            "open at every moment, for it opens every day at {} and closes at the same time",
            shown_time(from, Edge::From)
        );
        section.report.note(section.at, path, FindingKind::Doubtful, says);
    }
    section.close(is_mapping);
    is_mapping.then_some(window)
}
