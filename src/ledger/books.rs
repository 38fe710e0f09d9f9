//! The books: accounts and the current bucket. Pure: the task passes in the measurements and the time.

use super::bucket::{Bucket, EntryKey, Sum};
use crate::{
    model::{
        cause::{Cause, difference},
        records::JobOwner,
        target::CLUSTER_NODE,
    },
    plan::disk::{Disks, Volume},
    table::{Movement, Movements, NodeFiles},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use wall_clock::Moment;

const HOUR: u64 = 3_600;

/// Maximum number of hourly buckets: those of 14 days, and of an incomplete day. The limits are numbers rather than
/// ages, so that setting the clock forward deletes none.
const MAX_HOURLY: usize = 15 * 24;

/// Maximum number of daily buckets.
const MAX_DAILY: usize = 400;

/// Maximum number of entries in an hourly and in a daily bucket.
const HOURLY_ENTRIES: usize = 500;
const DAILY_ENTRIES: usize = 1_500;

/// Number of entries in the current bucket above which the smaller half is summed up.
const MAX_CURRENT_ENTRIES: usize = 20_000;

/// Maximum time without a step; after a longer one, which shows that recliner did not run or that
/// the clock was set, a new bucket begins.
const MAX_STEP: Duration = Duration::from_secs(300);

/// How long a bucket without entries counts as just begun.
const NEW_BUCKET: Duration = Duration::from_secs(120);

/// How long after a sweep its last findings may arrive, together with the space of volumes, which is measured every
/// half minute. Later changes of a volume come from files that were not read yet.
const SETTLED_AFTER_SWEEP: Duration = Duration::from_secs(40);

/// Maximum number of sweeps for which a node waits for index files that an earlier process knew one by one, because
/// its sidecar may be late.
const MAX_LATE_SWEEPS: u32 = 3;

/// How long the reported end of a compaction waits for the reading that shows its effect. A database's file is read
/// again at once, index files in the next sweep.
const DATABASE_CREDIT_FOR: Duration = Duration::from_secs(900);
const INDEX_CREDIT_FOR: Duration = Duration::from_secs(12 * HOUR);

/// Maximum number of such events.
const MAX_CREDITS: usize = 4_096;

/// The bytes of one node's files, or of one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The number of the first bucket with its entries.
    pub opened: u32,
    /// The nodes whose files are counted.
    pub nodes: Vec<String>,
    /// Its bytes now.
    pub bytes: i64,
}

/// The span of a closed bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) number: u32,
    pub(super) from: Moment,
    is_daily: bool,
}

/// Bytes that one cause added and removed since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseTotals {
    /// Bytes added.
    pub grown: u64,
    /// Bytes removed.
    pub shrunk: u64,
}

/// The bytes that a compaction freed according to its outcome, until a reading shows them.
#[derive(Clone, Debug)]
struct Credit {
    node: String,
    db: String,
    is_index: bool,
    by: JobOwner,
    bytes: i64,
    at: Moment,
}

/// The stored state besides the buckets.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredBooks {
    nodes: BTreeMap<String, Account>,
    volumes: BTreeMap<String, Account>,
    closed: Vec<Span>,
    current: u32,
    shown: BTreeSet<String>,
    other_files: BTreeMap<String, Vec<(Cause, u64)>>,
}

/// The accounts and the current bucket.
#[derive(Clone, Debug, Default)]
pub struct Books {
    pub(super) nodes: BTreeMap<String, Account>,
    pub(super) volumes: BTreeMap<String, Account>,
    /// The buckets before the current one, the oldest first.
    pub(super) closed: Vec<Span>,
    pub(super) current: Bucket,
    /// Closed buckets that are not stored yet.
    pub(super) unsaved: BTreeMap<u32, Bucket>,
    /// Buckets to be removed from the store.
    removed: Vec<u32>,
    /// Nodes that this process has read completely.
    live: BTreeSet<String>,
    /// Movements on other nodes.
    pending: Vec<(String, Movement)>,
    /// Nodes whose index files were known one by one at the last booking.
    shown: BTreeSet<String>,
    /// The files of nodes other than those of targets, at the last booking.
    other_files: BTreeMap<String, Vec<(Cause, u64)>>,
    /// When this process continued the books.
    resumed_at: Moment,
    /// When the last sweep of this process ended.
    swept_at: Option<Moment>,
    members: BTreeSet<String>,
    /// The interval of sweeps. A gap shorter than this hides nothing.
    pub(super) interval: Duration,
    credits: Vec<Credit>,
    totals: BTreeMap<(String, Cause), CauseTotals>,
    /// Whether anything but the time changed since the last [`Self::take_changed`].
    is_changed: bool,
}

