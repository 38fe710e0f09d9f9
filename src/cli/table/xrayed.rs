//! Shows what the bytes of files are, one part per line.

use super::{super::printable, layout::bytes};
use crate::serve::report::columns::Table;
use crate::sources::xray::{PartLine, XrayAnswer};

/// Renders each file.
pub(in crate::cli) fn xrayed(files: &[XrayAnswer], width: u16) -> String {
    let all: Vec<String> = files.iter().map(|file| one(file, width)).collect();
    all.join("\n")
}

fn one(file: &XrayAnswer, width: u16) -> String {
    let within = |error: Option<u64>| {
        error
            .filter(|error| *error > 0)
            .map_or_else(String::new, |it| format!(" ± {}", bytes(Some(it))))
    };
    let share = |part: &PartLine| {
        let share = part.bytes as f64 * 100.0 / file.file_bytes.max(1) as f64;
        format!("{share:.1} %")
    };
    let count = |part: &PartLine| match part.count {
        0 => String::new(),
        count => count.to_string(),
    };
    let table = Table::of(&file.parts)
        .text("PART", |part| part.part.replace('_', " "))
        .number("SIZE", |part| format!("{}{}", bytes(Some(part.bytes)), within(part.error_bytes)))
        .number("SHARE", share)
        .number("COUNT", count)
        .wrapped(width);
    let after = match file.after_compaction_bytes {
        None => "unknown".to_owned(),
        after => format!("{}{}", bytes(after), within(file.error_bytes)),
    };
    let kind = match (file.exact, file.error_bytes) {
        (true, _) => "",
        (false, Some(_)) => ", estimated from a sample",
        (false, None) => ", not exact",
    };
    let size = bytes(Some(file.file_bytes));
    format!("{}\n{size}{kind}; {after} after a compaction\n{table}", printable(&file.file))
}
