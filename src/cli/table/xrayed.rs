//! Shows what the bytes of files are, one part per line.

use super::{
    super::printable,
    layout::{bytes, cell},
};
use crate::sources::xray::XrayAnswer;

pub(in crate::cli) fn xrayed(files: &[XrayAnswer], width: u16) -> String {
    let all: Vec<String> = files.iter().map(|file| one(file, width)).collect();
    all.join("\n")
}

fn one(file: &XrayAnswer, width: u16) -> String {
    let after = match file.after_compaction_bytes {
        None => "unknown".to_owned(),
        Some(_) => cell(&file.left()),
    };
    let kind = match (file.exact, file.error_bytes) {
        (true, _) => "",
        (false, Some(_)) => ", estimated from a sample",
        (false, None) => ", not exact",
    };
    let table = file.table().wrapped(width);
    let size = bytes(Some(file.file_bytes));
    format!("{}\n{size}{kind}; {after} after a compaction\n{table}", printable(&file.file))
}
