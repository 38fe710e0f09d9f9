//! What changed on the disks, by cause.

use super::{
    columns::{Cell, Table, rest},
    short_node,
    vocabulary::{self, Word},
};
use crate::{
    ledger::{AccountChanges, ChangeEntry},
    model::{cause::Cause, target::CLUSTER_NODE},
    plan::disk::volume_title,
    text::{Label, counted, size},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use wall_clock::Moment;

/// Maximum number of causes in a sentence.
const NAMED_CAUSES: usize = 3;

/// Shares of a cause's bytes from which the sentence names a single database: with its part, or as the only one.
const NAMED_SHARE: f64 = 0.6;
const WHOLE_SHARE: f64 = 0.99;

/// A sentence omits causes smaller than the largest one divided by this.
const SMALLEST_PART: u64 = 100;

/// A sentence omits gaps shorter than the requested time divided by this: little happens in them.
const GAP_SHARE: u32 = 10;

/// The changes of every volume, and of the files of nodes whose volume is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Changes {
    /// The start, rounded back to an hour that was recorded.
    pub since: String,
    /// The end.
    pub until: String,
    /// What changed, in a sentence for each volume.
    pub says: Vec<String>,
    /// The volumes, and the nodes whose volume is unknown.
    pub volumes: Vec<VolumeChanges>,
}

/// The changes of one volume, or of the files of one node: `after_bytes` - `before_bytes` is exactly the sum of `bytes`
/// of the entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeChanges {
    /// The volume; null if unknown, or if its free space is a fixed number of the configuration: then the changes are
    /// those of the node's files.
    pub volume: Option<String>,
    /// The nodes with files on it.
    pub nodes: Vec<String>,
    /// The start for this volume; later than the answer's if its record starts later.
    pub since: String,
    /// Used bytes at the start.
    pub before_bytes: i64,
    /// Used bytes at the end; for a volume, as the last sweep found it.
    pub after_bytes: i64,
    /// What changed, in a sentence.
    pub says: String,
    /// Times without observation; the entries cover these too.
    pub gaps: Vec<GapLine>,
    /// The changes, the largest first.
    pub entries: Vec<ChangeLine>,
}

/// A time without observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GapLine {
    /// The start of the gap.
    pub from: String,
    /// The end of the gap.
    pub until: String,
}

/// A part of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeLine {
    /// The cause; null in sums over several causes.
    #[schemars(with = "Option<vocabulary::Cause>")]
    pub cause: Option<Word>,
    /// Who started the compaction; null for other changes, or if unknown.
    #[schemars(with = "Option<vocabulary::Owner>")]
    pub by: Option<Word>,
    /// The database; null if none, or in sums over several.
    pub database: Option<String>,
    /// The id of the design document; null if none, or in sums over several.
    pub design: Option<String>,
    /// The node; null if none, or in sums over several.
    pub node: Option<String>,
    /// The change of bytes.
    pub bytes: i64,
    /// Number of small changes summed up in this entry.
    pub others: u32,
}

impl Changes {
    /// The databases whose waste the sentences name.
    pub fn wasted(accounts: &[AccountChanges]) -> BTreeSet<String> {
        let waste = accounts.iter().filter_map(|account| {
            let entries = account.entries.iter().filter(|it| it.cause == Some(Cause::Waste));
            let (sum, subject) = subject(Cause::Waste, &entries.collect::<Vec<_>>());
            subject.filter(|_| sum > 0).map(|(db, _)| db)
        });
        waste.collect()
    }

    /// The answer to a question about the time since `since`; `reasons` say why the waste of a database is not
    /// compacted now.
    pub fn of(
        accounts: &[AccountChanges],
        reasons: &BTreeMap<String, String>,
        (since, now): (Moment, Moment),
    ) -> Self {
        let begin = accounts.iter().map(|it| it.since).min().unwrap_or(since);
        let end = accounts.iter().map(|it| it.until).max().unwrap_or(now);
        let volumes = accounts.iter().map(|account| VolumeChanges {
            volume: account.volume.clone(),
            nodes: account.nodes.clone(),
            since: account.since.rfc3339(),
            before_bytes: account.before,
            after_bytes: account.after,
            says: sentence(account, reasons, now),
            gaps: account.gaps.iter().map(GapLine::of).collect(),
            entries: account.entries.iter().map(ChangeLine::of).collect(),
        });
        let volumes: Vec<VolumeChanges> = volumes.collect();
        let mut says: Vec<String> = volumes.iter().map(|volume| volume.says.clone()).collect();
        if says.is_empty() {
            says.push(
                "No changes are recorded yet: recording begins after the first complete sweep."
                    .to_owned(),
            );
        }
        Self { since: begin.rfc3339(), until: end.rfc3339(), says, volumes }
    }
}

