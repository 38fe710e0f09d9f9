//! `channels`: which targets are worth compacting.

mod window;

use crate::{
    config_format::{
        form::{Form, Key, keys, list, section, settings},
        output::{Output, exact_bytes, text as written},
        problem::{alternatives, quoted},
        section::{Report, Section, Spanned},
        tree::{Node, Value},
        values::{
            SECOND, YEAR, boolean, bytes, bytes_or_infinity, bytes_schema, count, duration_between,
            infinity_schema, integer, is_infinity, labelled, one_of, one_of_words, pattern,
            read_bytes, read_number,
        },
    },
    model::{
        channel::{Channel, ChannelPreset, Mode},
        priority::{PriorityKind, PriorityUnit},
        target::TargetKind,
    },
    text::Label,
    text::pattern::NameFilter,
};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Maximum horizon: a longer one would never compact anything.
const MAX_HORIZON: Duration = Duration::from_secs(10 * YEAR.as_secs());

/// Either the name of a preset, or a list of channels in their order.
pub(super) fn form() -> Form<Vec<Channel>> {
    let words = ChannelPreset::labels();
    let (read, described) = (list_form(), list_form());
    Form::new(
        move |report, node, path, start| match node.text() {
            None => read.read(report, node, path, start),
            Some(word) => {
                let preset = ChannelPreset::from_label(word);
                if preset.is_none() {
                    let words = ChannelPreset::labels().join(", ");
                    let says =
                        format!("found {}, expected {words} or a list of channels", quoted(word));
                    report.refuse(node.at, path, says);
                }
                preset.map(ChannelPreset::channels)
            }
        },
        |channels| list_form().write(channels),
        move |default| {
            let mut list = described.schema(default);
            let default = list.as_object_mut().and_then(|list| list.remove("default"));
            json!({"anyOf": [{"enum": words}, list], "default": default})
        },
    )
}

fn list_form() -> Form<Vec<Channel>> {
    let item =
        Form::new(read, |channel| Some(write(channel, true)), |_| schema_form().schema(None));
    list(item.spanned())
        .inspect(|report, _, _, channels| {
            let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
            for found in channels {
                let name = &*found.value.name;
                if let Some(line) = lines.get(name) {
                    let says = format!("the channel {name} occurs twice, first on line {line}; names must be unique");
                    report.refuse(found.at, &format!("{}.name", found.path), says);
                } else {
                    lines.insert(name, found.at.line);
                }
            }
        })
        .map(
            |channels| Ok(channels.into_iter().map(|found| found.value).collect()),
            |channels: &Vec<Channel>| channels.iter().cloned().map(Spanned::nowhere).collect(),
        )
}

/// The keys of a channel. The priority decides how its bounds are written.
fn keys(priority: PriorityKind) -> Vec<Key<Channel>> {
    let unit = priority.unit();
    keys!(Channel {
        /// The channel's unique name.
        "name" => name, Live, channel_name().map(|name| Ok(Arc::from(name)), |name: &Arc<str>| name.to_string());
        /// The kind of target that the channel takes.
        "kind" => kind, Live, one_of_words(labelled(&TargetKind::WITH_COMPACTION));
        /// How the channel ranks targets.
        "priority" => priority, Live, priority_kind();
        /// How long a wasted byte may remain before rewriting one byte is worth it; channels by rent only; default 24h.
        "horizon" => horizon, Live, duration_between(SECOND, MAX_HORIZON);
        /// Takes targets with a priority above this; unit and default depend on the kind of priority: 2 for ratio,
        /// 512MiB for slack, 1 for rent.
        "min_priority" => min_priority, Live, bound(unit, false);
        /// Takes targets with at most this priority; default infinity.
        "max_priority" => max_priority, Live, bound(unit, true);
        /// Takes files larger than this; default 1MiB.
        "min_size" => min_size, Live, bytes();
        /// Takes files of at most this; default infinity.
        "max_size" => max_size, Live, bytes_or_infinity();
        /// Takes databases with at least this many changes since their last compaction; default 0.
        "min_changes" => min_changes, Live, count();
        /// Maximum number of targets in one node's queue; default 9999.
        "capacity" => capacity, Live, integer(1..=Channel::MAX_CAPACITY);
        /// Maximum number of the channel's compactions on one node at a time, whatever started them; default 1.
        "concurrency" => concurrency, Live, integer(0..=Channel::MAX_CONCURRENCY);
        /// The channel's mode, unless the global mode is more cautious; default enforce.
        "mode" => mode, Live, one_of::<Mode>();
        /// Patterns of databases that the channel takes; default all.
        "databases" => databases, Live, names();
        /// Patterns of design documents whose views the channel takes, such as _design/x; view channels only; default
        /// all.
        "designs" => designs, Live, names();
        /// When the channel may start compactions; default always. A window across midnight belongs to the day on which
        /// it opens.
        "windows" => windows, Live, list(window::form());
        /// Start only compactions that would end within the window at the measured rate; default false.
        "strict_window" => strict_window, Live, boolean();
    })
}

