//! Shows files to people, one fact per line.

use super::{
    super::printable,
    layout::{Lines, bytes},
};
use crate::cli::inspect::file::{HeaderInfo, InspectedFile};

/// Width of the labels before facts.
const INDENT: usize = 14;

pub(in crate::cli) fn inspected(files: &[InspectedFile], width: u16) -> String {
    let all: Vec<String> = files.iter().map(|file| one(file, width)).collect();
    all.join("\n")
}

fn one(file: &InspectedFile, width: u16) -> String {
    let mut lines = Lines::new(format!("{}\n", printable(&file.path)), INDENT, width);
    if let Some(error) = &file.error {
        lines.add("error", &error.says);
    }
    if let Some(size) = file.file_bytes {
        let ratio =
            file.ratio.map_or_else(String::new, |ratio| format!(", {ratio:.2} times active"));
        lines.add("file", &format!("{}{ratio}", exact(Some(size))));
    }
    if file.header.is_some() && file.error.is_none() {
        facts(file, &mut lines);
    }
    if let Some(header) = &file.header {
        lines.add("header", &place(header));
    }
    if let Some(opening) = &file.opening {
        lines.add("CouchDB", &opening.says);
    }
    for differs in &file.differences {
        // If almost all facts differ, the reason is more informative than their names.
        let what = if differs.facts.len() > 6 { String::new() } else { differs.facts.join(", ") };
        let what = if what.is_empty() { what } else { format!("{what}: ") };
        lines.add("differs", &format!("{what}{}", differs.why));
    }
    lines.into_text()
}

fn facts(file: &InspectedFile, lines: &mut Lines) {
    let number = |it: Option<u64>| it.map_or_else(|| "?".to_owned(), |it| it.to_string());
    lines.add("active", &exact(file.active_bytes));
    lines.add("external", &exact(file.external_bytes));
    if let Some(signature) = &file.signature {
        lines.add("signature", signature);
    }
    let lags = file.differences.iter().any(|differs| differs.facts.contains(&"compacted_seq"));
    let compacted = match file.compacted_seq {
        None => String::new(),
        Some(0) if !lags => ", never compacted".to_owned(),
        Some(seq) => format!(", {seq} at the last compaction"),
    };
    lines.add("update seq", &format!("{}{compacted}", number(file.update_seq)));
    if file.kind == Some("db") {
        let (docs, deleted) = (number(file.docs), number(file.deleted_docs));
        lines.add("documents", &format!("{docs}, and {deleted} deleted"));
        let limit = number(file.purge_infos_limit);
        lines.add("purges", &format!("{} of {limit} at most", number(file.purges)));
        lines.add("uuid", &file.uuid.as_deref().map_or_else(|| "none".to_owned(), printable));
    }
    for epoch in file.epochs.iter().flatten() {
        lines.add("owner", &format!("{} since {}", printable(&epoch.node), epoch.since));
    }
    let trees: Vec<String> = file
        .trees
        .iter()
        .map(|tree| format!("{} {}", tree.name, bytes(tree.active_bytes)))
        .collect();
    if !trees.is_empty() {
        lines.add("trees", &trees.join(", "));
    }
    for (at, group) in file.views.iter().flatten().enumerate() {
        let reduces = match group.reduces {
            None => String::new(),
            Some(1) => ", 1 reduce".to_owned(),
            Some(reduces) => format!(", {reduces} reduces"),
        };
        let (active, external) = (bytes(group.active_bytes), bytes(group.external_bytes));
        let sizes = match group.rows {
            Some(0) => String::new(),
            _ => format!(", {active} active, {external} external"),
        };
        lines.add(&format!("view {at}"), &format!("{} rows{reduces}{sizes}", number(group.rows)));
    }
    if let Some(versions) = file.collator_versions.as_ref().filter(|all| !all.is_empty()) {
        lines.add("collators", &versions.join(", "));
    }
}

fn place(header: &HeaderInfo) -> String {
    let mut text = format!("at {}, {} bytes, {}", header.offset, header.bytes, header.checksum);
    if let Some(form) = header.form {
        text = format!("{form} {text}");
    }
    if let Some(version) = header.disk_version {
        text.push_str(&format!(", disk version {version}"));
    }
    if header.rejected > 0 {
        text.push_str(&format!(", {} invalid after it", header.rejected));
    }
    if header.tail > 0 {
        text.push_str(&format!(", {} bytes after it", header.tail));
    }
    text
}

/// A size in bytes, and with a unit.
fn exact(size: Option<u64>) -> String {
    match size {
        Some(size) if size >= 1024 => format!("{size} ({})", bytes(Some(size))),
        Some(size) => size.to_string(),
        None => "?".to_owned(),
    }
}
