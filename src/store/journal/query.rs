//! Queries of the history and the events.

use super::{
    EventDetails, EventType, JournalEvent,
    tables::{DB_EVENTS, EVENTS, JournalReadError, OUTCOMES, parse_entry},
};
use crate::model::{
    records::{JobResult, Outcome},
    target::TargetSelector,
};
use redb::{AccessGuard, ReadTransaction, StorageError};
use wall_clock::Moment;

/// A query of outcomes, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only of these targets.
    pub target: Option<TargetSelector>,
    /// Only of this node.
    pub node: Option<String>,
    /// Only jobs that ended at or after this time.
    pub since: Option<Moment>,
    /// Only jobs that ended before this time.
    pub until: Option<Moment>,
    /// Only with this result.
    pub result: Option<JobResult>,
    /// Only numbers below this: where the previous page ended.
    pub before: Option<u64>,
    /// Maximum number of outcomes.
    pub limit: usize,
}

/// A query of events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsQuery {
    /// Only of these types; all types if empty.
    pub types: Vec<EventType>,
    /// Only about these targets, including entries that cover several, or about a database matched
    /// by the same text.
    pub target: Option<TargetSelector>,
    /// Only numbers above this. Without this and `from`, the newest events are returned.
    pub after_seq: Option<u64>,
    /// Only numbers below this.
    pub before_seq: Option<u64>,
    /// Only events recorded at or after this time.
    pub from: Option<Moment>,
    /// Maximum number of events.
    pub limit: usize,
}

impl EventsQuery {
    /// Whether an event matches the requested types and targets.
    pub fn matches(&self, what: &EventDetails) -> bool {
        let about = |target: &TargetSelector| {
            what.target().into_iter().chain(what.also_targets()).any(|id| target.selects(id, None))
                || what.database_change().is_some_and(|(_, db)| target.selects_database(db))
        };
        (self.types.is_empty() || self.types.contains(&what.event_type()))
            && self.target.as_ref().is_none_or(about)
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// Entries with their numbers.
    pub entries: Vec<(u64, T)>,
    /// Whether there are more entries after the last one.
    pub has_more: bool,
}

/// Collects up to `limit` entries. One more entry shows that there is a next page.
fn collect_page<T>(
    entries: impl Iterator<Item = Result<Option<(u64, T)>, JournalReadError>>,
    limit: usize,
) -> Result<Page<T>, JournalReadError> {
    let mut page_entries = Vec::new();
    for entry in entries {
        let Some(entry) = entry? else { continue };
        if page_entries.len() == limit {
            return Ok(Page { entries: page_entries, has_more: true });
        }
        page_entries.push(entry);
    }
    Ok(Page { entries: page_entries, has_more: false })
}

pub(super) fn history(
    tx: &ReadTransaction,
    query: &HistoryQuery,
) -> Result<Page<Outcome>, JournalReadError> {
    let table = tx.open_table(OUTCOMES)?;
    let needles = required_substrings(query);
    let entries = table.range(..query.before.unwrap_or(u64::MAX))?.rev().map(|entry| {
        let (seq, entry) = entry?;
        let (at, json) = entry.value();
        let at = u64::from(at);
        if query.since.is_some_and(|since| at < since.unix())
            || query.until.is_some_and(|until| at >= until.unix())
        {
            return Ok(None);
        }
        let text = std::str::from_utf8(json).unwrap_or_default();
        if !needles.iter().all(|needle| text.contains(needle)) {
            return Ok(None);
        }
        let outcome: Outcome = parse_entry(json)?;
        let design = outcome.design.as_deref();
        let covers = |target: &TargetSelector| target.selects(&outcome.target, design);
        let wanted = query.target.as_ref().is_none_or(covers)
            && query.node.as_ref().is_none_or(|node| *node == outcome.node)
            && query.result.is_none_or(|result| result == outcome.ending);
        Ok(wanted.then(|| (seq.value(), outcome)))
    });
    collect_page(entries, query.limit)
}

/// Substrings that the JSON text of every matching outcome contains. Searching for them is much
/// cheaper than parsing entries that mostly do not match.
fn required_substrings(query: &HistoryQuery) -> Vec<String> {
    // Ids contain no characters that JSON escapes.
    let target = query.target.as_ref().and_then(TargetSelector::id_substring);
    let node = query.node.as_ref().map(serde_json::to_string);
    let result = query.result.as_ref().map(serde_json::to_string);
    target.into_iter().chain([node, result].into_iter().flatten().filter_map(Result::ok)).collect()
}

pub(super) fn events(
    tx: &ReadTransaction,
    query: &EventsQuery,
) -> Result<Page<JournalEvent>, JournalReadError> {
    let (own, databases) = (tx.open_table(EVENTS)?, tx.open_table(DB_EVENTS)?);
    let before = query.before_seq.unwrap_or(u64::MAX);
    let wanted = |entry: Result<RawEntry<'_>, StorageError>| {
        let (seq, entry) = entry?;
        let (at, json) = entry.value();
        if query.from.is_some_and(|from| u64::from(at) < from.unix()) {
            return Ok(None);
        }
        let event: JournalEvent = parse_entry(json)?;
        let wanted = query.matches(&event.details);
        Ok(wanted.then(|| (seq.value(), event)))
    };
    match query.after_seq.or_else(|| query.from.map(|_| 0)) {
        Some(since) => {
            let first = since.saturating_add(1);
            let behind = first..before.max(first);
            let (own, databases) = (own.range(behind.clone())?, databases.range(behind)?);
            collect_page(
                merge_entries(own, databases, |one, two| one < two).map(wanted),
                query.limit,
            )
        }
        None => {
            let (own, databases) = (own.range(..before)?.rev(), databases.range(..before)?.rev());
            let newest = merge_entries(own, databases, |one, two| one > two);
            let mut page = collect_page(newest.map(wanted), query.limit)?;
            page.entries.reverse();
            Ok(Page { has_more: false, ..page })
        }
    }
}

