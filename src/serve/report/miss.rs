//! Why a channel does not take a target, as JSON and in words.

use super::vocabulary;
use crate::{
    model::{
        channel::Channel,
        priority::{PriorityKind, PriorityUnit},
        rounding::to_bytes,
        score::{Miss, MissReason},
    },
    plan::Plan,
    table::TargetRef,
    text::{Label, size, three_digits_short},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Why one channel does not take a target. Numbers are per file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MissLine {
    /// The channel.
    pub channel: Cow<'static, str>,
    /// How the channel ranks targets.
    #[serde(default)]
    #[schemars(with = "vocabulary::Priority")]
    pub priority: Cow<'static, str>,
    /// The reason, as one of a fixed set of words.
    #[schemars(with = "vocabulary::MissReason")]
    pub reason: Cow<'static, str>,
    /// The measured value; null if nothing is compared.
    pub value: Option<f64>,
    /// The limit that the value was compared with; null if nothing is compared.
    pub limit: Option<f64>,
    /// The unit of `value` and `limit`: `ratio`, `bytes` or `changes`; null if nothing is compared.
    #[schemars(with = "Option<vocabulary::MissUnit>")]
    pub unit: Option<Cow<'static, str>>,
}

/// How a target compares with the thresholds of one channel. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChannelScore {
    /// The channel.
    pub channel: String,
    /// How the channel ranks targets.
    #[schemars(with = "vocabulary::Priority")]
    pub priority: Cow<'static, str>,
    /// The target's priority in the channel, per file; null if the channel did not get as far as comparing it.
    pub score: Option<f64>,
    /// The channel takes targets with a higher priority than this.
    pub min_priority: f64,
    /// Whether `score` and `min_priority` are bytes; otherwise they have no unit.
    pub in_bytes: bool,
    /// Why the channel does not take the target, in words; null if it does, or if an earlier channel does.
    pub miss: Option<String>,
}

impl ChannelScore {
    /// The scores of a target in every channel for its kind, in the channels' order.
    pub fn all(plan: &Plan, target: TargetRef<'_>) -> Vec<Self> {
        let taken = plan.placement(target.ix());
        let misses: Vec<(&Channel, Miss)> = plan.misses(target).collect();
        let channels = plan.channels.list.iter().filter(|it| it.kind == target.kind());
        channels
            .map(|channel| {
                let miss = misses.iter().find(|(of, _)| of.name == channel.name);
                let compared = miss.filter(|(_, miss)| {
                    matches!(
                        miss.reason,
                        MissReason::BelowMinPriority | MissReason::AboveMaxPriority
                    )
                });
                let own = taken.filter(|(of, _)| of.name == channel.name);
                let score = own.map(|(_, placed)| placed.priority);
                Self {
                    channel: channel.name.to_string(),
                    priority: channel.priority.label().into(),
                    score: score.or_else(|| compared?.1.value).filter(|score| score.is_finite()),
                    min_priority: channel.min_priority,
                    in_bytes: channel.priority.unit() == Some(PriorityUnit::Bytes),
                    miss: miss.map(|(of, miss)| MissLine::new(of, *miss).says()),
                }
            })
            .collect()
    }
}

impl MissLine {
    /// The line of a channel's miss.
    pub fn new(channel: &Channel, miss: Miss) -> Self {
        Self {
            channel: channel.name.to_string().into(),
            priority: channel.priority.label().into(),
            reason: miss.reason.label().into(),
            value: miss.value,
            limit: miss.limit.filter(|limit| limit.is_finite()),
            unit: unit(channel.priority, miss.reason).map(Cow::Borrowed),
        }
    }

    /// The reason, phrased to follow the channel's name and a colon.
    pub fn says(&self) -> String {
        let Some(reason) = MissReason::from_label(&self.reason) else {
            return self.reason.replace('_', " ");
        };
        let (value, limit) = (self.number(self.value), self.number(self.limit));
        let priority = self.noun();
        match reason {
            MissReason::NotThisKind => "it is for another kind of target".to_owned(),
            MissReason::BelowMinSize => format!("the file is {value}; the minimum is {limit}"),
            MissReason::AboveMaxSize => format!("the file is {value}; the maximum is {limit}"),
            MissReason::BelowMinPriority if self.unit.is_none() => format!("no {priority} found"),
            MissReason::BelowMinPriority => {
                format!("{priority} is {value}; the threshold is {limit}")
            }
            MissReason::AboveMaxPriority => {
                format!("{priority} is {value}; the maximum is {limit}")
            }
            MissReason::TooFewChanges => {
                let plural = if self.value == Some(1.0) { "" } else { "s" };
                format!("{value} change{plural} since the last compaction; the minimum is {limit}")
            }
            MissReason::NoUpgradeNeeded => "the file needs no upgrade".to_owned(),
            MissReason::Excluded => "excluded by its name or its state".to_owned(),
            MissReason::Ignored => "named by ignore".to_owned(),
            MissReason::UnknownSize => "its size is not known".to_owned(),
            MissReason::UnknownRent => {
                "its rent is not known: it accrues from the first reading".to_owned()
            }
        }
    }
}