impl Books {
    /// Continues the books of an earlier process, or begins new ones; `interval` is that of sweeps.
    pub fn resume(stored: Option<(&[u8], &[u8])>, interval: Duration, now: Moment) -> Self {
        let read = stored.and_then(|(books, bucket)| {
            let books: StoredBooks = postcard::from_bytes(books).ok()?;
            Some((books, Bucket::decode(bucket)?))
        });
        let Some((books, current)) = read else {
            let current = Bucket { from: now, until: now, ..Bucket::default() };
            return Self { current, interval, ..Self::default() };
        };
        let StoredBooks { nodes, volumes, closed, shown, other_files, .. } = books;
        let mut books = Self { nodes, volumes, closed, current, interval, ..Self::default() };
        (books.shown, books.other_files, books.resumed_at) = (shown, other_files, now);
        books.advance(now);
        books
    }

    /// The number of the current bucket in stored books.
    pub fn current_of(stored: &[u8]) -> Option<u32> {
        let books: StoredBooks = postcard::from_bytes(stored).ok()?;
        Some(books.current)
    }

    /// The books in their stored form.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (nodes, volumes) = (self.nodes.clone(), self.volumes.clone());
        let (closed, current) = (self.closed.clone(), self.current.number);
        let (shown, other_files) = (self.shown.clone(), self.other_files.clone());
        let stored = StoredBooks { nodes, volumes, closed, current, shown, other_files };
        postcard::to_stdvec(&stored).ok()
    }

    /// The buckets to store, and the numbers of those to remove.
    pub fn to_save(&self) -> (Vec<&Bucket>, &[u32]) {
        (self.unsaved.values().chain([&self.current]).collect(), &self.removed)
    }

    /// Whether a bucket was closed since the last time that everything was stored.
    pub fn has_closed(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Everything that [`Self::to_save`] returned is stored.
    pub fn saved(&mut self) {
        self.unsaved.clear();
        self.removed.clear();
    }

    /// Bytes added and removed since the process started, by account and cause.
    pub const fn totals(&self) -> &BTreeMap<(String, Cause), CauseTotals> {
        &self.totals
    }

    /// The node to which an account of [`Self::totals`] is attributed: for a volume, its first node.
    pub fn node_of<'a>(&'a self, account: &'a str) -> &'a str {
        let volume = self.volumes.get(account).filter(|_| !self.nodes.contains_key(account));
        volume.and_then(|volume| volume.nodes.first()).map_or(account, String::as_str)
    }

    /// The nodes with an account.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Whether anything except the time changed since the last call.
    pub const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.is_changed, false)
    }

    /// Whether any account is open.
    pub fn is_open(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Begins a new bucket at a full hour, after a gap, and when the clock was set back.
    pub fn advance(&mut self, now: Moment) {
        let last = self.current.until;
        let hour = Moment::from_unix(now.unix() - now.unix() % HOUR);
        if last.age(now) > MAX_STEP && self.is_open() {
            self.close(last);
            if last.age(now) > self.interval {
                self.current.gaps.push((last, now));
            }
        } else if now.age(last) > MAX_STEP {
            self.close(last);
            self.current.from = now;
        } else if last < hour && self.is_open() {
            self.close(hour);
        }
        self.current.until = now;
    }

    /// Begins a new bucket for an account that is opened now, unless the current bucket has just begun.
    fn close_for_opening(&mut self, now: Moment) {
        let is_new =
            self.current.from.age(now) < NEW_BUCKET && now.age(self.current.from).is_zero();
        if !self.current.entries.is_empty() || !is_new {
            self.close(now);
        }
    }

    /// Closes the current bucket at this moment, if it is not empty, and begins the next.
    fn close(&mut self, at: Moment) {
        self.is_changed = true;
        let next = self.current.number + 1;
        let begun = Bucket { number: next, from: at, until: at, ..Bucket::default() };
        let mut closed = std::mem::replace(&mut self.current, begun);
        closed.until = at;
        for (key, sum) in closed.entries.iter().filter(|(key, _)| key.cause == Cause::Unaccounted) {
            self.count(key, sum.bytes);
        }
        closed.prune(HOURLY_ENTRIES);
        let Bucket { number, from, is_daily, .. } = closed;
        self.closed.push(Span { number, from, is_daily });
        self.unsaved.insert(number, closed);
        let surplus = self.closed.iter().filter(|span| span.is_daily).count();
        if surplus > MAX_DAILY {
            let oldest = self.closed.remove(0);
            self.removed.push(oldest.number);
        }
    }

    /// The hourly buckets to be merged into a daily one: those of the oldest day, if there are too many. A merge
    /// ends before a bucket in which an account was opened.
    pub fn due_merge(&self) -> Option<Vec<u32>> {
        let hourly: Vec<_> = self.closed.iter().filter(|span| !span.is_daily).collect();
        let first = (hourly.len() > MAX_HOURLY).then(|| hourly.first())??;
        let is_opened = |number| {
            let accounts = self.nodes.values().chain(self.volumes.values());
            accounts.into_iter().any(|account| account.opened == number)
        };
        let same_day = hourly.iter().enumerate().take_while(|(at, span)| {
            let is_first = *at == 0;
            span.from.date() == first.from.date() && (is_first || !is_opened(span.number))
        });
        Some(same_day.map(|(_, span)| span.number).collect())
    }

    /// Replaces the buckets with these numbers by their sum, as far as they could be read.
    pub fn merge(&mut self, numbers: &[u32], buckets: Vec<Bucket>) {
        let Some(mut daily) = buckets.into_iter().reduce(|mut one, other| {
            one.join(other);
            one
        }) else {
            return;
        };
        daily.is_daily = true;
        daily.prune(DAILY_ENTRIES);
        for number in numbers.iter().filter(|number| **number != daily.number) {
            self.closed.retain(|span| span.number != *number);
            self.unsaved.remove(number);
            self.removed.push(*number);
        }
        for span in self.closed.iter_mut().filter(|span| span.number == daily.number) {
            span.is_daily = true;
        }
        self.unsaved.insert(daily.number, daily);
    }

    /// Books the movements on the nodes.
    pub fn receive(&mut self, movements: Movements, now: Moment) {
        self.advance(now);
        let Movements { nodes, entries } = movements;
        let is_swept = nodes.first().is_some_and(|cluster| cluster.is_complete);
        self.members =
            nodes.iter().filter(|it| it.is_member).map(|it| it.name.to_string()).collect();
        if is_swept {
            for gone in nodes.iter().filter(|node| !node.is_member) {
                self.nodes.remove(&*gone.name);
            }
        }
        for entry in entries {
            let Some(name) = nodes.get(entry.node).map(|node| &*node.name) else { continue };
            if self.live.contains(name) {
                self.book_movement(name, entry);
            } else if self.nodes.contains_key(name) && entry.cause != Cause::Measured {
                self.pending.push((name.to_owned(), entry));
            }
        }
        let complete = || nodes.iter().filter(|node| node.is_complete && node.is_member);
        if complete().any(|node| !self.nodes.contains_key(&*node.name)) {
            self.close_for_opening(now);
        }
        let is_changed = |node: &NodeFiles, books: &Self| match &*node.name {
            // The pseudo-node owns index files that no node shows.
            CLUSTER_NODE => nodes.iter().any(|node| books.is_shown_anew(node)),
            _ => books.is_shown_anew(node),
        };
        let measured: Vec<bool> = complete().map(|node| is_changed(node, self)).collect();
        let is_late = self.resumed_at.distance(now) < self.interval * MAX_LATE_SWEEPS;
        for (node, is_measured) in complete().zip(measured) {
            let name = &*node.name;
            if !self.live.contains(name) && self.nodes.contains_key(name) && is_late && is_measured
            {
                continue;
            }
            if !self.nodes.contains_key(name) {
                let nodes = vec![name.to_owned()];
                let account = Account { opened: self.current.number, nodes, bytes: node.bytes };
                self.is_changed = true;
                self.nodes.insert(name.to_owned(), account);
                self.live.insert(name.to_owned());
            } else if self.live.insert(name.to_owned()) {
                let pending = std::mem::take(&mut self.pending).into_iter();
                let (here, elsewhere): (Vec<_>, Vec<_>) = pending.partition(|(of, _)| of == name);
                self.pending = elsewhere;
                let apart = self.book_other_files(node);
                for (_, entry) in here.into_iter().filter(|(_, it)| !apart.contains(&it.cause)) {
                    self.book_movement(name, entry);
                }
            }
            let booked = self.nodes.get(name).map_or(node.bytes, |account| account.bytes);
            let rest = node.bytes.saturating_sub(booked);
            if rest != 0 {
                let cause = if is_measured { Cause::Measured } else { Cause::NotWatched };
                self.book(node_key(name, cause), rest);
            }
            if !node.other_files.is_empty() {
                self.other_files.insert(name.to_owned(), node.other_files.clone());
            }
            match node.is_shown {
                true => self.shown.insert(name.to_owned()),
                false => self.shown.remove(name),
            };
        }
        self.settle_credits(now);
        if self.current.entries.len() > MAX_CURRENT_ENTRIES {
            self.current.prune(MAX_CURRENT_ENTRIES / 2);
        }
    }

    /// Books changes of a node's other files that happened without observation; returns the causes of these changes.
    fn book_other_files(&mut self, node: &NodeFiles) -> Vec<Cause> {
        let before = self.other_files.get(&*node.name).cloned().unwrap_or_default();
        let changes = node.other_files.iter().filter_map(|(cause, new)| {
            let (_, old) = before.iter().find(|(of, _)| of == cause)?;
            Some((*cause, difference(*old, *new)))
        });
        let changes: Vec<(Cause, i64)> = changes.collect();
        for (cause, bytes) in changes.iter().filter(|(_, bytes)| *bytes != 0) {
            self.book(node_key(&node.name, *cause), *bytes);
        }
        changes.into_iter().map(|(cause, _)| cause).collect()
    }

    /// Whether it has changed whether a node's index files are known one by one.
    fn is_shown_anew(&self, node: &NodeFiles) -> bool {
        node.is_member && self.shown.contains(&*node.name) != node.is_shown
    }

    fn book_movement(&mut self, node: &str, entry: Movement) {
        let Movement { cause, db, design, bytes, .. } = entry;
        let (db, design) = (db.into_string(), design.into_string());
        self.book(EntryKey { db, design, ..node_key(node, cause) }, bytes);
    }

    /// Records that a sweep has read every file.
    pub const fn swept(&mut self, now: Moment) {
        self.swept_at = Some(now);
    }

    /// Books the part of the volumes' changes that no file explains, just after a sweep.
    pub fn measure(&mut self, disks: &Disks, now: Moment) {
        self.advance(now);
        if self.swept_at.is_none_or(|at| at.age(now) > SETTLED_AFTER_SWEEP) {
            return;
        }
        let groups = volumes(disks);
        if groups.is_empty() {
            return;
        }
        self.volumes.retain(|name, account| {
            let is_of = |it: &Group| it.name == *name && it.nodes == account.nodes && !it.is_stated;
            groups.iter().any(is_of)
        });
        let is_read = |group: &Group, books: &Self| {
            let served = || group.nodes.iter().filter(|node| books.members.contains(*node));
            served().next().is_some() && served().all(|node| books.live.contains(node))
        };
        let readable = groups.into_iter().filter(|group| is_read(group, self));
        let readable: Vec<(Group, i64)> =
            readable.filter_map(|group| group.used.map(|used| (group, used))).collect();
        if readable.iter().any(|(group, _)| !self.volumes.contains_key(&group.name)) {
            self.close_for_opening(now);
        }
        for (group, used) in readable {
            let Some(known) = self.volumes.get(&group.name) else {
                let (opened, nodes) = (self.current.number, group.nodes);
                self.is_changed = true;
                self.volumes.insert(group.name, Account { opened, nodes, bytes: used });
                continue;
            };
            let rest = used.saturating_sub(known.bytes);
            if rest != 0 {
                let key = EntryKey { is_volume: true, ..node_key(&group.name, Cause::Unaccounted) };
                self.book(key, rest);
            }
        }
    }

    /// Records who compacted, and how much that freed.
    pub fn compacted(
        &mut self,
        node: &str,
        (db, is_index): (&str, bool),
        by: JobOwner,
        freed: i64,
        at: Moment,
    ) {
        if self.credits.len() < MAX_CREDITS && freed > 0 {
            let (node, db) = (node.to_owned(), db.to_owned());
            self.credits.push(Credit { node, db, is_index, by, bytes: freed, at });
            self.settle_credits(at);
        }
    }

    /// Attributes freed bytes to those who started the compactions.
    fn settle_credits(&mut self, now: Moment) {
        let mut credits = std::mem::take(&mut self.credits);
        for credit in &mut credits {
            let unsettled: Vec<(EntryKey, i64)> = self
                .current
                .entries
                .iter()
                .filter(|(key, sum)| {
                    key.cause == Cause::Compaction
                        && key.by.is_none()
                        && sum.bytes < 0
                        && (key.account == credit.node || credit.node == CLUSTER_NODE)
                        && key.db == credit.db
                        && key.design.is_empty() != credit.is_index
                })
                .map(|(key, sum)| (key.clone(), sum.bytes))
                .collect();
            for (key, bytes) in unsettled {
                let part = credit.bytes.min(-bytes);
                credit.bytes -= part;
                let own = EntryKey { by: Some(credit.by), ..key.clone() };
                self.is_changed = true;
                self.current.add(key, Sum { bytes: part, others: 0 });
                self.current.add(own, Sum { bytes: -part, others: 0 });
            }
        }
        credits.retain(|credit| {
            let longest = if credit.is_index { INDEX_CREDIT_FOR } else { DATABASE_CREDIT_FOR };
            credit.bytes > 0 && credit.at.age(now) < longest
        });
        self.credits = credits;
    }

    fn count(&mut self, key: &EntryKey, bytes: i64) {
        let totals = self.totals.entry((key.account.clone(), key.cause)).or_default();
        let sum = if bytes > 0 { &mut totals.grown } else { &mut totals.shrunk };
        *sum = sum.saturating_add(bytes.unsigned_abs());
    }

    fn book(&mut self, key: EntryKey, bytes: i64) {
        self.is_changed = true;
        let accounts = if key.is_volume { &mut self.volumes } else { &mut self.nodes };
        let Some(account) = accounts.get_mut(&key.account) else { return };
        account.bytes = account.bytes.saturating_add(bytes);
        if !key.is_volume {
            let around = self.volumes.values_mut().filter(|it| it.nodes.contains(&key.account));
            around.for_each(|volume| volume.bytes = volume.bytes.saturating_add(bytes));
        }
        // Unexplained bytes go up and down until the next sweep explains them.
        if key.cause != Cause::Unaccounted {
            self.count(&key, bytes);
        }
        self.current.add(key, Sum { bytes, others: 0 });
    }
}