/// The name of a channel, which smoosh's settings and the labels of metrics can contain.
fn channel_name() -> Form<String> {
    let read = |text: &str| {
        if Channel::is_name(text) {
            return Ok(text.to_owned());
        }
        Err(format!(
            "found {}, but a channel's name is a lowercase letter, then lowercase letters, digits and _, at most 64, such as big_dbs",
            quoted(text)
        ))
    };
    let schema = json!({"type": "string", "pattern": "^[a-z][a-z0-9_]{0,63}$"});
    Form::scalar(read, |name| written(name), schema)
}

/// A form whose schema accepts every valid channel.
fn schema_form() -> Form<Channel> {
    let is =
        |key: &str, word: &str| json!({"properties": {key: {"const": word}}, "required": [key]});
    let in_bytes = PriorityKind::ALL
        .iter()
        .filter(|priority| priority.unit() == Some(PriorityUnit::Bytes))
        .map(|priority| priority.label());
    section(keys(PriorityKind::Slack), |_, _| {}).with_schema(json!({
        "type": "object",
        "required": ["name", "kind"],
        "allOf": [
            {
                "if": is("kind", "cleanup"),
                "then": {"properties": {"priority": {"const": "cleanup"}}},
                "else": {"properties": {"priority": {"not": {"const": "cleanup"}}}},
            },
            {
                "if": {
                    "properties": {"priority": {"enum": in_bytes.collect::<Vec<_>>()}},
                    "required": ["priority"],
                },
                "else": {"properties": {
                    "min_priority": {"type": "number"},
                    "max_priority": {"anyOf": [{"type": "number"}, infinity_schema()]},
                }},
            },
        ],
    }))
}

/// Writes a channel; `whole` also writes values that equal their defaults.
pub(in crate::config) fn write(channel: &Channel, whole: bool) -> Output {
    let default = Channel::with_defaults(&channel.name, channel.kind, channel.priority);
    let entries = keys(channel.priority).into_iter().filter_map(|key| {
        let value = key.write(channel)?;
        let identifies = matches!(key.name(), "name" | "kind" | "priority")
            // The horizon is the one value that users choose for a channel by rent, so it is always shown.
            || key.name() == "horizon" && channel.priority == PriorityKind::Rent;
        let differs = Some(&value) != key.write(&default).as_ref();
        let shows = whole && has_effect(key.name(), channel.kind, channel.priority);
        (identifies || differs || shows).then(|| (key.name().to_owned(), value))
    });
    Output::Map(entries.collect())
}

/// Whether a key has any effect in a channel of this kind and priority. In an upgrade channel,
/// sizes and the minimum priority still decide about files without live bytes
/// (`smoosh_server:get_priority/2` and `/4`).
fn has_effect(key: &str, kind: TargetKind, priority: PriorityKind) -> bool {
    match key {
        "designs" => kind == TargetKind::View,
        "horizon" => priority == PriorityKind::Rent,
        "min_changes" => kind == TargetKind::Db,
        "min_size" | "max_size" | "min_priority" => kind != TargetKind::Cleanup,
        "max_priority" => priority.unit().is_some(),
        _ => true,
    }
}

/// Reads a channel, starting with its kind and priority, because the other defaults depend on them.
fn read(report: &mut Report, node: &Node, path: &str, _: Option<&Channel>) -> Option<Channel> {
    if !matches!(node.value, Value::Map(_) | Value::Nothing) {
        Section::open(report, node, path);
        return None;
    }
    let word = |key: &str| node.child(key).and_then(Node::text);
    let kind = word("kind")
        .and_then(|word| TargetKind::WITH_COMPACTION.into_iter().find(|kind| kind.label() == word));
    let implied =
        if kind == Some(TargetKind::Cleanup) { PriorityKind::Cleanup } else { PriorityKind::Ratio };
    let priority = word("priority").and_then(PriorityKind::from_label).unwrap_or(implied);
    let blank = Channel::with_defaults("", kind.unwrap_or(TargetKind::Db), priority);
    let form = section(keys(priority), check);
    form.read(report, node, path, Some(&blank)).filter(|channel| !channel.name.is_empty())
}

fn check(channel: &mut Channel, section: &mut Section<'_, '_>) {
    for (key, says) in [
        ("name", "the key name is missing; every channel has one"),
        ("kind", "the key kind is missing; db, view or cleanup says what the channel takes"),
    ] {
        if section.key_at(key).is_none() {
            section.refuse(says);
        }
    }
    check_bounds(channel, section);
    if channel.windows.is_empty() && channel.strict_window {
        section.note_key("strict_window", "no effect without windows");
    }
    if section.value_at("kind").is_some() && priority_fits(channel, section) {
        note_without_effect(channel, section);
    }
}

