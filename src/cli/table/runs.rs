//! A table of runs.

use super::layout::paragraph;
use crate::{
    cli::printable,
    serve::report::{RunLine, columns::Table},
};

/// The runs as text, each with what it leaves out.
pub(in crate::cli) fn runs(runs: &[RunLine], width: u16) -> String {
    if runs.is_empty() {
        return "No runs. Start one with recliner compact DATABASE.\n".to_owned();
    }
    let progress = |run: &RunLine| {
        let waits = run.waits.as_ref().map_or_else(String::new, |why| format!("; waits: {why}"));
        printable(&[&run.says, &*waits].concat())
    };
    let mut text = Table::of(runs)
        .number("run", |it| it.run.to_string())
        .text("of", |it| printable(&it.scope()))
        .text("progress", progress)
        .text("ordered by", |it| printable(&it.by))
        .wrapped(width);
    for run in runs.iter().filter(|run| run.is_open()) {
        for line in run.left_out_lines() {
            text.push_str(&paragraph(&format!("Run {}: {}", run.run, printable(&line)), width));
        }
    }
    text
}
