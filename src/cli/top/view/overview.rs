//! The first screen: disk space, open runs, running jobs, and channels.

use super::{
    Theme, below, line, table,
    text::{clipped, put, width},
};
use crate::{
    cli::{
        printable,
        table::filled,
        top::{model::Model, rows},
    },
    serve::report::VolumeSpaceLine,
    text::{counted, duration, grouped, size::format_size_short},
};
use ratatui::{buffer::Buffer, layout::Rect};
use wall_clock::Moment;

/// Maximum number of volumes and jobs to show; the jobs screen has all jobs.
const MAX_VOLUMES: u16 = 8;
const MAX_JOBS: u16 = 5;

/// Maximum width of a volume's name, and the width of its bar.
const MAX_NAME: u16 = 30;
const BAR: u16 = 20;

/// Draws the screen; the list of channels takes the remaining space.
pub(super) fn render(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let mut rest = area;
    for says in sums(model) {
        put(buffer, line(rest, 0), &clipped(&says, rest.width), theme.head());
        rest = below(rest, 1);
    }
    rest = volumes(model, theme, below(rest, 1), buffer);
    rest = open_run(model, theme, rest, buffer);
    // Leave room for the header and the three channels with most to reclaim.
    let jobs = MAX_JOBS.min(rest.height.saturating_sub(6));
    if jobs > 0 {
        rest = running(model, theme, rest, jobs, buffer);
    }
    table::render(&model.listed(), model.list(), "There are no channels.", theme, rest, buffer);
}

/// The cluster's sizes and counts.
fn sums(model: &Model) -> [String; 2] {
    let answers = &model.answers;
    let space = &answers.space;
    let [of_files, of_waste, _] = space.bounds();
    let size = |bound: &str, size: Option<u64>| {
        size.map_or_else(|| "?".to_owned(), |size| format!("{bound}{}", format_size_short(size)))
    };
    let copies = if answers.planned.only_node.is_some() { "" } else { " in all copies" };
    let sweep = match answers.status.sweep.last_end.as_deref().and_then(Moment::parse) {
        Some(end) => format!("{} ago", duration::format_rounded(end.age(model.now))),
        None => "never".to_owned(),
    };
    [
        format!(
            "{} on disk{copies}, {} reclaimable by compaction",
            size(of_files, space.file_bytes),
            size(of_waste, space.reclaimable_bytes),
        ),
        format!(
            "{} targets, {} waiting, {} running; last sweep ended: {sweep}",
            grouped(space.targets as u64),
            grouped(space.waiting as u64),
            answers.jobs.jobs.len(),
        ),
    ]
}

/// Draws the volumes as bars; returns the area below them.
fn volumes(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) -> Rect {
    let volumes = &model.answers.space.volumes;
    if volumes.is_empty() {
        let says = "No volume is known: CouchDB does not say how full its disks are.";
        put(buffer, line(area, 0), &clipped(says, area.width), theme.quiet());
        return below(area, 2);
    }
    let shown = MAX_VOLUMES.min(area.height / 4).max(1);
    let names = volumes.iter().map(|volume| width(&printable(&volume.title())));
    let name_width = names.max().unwrap_or(0).clamp(6, MAX_NAME);
    for (at, volume) in (0..shown).zip(volumes) {
        let line = line(area, at);
        let name = clipped(&printable(&volume.title()), name_width);
        put(buffer, line, &name, theme.head());
        let bar = Rect { x: line.x + name_width + 1, width: BAR, ..line };
        put(buffer, bar, &fill(volume), theme.bar());
        let says = Rect {
            x: bar.right() + 1,
            width: area.right().saturating_sub(bar.right() + 1),
            ..line
        };
        put(buffer, says, &clipped(&printable(&volume.free_in_words()), says.width), theme.quiet());
    }
    let more = volumes.len().saturating_sub(shown.into());
    let lines = u16::try_from(volumes.len()).unwrap_or(shown).min(shown);
    let rest = below(area, lines);
    if more == 0 {
        return below(rest, 1);
    }
    let says = format!("and {}", counted(more as u64, "more volume", "more volumes"));
    put(buffer, line(rest, 0), &says, theme.quiet());
    below(rest, 2)
}

/// A volume's bar: live bytes, reclaimable bytes, everything else, and free space.
fn fill(volume: &VolumeSpaceLine) -> String {
    let Some((size, [live, waste, unused, other])) = volume.parts() else { return "?".to_owned() };
    let cells = |bytes: u64| filled(bytes as f64 / size as f64, BAR.into());
    let waste = live + waste + unused;
    let used = waste + other;
    let [live, waste, used] = [live, waste, used].map(cells);
    "█".repeat(live)
        + &"▒".repeat(waste - live)
        + &"▓".repeat(used - waste)
        + &"░".repeat(usize::from(BAR) - used)
}

/// Draws a line for the open run that was ordered last; returns the area below it.
fn open_run(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) -> Rect {
    let mut open = model.answers.runs.runs.iter().filter(|run| run.is_open());
    let Some(run) = open.next() else { return area };
    let others = match open.count() {
        0 => String::new(),
        others => format!(" (and {})", counted(others as u64, "other run", "other runs")),
    };
    let waits = run.waits.as_ref().map_or_else(String::new, |why| format!("; waits: {why}"));
    let says = format!("Run {}{others} over {}: {}{waits}", run.run, run.scope(), run.says);
    put(buffer, line(area, 0), &clipped(&printable(&says), area.width), theme.head());
    below(area, 1)
}

/// Draws the jobs, one per line; returns the area below them.
fn running(model: &Model, theme: Theme, area: Rect, most: u16, buffer: &mut Buffer) -> Rect {
    let jobs = rows::jobs(&model.answers, model.now).rows;
    if jobs.is_empty() {
        put(buffer, line(area, 0), "Nothing runs.", theme.quiet());
        return below(area, 2);
    }
    let shown = usize::from(most).min(jobs.len());
    for (at, row) in (0..most).zip(&jobs) {
        let cell = |at: usize| row.cells.get(at).map_or("", |cell| &*cell.text);
        let says = format!("{}  {} on {}, ends in {}", cell(2), cell(0), cell(1), cell(3));
        put(buffer, line(area, at), &clipped(&says, area.width), theme.bar());
    }
    let rest = below(area, u16::try_from(shown).unwrap_or(most));
    if jobs.len() == shown {
        return below(rest, 1);
    }
    let says = format!("and {} more running", jobs.len() - shown);
    put(buffer, line(rest, 0), &says, theme.quiet());
    below(rest, 2)
}