impl VolumeChanges {
    /// The first `shown` entries, in columns that are not empty; and a sentence about the others.
    pub(crate) fn table(&self, shown: usize) -> (Table<&ChangeLine>, Option<String>) {
        let (shown, others) = self.entries.split_at(shown.min(self.entries.len()));
        let any = |has: fn(&ChangeLine) -> bool| shown.iter().any(has);
        let has_nodes = self.nodes.len() > 1 && any(|it| it.node.is_some());
        let node = |it: &ChangeLine| it.node.as_deref().map_or_else(Cell::none, Cell::node);
        let mut table = Table::of(shown);
        if any(|it| it.cause.is_some()) {
            table = table.text("cause", |it| Cell::words(it.cause_in_words()));
        }
        if any(|it| it.database.is_some() || it.others > 0) {
            table = table.text("database", |it| it.subject(has_nodes));
        }
        if any(|it| it.design.is_some()) {
            table =
                table.text(rest("design document"), |it| it.design.as_deref().unwrap_or_default());
        }
        if has_nodes {
            table = table.text(rest("node"), node);
        }
        let more = |rest: &[ChangeLine]| {
            let sum = size::signed(rest.iter().map(|entry| entry.bytes).sum());
            let count = counted(rest.len() as u64, "smaller change", "smaller changes");
            format!("And {count}, {sum} in total.")
        };
        let more = (!others.is_empty()).then(|| more(others));
        (table.number("bytes", |it| Cell::words(size::signed(it.bytes))), more)
    }

    /// Its name for people.
    pub fn name(&self) -> String {
        match &*self.nodes {
            [node] if node == CLUSTER_NODE => "indexes".to_owned(),
            nodes => match &self.volume {
                Some(volume) => volume_title(volume, nodes),
                None => nodes.join(", "),
            },
        }
    }
}

impl GapLine {
    fn of((from, until): &(Moment, Moment)) -> Self {
        Self { from: from.rfc3339(), until: until.rfc3339() }
    }
}

impl ChangeLine {
    /// The entry's database, or the number of databases in it; on a phone also its design document and node.
    fn subject(&self, has_nodes: bool) -> Cell {
        let subject = match (&self.database, self.others) {
            (Some(db), _) => Cell::database(db),
            (None, 0) => Cell::none(),
            (None, others) => Cell::words(counted(others.into(), "other", "others")).quiet(),
        };
        let node = self.node.as_deref().filter(|_| has_nodes);
        self.design.as_deref().into_iter().chain(node).fold(subject, Cell::below)
    }

    /// The cause and who started the compaction, in a few words.
    pub fn cause_in_words(&self) -> String {
        let cause = self.cause.as_deref().unwrap_or_default().replace('_', " ");
        let by = self.by.as_deref().map_or_else(String::new, |by| format!(" by {by}"));
        cause + &by
    }

    fn of(entry: &ChangeEntry) -> Self {
        let cause = entry.cause.map(|cause| Word::from(cause.label()));
        Self {
            cause: if entry.is_rest { Some("rest".into()) } else { cause },
            by: entry.by.map(|by| by.label().into()),
            database: entry.database.clone(),
            design: entry.design.clone(),
            node: entry.node.clone(),
            bytes: entry.bytes,
            others: entry.others,
        }
    }
}

/// The database of a name that is a database or an index (`<db>/_design/<name>`).
pub fn database_of(name: &str) -> &str {
    name.split_once("/_design/").map_or(name, |(database, _)| database)
}

