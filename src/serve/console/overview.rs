//! The first page: problems, space, running jobs, next starts.

use super::{
    CRITICAL, Page, Part, Screen,
    cells::{ago, bytes, count, link, name, with_code},
    chart::{self, Segment},
    queue::{all_starts, starts, why_not},
};
use crate::{
    serve::report::{
        Advice, Concern, HourLine, Jobs, NIGHT, Planned, RefusedLine, Scorecard, SimulatedWeek,
        Space, Status, VolumeSpaceLine, columns::day,
    },
    text::{
        counted, listed,
        size::{self, format_size_short},
    },
};
use maud::{Markup, html};
use wall_clock::Moment;

/// Number of starts, waiting targets and pieces of advice shown here; their own pages list the
/// rest.
pub(in crate::serve) const SHOWN: usize = 5;

/// The maximum number of problems shown.
const WRONG: usize = 6;

/// The answers that the page shows.
pub(in crate::serve) struct OverviewAnswers {
    pub(in crate::serve) status: Status,
    pub(in crate::serve) space: Space,
    pub(in crate::serve) jobs: Jobs,
    pub(in crate::serve) planned: Planned,
    /// The best waiting targets, with the reason for each.
    pub(in crate::serve) waiting: Vec<RefusedLine>,
    pub(in crate::serve) advice: Advice,
    pub(in crate::serve) scorecard: Scorecard,
    /// Bytes freed and written by compactions per hour, oldest first; empty without a journal.
    pub(in crate::serve) hours: Vec<HourLine>,
    pub(in crate::serve) now: Moment,
}

/// The page at `/`.
pub(in crate::serve) fn overview(answers: &OverviewAnswers) -> Page {
    let [critical, wrong] = concerns(answers);
    let parts = vec![
        Part::new(CRITICAL, critical),
        Part::new("wrong", wrong),
        Part::new("sums", sums(answers)),
        Part::new("volumes", volumes(answers)),
        Part::new("running", running(answers)),
        Part::new("next", next(answers)),
        Part::new("hours", hours(&answers.hours)),
        Part::new("advice", advice(&answers.advice)),
        Part::new("weeks", weeks(&answers.status.simulated_weeks)),
        Part::new("scorecard", scorecard(&answers.scorecard)),
    ];
    Page::live(Screen::Overview, "Overview", parts)
}

/// The critical problems, and the others or the sentence that there are none.
fn concerns(answers: &OverviewAnswers) -> [Markup; 2] {
    let OverviewAnswers { status, space, planned, advice, .. } = answers;
    let concerns = status.all_concerns(space, planned, advice);
    let fine = status.all_clear().filter(|_| concerns.is_empty());
    let (worst, others): (Vec<_>, Vec<_>) =
        concerns.iter().take(WRONG).partition(|concern| concern.is_critical);
    let critical = html! { @for concern in worst { p.banner.worst { (line(concern)) } } };
    let wrong = html! {
        @for concern in others { p.banner { (line(concern)) } }
        @if let more @ 1.. = concerns.len().saturating_sub(WRONG) { p.quiet { (count(more)) " more: see " a href="nodes" { "nodes" } ", " a href="advice" { "advice" } " and " a href="status" { "status" } "." } }
        @if let Some(fine) = fine { p.banner.fine { (fine) } }
    };
    [critical, wrong]
}

fn line(concern: &Concern) -> Markup {
    let text = match concern.page {
        "advice" => "What to do",
        "docs/files.html" => "How recliner can know",
        _ => "Details",
    };
    html! { (with_code(&concern.says)) " " a href=(concern.page) { (text) } }
}

fn sums(answers: &OverviewAnswers) -> Markup {
    let OverviewAnswers { space, status, now, .. } = answers;
    let [of_files, of_waste, of_unused] = space.bounds();
    html! {
        div.cards {
            div.card { b { (of_files) (bytes(space.file_bytes)) } span { "on disk: " (space.summed()) @if space.unmeasured > 0 { "; " (counted(space.unmeasured, "size is", "sizes are")) " unknown" } @if space.estimated > 0 { "; " (counted(space.estimated, "view is", "views are")) " estimated from one file" } } }
            div.card { b { (of_waste) (bytes(space.reclaimable_bytes)) } span { "reclaimable by compaction" } }
            div.card { b { @if space.unused_bytes.is_some() { (of_unused) } (bytes(space.unused_bytes)) } span { "in unused files" @if space.unread_directories > 0 { "; " @if status.nodes.len() == 1 { code { "--data-dir" } " reads them" } @else { (counted(space.unread_directories, "node's", "nodes'")) " leftovers and trash are unknown" } } } }
            div.card { b { (count(space.targets)) } span { "targets: shards, views, cleanups" } }
            div.card { b { (count(space.waiting)) } span { "waiting for compaction" } }
            div.card { b {
                @match &status.sweep.last_end { Some(end) => { (ago(end, *now)) } None => { "never" } }
            } span { "last sweep" } }
        }
    }
}

