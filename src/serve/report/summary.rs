//! What happened since a time and what needs attention, as a report to send: a view of other answers.

use super::{
    Advice, Changes, Databases, EventLine, Forecasts, HourLine, Space, SuspensionLine,
    VolumeChanges, VolumeSpaceLine, columns::day, database_of,
};
use crate::{
    model::cause::Cause,
    plan::RefusalReason,
    text::{
        Label as _, capital, counted,
        document::Block,
        listed,
        size::{bound_in_words, format_size, format_size_short, signed},
        three_digits_short,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeSet, time::Duration};
use wall_clock::Moment;

/// Maximum number of volumes with a sentence, and of entries in a table or list.
const SAID: usize = 5;
const LISTED: usize = 20;

/// Records of two disks that start within this time count as starting together.
const HOUR: Duration = Duration::from_secs(3_600);

const GIB: f64 = (1_u64 << 30) as f64;

/// What happened since a time, and what is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The start; data kept by the hour begins at the full hour before.
    pub since: String,
    /// The end: when the report was made.
    pub until: String,
    /// The nodes of the cluster.
    pub nodes: Vec<String>,
    /// Bytes at the end, as in `/api/v1/space`.
    pub space: Space,
    /// How the bytes that compactions would free changed.
    pub waste: WasteCourse,
    /// What changed on the disks, as in `/api/v1/changes`.
    pub changes: Changes,
    /// The forecasts of volumes and the accuracy of earlier ones, as in `/api/v1/forecasts`.
    pub forecasts: Forecasts,
    /// What compactions did, as in `/api/v1/history/hours`.
    pub compactions: HourLine,
    /// Whether all compactions are counted; otherwise only the newest 10,000.
    pub complete: bool,
    /// The ten databases that waste most, as in `/api/v1/databases`.
    pub databases: Databases,
    /// What to do, as in `/api/v1/advice`.
    pub advice: Advice,
    /// Advice that no longer applies.
    pub advice_done: Vec<AdviceDone>,
    /// What is suspended.
    pub suspensions: Vec<SuspensionLine>,
    /// What was suspended and resumed, as in `/api/v1/events`.
    pub suspended: Vec<EventLine>,
    /// What disks cost; null if `report.price_per_gib_month` is not set.
    pub cost: Option<Cost>,
}

/// How the bytes that compactions would free changed, according to the recorded changes on the disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WasteCourse {
    /// Bytes that compactions would free at the end; null if unknown.
    pub after_bytes: Option<u64>,
    /// Since when the record covers every disk, at or after the start of the report; null if there is no record, or
    /// if the disks' records start at different times.
    pub since: Option<String>,
    /// Bytes of waste that writes added.
    pub grown_bytes: u64,
    /// Bytes that compactions removed from the disks.
    pub freed_bytes: u64,
    /// Bytes of waste at `since`, calculated from the other three; null if unknown.
    pub before_bytes: Option<u64>,
}

/// A piece of advice that no longer applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceDone {
    /// The kind of advice.
    pub code: String,
    /// What it was about.
    pub subject: String,
    /// Since when it no longer applies.
    pub at: String,
    /// Bytes removed from the database that it was about during the report, by compactions, cleanups and
    /// deletions; null if it was not about one, or if nothing is known.
    pub freed_bytes: Option<u64>,
}

/// What disks cost, in the currency of the price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// The price of a GiB for a month.
    pub price_per_gib_month: f64,
    /// What the bytes that compactions would free cost per month; null if unknown.
    pub waste_per_month: Option<f64>,
    /// What the bytes that compactions freed since `waste.since` would cost per month.
    pub freed_per_month: f64,
}

impl Report {
    /// Adds what follows from the other answers, from the `events` of advice that no longer applied, oldest first, and
    /// from the price of a GiB per month.
    pub fn completed(mut self, events: &[EventLine], price: Option<f64>) -> Self {
        self.waste = WasteCourse::of(&self.space, &self.changes);
        self.cost = price.map(|price_per_gib_month| {
            let cost = |bytes: u64| bytes as f64 / GIB * price_per_gib_month;
            Cost {
                price_per_gib_month,
                waste_per_month: self.waste.after_bytes.map(cost),
                freed_per_month: cost(self.waste.freed_bytes),
            }
        });
        self.advice_done = self.done(events);
        self
    }

    /// The advice that no longer applies according to these events.
    fn done(&self, events: &[EventLine]) -> Vec<AdviceDone> {
        let open: BTreeSet<(&str, &str)> =
            self.advice.advice.iter().map(|it| (&*it.code, &*it.subject.name)).collect();
        let mut seen = BTreeSet::new();
        let gone = events.iter().rev().filter_map(|event| {
            let (code, subject) = (event.code.as_deref()?, event.subject.as_deref()?);
            let is_done = !open.contains(&(code, subject)) && seen.insert((code, subject));
            is_done.then(|| AdviceDone {
                code: code.to_owned(),
                subject: subject.to_owned(),
                at: event.at.clone(),
                freed_bytes: went(&self.changes, subject),
            })
        });
        gone.collect()
    }