/// Whether the priority can rank targets of the channel's kind.
fn priority_fits(channel: &Channel, section: &mut Section<'_, '_>) -> bool {
    let Channel { kind, priority, .. } = channel;
    let fits = |it: PriorityKind| (*kind == TargetKind::Cleanup) == (it == PriorityKind::Cleanup);
    if !fits(*priority) {
        let fitting = PriorityKind::ALL.iter().filter(|it| fits(**it));
        let words: Vec<String> = fitting.map(|it| format!("`{}`", it.label())).collect();
        let words = alternatives(&words).replacen('`', "`priority: ", 1);
        let kinds = if *kind == TargetKind::Cleanup { "db` or `view" } else { "cleanup" };
        let says = format!(
            "{} cannot be used in a {} channel; use {words}, or `kind: {kinds}`",
            priority.label(),
            kind.label()
        );
        section.refuse_value("priority", says);
    }
    fits(*priority)
}

/// Reports keys without effect as findings instead of problems: smoosh accepts them silently, and
/// settings copied from there must keep working.
fn note_without_effect(channel: &Channel, section: &mut Section<'_, '_>) {
    let Channel { kind, priority, .. } = channel;
    for key in [
        "horizon",
        "designs",
        "min_changes",
        "min_size",
        "max_size",
        "min_priority",
        "max_priority",
    ] {
        if !has_effect(key, *kind, *priority) {
            let (kind, priority) = (kind.label(), priority.label());
            let says = format!("has no effect in a channel of kind {kind} and priority {priority}");
            section.note_key(key, says);
        }
    }
}

/// Reports bounds that exclude every target.
fn check_bounds(channel: &Channel, section: &mut Section<'_, '_>) {
    let Channel { priority, min_priority, max_priority, min_size, max_size, .. } = channel;
    if priority.unit().is_none() {
        return;
    }
    // If both bounds are equal, only files without live bytes pass, because smoosh gives them the
    // minimum priority as their score.
    let takes_empty = matches!(priority, PriorityKind::Ratio | PriorityKind::Slack);
    if min_priority == max_priority && *min_priority != 0.0 && takes_empty {
        let says = "equal to min_priority: the channel takes only files without live bytes";
        section.note_key("max_priority", says);
    } else if min_priority >= max_priority {
        let shown = |bound: f64| match bound.to_string().parse() {
            Ok(bytes) if priority.unit() == Some(PriorityUnit::Bytes) => exact_bytes(bytes),
            _ => bound.to_string(),
        };
        let says = format!(
            "the channel takes nothing: max_priority is {}, which is not above min_priority, {}",
            shown(*max_priority),
            shown(*min_priority)
        );
        let written = section.value_at("max_priority").is_some();
        section.refuse_value(if written { "max_priority" } else { "min_priority" }, says);
    }
    if let Some(max_size) = max_size.filter(|max_size| *min_size >= *max_size) {
        let says = format!(
            "the channel takes nothing: max_size is {}, which is not above min_size, {}",
            exact_bytes(max_size),
            exact_bytes(*min_size)
        );
        section.refuse_value("max_size", says);
    }
}

/// The priority, with the meaning of each value.
fn priority_kind() -> Form<PriorityKind> {
    let meanings: Vec<_> = PriorityKind::ALL
        .iter()
        .map(|it| json!({"const": it.label(), "description": it.rule().meaning}))
        .collect();
    one_of::<PriorityKind>().with_schema(json!({"oneOf": meanings}))
}

/// A bound of the priority; if its unit is bytes, it may be written as a size.
fn bound(unit: Option<PriorityUnit>, is_max: bool) -> Form<f64> {
    let is_size = unit == Some(PriorityUnit::Bytes);
    let read = move |text: &str| {
        if is_max && is_infinity(text) {
            return Ok(f64::INFINITY);
        }
        let number = read_number(text);
        if is_size {
            number.or_else(|_| read_bytes(text).map(|bytes| bytes as f64))
        } else {
            number
        }
    };
    let write = move |bound: &f64| {
        if *bound == f64::INFINITY {
            return written("infinity");
        }
        let digits = bound.to_string();
        match digits.parse::<u64>() {
            Ok(bytes) if is_size => Output::bytes(bytes),
            _ => Output::Number(digits),
        }
    };
    let mut any = vec![json!({"type": "number"})];
    if is_size {
        any.push(bytes_schema(0));
    }
    if is_max {
        any.push(infinity_schema());
    }
    Form::scalar(read, write, json!({"anyOf": any}))
}

settings! {
    #[derive(Clone)]
    struct NameLists {
        /// Patterns of names that are taken, with * for any characters; default all.
        "include" => include: Vec<String> = Vec::new(), Live, list(pattern()).unless_empty();
        /// Patterns of names that are not taken, even if included.
        "exclude" => exclude: Vec<String> = Vec::new(), Live, list(pattern()).unless_empty();
    }
}

fn names() -> Form<NameFilter> {
    NameLists::form().map(
        |NameLists { include, exclude }| {
            NameFilter::new(&include, &exclude).map_err(|why| Some(why.to_string()))
        },
        |names| {
            let (include, exclude) = names.texts();
            NameLists { include: include.to_vec(), exclude: exclude.to_vec() }
        },
    )
}