impl MissLine {
    /// The condition under which the channel would take the file, phrased to follow "when"; `None`
    /// if no write to the file would help.
    pub fn would_take(&self) -> Option<String> {
        let (value, limit) = (self.number(self.value), self.number(self.limit));
        match MissReason::from_label(&self.reason)? {
            MissReason::BelowMinSize => Some(format!("the file exceeds {limit}; it is {value}")),
            MissReason::AboveMaxSize => Some(format!("the file is at most {limit}; it is {value}")),
            MissReason::BelowMinPriority if self.unit.is_some() => {
                Some(format!("its {} exceeds {limit}; it is {value}", self.noun()))
            }
            MissReason::AboveMaxPriority => {
                Some(format!("its {} is at most {limit}; it is {value}", self.noun()))
            }
            MissReason::TooFewChanges => Some(format!(
                "{limit} changes were made since the last compaction; so far there are {value}"
            )),
            MissReason::UnknownSize => Some("its size is measured".to_owned()),
            MissReason::UnknownRent => Some("it is read for the second time".to_owned()),
            MissReason::BelowMinPriority
            | MissReason::NotThisKind
            | MissReason::NoUpgradeNeeded
            | MissReason::Excluded
            | MissReason::Ignored => None,
        }
    }

    /// Whether a forced order starts the target in this channel: force overrides what was measured,
    /// never a name or a state.
    pub fn yields_to_force(&self) -> bool {
        MissReason::from_label(&self.reason).is_some_and(|reason| match reason {
            MissReason::NotThisKind | MissReason::Excluded | MissReason::Ignored => false,
            MissReason::BelowMinSize
            | MissReason::AboveMaxSize
            | MissReason::BelowMinPriority
            | MissReason::AboveMaxPriority
            | MissReason::TooFewChanges
            | MissReason::NoUpgradeNeeded
            | MissReason::UnknownSize
            | MissReason::UnknownRent => true,
        })
    }

    /// The quantity by which the channel ranks, as a noun.
    fn noun(&self) -> &'static str {
        PriorityKind::from_label(&self.priority).map_or("priority", PriorityKind::noun)
    }

    /// A number with its unit.
    fn number(&self, number: Option<f64>) -> String {
        match number {
            None => "unknown".to_owned(),
            Some(number) if self.unit.as_deref() == Some("bytes") => {
                size::format_size_short(to_bytes(number))
            }
            Some(number) if number.fract() == 0.0 => format!("{number}"),
            Some(number) => three_digits_short(number),
        }
    }
}

/// Why no channel takes a target, in one or two words with their meaning, the most informative reason first.
const NOT_TAKEN: [(MissReason, &str, &str); 10] = [
    (MissReason::Ignored, "ignored", "ignore names it"),
    (MissReason::UnknownSize, "size unknown", "its size has not been measured yet"),
    (
        MissReason::UnknownRent,
        "rent unknown",
        "it has been read only once, and rent accrues from the first reading",
    ),
    (MissReason::TooFewChanges, "unchanged", "too little was written since the last compaction"),
    (
        MissReason::BelowMinPriority,
        "little waste",
        "the file has too little waste for every channel",
    ),
    (
        MissReason::AboveMaxPriority,
        "excessive",
        "its priority exceeds max_priority of the channels",
    ),
    // Applies only if no channel takes files of this size.
    (MissReason::BelowMinSize, "small", "the file is too small for every channel"),
    (MissReason::AboveMaxSize, "large", "the file is too large for every channel"),
    (MissReason::NoUpgradeNeeded, "current", "the file needs no upgrade"),
    // Applies only if every channel excludes the target: a channel that considers it gives a better reason.
    (MissReason::Excluded, "excluded", "the channels exclude it by name or state"),
];

/// The word for a priority below the threshold of a channel by rent.
const NOT_DUE: (&str, &str) =
    ("not due", "its waste has not yet cost as much as a compaction would");