    /// The title.
    pub fn title(&self) -> String {
        format!("CouchDB compaction, {} to {}", in_words(&self.since), in_words(&self.until))
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = vec![Block::Paragraph(self.advice.says.clone())];
        for (heading, part) in [
            ("Waste", self.says_waste()),
            ("What filled the disks", self.says_volumes()),
            ("Compactions", self.says_compactions()),
            ("Databases that waste most", self.says_databases()),
            ("Advice", self.says_advice()),
            ("Suspended", self.says_suspensions()),
        ] {
            blocks.push(Block::Heading(heading.to_owned()));
            blocks.extend(part);
        }
        blocks.push(Block::Paragraph(format!("Nodes: {}.", listed(&self.nodes))));
        blocks
    }

    fn says_waste(&self) -> Vec<Block> {
        let WasteCourse { after_bytes, since, grown_bytes, freed_bytes, before_bytes } =
            &self.waste;
        let bound = bound_in_words(self.space.unmeasured, self.space.estimated);
        let size = |bytes: &Option<u64>| match bytes {
            Some(bytes) => format!("{bound}{}", format_size_short(*bytes)),
            None => "unknown".to_owned(),
        };
        let now = size(after_bytes);
        let [grown, freed] = [grown_bytes, freed_bytes].map(|it| format_size_short(*it));
        let mut says = match since {
            Some(since) => format!(
                "Reclaimable by compaction on {since}: {}; now: {now}. Since then, writes added {grown} of waste, and compactions freed {freed}.",
                size(before_bytes),
                since = in_words(since),
            ),
            None => format!(
                "Reclaimable by compaction now: {now}. The change is unknown, because the volumes were not watched over the same time."
            ),
        };
        if let Some(Cost { price_per_gib_month, waste_per_month, freed_per_month }) = &self.cost {
            let waste = waste_per_month.map_or_else(|| "unknown".to_owned(), three_digits_short);
            let [price, freed] =
                [price_per_gib_month, freed_per_month].map(|it| three_digits_short(*it));
            says.push_str(&format!(
                " At {price} per GiB and month, the reclaimable space costs {waste} a month, and the space that compactions freed would cost {freed}."
            ));
        }
        vec![Block::Paragraph(says)]
    }

    fn says_volumes(&self) -> Vec<Block> {
        let mut volumes: Vec<&VolumeChanges> = self.changes.volumes.iter().collect();
        if volumes.is_empty() {
            return vec![Block::List(self.changes.says.clone())];
        }
        volumes.sort_by_key(|it| Reverse((it.after_bytes - it.before_bytes).unsigned_abs()));
        let columns = [("volume", false), ("used before", true), ("used after", true)];
        let columns = columns.into_iter().chain([("change", true), ("full", false)]).collect();
        let size = |bytes: i64| format_size(bytes.try_into().unwrap_or_default()).to_string();
        let row = |volume: &&VolumeChanges| {
            let space =
                self.space.volumes.iter().find(|it| Some(&it.volume) == volume.volume.as_ref());
            vec![
                volume.name(),
                size(volume.before_bytes),
                size(volume.after_bytes),
                signed(volume.after_bytes - volume.before_bytes),
                full(space),
            ]
        };
        let rows = volumes.iter().take(LISTED).map(row).collect();
        let says = volumes.iter().take(SAID).map(|volume| volume.says.clone());
        let says = says.chain(self.forecasts.says.iter().take(SAID).cloned()).collect();
        let mut blocks = vec![Block::Table(columns, rows), Block::List(says)];
        if let more @ 1.. = volumes.len().saturating_sub(LISTED) {
            let more = counted(more as u64, "more volume", "more volumes");
            blocks.push(Block::Paragraph(format!("And {more} that changed less.")));
        }
        blocks
    }

    fn says_compactions(&self) -> Vec<Block> {
        let since = match &*self.compactions.from {
            "" => &self.since,
            from => from,
        };
        let mut says = format!("Since {}: {}.", in_words(since), self.compactions.says());
        if !self.complete {
            says.push_str(" Only the newest 10,000 jobs are counted.");
        }
        vec![Block::Paragraph(says)]
    }

    fn says_databases(&self) -> Vec<Block> {
        let columns = [("database", false), ("on disk", true), ("reclaimable", true)];
        let more = [
            ("growth in 7 days without compaction", true),
            ("last compaction", false),
            ("why not now", false),
        ];
        let columns = columns.into_iter().chain(more).collect();
        let rows = self.databases.databases.iter().map(|line| {
            let size = |bytes: u64| format_size(bytes).to_string();
            let unknown = || "?".to_owned();
            let not_taken = || line.not_taken.as_deref().unwrap_or_default().to_owned();
            vec![
                line.db.clone(),
                size(line.file_bytes),
                size(line.reclaimable_bytes),
                line.growth_week_bytes.map_or_else(unknown, size),
                line.last_compaction.as_deref().map_or_else(unknown, in_words),
                line.reason
                    .as_ref()
                    .map_or_else(not_taken, |it| RefusalReason::words_of(it).to_owned()),
            ]
        });
        vec![Block::Table(columns, rows.collect())]
    }

