//! What a design document, or a deployment, will cost: a sentence, a table by node, the changes, and what to do.

use super::{
    advice::add_remedy,
    layout::{paragraph, wrap},
};
use crate::{
    cli::printable,
    serve::report::{Preflight, Rehearsal},
};

pub(in crate::cli) fn preflight(answer: &Preflight, width: u16) -> String {
    if !answer.problems.is_empty() {
        return problems(&answer.problems, width);
    }
    let mut text = paragraph(&printable(&answer.says), width);
    if !answer.nodes.is_empty() {
        text.push('\n');
        text.push_str(&answer.table().wrapped(width));
        text.push_str(&paragraph(Preflight::COLUMNS, width));
    }
    section(&mut text, "What changes:", &answer.changes(), width);
    section(&mut text, "Based on:", &answer.rests_on(), width);
    if !answer.remedy.is_empty() {
        text.push_str("\nWhat to do:\n");
        answer.remedy.iter().for_each(|remedy| add_remedy(&mut text, "  ", remedy, width));
    }
    text
}

pub(in crate::cli) fn rehearsal(answer: &Rehearsal, width: u16) -> String {
    let broken = answer.problems();
    if !broken.is_empty() {
        return problems(&broken, width);
    }
    let mut text = paragraph(&printable(&answer.says), width);
    let lines = answer.lines();
    if !lines.is_empty() {
        text.push('\n');
        text.push_str(&Rehearsal::table(&lines).wrapped(width));
        text.push_str(&paragraph(Rehearsal::COLUMNS, width));
    }
    section(&mut text, "What changes:", &answer.changes(), width);
    section(&mut text, "Based on:", &answer.rests_on(), width);
    section(&mut text, "To know:", &answer.notes, width);
    text
}

/// Why views do not work. Then no prediction holds, so nothing else is printed.
fn problems(problems: &[String], width: u16) -> String {
    let mut text = "It does not work as it is:\n".to_owned();
    problems.iter().for_each(|says| wrap(&mut text, "  ", &printable(says), width.into()));
    text
}

fn section(text: &mut String, title: &str, lines: &[String], width: u16) {
    if lines.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}\n"));
    lines.iter().for_each(|line| wrap(text, "  ", &printable(line), width.into()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::report::{AdviceRemedy, PreflightNode, PreflightView, SpreadLine};

    const COMMAND: &str = "curl -u \"$COUCHDB_USER\" -X POST -H 'Content-Type: application/json' \"$COUCHDB_URL\"/orders/_view_cleanup";

    fn spread(low: u64, high: u64) -> Option<SpreadLine> {
        Some(SpreadLine { low, likely: (low + high) / 2, high })
    }

    fn node(name: &str, verdict: &'static str, free_bytes: Option<u64>) -> PreflightNode {
        PreflightNode {
            node: format!("couchdb@{name}.example.org"),
            copies: 8,
            live_bytes: spread(3 << 30, 9 << 30),
            peak_bytes: spread(12 << 30, 31 << 30),
            old_bytes: Some(7 << 30),
            volume: Some("data".to_owned()),
            free_bytes,
            reserved_bytes: 0,
            verdict: verdict.into(),
            missing_bytes: None,
        }
    }

    fn view(name: &str, change: &'static str, parts: &[&str]) -> PreflightView {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        PreflightView { name: name.to_owned(), change: change.into(), parts }
    }

    fn answer() -> Preflight {
        let choice = |says: &str, text: Option<&str>| AdviceRemedy {
            kind: "command".into(),
            says: says.to_owned(),
            text: text.map(str::to_owned),
        };
        Preflight {
            says: "Rebuilding orders/_design/by_day takes 3h to 5h and 12 to 31 GiB on each of 3 nodes; it may not fit on couchdb@couch-b.example.org and it is unknown whether it fits on couchdb@couch-c.example.org.".to_owned(),
            db: "orders".to_owned(),
            design: "_design/by_day".to_owned(),
            build: "rebuild".into(),
            signature: Some("0f045e3b41d71d93aaa32f23021ba536".to_owned()),
            present_signature: Some("1f045e3b41d71d93aaa32f23021ba536".to_owned()),
            shared_with: Vec::new(),
            document_changes: vec!["The options of the document change.".to_owned()],
            views: vec![
                view("by_day", "changed", &["map", "reduce"]),
                view("by_month", "added", &[]),
                view("by_year\u{1b}[31m", "same", &[]),
            ],
            search_indexes: Vec::new(),
            lost_fields: Vec::new(),
            docs: Some(60_000_000),
            live_bytes: spread(9 << 30, 27 << 30),
            built_bytes: spread(36 << 30, 90 << 30),
            basis: Some("siblings".into()),
            sample: None,
            measured_indexes: Vec::new(),
            seconds: spread(10_800, 18_000),
            measured_builds: 3,
            nodes: vec![
                node("couch-a", "fits", Some(40 << 30)),
                node("couch-b", "may_not_fit", Some(20 << 30)),
                node("couch-c", "unknown", None),
            ],
            problems: Vec::new(),
            notes: vec!["CouchDB builds Erlang views only if [native_query_servers] enable_erlang_query_server is true.".to_owned()],
            remedy: vec![
                choice("Keep queries answered meanwhile: save the document as _design/by_day-next first.", None),
                choice("Delete the files of the old index:", Some(COMMAND)),
            ],
        }
    }

    #[test]
    fn preflight_fits_a_terminal_and_commands_can_be_pasted() {
        let answer = answer();
        for width in [80, 160] {
            let text = preflight(&answer, width);
            assert!(text.contains(COMMAND), "{text}");
            for line in text.lines().filter(|line| !line.contains("curl")) {
                assert!(line.chars().count() <= usize::from(width), "{line}");
            }
        }
        insta::assert_snapshot!([80, 160].map(|width| preflight(&answer, width)).join("\n"));
    }

    #[test]
    fn table_for_one_node_does_not_mention_copies() {
        let several = answer();
        let nodes = several.nodes.iter().take(1).cloned().collect();
        let one = Preflight { nodes, ..several.clone() };
        assert!(preflight(&several, 80).contains("in all copies"));
        assert!(!preflight(&one, 80).contains("copies"), "{}", preflight(&one, 80));
    }

    #[test]
    fn document_without_views_is_answered_in_one_sentence() {
        let says = "orders/_design/by_day has no views, so no index is built.".to_owned();
        let (nodes, views, notes, remedy) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let document_changes = Vec::new();
        let (docs, seconds) = (None, None);
        let answer = Preflight {
            says,
            nodes,
            views,
            problems: Vec::new(),
            notes,
            remedy,
            document_changes,
            docs,
            seconds,
            ..answer()
        };
        assert_eq!(
            preflight(&answer, 80),
            "orders/_design/by_day has no views, so no index is built.\n"
        );
    }
}
