//! Who reads the indexes, by day, according to access logs.
//!
//! Owns the sums of each source, and the rule that decides which time they cover. Of a request, keeps only the names
//! of the database, the design document and the view.

use access_log::{Class, Day, DayReads, How, LogReads, Source, UseKey};
use std::collections::{BTreeMap, BTreeSet};
use wall_clock::Moment;

/// Days for which reads are kept.
pub const KEPT_DAYS: u32 = 400;

/// Number of days over which reads per day are averaged.
pub const RECENT_DAYS: u32 = 30;

/// The use of something, summed over days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UseSum {
    /// The first day with it.
    pub first: Day,
    /// The last day with it.
    pub last: Day,
    /// The number of uses on each of the latest days with any.
    pub recent: BTreeMap<Day, u64>,
}

/// The reads of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReads {
    /// The covered hours of each day.
    pub days: BTreeMap<Day, Hours>,
    /// The uses, each summed over days.
    pub uses: BTreeMap<UseKey, UseSum>,
}

/// The hours of a day of a log, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hours {
    /// Hours with a request.
    pub seen: u32,
    /// Hours in which lines may be missing.
    pub broken: u32,
}

impl Hours {
    /// The hours of which every request is known.
    pub const fn covered(self) -> u32 {
        self.seen & !self.broken
    }
}

impl SourceReads {
    /// Adds a day, or a part of it.
    pub fn add(&mut self, day: Day, reads: &DayReads) {
        let hours = self.days.entry(day).or_default();
        hours.seen |= reads.hours;
        hours.broken |= reads.broken;
        for (key, count) in &reads.uses {
            if !self.uses.contains_key(key) {
                let sum = UseSum { first: day, last: day, recent: BTreeMap::new() };
                self.uses.insert(key.clone(), sum);
            }
            let Some(sum) = self.uses.get_mut(key) else { continue };
            sum.first = sum.first.min(day);
            sum.last = sum.last.max(day);
            *sum.recent.entry(day).or_default() += count;
            if sum.recent.len() > RECENT_DAYS as usize {
                sum.recent.pop_first();
            }
        }
    }

    /// Removes what is older than `KEPT_DAYS`.
    pub fn forget(&mut self, now: Day) {
        let oldest = now.ago(KEPT_DAYS);
        self.days.retain(|day, _| *day >= oldest);
        self.uses.retain(|_, sum| sum.last >= oldest);
    }

    /// The uses of a design document or, with an empty id, the queries of a database that name no design document.
    fn of<'a>(
        &'a self,
        db: &'a str,
        design: &'a str,
    ) -> impl Iterator<Item = (&'a UseKey, &'a UseSum)> {
        let first = UseKey {
            db: db.to_owned(),
            design: design.to_owned(),
            view: String::new(),
            how: How::Read,
            class: Class::Unknown,
        };
        self.uses.range(first..).take_while(move |(key, _)| key.db == db && key.design == design)
    }
}

/// Since when design documents have been known, by database and id.
pub type KnownDesigns = BTreeMap<(String, String), Day>;

/// The reads of all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// By source.
    pub sources: BTreeMap<Source, SourceReads>,
    /// Since when recliner itself knows each design document.
    pub known: KnownDesigns,
    /// Whether every request to the cluster passes the proxies whose logs are read.
    pub proxies_see_all: bool,
    /// What could not be read, in sentences.
    pub problems: Vec<String>,
}

/// The subject of a question: an index, or one of its views.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The database.
    pub db: &'a str,
    /// The design documents that share the index, by id.
    pub designs: &'a [&'a str],
    /// Only this view; or this search index, as in [`UseKey`].
    pub view: Option<&'a str>,
    /// Whether it is a Mango index, which any query of the database may have read.
    pub is_mango: bool,
}

/// Who reads an index or a view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readers {
    /// The last day with a read.
    pub last: Option<Day>,
    /// Reads per day, over the latest days with at least one covered hour; `None` if there is none.
    pub per_day: Option<f64>,
    /// The classes of clients.
    pub classes: BTreeSet<Class>,
}

impl Reads {
    /// The reads in these logs alone, without those that a service has stored.
    pub fn of_logs(logs: &LogReads) -> Self {
        let mut reads = Self::default();
        reads.add(logs);
        reads
    }

    /// Adds the reads in these logs.
    pub fn add(&mut self, logs: &LogReads) {
        for ((source, day), reads) in &logs.days {
            self.sources.entry(source.clone()).or_default().add(*day, reads);
        }
    }

    /// The first and the last day of the latest gapless period in which every request to these nodes is known; it
    /// ends yesterday or the day before. `None` if there is none.
    pub fn covered_days(&self, nodes: &BTreeSet<&str>, now: Moment) -> Option<(Day, Day)> {
        let today = Day::of(now.unix());
        // Lines arrive late.
        let last = (1..=2).map(|ago| today.ago(ago)).find(|day| self.is_covered(nodes, *day))?;
        let mut first = last;
        while first.0 > 0 && self.is_covered(nodes, first.ago(1)) {
            first = first.ago(1);
        }
        Some((first, last))
    }