    fn says_advice(&self) -> Vec<Block> {
        let open = self.advice.open().take(LISTED);
        let open = open.map(|line| format!("{}: {}", line.severity, line.says)).collect();
        let done = self.advice_done.iter().take(LISTED).map(|it| {
            let freed = it.freed_bytes.map(|bytes| format!("; {} freed", format_size_short(bytes)));
            let (at, freed) = (in_words(&it.at), freed.unwrap_or_default());
            format!("{} about {}, since {at}{freed}", it.code.replace('_', " "), it.subject)
        });
        let done: Vec<String> = done.collect();
        let mut blocks = vec![Block::List(open)];
        if !done.is_empty() {
            blocks.push(Block::Paragraph("No longer applies:".to_owned()));
            blocks.push(Block::List(done));
        }
        let is_empty = |block: &Block| *block == Block::List(Vec::new());
        match blocks.iter().all(is_empty) {
            true => vec![Block::Paragraph("None.".to_owned())],
            false => blocks.into_iter().filter(|block| !is_empty(block)).collect(),
        }
    }

    fn says_suspensions(&self) -> Vec<Block> {
        let now = self.suspensions.iter().map(|line| capital(&line.says));
        let before = self.suspended.iter().map(|event| {
            let (at, what) = (in_words(&event.at), event.event_type.replace('_', " "));
            let scope = event.scope.as_deref().unwrap_or_default();
            let by = event.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let why = event.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            format!("{at}: {scope} {what}{by}{why}")
        });
        let lines: Vec<String> = now.chain(before).collect();
        match lines.is_empty() {
            true => vec![Block::Paragraph("No suspensions in this period.".to_owned())],
            false => vec![Block::List(lines)],
        }
    }
}

impl WasteCourse {
    fn of(space: &Space, changes: &Changes) -> Self {
        let entries = changes.volumes.iter().flat_map(|volume| &volume.entries);
        let sum = |causes: &[Cause]| {
            let is_one = |word: &str| causes.iter().any(|cause| cause.label() == word);
            let of = entries.clone().filter(|entry| entry.cause.as_deref().is_some_and(is_one));
            of.map(|entry| entry.bytes).sum::<i64>()
        };
        let grown = sum(&[Cause::Waste, Cause::IndexWaste]);
        let freed = sum(&[Cause::Compaction]).saturating_neg();
        let begins = changes.volumes.iter().filter_map(|volume| Moment::parse(&volume.since));
        let (first, last) = (begins.clone().min(), begins.max());
        let since = last.filter(|last| first.is_some_and(|first| first.age(*last) < HOUR));
        let after = space.reclaimable_bytes;
        let before = after.filter(|_| since.is_some()).and_then(|after| {
            let after = i64::try_from(after).ok()?;
            u64::try_from(after.checked_add(freed)?.checked_sub(grown)?).ok()
        });
        let positive = |bytes: i64| bytes.try_into().unwrap_or_default();
        Self {
            after_bytes: after,
            since: since.map(Moment::rfc3339),
            grown_bytes: positive(grown),
            freed_bytes: positive(freed),
            before_bytes: before,
        }
    }
}

/// Bytes removed from a database, or from the database of a design document.
fn went(changes: &Changes, subject: &str) -> Option<u64> {
    let db = database_of(subject);
    let entries = changes.volumes.iter().flat_map(|volume| &volume.entries);
    let less = entries.filter(|entry| entry.database.as_deref() == Some(db) && entry.bytes < 0);
    let less: u64 = less.map(|entry| entry.bytes.unsigned_abs()).sum();
    Some(less).filter(|bytes| *bytes > 0)
}

/// When a volume will be full, with the range of the forecast.
fn full(volume: Option<&VolumeSpaceLine>) -> String {
    let date = |at: &String| day(at).to_owned();
    let Some(volume) = volume else { return "unknown".to_owned() };
    let Some(until) = volume.forecast_until.as_ref().filter(|_| volume.growth_known) else {
        let why = volume.forecast_withheld.as_ref().or(volume.problem.as_ref());
        return why.map_or_else(|| "unknown".to_owned(), |why| format!("unknown: {why}"));
    };
    let kept = match (&volume.full.full_at, &volume.full.full_early_at, &volume.full.full_late_at) {
        (Some(kept), Some(early), Some(late)) => {
            format!("{} ({} to {})", date(kept), date(early), date(late))
        }
        (Some(kept), ..) => date(kept),
        (None, ..) => format!("not before {}", date(until)),
    };
    match &volume.full_uncompacted_at {
        Some(never) => format!("{kept}; without compaction {}", date(never)),
        None => kept,
    }
}

fn in_words(at: &str) -> String {
    at.get(..16).map_or_else(|| at.to_owned(), |minute| minute.replace('T', " "))
}