fn node_key(account: &str, cause: Cause) -> EntryKey {
    let account = account.to_owned();
    EntryKey {
        account,
        is_volume: false,
        cause,
        by: None,
        db: String::new(),
        design: String::new(),
    }
}

/// Volumes that share nodes, because it is unknown which of them has which file.
#[derive(Debug)]
struct Group {
    name: String,
    nodes: Vec<String>,
    /// Used bytes, if all are known.
    used: Option<i64>,
    /// Whether the configuration states the free space of any: then every byte written would be matched by one that no
    /// file explains.
    is_stated: bool,
}

fn volumes(disks: &Disks) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for volume in &disks.volumes {
        let nodes: Vec<String> = volume.nodes.iter().map(ToString::to_string).collect();
        let used = used_bytes(volume);
        match groups.iter_mut().find(|group| group.nodes.iter().any(|node| nodes.contains(node))) {
            Some(group) => {
                group.used = group.used.zip(used).map(|(one, two)| one.saturating_add(two));
                let new = nodes.into_iter().filter(|node| !group.nodes.contains(node));
                let new: Vec<String> = new.collect();
                group.nodes.extend(new);
                group.is_stated |= volume.is_stated;
            }
            None => {
                let (name, is_stated) = (volume.name.to_string(), volume.is_stated);
                groups.push(Group { name, nodes, used, is_stated });
            }
        }
    }
    groups
}

fn used_bytes(volume: &Volume) -> Option<i64> {
    let space = volume.space.filter(|_| !volume.is_stated)?;
    Some(difference(space.available, space.size?))
}