    fn is_covered(&self, nodes: &BTreeSet<&str>, day: Day) -> bool {
        const WHOLE: u32 = (1 << 24) - 1;
        let of = |source: &SourceReads| source.days.get(&day).map_or(0, |it| it.covered());
        let is_proxy = |it: &(&Source, &SourceReads)| matches!(it.0, Source::Proxy(_));
        let proxies = self.sources.iter().filter(is_proxy).map(|(_, source)| of(source));
        // Each of several proxies sees only a part.
        let proxies = proxies.reduce(|one, other| one & other).filter(|_| self.proxies_see_all);
        let own = |node: &str| self.sources.get(&Source::Node(node.to_owned())).map_or(0, of);
        !nodes.is_empty()
            && nodes.iter().all(|node| own(node) | proxies.unwrap_or_default() == WHOLE)
    }

    /// For how many whole days nobody has read the subject, while every request was known and its design documents
    /// existed unchanged: the first day and the number of days. `None` if it was read lately, or if that is unknown.
    pub fn unread(
        &self,
        asked: Asked<'_>,
        covered: Option<(Day, Day)>,
        now: Moment,
    ) -> Option<(Day, u32)> {
        let (mut since, until) = covered?;
        for design in asked.designs {
            since = since.max(self.known_since(asked.db, design)?);
        }
        if let Some(last) = self.readers(asked, now).last {
            since = since.max(Day(last.0 + 1));
        }
        (since <= until).then(|| (since, until.since(since) + 1))
    }

    /// Since when a design document has existed unchanged, as far as logs and recliner know.
    pub fn known_since(&self, db: &str, design: &str) -> Option<Day> {
        let uses = || self.sources.values().flat_map(|source| source.of(db, design));
        let written = uses().filter(|(key, _)| key.how == How::Written);
        let written = written.map(|(_, sum)| sum.last).max();
        // A refused request does not show that it exists.
        let seen = uses().filter(|(key, _)| key.how != How::Refused);
        let seen = seen.map(|(_, sum)| sum.first).min();
        let own = self.known.get(&(db.to_owned(), design.to_owned())).copied();
        let first = seen.into_iter().chain(own).min()?;
        Some(written.map_or(first, |written| written.max(first)))
    }

    /// The views of these design documents that appear in logs.
    pub fn views<'a>(&'a self, db: &'a str, designs: &'a [&'a str]) -> BTreeSet<&'a str> {
        let sources = || self.sources.values();
        let uses = designs.iter().flat_map(|design| sources().flat_map(|it| it.of(db, design)));
        let named = uses.filter(|(key, _)| key.how == How::Read && !key.view.is_empty());
        named.map(|(key, _)| &*key.view).filter(|view| !view.starts_with('_')).collect()
    }

    /// How many requests for a design document's views or functions were refused since a day, as far as recorded.
    pub fn refused(&self, db: &str, design: &str, since: Day) -> u64 {
        // A proxy and the node behind it both log a request.
        let mut counts = [0_u64; 2];
        for (source, reads) in &self.sources {
            let of_kind = &mut counts[usize::from(matches!(source, Source::Proxy(_)))];
            for (_, sum) in reads.of(db, design).filter(|(key, _)| key.how == How::Refused) {
                *of_kind += sum.recent.range(since..).map(|(_, count)| count).sum::<u64>();
            }
        }
        counts.into_iter().max().unwrap_or_default()
    }

    /// The readers of the subject.
    pub fn readers(&self, asked: Asked<'_>, now: Moment) -> Readers {
        let today = Day::of(now.unix());
        let is_recent = |day: Day| day < today && today.since(day) <= RECENT_DAYS;
        let is_asked = |key: &UseKey| match key.how {
            How::Read => asked.view.is_none_or(|view| key.view == view || key.view.is_empty()),
            How::Find => asked.is_mango,
            How::Function => asked.view.is_none(),
            How::Seen | How::Written | How::Refused => false,
        };
        let mut readers = Readers::default();
        let mut days = BTreeSet::new();
        // A proxy and the node behind it both log a request.
        let mut counts = [BTreeMap::<Day, u64>::new(), BTreeMap::new()];
        for (source, reads) in &self.sources {
            days.extend(reads.days.keys().copied().filter(|day| is_recent(*day)));
            let of_kind = &mut counts[usize::from(matches!(source, Source::Proxy(_)))];
            let designs = asked.designs.iter().copied().chain(asked.is_mango.then_some(""));
            let uses = designs.flat_map(|design| reads.of(asked.db, design));
            for (key, sum) in uses.filter(|(key, _)| is_asked(key)) {
                readers.last = readers.last.max(Some(sum.last));
                readers.classes.insert(key.class);
                for (day, count) in sum.recent.iter().filter(|(day, _)| is_recent(**day)) {
                    *of_kind.entry(*day).or_default() += count;
                }
            }
        }
        let most = |day: &Day| counts.iter().filter_map(|of| of.get(day)).max().copied();
        let total: u64 = days.iter().filter_map(most).sum();
        readers.per_day = (!days.is_empty()).then(|| total as f64 / days.len() as f64);
        // A log without user agents says less than one with them.
        if readers.classes.len() > 1 {
            readers.classes.remove(&Class::Unknown);
        }
        readers
    }
}

/// A day as text.
pub fn date(day: Day) -> String {
    Moment::from_unix(day.start()).date()
}

#[cfg(test)]
mod tests;
