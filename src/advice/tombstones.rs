//! What can be done about the deleted documents of one database, with the risk of each choice.
//!
//! A pure function of the facts. recliner carries out none of it: each choice lists what to check before,
//! what to do, and what to verify afterwards.

use super::{Remedy, rules::copy_without_deleted};
use crate::{
    sources::tombstones::{AutoPurge, Peer, PeerKind, TombstoneFacts},
    text::{listed, quote::shell_word},
};
use couchdb_names::encode_part;
use strum::IntoStaticStr;

/// Maximum number of late readers that are named.
const MAX_LATE: usize = 5;

/// A way to be rid of deleted documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ChoiceKind {
    /// CouchDB purges them after a while.
    AutoPurge,
    /// A new database without the deleted documents.
    Replicate,
    /// Purges, slowly.
    Purge,
    /// A compaction, after purges.
    Compact,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) kind: ChoiceKind,
    /// What it does and what it risks, in one sentence each.
    pub(crate) does: String,
    pub(crate) risk: String,
    /// What to check, to do and to verify, in this order.
    pub(crate) remedy: Vec<Remedy>,
}

/// The choices, in the order in which to consider them; empty if nothing is deleted or purged.
pub(crate) fn choices(facts: &TombstoneFacts) -> Vec<Choice> {
    let is_none = facts.fullest_copies().iter().all(|copy| copy.deleted() == Some(0));
    if is_none && facts.knows_every_range() {
        return compact(facts).into_iter().collect();
    }
    let auto_purge = matches!(facts.auto_purge, AutoPurge::Ttl(_)).then(|| auto_purge(facts));
    auto_purge.into_iter().chain([replicate(facts), purge(facts)]).collect()
}

/// Readers of the database's deletions that have not read all of them.
fn late(facts: &TombstoneFacts) -> Vec<&Peer> {
    let reads = |peer: &&Peer| peer.kind == PeerKind::Replication && peer.behind != Some(0);
    facts.peers.iter().filter(reads).collect()
}

/// The first steps of every choice.
fn checks(facts: &TombstoneFacts) -> Vec<Remedy> {
    let first = std::iter::once(check(facts)).chain(ask_about_unknown(facts));
    first.chain(remove_checkpoints(facts)).collect()
}

/// What to find out about checkpoints that may be those of readers.
fn ask_about_unknown(facts: &TombstoneFacts) -> Option<Remedy> {
    let unknown = facts.peers.iter().filter(|peer| peer.kind == PeerKind::Unknown);
    let names: Vec<String> = unknown.take(MAX_LATE).map(|peer| peer.name.clone()).collect();
    (!names.is_empty()).then(|| {
        Remedy::choice(format!(
            "Find out which replications these belong to: {}. Their sequences name no copy of {db}: they write into {db} and need nothing, or they read it before its shards moved, and have to read all of it again.",
            listed(&names),
            db = facts.db,
        ))
    })
}

/// How to remove checkpoints that nobody will continue: they stay when a replication ends.
fn remove_checkpoints(facts: &TombstoneFacts) -> Vec<Remedy> {
    let late = late(facts);
    let ids = late.iter().filter_map(|peer| peer.unlisted.as_deref()).take(MAX_LATE);
    let ids: Vec<String> = ids.map(str::to_owned).collect();
    if ids.is_empty() {
        return Vec::new();
    }
    let path = |id: &String| shell_word(&format!("/_local/{}", encode_part(id))).into_owned();
    let db = shell_word(&format!("/{}", encode_part(&facts.db))).into_owned();
    let here = ids.iter().map(|id| format!("ask -f -X DELETE \"$COUCHDB_URL\"{db}{}", path(id)));
    let here: Vec<String> = here.collect();
    // The other side has another login.
    let curl = "curl -f -u \"$TARGET_USER\" -X DELETE \"$TARGET_URL\"";
    let there: Vec<String> = ids.iter().map(|id| format!("{curl}{}", path(id))).collect();
    vec![
        Remedy::script(
            format!(
                "No replication in CouchDB's lists has these checkpoints: {}. Their replications have ended, or another server or a client runs them: ask its users, and see for some days whether LAST SEEN changes. If nobody needs them, remove them:",
                listed(&ids)
            ),
            &here,
        ),
        Remedy::command(
            "Also remove them on the other side, if it still exists; $TARGET_URL is its URL with the database, $TARGET_USER the user there:",
            there.join("\n"),
        ),
    ]
}

