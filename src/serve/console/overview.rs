//! The first page: is anything wrong, what space there is, what runs, what would start.

use super::{
    Page, Part, Screen,
    cells::{
        ago, bytes, capital, count, link, name, percent, seconds, span_since, target_link, words,
    },
    chart::{self, Segment},
};
use crate::{
    serve::report::{
        Advice, HourLine, Jobs, Planned, Scorecard, Space, StartLine, Status, VolumeSpaceLine,
    },
    text::{counted, size::format_size_short},
};
use maud::{Markup, html};
use wall_clock::Moment;

/// Starts and pieces of advice that are shown; their own pages have the rest.
const SHOWN: usize = 5;

/// What the page shows.
pub(in crate::serve) struct OverviewAnswers {
    pub(in crate::serve) status: Status,
    pub(in crate::serve) space: Space,
    pub(in crate::serve) jobs: Jobs,
    pub(in crate::serve) planned: Planned,
    pub(in crate::serve) advice: Advice,
    pub(in crate::serve) scorecard: Scorecard,
    /// What compactions freed and wrote, the oldest hour first; none where there is no journal.
    pub(in crate::serve) hours: Vec<HourLine>,
    pub(in crate::serve) now: Moment,
}

/// The page at `/`.
pub(in crate::serve) fn overview(answers: &OverviewAnswers) -> Page {
    let parts = vec![
        Part::new("wrong", wrong(answers)),
        Part::new("sums", sums(answers)),
        Part::new("volumes", volumes(answers)),
        Part::new("running", running(answers)),
        Part::new("next", next(answers)),
        Part::new("hours", hours(&answers.hours)),
        Part::new("advice", advice(&answers.advice)),
        Part::new("scorecard", scorecard(&answers.scorecard)),
    ];
    Page::live(Screen::Overview, "Overview", parts)
}

/// What is wrong, the worst first, or that nothing is.
fn wrong(answers: &OverviewAnswers) -> Markup {
    let OverviewAnswers { status, advice, .. } = answers;
    let worst = status.problems();
    let warnings = status.warnings();
    let critical = advice.advice.iter();
    let critical: Vec<_> =
        critical.filter(|line| line.severity == "critical" && line.muted.is_none()).collect();
    let fine = status.all_clear().filter(|_| critical.is_empty());
    html! {
        @for says in &worst { p.banner.worst { (name(says)) } }
        @for line in &status.suspensions {
            p.banner { (name(&capital(&line.says))) " · " a href=(link("act", &[("order", "resume"), ("scope", &line.scope)])) { "Resume" } }
        }
        @for line in &critical { p.banner.worst { (name(&line.says)) " " a href="advice" { "What to do" } } }
        @for says in &warnings { p.banner { (name(says)) } }
        @if let Some(fine) = fine { p.banner.fine { (fine) } }
    }
}

fn sums(answers: &OverviewAnswers) -> Markup {
    let OverviewAnswers { space, status, now, .. } = answers;
    html! {
        div.cards {
            div.card { b { (bytes(space.file_bytes)) } span { "on disk, all copies of shards and views" } }
            div.card { b { (bytes(space.reclaimable_bytes)) } span { "reclaimable by compaction" } }
            div.card { b { (count(space.targets)) } span { "targets: shards, views, cleanups" } }
            div.card { b { (count(space.waiting)) } span { "waiting for compaction" } }
            div.card { b {
                @match &status.sweep.last_end { Some(end) => { (ago(end, *now)) } None => { "never" } }
            } span { "since the last sweep" } }
        }
    }
}

fn volumes(answers: &OverviewAnswers) -> Markup {
    let volumes = &answers.space.volumes;
    html! {
        h2 { "Space" }
        @if volumes.is_empty() {
            p.quiet { "No volume is known: CouchDB does not say how full its disks are. "
                a href="docs/files.html" { "How recliner can know" } }
        } @else {
            p.quiet {
                span.key.live {} "live" span.key.waste {} "reclaimable" span.key.other {} "everything else" span.key.free {} "free"
            }
            @for volume in volumes {
                div { b { (name(&volume.volume)) } " " (says_of(volume)) }
                @if let Some(size) = volume.size_bytes {
                    (chart::stacked("volume", &segments(volume, size), size as f64, &plain(volume)))
                }
                @if let Some(full) = full(answers, &volume.volume) { p.warn { (name(full)) } }
            }
        }
    }
}

/// What the advice says of a volume that fills.
fn full<'a>(answers: &'a OverviewAnswers, volume: &str) -> Option<&'a str> {
    let lines = answers.advice.advice.iter();
    let mut lines = lines.filter(|line| line.code == "volume_fills" && line.subject.name == volume);
    lines.next().map(|line| &*line.says)
}

fn segments(volume: &VolumeSpaceLine, size: u64) -> [Segment; 3] {
    let live = volume.live_bytes.unwrap_or(0);
    let waste = volume.reclaimable_bytes.unwrap_or(0) + volume.unused_bytes.unwrap_or(0);
    let used = size.saturating_sub(volume.available_bytes.unwrap_or(size));
    let other = used.saturating_sub(live).saturating_sub(waste);
    [("live", live), ("waste", waste), ("other", other)]
        .map(|(class, size)| Segment { class, size: size as f64 })
}