/// Number of the oldest among the newest `query.limit` matching events; `None` if none matches.
pub(super) fn first_of_newest(
    tx: &ReadTransaction,
    query: &EventsQuery,
) -> Result<Option<u64>, JournalReadError> {
    let (own, databases) = (tx.open_table(EVENTS)?, tx.open_table(DB_EVENTS)?);
    let before = query.before_seq.unwrap_or(u64::MAX);
    let (own, databases) = (own.range(..before)?.rev(), databases.range(..before)?.rev());
    let newest = merge_entries(own, databases, |one, two| one > two);
    let all = query.types.is_empty() && query.target.is_none();
    let mut oldest = (0, None);
    for entry in newest {
        if oldest.0 == query.limit {
            break;
        }
        let (seq, entry) = entry?;
        if all || query.matches(&parse_entry::<JournalEvent>(entry.value().1)?.details) {
            oldest = (oldest.0 + 1, Some(seq.value()));
        }
    }
    Ok(oldest.1)
}

type RawEntry<'a> = (AccessGuard<'a, u64>, AccessGuard<'a, (u32, &'static [u8])>);

/// Merges the entries of two tables that share one series of numbers.
fn merge_entries<'a>(
    one: impl Iterator<Item = Result<RawEntry<'a>, StorageError>>,
    two: impl Iterator<Item = Result<RawEntry<'a>, StorageError>>,
    first: impl Fn(u64, u64) -> bool,
) -> impl Iterator<Item = Result<RawEntry<'a>, StorageError>> {
    let (mut one, mut two) = (one.peekable(), two.peekable());
    std::iter::from_fn(move || match (one.peek(), two.peek()) {
        // Errors come first, so that no entry after an error is returned.
        (Some(Ok(left)), Some(Ok(right))) if first(left.0.value(), right.0.value()) => one.next(),
        (Some(Ok(_)), Some(_)) | (None, _) => two.next(),
        (Some(_), _) => one.next(),
    })
}
