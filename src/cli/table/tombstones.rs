//! Deleted documents as text: sentences, who still reads them, and the choices.

use super::{
    advice::{add_remedy, name},
    layout::{bytes, paragraph, wrap},
};
use crate::{
    cli::{
        printable,
        tombstones::answer::{ChoiceLine, PeerLine, Recorded, TombstoneSize, TombstonesAnswer},
    },
    serve::report::columns::Table,
    sources::tombstones::PeerKind,
    text::{capital, counted, grouped, listed},
};

/// What the column BEHIND counts.
const BEHIND: &str = "BEHIND counts changes still to read; for purge readers, purges.";

pub(in crate::cli) fn tombstones(answer: &TombstonesAnswer, width: u16) -> String {
    let mut text = String::new();
    let sentences = match answer.tombstones {
        Some(0) => vec![none(answer)],
        Some(_) | None => vec![count(answer), size(answer), age(answer), slowest(answer)],
    };
    for sentence in sentences {
        text.push_str(&paragraph(&printable(&sentence), width));
    }
    if !answer.peers.is_empty() {
        text.push_str("\nWho reads them:\n");
        text.push_str(&peers(&answer.peers, width));
        text.push_str(&paragraph(BEHIND, width));
    }
    if let Some(sentence) = kept_purges(answer) {
        text.push_str(&format!("\n{}", paragraph(&printable(&sentence), width)));
    }
    for (number, choice) in answer.choices.iter().enumerate() {
        add_choice(&mut text, number + 1, choice, width);
    }
    text
}

fn number(number: Option<u64>, one: &str, many: &str) -> String {
    number
        .map_or_else(|| format!("an unknown number of {many}"), |number| counted(number, one, many))
}

fn count(answer: &TombstonesAnswer) -> String {
    let deleted = number(answer.tombstones, "deleted document", "deleted documents");
    let others = number(answer.documents, "other", "others");
    format!("{} has {deleted} and {others}.", answer.db)
}

fn none(answer: &TombstonesAnswer) -> String {
    let docs = number(answer.documents, "document", "documents");
    let rest = if answer.choices.is_empty() { ": there is nothing to do" } else { "" };
    format!("{} has {docs} and no deleted ones{rest}.", answer.db)
}

fn size(answer: &TombstonesAnswer) -> String {
    let Some(size) = &answer.size else {
        return "Their size is unknown: too few could be read.".to_owned();
    };
    let TombstoneSize {
        from,
        documents_read,
        with_body,
        bytes_each,
        error_each,
        bytes: all,
        error,
    } = size;
    let of = match answer.active_bytes {
        Some(active) => format!(" of {} live bytes", bytes(Some(active))),
        None => String::new(),
    };
    let within = |error: u64| match error {
        0 => String::new(),
        error => format!(" ± {}", bytes(Some(error))),
    };
    let read = grouped(*documents_read);
    let how = match (*from, with_body) {
        ("files", Some(with)) => {
            format!("read from files, {} of {read} with a body", grouped(*with))
        }
        _ => format!("estimated from {read} of them"),
    };
    format!(
        "Each takes {bytes_each} bytes{}, {how}; {} in total {}{}{of}.",
        match error_each {
            0 => String::new(),
            error => format!(" ± {error}"),
        },
        match answer.copies_read {
            read if read == answer.copies => "all copies".to_owned(),
            read => format!("the {read} of {} copies that were read", answer.copies),
        },
        bytes(Some(*all)),
        within(*error),
    )
}

fn age(answer: &TombstonesAnswer) -> String {
    let version = answer.version.as_deref().unwrap_or("of unknown version");
    match answer.ages.as_deref() {
        None => match (&answer.recorded, answer.keeps_times) {
            (Recorded::Ages(ages), _) => ages.says.clone(),
            (Recorded::Nothing(_) | Recorded::NotAsked, None) => {
                "Their age is unknown: the times of changes could not be read.".to_owned()
            }
            (Recorded::Nothing(asked), Some(_)) => format!(
                "Their age is unknown: CouchDB {version} keeps no times of changes, and the recliner at {asked} has recorded no deletions of this database."
            ),
            (Recorded::NotAsked, Some(_)) => format!(
                "Their age is unknown: CouchDB {version} keeps no times of changes. A running recliner records them: name it with --recliner.url."
            ),
        },
        Some([]) => "Their age is unknown: CouchDB has recorded no times yet.".to_owned(),
        Some([first, ..]) => format!("The oldest change is from {} or later.", first.from),
    }
}