fn volumes(answers: &OverviewAnswers) -> Markup {
    let space = &answers.space;
    let is_drawn = space.volumes.iter().any(|volume| volume.parts().is_some());
    html! {
        h2 { "Space" }
        @if space.volumes.is_empty() {
            p.quiet { "No volume is known: CouchDB does not say how full its disks are. "
                a href="docs/files.html" { "How recliner can know" } }
        } @else {
            @if is_drawn { p.quiet {
                span.key.live {} "live" span.key.waste {} "reclaimable" span.key.waste.unused {} "unused files" span.key.other {} "everything else" span.key.free {} "free"
            } }
            @for volume in &space.volumes {
                div { b { (name(&volume.title())) } " " (says_of(volume)) " " a href=(link("changes", &[("name", &volume.volume)])) { "What changed?" } }
                @if let Some((size, parts)) = volume.parts() {
                    (chart::stacked("volume", &segments(parts), size as f64, &plain(volume)))
                }
                (full(volume, answers.now))
            }
            @if !space.nodes_without_space.is_empty() {
                p.quiet { "Free space unknown on " (name(&listed(&space.nodes_without_space))) ". " a href="docs/files.html" { "How recliner can know" } }
            }
        }
    }
}

fn full(volume: &VolumeSpaceLine, now: Moment) -> Markup {
    let date =
        |at: &str| html! { time datetime=(at) title=(at) { (day(at)) } " (" (ago(at, now)) ")" };
    let until = volume.forecast_until.as_deref().map(&date).unwrap_or_default();
    html! {
        @match (&volume.full.full_at, &volume.full_uncompacted_at) {
            (Some(kept), never) => { p.warn {
                "Full on " (date(kept)) ", even if compaction keeps up"
                @if let Some(likely) = volume.full.likely() { "; " (likely) }
                @if let Some(never) = never { "; without compaction on " (date(never)) }
                "."
            } }
            (None, Some(never)) => { p.quiet { "Full on " (date(never)) " if nothing is compacted; if compaction keeps up, not before " (until) "." } }
            (None, None) if volume.growth_known => { p.quiet { "Not full before " (until) "." } }
            (None, None) => { p.quiet { "When it will be full is not known" @if let Some(why) = &volume.forecast_withheld { ": " (why) } "." } }
        }
    }
}

fn segments([live, waste, unused, other]: [u64; 4]) -> [Segment; 4] {
    [("live", live), ("waste", waste), ("waste unused", unused), ("other", other)]
        .map(|(class, size)| Segment { class, size: size as f64 })
}

fn says_of(volume: &VolumeSpaceLine) -> Markup {
    let bound = size::bound(volume.unmeasured, 0);
    html! {
        span.quiet {
            (name(&volume.free_in_words()))
            @if let Some(reclaimable) = volume.reclaimable_bytes.filter(|bytes| *bytes > 0) { ", " (bound) (format_size_short(reclaimable)) " reclaimable" }
            @if let Some(unused) = volume.unused_bytes.filter(|bytes| *bytes > 0) { ", " (bound) (format_size_short(unused)) " in unused files" }
            @match volume.largest_shard_that_fits_bytes {
                Some(0) => { "; no compaction fits" }
                Some(largest) => { "; room to compact shards of up to " (format_size_short(largest)) " live data" }
                None => {}
            }
        }
    }
}

fn plain(volume: &VolumeSpaceLine) -> String {
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), format_size_short);
    format!(
        "{}: live {}, reclaimable {}, unused files {}, free {} of {}",
        volume.title(),
        size(volume.live_bytes),
        size(volume.reclaimable_bytes),
        size(volume.unused_bytes),
        size(volume.available_bytes),
        size(volume.size_bytes)
    )
}