fn check(facts: &TombstoneFacts) -> Remedy {
    let late: Vec<String> =
        late(facts).iter().take(MAX_LATE).map(|peer| peer.name.clone()).collect();
    let says = if late.is_empty() {
        "First check again that every reader has read all deletions:".to_owned()
    } else {
        format!(
            "First let these readers catch up, or make sure that they never come back: {}. Then check again:",
            listed(&late)
        )
    };
    Remedy::tombstones(says, &facts.db)
}

/// The checks that show whether it worked.
fn verify(facts: &TombstoneFacts) -> [Remedy; 2] {
    [
        Remedy::get("Then doc_del_count falls, and doc_count stays:", &[&facts.db]),
        Remedy::compact_db("The files shrink only when they are compacted.", &facts.db),
    ]
}

fn auto_purge(facts: &TombstoneFacts) -> Choice {
    let now = match &facts.auto_purge {
        AutoPurge::Ttl(Some(ttl)) => format!(" It currently keeps them for {ttl}."),
        AutoPurge::Ttl(None) | AutoPurge::Missing | AutoPurge::Unknown => String::new(),
    };
    let ttl = serde_json::json!({ "deleted_document_ttl": "90_days" });
    let plugin = "[couch_scanner_plugins]\ncouch_auto_purge_plugin = true\n\n[couch_auto_purge_plugin]\ndry_run = true";
    let mut remedy = checks(facts);
    remedy.extend([
        Remedy::configuration("On each node, so that it only counts at first:", plugin),
        Remedy::couchdb(
            "Keep deleted documents longer than any peer may be offline:",
            "PUT",
            &[&facts.db, "_auto_purge"],
            Some(&ttl),
        ),
        Remedy::choice(
            "Look in the nodes' logs for how many it would purge; if that is what you want, set dry_run to false.",
        ),
    ]);
    remedy.extend(verify(facts));
    Choice {
        kind: ChoiceKind::AutoPurge,
        does: format!(
            "CouchDB purges documents deleted longer ago than deleted_document_ttl.{now}"
        ),
        risk: "A peer that was offline for longer never learns of the deletion, and brings the document back when it writes to the database."
            .to_owned(),
        remedy,
    }
}

fn replicate(facts: &TombstoneFacts) -> Choice {
    let remedy = checks(facts).into_iter().chain(copy_without_deleted(&facts.db));
    Choice {
        kind: ChoiceKind::Replicate,
        does: "A new database gets all documents except the deleted ones, with the same q, n, partitions, rights and design documents.".to_owned(),
        risk: "Clients have to switch to it, every replication and index begins again, and both databases need space until the old one is deleted.".to_owned(),
        remedy: remedy.collect(),
    }
}

/// For a database without deleted documents that has had some, or other purges.
fn compact(facts: &TombstoneFacts) -> Option<Choice> {
    let mut purges = facts.copies.iter().filter_map(|copy| copy.info.as_ref()?.purge_seq);
    purges.any(|purged| purged > 0).then(|| Choice {
        kind: ChoiceKind::Compact,
        does: "What was purged takes space in the files until they are compacted.".to_owned(),
        risk: "None for the documents.".to_owned(),
        remedy: vec![Remedy::compact_db("After purges:", &facts.db)],
    })
}

