//! The changes between two moments, from the books and the stored buckets.

use super::{
    books::{Account, Books},
    bucket::{Bucket, EntryKey, Sum},
};
use crate::model::{cause::Cause, records::JobOwner, target::CLUSTER_NODE};
use std::collections::{BTreeMap, BTreeSet};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// The grouping of entries.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangesBy {
    /// By cause, and by who started the compaction.
    Cause,
    /// By database.
    Database,
    /// By database and design document.
    Design,
    /// By node.
    Node,
}

/// The requested changes.
#[derive(Clone, Debug, Default)]
pub struct ChangesQuery {
    /// The start, rounded back to the start of a bucket.
    pub since: Moment,
    /// The end, rounded up to the end of a bucket; `None` for now.
    pub until: Option<Moment>,
    /// How entries are summed, if at all.
    pub by: Option<ChangesBy>,
    /// Only this volume or node; or this database or index (`<db>/_design/<name>`), with the sum of all others.
    pub name: Option<String>,
}

/// An entry of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeEntry {
    /// The cause; `None` in sums over causes.
    pub cause: Option<Cause>,
    /// Who started the compaction, if known.
    pub by: Option<JobOwner>,
    /// The database, if there is one.
    pub database: Option<String>,
    /// The design document, by id, if there is one.
    pub design: Option<String>,
    /// The node, if there is one.
    pub node: Option<String>,
    /// Whether it is the sum of everything that was not requested.
    pub is_rest: bool,
    /// The change.
    pub bytes: i64,
    /// Number of small entries in it.
    pub others: u32,
}

/// The changes of one volume, or of one node's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountChanges {
    /// The volume; `None` if unknown.
    pub volume: Option<String>,
    /// The nodes.
    pub nodes: Vec<String>,
    /// The start.
    pub since: Moment,
    /// The end.
    pub until: Moment,
    /// Bytes at the start.
    pub before: i64,
    /// Bytes at the end: exactly `before` and the sum of the entries.
    pub after: i64,
    /// Times without observation.
    pub gaps: Vec<(Moment, Moment)>,
    /// The entries, the largest first.
    pub entries: Vec<ChangeEntry>,
}

impl Books {
    /// The numbers of the stored buckets that an answer needs.
    pub fn needed(&self, since: Moment) -> Vec<u32> {
        let first = self.first_bucket(since);
        let closed = self.closed.iter().map(|span| span.number);
        closed.filter(|at| *at >= first && !self.unsaved.contains_key(at)).collect()
    }

    /// The bucket that contains a moment, or the oldest bucket. If the clock was set back, older buckets may begin
    /// later than newer ones.
    pub(super) fn first_bucket(&self, since: Moment) -> u32 {
        if self.current.from <= since {
            return self.current.number;
        }
        let reached = self.closed.iter().rev().find(|span| span.from <= since);
        let first = reached.or_else(|| self.closed.first());
        first.map_or(self.current.number, |span| span.number)
    }

    /// The current bucket, after those that are not stored yet.
    fn own_buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.unsaved.values().chain([&self.current])
    }
}

/// Answers a question from the books and the stored buckets that it needs.
pub fn changes(books: &Books, stored: &[Bucket], query: &ChangesQuery) -> Vec<AccountChanges> {
    let mut buckets: BTreeMap<u32, &Bucket> = stored.iter().map(|it| (it.number, it)).collect();
    buckets.extend(books.own_buckets().map(|bucket| (bucket.number, bucket)));
    let first = books.first_bucket(query.since);
    let end = query.until.and_then(|until| {
        let later = buckets.values().find(|it| it.number > first && it.from >= until);
        later.map(|it| it.number)
    });
    let end = end.unwrap_or(books.current.number + 1);
    let covered: BTreeSet<&String> = books
        .volumes
        .values()
        .filter(|volume| {
            // A node that was observed before its volume gives more.
            let nodes = volume.nodes.iter().filter_map(|node| books.nodes.get(node));
            volume.opened <= first
                || nodes.map(|it| it.opened).all(|at| at.max(first) >= volume.opened)
        })
        .flat_map(|volume| &volume.nodes)
        .collect();
    let volumes =
        books.volumes.iter().filter(|(_, it)| it.nodes.iter().all(|it| covered.contains(it)));
    let volumes = volumes.map(|(name, account)| (Some(name), account));
    let nodes = books.nodes.iter().filter(|(name, _)| !covered.contains(name));
    let nodes = nodes.map(|(_, account)| (None, account));
    let is_account = |name: &String, (volume, account): &(Option<&String>, &Account)| {
        *volume == Some(name) || account.nodes.contains(name)
    };
    let mut accounts: Vec<(Option<&String>, &Account)> = volumes.chain(nodes).collect();
    // The pseudo-node has no files if every node's are known.
    accounts.retain(|(_, account)| account.nodes != [CLUSTER_NODE] || account.bytes != 0);
    let mut of_name = query.name.as_ref();
    if let Some(name) = of_name
        && accounts.iter().any(|account| is_account(name, account))
    {
        accounts.retain(|account| is_account(name, account));
        of_name = None;
    }
    let of = |(volume, account)| {
        account_changes(&buckets, (first, end), (volume, account), (query.by, of_name))
    };
    accounts.into_iter().map(of).collect()
}

