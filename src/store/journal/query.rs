//! Queries of the history and the events.

use super::{
    Event, Type, What,
    store::parsed,
    tables::{DB_EVENTS, EVENTS, OUTCOMES},
};
use crate::model::{
    memory::{Ending, Outcome},
    target::Selector,
};
use redb::{AccessGuard, ReadTransaction, ReadableTable as _, StorageError};
use wall_clock::Moment;

/// Why a query failed; any error of the database library.
pub(super) type Unread = redb::Error;

/// A query of outcomes, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only of these targets.
    pub target: Option<Selector>,
    /// Only of this node.
    pub node: Option<String>,
    /// Only jobs that ended at or after this time.
    pub since: Option<Moment>,
    /// Only with this result.
    pub result: Option<Ending>,
    /// Only numbers below this: where the previous page ended.
    pub before: Option<u64>,
    /// Maximum number of outcomes.
    pub limit: usize,
}

/// A query of events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsQuery {
    /// Only of these types; all types if empty.
    pub types: Vec<Type>,
    /// Only about these targets, including entries that cover several, or about a database matched
    /// by the same text.
    pub target: Option<Selector>,
    /// Only numbers above this. Without `since` and `from`, the newest events are returned.
    pub since: Option<u64>,
    /// Only events recorded at or after this time.
    pub from: Option<Moment>,
    /// Maximum number of events.
    pub limit: usize,
}

impl EventsQuery {
    /// Whether an event matches the requested types and targets.
    #[must_use]
    pub fn wants(&self, what: &What) -> bool {
        let about = |target: &Selector| {
            what.target().into_iter().chain(what.also()).any(|id| target.covers(id, None))
                || what.database().is_some_and(|(_, db)| target.covers_database(db))
        };
        (self.types.is_empty() || self.types.contains(&what.kind()))
            && self.target.as_ref().is_none_or(about)
    }
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// Entries with their numbers.
    pub entries: Vec<(u64, T)>,
    /// Whether there are more entries after the last one.
    pub more: bool,
}

/// Collects up to `limit` entries. One more entry shows that there is a next page.
fn taken<T>(
    entries: impl Iterator<Item = Result<Option<(u64, T)>, Unread>>,
    limit: usize,
) -> Result<Page<T>, Unread> {
    let mut found = Vec::new();
    for entry in entries {
        let Some(entry) = entry? else { continue };
        if found.len() == limit {
            return Ok(Page { entries: found, more: true });
        }
        found.push(entry);
    }
    Ok(Page { entries: found, more: false })
}

pub(super) fn history(tx: &ReadTransaction, query: &HistoryQuery) -> Result<Page<Outcome>, Unread> {
    let table = tx.open_table(OUTCOMES)?;
    let needles = needles(query);
    let entries = table.range(..query.before.unwrap_or(u64::MAX))?.rev().map(|entry| {
        let (seq, entry) = entry?;
        let (at, said) = entry.value();
        if query.since.is_some_and(|since| u64::from(at) < since.unix()) {
            return Ok(None);
        }
        let text = std::str::from_utf8(said).unwrap_or_default();
        if !needles.iter().all(|needle| text.contains(needle)) {
            return Ok(None);
        }
        let outcome: Outcome = parsed(said)?;
        let design = outcome.design.as_deref();
        let covers = |target: &Selector| target.covers(&outcome.target, design);
        let wanted = query.target.as_ref().is_none_or(covers)
            && query.node.as_ref().is_none_or(|node| *node == outcome.node)
            && query.result.is_none_or(|result| result == outcome.ending);
        Ok(wanted.then(|| (seq.value(), outcome)))
    });
    taken(entries, query.limit)
}

/// Substrings that the JSON text of every matching outcome contains. Searching for them is much
/// cheaper than parsing entries that mostly do not match.
fn needles(query: &HistoryQuery) -> Vec<String> {
    // Ids contain no characters that JSON escapes.
    let target = query.target.as_ref().and_then(Selector::needle);
    let node = query.node.as_ref().map(serde_json::to_string);
    let result = query.result.as_ref().map(serde_json::to_string);
    target.into_iter().chain([node, result].into_iter().flatten().filter_map(Result::ok)).collect()
}

pub(super) fn events(tx: &ReadTransaction, query: &EventsQuery) -> Result<Page<Event>, Unread> {
    let (own, databases) = (tx.open_table(EVENTS)?, tx.open_table(DB_EVENTS)?);
    let wanted = |entry: Result<Entry<'_>, StorageError>| {
        let (seq, entry) = entry?;
        let (at, said) = entry.value();
        if query.from.is_some_and(|from| u64::from(at) < from.unix()) {
            return Ok(None);
        }
        let event: Event = parsed(said)?;
        let wanted = query.wants(&event.what);
        Ok(wanted.then(|| (seq.value(), event)))
    };
    match query.since.or_else(|| query.from.map(|_| 0)) {
        Some(since) => {
            let behind = since.saturating_add(1)..;
            let (own, databases) = (own.range(behind.clone())?, databases.range(behind)?);
            taken(merged(own, databases, |one, two| one < two).map(wanted), query.limit)
        }
        None => {
            let (own, databases) = (own.iter()?.rev(), databases.iter()?.rev());
            let newest = merged(own, databases, |one, two| one > two);
            let mut page = taken(newest.map(wanted), query.limit)?;
            page.entries.reverse();
            Ok(Page { more: false, ..page })
        }
    }
}

/// Of the newest `query.limit` matching events, the number of the oldest; `None` if none matches.
pub(super) fn newest_from(
    tx: &ReadTransaction,
    query: &EventsQuery,
) -> Result<Option<u64>, Unread> {
    let (own, databases) = (tx.open_table(EVENTS)?, tx.open_table(DB_EVENTS)?);
    let newest = merged(own.iter()?.rev(), databases.iter()?.rev(), |one, two| one > two);
    let all = query.types.is_empty() && query.target.is_none();
    let mut found = (0, None);
    for entry in newest {
        if found.0 == query.limit {
            break;
        }
        let (seq, entry) = entry?;
        if all || query.wants(&parsed::<Event>(entry.value().1)?.what) {
            found = (found.0 + 1, Some(seq.value()));
        }
    }
    Ok(found.1)
}

type Entry<'a> = (AccessGuard<'a, u64>, AccessGuard<'a, (u32, &'static [u8])>);

/// Merges the entries of two tables that share one series of numbers.
fn merged<'a>(
    one: impl Iterator<Item = Result<Entry<'a>, StorageError>>,
    two: impl Iterator<Item = Result<Entry<'a>, StorageError>>,
    first: impl Fn(u64, u64) -> bool,
) -> impl Iterator<Item = Result<Entry<'a>, StorageError>> {
    let (mut one, mut two) = (one.peekable(), two.peekable());
    std::iter::from_fn(move || match (one.peek(), two.peek()) {
        // Errors come first, so that no entry after an error is returned.
        (Some(Ok(left)), Some(Ok(right))) if first(left.0.value(), right.0.value()) => one.next(),
        (Some(Ok(_)), Some(_)) | (None, _) => two.next(),
        (Some(_), _) => one.next(),
    })
}