fn purge(facts: &TombstoneFacts) -> Choice {
    let db = shell_word(&format!("/{}", encode_part(&facts.db))).into_owned();
    // CouchDB accepts a whole batch at once, and the page that the batch is cut from is short enough for a
    // shell.
    let script = [
        "since=0".to_owned(),
        "while :; do".to_owned(),
        format!("  page=$(ask -f \"$COUCHDB_URL\"{db}\"/_changes?style=all_docs&limit=100&since=$since\")"),
        "  gone=$(printf %s \"$page\" | jq -c '[.results[] | select(.deleted) | {(.id): [.changes[].rev]}] | add // empty')".to_owned(),
        format!("  [ -z \"$gone\" ] || {{ ask -f -X POST -H 'Content-Type: application/json' \"$COUCHDB_URL\"{db}/_purge -d \"$gone\" >/dev/null; sleep 1; }}"),
        "  [ \"$(printf %s \"$page\" | jq '.results | length')\" = 100 ] || break".to_owned(),
        "  since=$(printf %s \"$page\" | jq -r .last_seq)".to_owned(),
        "done".to_owned(),
    ];
    let mut remedy = checks(facts);
    remedy.extend([
        Remedy::get(
            "Make sure that all nodes are up: all_nodes must equal cluster_nodes; otherwise some copies get the purge later:",
            &["_membership"],
        ),
        Remedy::script(
            "Purge 100 at a time, with a pause of one second; this needs jq, and can be stopped and run again:",
            &script,
        ),
    ]);
    remedy.extend(verify(facts));
    Choice {
        kind: ChoiceKind::Purge,
        does: "This slowly removes each deleted document from the database itself; an entry about each purge stays until every copy and index has processed it, and since 3.5.2 until every internal checkpoint exists.".to_owned(),
        risk: "A purge cannot be undone and is not replicated: a peer that still has the document, or its deletion, brings it back.".to_owned(),
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tombstone_remedy_first_checks_which_peers_are_behind() {
        let facts = TombstoneFacts::example("or'ders", AutoPurge::Ttl(None));
        let found = choices(&facts);
        let kinds: Vec<ChoiceKind> = found.iter().map(|choice| choice.kind).collect();
        assert_eq!(kinds, [ChoiceKind::AutoPurge, ChoiceKind::Replicate, ChoiceKind::Purge]);
        for choice in &found {
            let first = choice.remedy.first().unwrap();
            assert_eq!(
                first.text.as_deref(),
                Some(r#"recliner tombstones 'or'\''ders' --couchdb.url "$COUCHDB_URL""#)
            );
            assert!(first.says.contains("come back: to http://b:1/x/ (d). Then"), "{}", first.says);
        }
        let facts = TombstoneFacts::example("orders", AutoPurge::Missing);
        let kinds: Vec<ChoiceKind> = choices(&facts).iter().map(|choice| choice.kind).collect();
        assert_eq!(kinds, [ChoiceKind::Replicate, ChoiceKind::Purge], "it is not there");
    }

    #[test]
    fn prints_how_to_remove_a_checkpoint_that_no_replication_has() {
        let mut facts = TombstoneFacts::example("orders", AutoPurge::Missing);
        let commands = |facts: &TombstoneFacts| -> Vec<String> {
            let remedy = choices(facts).remove(0).remedy;
            remedy.into_iter().filter_map(|it| it.text).filter(|it| it.contains("DELETE")).collect()
        };
        assert_eq!(commands(&facts), Vec::<String>::new());
        facts.peers[0].unlisted = Some("abc".to_owned());
        facts.peers[1].unlisted = Some("done".to_owned());
        let commands = commands(&facts);
        assert!(commands[0].ends_with("\nask -f -X DELETE \"$COUCHDB_URL\"/orders/_local/abc)"));
        assert!(commands[1].ends_with(" -X DELETE \"$TARGET_URL\"/_local/abc"));
        for kind in [PeerKind::Copy, PeerKind::Unknown] {
            facts.peers[0].kind = kind;
            let remedy = choices(&facts).remove(0).remedy;
            let mut texts = remedy.iter().filter_map(|it| it.text.as_deref());
            assert!(!texts.any(|text| text.contains("DELETE")), "{kind:?}");
        }
        let says = checks(&facts).remove(1).says;
        assert!(says.starts_with("Find out which replications these belong to: to http"), "{says}");
    }

    #[test]
    fn purged_files_are_compacted_whatever_the_channels_take() {
        let facts = TombstoneFacts::example("or/ders", AutoPurge::Ttl(None));
        for choice in choices(&facts).iter().filter(|it| it.kind != ChoiceKind::Replicate) {
            let last = choice.remedy.last().and_then(|remedy| remedy.text.as_deref()).unwrap();
            assert!(last.contains("-X POST") && last.ends_with("/or%2Fders/_compact"), "{last}");
        }
    }

    #[test]
    fn offers_remedies_if_documents_are_or_may_be_deleted() {
        let mut facts = TombstoneFacts::example("orders", AutoPurge::Missing);
        for copy in &mut facts.copies {
            copy.info.as_mut().unwrap().doc_del_count = Some(0);
        }
        assert_eq!(choices(&facts), []);
        facts.copies[0].info.as_mut().unwrap().purge_seq = Some(3);
        assert_eq!(choices(&facts)[0].kind, ChoiceKind::Compact);
        facts.copies[0].info = None;
        facts.copies[1].info = None;
        assert_eq!(choices(&facts).len(), 2);
    }
}