/// The peer furthest behind, for which all others would have to wait.
fn slowest(answer: &TombstonesAnswer) -> String {
    let Some(peer) = answer.slowest() else {
        let known = if answer.unknown.is_empty() { "No" } else { "As far as could be read, no" };
        return format!(
            "{known} replication keeps a checkpoint in it. Clients that follow _changes leave no trace: ask your users."
        );
    };
    let seen = peer.last_seen.as_deref().map_or_else(
        || "the time of its last read is unknown".to_owned(),
        |at| format!("it last read at {at}"),
    );
    match peer.behind {
        _ if peer.kind == PeerKind::Unknown => {
            format!("It is unknown whether {} reads it or writes into it; {seen}.", peer.name)
        }
        Some(0) => "Every reader with a checkpoint has read every deletion.".to_owned(),
        Some(behind) => format!(
            "The slowest reader is {}, {} changes behind; {seen}.",
            peer.name,
            grouped(behind)
        ),
        None => format!("It is unknown how far {} has read; {seen}.", peer.name),
    }
}

fn peers(peers: &[PeerLine], width: u16) -> String {
    Table::of(peers)
        .text("KIND", |peer| <&str>::from(peer.kind).replace('_', " "))
        .text("PEER", |peer| printable(&peer.name))
        .number("BEHIND", |peer| peer.behind.map_or_else(|| "?".to_owned(), grouped))
        .text("LAST SEEN", |peer| peer.last_seen.clone().unwrap_or_else(|| "?".to_owned()))
        .text("STATE", |peer| printable(peer.state.as_deref().unwrap_or("")))
        .wrapped(width)
}

/// What compactions keep of purges beyond the limit, in the copy with most.
fn kept_purges(answer: &TombstonesAnswer) -> Option<String> {
    let [most, others @ ..] = answer.kept_purges.as_deref()? else { return None };
    let limit = grouped(answer.purges_limit?);
    let others = match others.len() as u64 {
        0 => String::new(),
        number => format!(" (and more than the limit in {})", counted(number, "other", "others")),
    };
    let why = match &most.readers[..] {
        [] => format!(
            "it has no checkpoint of {}. On CouchDB 3.5.2 a checkpoint may name the wrong node, and further purges may only move that to another copy",
            listed(&most.without_checkpoint)
        ),
        [one] => {
            format!("{one} has not processed them; an index does when a view of it is queried")
        }
        several => format!(
            "{} have not processed them; an index does when a view of it is queried",
            listed(several)
        ),
    };
    Some(format!(
        "A compaction keeps entries about up to {} purges in the copy of {} on {}{others}, although _purged_infos_limit is {limit}: {why}.",
        grouped(most.purges),
        most.shard,
        most.node,
    ))
}