/// A sentence about what changed, the largest causes first.
fn sentence(account: &AccountChanges, reasons: &BTreeMap<String, String>, now: Moment) -> String {
    // If one database was requested, the rest belongs to others.
    let own = || account.entries.iter().filter(|entry| !entry.is_rest);
    let change: i64 = own().map(|entry| entry.bytes).sum();
    let since = in_words(account.since, now);
    let is_part = own().count() < account.entries.len();
    let name = account_name(account);
    let name = if is_part { format!("its part of {name}") } else { name };
    let bytes = |bytes: i64| size::format_size_short(bytes.unsigned_abs());
    let mut causes: BTreeMap<Option<Cause>, Vec<&ChangeEntry>> = BTreeMap::new();
    for entry in own() {
        causes.entry(entry.cause).or_default().push(entry);
    }
    let mut parts: Vec<(i64, String)> = causes
        .iter()
        .filter_map(|(cause, entries)| {
            let cause = (*cause)?;
            let (sum, most) = subject(cause, entries);
            Some((sum, cause_in_words(cause, sum, most, reasons)))
        })
        .filter(|(sum, _)| *sum != 0)
        .collect();
    parts.sort_by_key(|(sum, _)| std::cmp::Reverse(sum.unsigned_abs()));
    let largest = parts.first().map_or(0, |(sum, _)| sum.unsigned_abs());
    parts.retain(|(sum, _)| sum.unsigned_abs() >= largest / SMALLEST_PART);
    let of_sign = |is_growth: bool| {
        let named = parts.iter().filter(|(sum, _)| (*sum > 0) == is_growth).take(NAMED_CAUSES);
        named.map(|(sum, about)| format!("{} {about}", bytes(*sum))).collect::<Vec<_>>().join(", ")
    };
    let (more, less) = (of_sign(true), of_sign(false));
    let (first, second, verb) = match change {
        0 if parts.is_empty() => return format!("{name} has not changed since {since}."),
        0 => return format!("{name} is as large as {since}: added {more}; removed {less}."),
        1.. => (more, ("less", less), "grew"),
        ..0 => (less, ("added", more), "shrank"),
    };
    let mut says = format!("{name} {verb} by {} since {since}", bytes(change));
    if !first.is_empty() {
        says.push_str(&format!(": {first}"));
    }
    if !second.1.is_empty() {
        says.push_str(&format!("; {} {}", second.0, second.1));
    }
    let length = |(from, until): &&(Moment, Moment)| from.age(*until);
    let longest = account.gaps.iter().max_by_key(length);
    let asked = account.since.age(account.until);
    if let Some((from, until)) = longest.filter(|gap| length(gap) >= asked / GAP_SHARE) {
        let (from, until) = (in_words(*from, now), in_words(*until, now));
        says.push_str(&format!(" (recliner was not watching from {from} to {until})"));
    }
    says.push('.');
    says
}

fn account_name(account: &AccountChanges) -> String {
    match (&account.volume, &*account.nodes) {
        (Some(volume), nodes) => short_node(&volume_title(volume, nodes)).to_owned(),
        (None, [node]) if node == CLUSTER_NODE => "the space of indexes".to_owned(),
        (None, nodes) => {
            let nodes: Vec<&str> = nodes.iter().map(|node| short_node(node)).collect();
            format!("the space of files on {}", nodes.join(", "))
        }
    }
}

/// A moment for people, in UTC.
fn in_words(at: Moment, now: Moment) -> String {
    let (text, date) = (at.rfc3339(), at.date());
    let time = text.get(11..16).unwrap_or_default();
    let yesterday = Moment::from_unix(now.unix().saturating_sub(86_400)).date();
    match date {
        date if date == now.date() => time.to_owned(),
        date if date == yesterday => format!("yesterday {time}"),
        date => format!("{date} {time}"),
    }
}

/// The sum of a cause, and the database or index that accounts for most of the sum.
fn subject(cause: Cause, entries: &[&ChangeEntry]) -> (i64, Option<(String, i64)>) {
    let is_index = matches!(
        cause,
        Cause::IndexRows | Cause::IndexWaste | Cause::NewIndex | Cause::IndexDeleted
    );
    let sum: i64 = entries.iter().map(|entry| entry.bytes).sum();
    let mut subjects: BTreeMap<String, i64> = BTreeMap::new();
    for entry in entries {
        let Some(db) = &entry.database else { continue };
        let design = entry.design.as_deref().filter(|_| is_index);
        let subject = design.map_or_else(|| db.clone(), |design| format!("{db}/{design}"));
        *subjects.entry(subject).or_default() += entry.bytes;
    }
    let most = subjects.into_iter().max_by_key(|(_, bytes)| bytes.unsigned_abs());
    let most = most.filter(|(_, bytes)| *bytes as f64 / sum as f64 >= NAMED_SHARE);
    (sum, most)
}

/// What the bytes of a cause are, the part of the database or index with most of them, and why waste was not compacted.
fn cause_in_words(
    cause: Cause,
    sum: i64,
    most: Option<(String, i64)>,
    reasons: &BTreeMap<String, String>,
) -> String {
    let Some((subject, part)) = most else { return about(cause, sum, None) };
    let reason = reasons.get(&subject).filter(|_| cause == Cause::Waste && sum > 0);
    let reason = reason.map_or_else(String::new, |why| format!(" that was not compacted ({why})"));
    if part as f64 / sum as f64 >= WHOLE_SHARE {
        return about(cause, sum, Some(&subject)) + &reason;
    }
    let part = size::format_size_short(part.unsigned_abs());
    format!("{}, {part} of it of `{subject}`{reason}", about(cause, sum, None))
}