fn running(answers: &OverviewAnswers) -> Markup {
    html! {
        h2 { a href="jobs" { "Running" } }
        p.quiet { (answers.status.who_compacts()) " " a href="nodes" { "What smoosh does" } }
        (super::jobs::running(&answers.jobs, answers.now))
        @if answers.planned.mode == "enforce" { p.actions { (all_starts(&answers.planned.suspensions)) } }
    }
}

fn next(answers: &OverviewAnswers) -> Markup {
    let OverviewAnswers { planned, space, waiting, .. } = answers;
    let enforces = planned.mode == "enforce";
    html! {
        @if planned.starts.is_empty() {
            h2 { a href="queue" { "Waiting, largest first" } }
            p.quiet { @if space.waiting > 0 { (counted(space.waiting as u64, "target waits", "targets wait")) "." } @else { "Nothing waits." } }
            @if !waiting.is_empty() { (super::queue::waiting(waiting)) }
        } @else {
            h2 { a href="queue" { @if enforces { "Starts now" } @else { "Would start now" } } }
            (starts(planned, SHOWN, answers.now))
        }
        (why_not(planned))
    }
}

fn hours(hours: &[HourLine]) -> Markup {
    let ago = |span: usize| {
        let last = hours.get(hours.len().saturating_sub(span)..).unwrap_or_default();
        format!(
            "In the last {}, {}.",
            counted(last.len() as u64, "hour", "hours"),
            HourLine::sum(last).says()
        )
    };
    let most = hours.iter().map(|hour| hour.freed_bytes.max(hour.rewritten_bytes)).max();
    html! {
        h2 { "Last night" }
        @if let (Some(first), Some(most @ 1..)) = (hours.first(), most) {
            p { (ago(NIGHT)) " " a href={ "jobs?since=" (NIGHT) "h" } { "Which" } }
            @let says = ago(hours.len());
            p.quiet { span.key.live {} "freed" span.key.waste {} "rewritten · " (says) }
            @let pairs: Vec<(f64, f64)> = hours.iter().map(|hour| (hour.freed_bytes as f64, hour.rewritten_bytes as f64)).collect();
            (chart::columns(&pairs, &first.from, "now", &format_size_short(most), &says))
        } @else {
            p.quiet { "No compaction is recorded for the last two days." }
        }
    }
}

fn advice(advice: &Advice) -> Markup {
    let open: Vec<_> = advice.advice.iter().filter(|line| line.muted.is_none()).collect();
    html! {
        h2 { a href="advice" { "Advice" } }
        p { (with_code(&advice.says)) }
        @if !open.is_empty() {
            ol { @for line in open.iter().take(SHOWN) { li { span class=(super::advice::class_of(&line.severity)) { (line.severity) } " " (with_code(&line.says)) } } }
        }
    }
}

/// A simulated week under recliner next to the same week under smoosh.
fn weeks(weeks: &[SimulatedWeek]) -> Markup {
    html! {
        @if !weeks.is_empty() {
            h2 { "The same week under recliner and under smoosh" }
            p.quiet { "Simulated from the same start with the same writes. smoosh rewrites a file soon after its waste exceeds a fixed limit, and never checks files without writes." }
            div.wide tabindex="0" role="region" aria-label="The same week" { table {
                thead { tr { th { "by" } th.n.rest { "files compacted" } th.n { "for nothing" } th.n { "wrote" } th.n { "freed" } th.n { "still reclaimable" } th.n.rest { "fullest disk" } } }
                tbody { @for week in weeks { tr {
                    td { (week.by) }
                    td.n.rest { (count(week.compactions)) }
                    td.n { (count(week.futile)) }
                    @for size in [week.rewritten_bytes, week.freed_bytes, week.reclaimable_bytes] { td.n { (bytes(Some(size))) } }
                    td.n.rest { (bytes(Some(week.peak_disk_bytes))) }
                } } }
            } }
        }
    }
}

fn scorecard(scorecard: &Scorecard) -> Markup {
    html! {
        @if let Some(advised) = &scorecard.advised {
            h2 { "Had recliner enforced" }
            p {
                "In the last week, while in advise mode, recliner would have freed " (format_size_short(advised.freed_bytes))
                " in " (counted(advised.compactions, "compaction", "compactions")) ". " (scorecard.says) " "
                a href="api/v1/scorecard?since=7d" { "All numbers" }
            }
        }
    }
}