fn add_choice(text: &mut String, number: usize, choice: &ChoiceLine, width: u16) {
    text.push_str(&format!("\n{number}. {}\n", capital(&choice.choice.replace('_', " "))));
    wrap(text, "  ", &printable(&choice.does), width.into());
    wrap(text, &name("risk"), &printable(&choice.risk), width.into());
    for remedy in &choice.remedy {
        add_remedy(text, &name("do"), remedy, width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::tombstones::choices,
        cli::tombstones::answer::FileBytes,
        serve::report::DeletionAges,
        sources::tombstones::{AutoPurge, TombstoneFacts},
    };

    #[test]
    fn tombstones_fit_a_terminal() {
        let facts = TombstoneFacts::example("orders", AutoPurge::Ttl(Some("90_days".to_owned())));
        let files = FileBytes { bytes: 300_000, docs: 1_000, with_body: 250 };
        let answer = TombstonesAnswer::of(&facts, Some(files), &choices(&facts));
        let text = tombstones(&answer, 80);
        insta::assert_snapshot!(text);
        let remedies = answer.choices.iter().flat_map(|choice| &choice.remedy);
        let commands = remedies.filter_map(|remedy| remedy.text.as_deref()).flat_map(str::lines);
        let commands: Vec<String> = commands.map(|line| format!("    {line}")).collect();
        for line in text.lines().filter(|line| !commands.iter().any(|it| it == line)) {
            assert!(line.chars().count() <= 80, "{line}");
            let is_prose = !line.starts_with("    ") || line.starts_with(&" ".repeat(9));
            assert!(is_prose, "it looks like a command: {line}");
        }
    }

    #[test]
    fn warns_of_other_readers_if_no_replication_has_a_checkpoint() {
        let mut facts = TombstoneFacts::example("orders", AutoPurge::Unknown);
        facts.peers.clear();
        let says =
            |facts: &TombstoneFacts| tombstones(&TombstonesAnswer::of(facts, None, &[]), 240);
        let text = says(&facts);
        assert!(text.contains("No replication keeps a checkpoint in it. Clients"), "{text}");
        facts.problems.push("node b did not answer".to_owned());
        assert!(says(&facts).contains("As far as could be read, no replication"));
    }

    #[test]
    fn shows_recorded_ages_if_couchdb_keeps_no_times() {
        let facts = TombstoneFacts::example("orders", AutoPurge::Unknown);
        let says = "Of 6,000 deleted documents, all are older than 8 days.";
        let ages = DeletionAges {
            suffix: facts.suffix.clone(),
            deleted: Some(6_000),
            times: Vec::new(),
            says: says.to_owned(),
        };
        for (recorded, expected, is_null) in [
            (
                Recorded::NotAsked,
                "A running recliner records them: name it with --recliner.url.",
                true,
            ),
            (
                Recorded::Nothing("http://r:1/".to_owned()),
                "keeps no times of changes, and the recliner at http://r:1/ has recorded no deletions of this database.",
                true,
            ),
            (Recorded::Ages(ages), says, false),
        ] {
            let answer = TombstonesAnswer { recorded, ..TombstonesAnswer::of(&facts, None, &[]) };
            let text = tombstones(&answer, 240);
            assert!(text.contains(expected), "{expected}: {text}");
            assert_eq!(serde_json::to_value(&answer).unwrap()["recorded"].is_null(), is_null);
        }
    }

    #[test]
    fn a_database_without_deleted_documents_leaves_nothing_to_do() {
        let mut facts = TombstoneFacts::example("orders", AutoPurge::Unknown);
        let mut says = |deleted: u64, docs: u64| {
            for info in facts.copies.iter_mut().filter_map(|copy| copy.info.as_mut()) {
                (info.doc_del_count, info.doc_count) = (Some(deleted), Some(docs));
            }
            tombstones(&TombstonesAnswer::of(&facts, None, &choices(&facts)), 240)
        };
        let none = says(0, 1);
        let first = "orders has 1 document and no deleted ones: there is nothing to do.";
        assert!(none.starts_with(first) && !none.contains("unknown:"), "{none}");
        assert!(says(1, 1).starts_with("orders has 1 deleted document and 1 other."));
    }

    #[test]
    fn unknown_numbers_are_shown_as_unknown() {
        let mut facts = TombstoneFacts::example("orders", AutoPurge::Unknown);
        facts.copies.iter_mut().for_each(|copy| copy.info = None);
        let answer = TombstonesAnswer::of(&facts, None, &[]);
        assert_eq!((answer.tombstones, answer.documents, answer.active_bytes), (None, None, None));
        let text = tombstones(&answer, 240);
        for says in [
            "orders has an unknown number of deleted documents and an unknown number of others.",
            "Their size is unknown",
            "Their age is unknown: CouchDB 3.5.2 keeps no times of changes.",
            "The slowest reader is to http://b:1/x/ (d), 2,000 changes behind",
        ] {
            assert!(text.contains(says), "{says}: {text}");
        }
        assert!(serde_json::to_value(&answer).unwrap()["deleted_document_ttl"].is_null());
    }
}