/// What the bytes of a cause are, in total or for one database or index.
fn about(cause: Cause, sum: i64, most: Option<&str>) -> String {
    let of = most.map_or_else(String::new, |subject| format!(" of `{subject}`"));
    let made = most.map_or_else(String::new, |subject| format!(" `{subject}`"));
    let several = if most.is_some() { "" } else { "s" };
    let several_indexes = if most.is_some() { "index" } else { "indexes" };
    match cause {
        Cause::Documents => format!("documents{of}"),
        Cause::Waste => format!("waste{of}"),
        Cause::IndexRows => format!("rows of {several_indexes}{made}"),
        Cause::IndexWaste => format!("waste of {several_indexes}{made}"),
        Cause::NewDatabase => format!("new database{several}{made}"),
        Cause::DatabaseDeleted => format!("deleted database{several}{made}"),
        Cause::NewIndex => format!("new {several_indexes}{made}"),
        Cause::IndexDeleted => format!("deleted {several_indexes}{made}"),
        Cause::ShardMovedIn => format!("shards{of} moved here"),
        Cause::ShardMovedOut => format!("shards{of} moved away"),
        Cause::Split => format!("split shards{of}"),
        Cause::Compaction if sum > 0 => format!("added by compaction{of}"),
        Cause::Compaction => format!("freed by compaction{of}"),
        Cause::CompactionFiles => "unfinished files of compactions".to_owned(),
        Cause::Leftovers => "files left behind by compactions".to_owned(),
        Cause::DeletedFiles => "deleted files that still exist".to_owned(),
        Cause::SearchIndexes => "search indexes".to_owned(),
        Cause::OtherFiles => "other files in CouchDB's directories".to_owned(),
        Cause::Unknown => format!("files{of} of which only the size is known"),
        Cause::Measured => "files that are newly or no longer measured".to_owned(),
        Cause::NotWatched => "changes while recliner was not watching".to_owned(),
        Cause::Unaccounted if sum < 0 => "that no file of CouchDB explains".to_owned(),
        Cause::Unaccounted => {
            "that no file of CouchDB explains: other programs, or deleted files still open, which a restart of CouchDB frees".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    fn entry(cause: Cause, db: &str, design: &str, gib: i64) -> ChangeEntry {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        ChangeEntry {
            cause: Some(cause),
            database: text(db),
            design: text(design),
            node: text("couchdb@couch-a"),
            bytes: gib * GIB,
            ..ChangeEntry::default()
        }
    }

    fn account(entries: Vec<ChangeEntry>) -> AccountChanges {
        let now = Moment::parse("2026-11-26T08:00:00Z").unwrap();
        let change: i64 = entries.iter().map(|entry| entry.bytes).sum();
        AccountChanges {
            volume: Some("couchdb@couch-a".to_owned()),
            nodes: vec!["couchdb@couch-a".to_owned()],
            since: Moment::parse("2026-11-25T08:00:00Z").unwrap(),
            until: now,
            before: 100 * GIB,
            after: 100 * GIB + change,
            gaps: Vec::new(),
            entries,
        }
    }

    #[test]
    fn sentence_names_what_grew_or_shrank_and_why() {
        let now = Moment::parse("2026-11-26T08:00:00Z").unwrap();
        let reasons = BTreeMap::from([("telemetry".to_owned(), "window".to_owned())]);
        let grown = account(vec![
            entry(Cause::Waste, "telemetry", "", 29),
            entry(Cause::NewIndex, "orders", "_design/clients", 9),
            entry(Cause::Documents, "a", "", 2),
            entry(Cause::Documents, "b", "", 2),
            entry(Cause::Compaction, "a", "", -1),
        ]);
        assert_eq!(
            sentence(&grown, &reasons, now),
            "couch-a grew by 41 GiB since yesterday 08:00: 29 GiB waste of `telemetry` that was not compacted (window), 9 GiB new index `orders/_design/clients`, 4 GiB documents; less 1 GiB freed by compaction of `a`."
        );
        let accounts = std::slice::from_ref(&grown);
        assert_eq!(Changes::wasted(accounts), ["telemetry".to_owned()].into());
        let answer = Changes::of(accounts, &reasons, (grown.since, now));
        let [volume] = &*answer.volumes else { panic!("one volume") };
        let sum: i64 = volume.entries.iter().map(|entry| entry.bytes).sum();
        assert_eq!(volume.after_bytes - volume.before_bytes, sum);
        assert_eq!(
            sentence(&account(Vec::new()), &reasons, now),
            "couch-a has not changed since yesterday 08:00."
        );
        let gone = account(vec![entry(Cause::DatabaseDeleted, "old", "", -3)]);
        assert_eq!(
            sentence(&gone, &reasons, now),
            "couch-a shrank by 3 GiB since yesterday 08:00: 3 GiB deleted database `old`."
        );
        let nothing = Changes::of(&[], &reasons, (now, now));
        assert!(nothing.says[0].starts_with("No changes are recorded yet"));
    }
}