fn says_of(volume: &VolumeSpaceLine) -> Markup {
    html! {
        span.quiet {
            @match (volume.available_bytes, volume.size_bytes) {
                (Some(free), Some(size)) => { (format_size_short(free)) " of " (format_size_short(size)) " free (" (percent(free as f64 / size.max(1) as f64)) ")" }
                (Some(free), None) => { (format_size_short(free)) " free" }
                (None, _) => { "free space unknown" @if let Some(problem) = &volume.problem { ": " (name(problem)) } }
            }
        }
    }
}

fn plain(volume: &VolumeSpaceLine) -> String {
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), format_size_short);
    format!(
        "{}: live {}, reclaimable {}, free {} of {}",
        volume.volume,
        size(volume.live_bytes),
        size(volume.reclaimable_bytes),
        size(volume.available_bytes),
        size(volume.size_bytes)
    )
}

fn running(answers: &OverviewAnswers) -> Markup {
    html! {
        h2 { a href="jobs" { "Running" } }
        (super::jobs::running(&answers.jobs, answers.now))
    }
}

fn next(answers: &OverviewAnswers) -> Markup {
    let OverviewAnswers { planned, .. } = answers;
    let enforces = planned.mode == "enforce";
    html! {
        h2 { a href="queue" { @if enforces { "Starts next" } @else { "Would start next" } } }
        @if planned.starts.is_empty() {
            p.quiet { @if enforces { "Nothing starts now." } @else { "Nothing would start now." } }
        } @else {
            (starts(&planned.starts, SHOWN, answers.now))
        }
        (why_not(planned))
    }
}

/// A table of starts, the first ones.
pub(super) fn starts(starts: &[StartLine], shown: usize, now: Moment) -> Markup {
    html! {
        div.wide { table {
            thead { tr { th { "target" } th { "node" } th.rest { "channel" } th.n { "frees" } th.n.rest { "writes" } th.n.rest { "takes" } th.rest { "waits" } } }
            tbody { @for line in starts.iter().take(shown) { tr {
                td.named { (target_link(&line.id, &super::target::start_title(line))) @if let Some(by) = &line.ordered_by { span.quiet { " ordered by " (name(by)) } } }
                td { (name(&line.node)) }
                td.rest { (name(&line.channel)) }
                td.n { (bytes(line.gain_bytes)) }
                td.n.rest { (bytes(line.rewrite_bytes)) }
                td.n.rest { (seconds(line.duration_seconds)) }
                td.rest { (span_since(line.since.as_deref(), now)) }
            } } }
        } }
        @if starts.len() > shown { p { a href="queue" { "and " (counted(starts.len() as u64 - shown as u64, "more", "more")) } } }
    }
}

/// Why what waits does not start, as bars.
pub(super) fn why_not(planned: &Planned) -> Markup {
    let mut reasons: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for (reason, refused) in planned.candidates.iter().flat_map(|line| &line.refused) {
        *reasons.entry(reason).or_default() += refused;
    }
    let mut reasons: Vec<(&str, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, refused)| std::cmp::Reverse(*refused));
    let most = reasons.first().map_or(1, |(_, most)| *most);
    html! {
        @if !reasons.is_empty() {
            h3 { "Why the rest waits" }
            div.wide { table { tbody {
                @for (reason, refused) in &reasons { tr {
                    td.one { a href={ "docs/why.html#" (reason) } { (words(reason)) } }
                    td.n { (count(*refused)) }
                    td.rest { (chart::share(*refused as f64 / most as f64, &format!("{refused} of {most}"))) }
                    td.text { (super::queue::meaning(reason)) }
                } }
            } } }
        }
    }
}

fn hours(hours: &[HourLine]) -> Markup {
    let (freed, written) = hours.iter().fold((0_u64, 0_u64), |(freed, written), hour| {
        (freed + hour.freed_bytes, written + hour.rewritten_bytes)
    });
    let most = hours.iter().map(|hour| hour.freed_bytes.max(hour.rewritten_bytes)).max();
    html! {
        h2 { "Freed and rewritten by hour" }
        @if let (Some(first), Some(most @ 1..)) = (hours.first(), most) {
            @let says = format!("In the last {} compactions freed {} and wrote {}.", counted(hours.len() as u64, "hour", "hours"), format_size_short(freed), format_size_short(written));
            p.quiet { span.key.live {} "freed" span.key.waste {} "rewritten · " (says) }
            @let pairs: Vec<(f64, f64)> = hours.iter().map(|hour| (hour.freed_bytes as f64, hour.rewritten_bytes as f64)).collect();
            (chart::columns(&pairs, &first.from, "now", &format_size_short(most), &says))
        } @else {
            p.quiet { "No compaction has ended in the last two days, as far as the journal knows." }
        }
    }
}

fn advice(advice: &Advice) -> Markup {
    let open: Vec<_> = advice.advice.iter().filter(|line| line.muted.is_none()).collect();
    html! {
        h2 { a href="advice" { "Advice" } }
        p { (advice.says) }
        @if !open.is_empty() {
            ol { @for line in open.iter().take(SHOWN) { li { span class=(super::advice::class_of(&line.severity)) { (line.severity) } " " (name(&line.says)) } } }
        }
    }
}

fn scorecard(scorecard: &Scorecard) -> Markup {
    html! {
        @if let Some(advised) = &scorecard.advised {
            h2 { "Had recliner enforced" }
            p {
                "In the last week, as far as it advised, recliner would have freed " (format_size_short(advised.freed_bytes))
                " in " (counted(advised.compactions, "compaction", "compactions")) ". " (scorecard.says) " "
                a href="api/v1/scorecard?since=7d" { "All numbers" }
            }
        }
    }
}