fn account_changes(
    buckets: &BTreeMap<u32, &Bucket>,
    (first, end): (u32, u32),
    (volume, account): (Option<&String>, &Account),
    (by, name): (Option<ChangesBy>, Option<&String>),
) -> AccountChanges {
    let is_own = |key: &EntryKey| match key.is_volume {
        true => Some(&key.account) == volume,
        false => account.nodes.contains(&key.account),
    };
    let first = first.max(account.opened);
    let mut sums: BTreeMap<ChangeEntry, Sum> = BTreeMap::new();
    let (mut later, mut within) = (0_i64, 0_i64);
    let mut gaps = Vec::new();
    let mut span: Option<(Moment, Moment)> = None;
    for bucket in buckets.values().filter(|bucket| bucket.number >= first) {
        let is_within = bucket.number < end;
        if is_within {
            span = Some((span.map_or(bucket.from, |(from, _)| from), bucket.until));
            gaps.extend(bucket.gaps.iter().copied());
        }
        for (key, sum) in bucket.entries.iter().filter(|(key, _)| is_own(key)) {
            if !is_within {
                later = later.saturating_add(sum.bytes);
                continue;
            }
            within = within.saturating_add(sum.bytes);
            let entry = sums.entry(summed(key, by, name)).or_default();
            entry.bytes = entry.bytes.saturating_add(sum.bytes);
            entry.others = entry.others.saturating_add(sum.others);
        }
    }
    let entries = sums.into_iter().filter(|(_, sum)| sum.bytes != 0);
    let mut entries: Vec<ChangeEntry> =
        entries.map(|(key, Sum { bytes, others })| ChangeEntry { bytes, others, ..key }).collect();
    entries.sort_by_key(|entry| (entry.is_rest, std::cmp::Reverse(entry.bytes.unsigned_abs())));
    let after = account.bytes.saturating_sub(later);
    let (since, until) = span.unwrap_or_default();
    let before = after.saturating_sub(within);
    let (volume, nodes) = (volume.cloned(), account.nodes.clone());
    AccountChanges { volume, nodes, since, until, before, after, gaps, entries }
}

/// The entry to which a sum is added.
fn summed(key: &EntryKey, by: Option<ChangesBy>, name: Option<&String>) -> ChangeEntry {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let is_named = name.is_none_or(|name| {
        let index = name.strip_prefix(&key.db).and_then(|rest| rest.strip_prefix('/'));
        key.db == *name || (!key.db.is_empty() && index == Some(&*key.design))
    });
    if !is_named {
        return ChangeEntry { is_rest: true, ..ChangeEntry::default() };
    }
    let (database, design) = (text(&key.db), text(&key.design));
    let node = Some(key.account.clone()).filter(|_| !key.is_volume);
    let none = ChangeEntry::default();
    match by {
        None => ChangeEntry { cause: Some(key.cause), by: key.by, database, design, node, ..none },
        Some(ChangesBy::Cause) => ChangeEntry { cause: Some(key.cause), by: key.by, ..none },
        Some(ChangesBy::Database) => ChangeEntry { database, ..none },
        Some(ChangesBy::Design) => ChangeEntry { database, design, ..none },
        Some(ChangesBy::Node) => ChangeEntry { node, ..none },
    }
}
