//! A table of runs.

use super::layout::{Grid, paragraph};
use crate::{cli::printable, serve::report::RunLine};

/// The runs as text, with what each leaves out.
pub(in crate::cli) fn runs(runs: &[RunLine], width: u16) -> String {
    if runs.is_empty() {
        return "No runs. recliner compact DATABASE begins one.\n".to_owned();
    }
    let mut table = Grid::new(["run", "of", "progress", "ordered by"], &[0]);
    for run in runs {
        let waits = run.waits.as_ref().map_or_else(String::new, |why| format!("; waits: {why}"));
        table.push([
            run.run.to_string(),
            printable(&run.scope()),
            printable(&[&run.says, &*waits].concat()),
            printable(&run.by),
        ]);
    }
    let mut text = table.wrapped(width);
    for run in runs.iter().filter(|run| run.is_open()) {
        for line in run.left_out_lines() {
            text.push_str(&paragraph(&format!("Run {}: {}", run.run, printable(&line)), width));
        }
    }
    text
}