/// Why no channel takes a target, in one or two words. Each channel has its own reason; this returns the
/// most informative one.
pub fn not_taken(misses: &[MissLine]) -> Option<&'static str> {
    let word = |(reason, word, _): &(MissReason, &'static str, _)| {
        let miss = misses.iter().find(|miss| miss.reason == reason.label())?;
        let is_not_due =
            *reason == MissReason::BelowMinPriority && miss.priority == PriorityKind::Rent.label();
        Some(if is_not_due { NOT_DUE.0 } else { *word })
    };
    NOT_TAKEN.iter().find_map(word)
}

/// The meaning of a word from [`not_taken`]; `None` for a word of a newer service.
pub fn not_taken_meaning(word: &str) -> Option<&'static str> {
    let words = NOT_TAKEN.iter().map(|(_, word, meaning)| (*word, *meaning)).chain([NOT_DUE]);
    words.into_iter().find_map(|(known, meaning)| (known == word).then_some(meaning))
}

/// The unit of the numbers of a miss.
fn unit(priority: PriorityKind, reason: MissReason) -> Option<&'static str> {
    match reason {
        MissReason::BelowMinSize | MissReason::AboveMaxSize => Some("bytes"),
        MissReason::TooFewChanges => Some("changes"),
        MissReason::BelowMinPriority | MissReason::AboveMaxPriority => {
            priority.unit().map(PriorityUnit::label)
        }
        MissReason::NotThisKind
        | MissReason::NoUpgradeNeeded
        | MissReason::Excluded
        | MissReason::Ignored
        | MissReason::UnknownSize
        | MissReason::UnknownRent => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{channel::Channels, target::TargetKind};

    #[test]
    fn describes_miss_in_a_sentence_with_units() {
        let channels = Channels::default();
        let line = |channel: &str, reason, value: f64, limit: f64| {
            let (_, channel) = channels.find(channel).unwrap();
            MissLine::new(channel, Miss { reason, value: Some(value), limit: Some(limit) })
        };
        for (line, word, says) in [
            (
                line("ratio_dbs", MissReason::BelowMinPriority, 1.154, 2.0),
                "little waste",
                "ratio is 1.15; the threshold is 2",
            ),
            (
                line("slack_dbs", MissReason::BelowMinPriority, 1_618_187.0, 536_870_912.0),
                "little waste",
                "slack is 1.5 MiB; the threshold is 512 MiB",
            ),
            (
                line("slack_dbs", MissReason::BelowMinSize, 8_192.0, 1_048_576.0),
                "small",
                "the file is 8 KiB; the minimum is 1 MiB",
            ),
            (
                line("ratio_dbs", MissReason::TooFewChanges, 3.0, 1_000.0),
                "unchanged",
                "3 changes since the last compaction; the minimum is 1000",
            ),
        ] {
            assert_eq!((not_taken(std::slice::from_ref(&line)), &*line.says()), (Some(word), says));
            let json = serde_json::to_value(&line).unwrap();
            assert_eq!(serde_json::from_value::<MissLine>(json).unwrap(), line);
        }
        let (_, upgrade) = channels.find("upgrade_dbs").unwrap();
        let current = MissLine::new(upgrade, Miss::without_numbers(MissReason::NoUpgradeNeeded));
        let (_, cleanup) = channels.find("index_cleanup").unwrap();
        let reason = MissReason::BelowMinPriority;
        let clean = MissLine::new(cleanup, Miss { reason, value: Some(0.0), limit: Some(0.0) });
        assert_eq!(clean.says(), "no stale files found");
        let rent = Channel::with_defaults("rent_dbs", TargetKind::Db, PriorityKind::Rent);
        let early = Miss { reason, value: Some(0.25), limit: Some(1.0) };
        let early = MissLine::new(&rent, early);
        let says = "rent is 0.25; the threshold is 1";
        assert_eq!(
            (not_taken(std::slice::from_ref(&early)), &*early.says()),
            (Some("not due"), says)
        );
        let when = "its rent exceeds 1; it is 0.25";
        assert_eq!(early.would_take().as_deref(), Some(when));
        assert_eq!((current.would_take(), clean.would_take()), (None, None));
        let lean = line("ratio_dbs", MissReason::BelowMinPriority, 1.0, 2.0);
        assert_eq!(not_taken(&[current, lean]), Some("little waste"));
        // Two channels that divide the files by size.
        let large = line("slack_dbs", MissReason::AboveMaxSize, 3e9, 2e9);
        assert_eq!(not_taken(std::slice::from_ref(&large)), Some("large"));
        let elsewhere = MissLine::new(&rent, Miss::without_numbers(MissReason::Excluded));
        assert_eq!(not_taken(&[elsewhere, early.clone()]), Some("not due"), "one channel looks");
        assert_eq!(not_taken(&[early, large]), Some("not due"));
        assert_eq!(not_taken(&[]), None);
    }
}
