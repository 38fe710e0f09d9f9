//! `scan`: what is read when.

use crate::{
    config::{
        form::{Form, keys, section},
        section::Section,
        values::{SECOND, duration, integer, one_of},
    },
    model::settings::{Scan, ScanViews},
    text::duration::format_exact,
};

pub(super) fn form() -> Form<Scan> {
    let keys = keys!(Scan {
        "scan.interval" => interval, Live, duration(SECOND),
            "From the start of one sweep to the start of the next.";
        "scan.interval_followed" => interval_followed, Live, duration(SECOND),
            "What feeds confirm is read once in this time; never more often than the interval.";
        "scan.fresh_for" => fresh_for, Live, duration(SECOND),
            "Older facts are refused as stale, unless feeds confirm them; default four intervals, never less than three sweeps.";
        "scan.views" => views, NextSweep, one_of::<ScanViews>(),
            "auto reads views by their _info, which makes CouchDB create an index that was never built; off never does.";
        "scan.top" => top, NextSweep, integer(0..=100_000),
            "How many databases have series of their own in /metrics for every target; the next as many have only sums.";
    });
    section(keys, check)
}

/// What is left out goes with the interval; what is written must go with it.
fn check(scan: &mut Scan, section: &mut Section<'_, '_>) {
    let usual = Scan::every(scan.interval);
    match section.value_at("interval_followed") {
        None => scan.interval_followed = usual.interval_followed,
        Some(found) if scan.interval_followed < scan.interval => {
            let says = format!(
                "found {}, but a followed database is read at most as often as any other, every {} (scan.interval)",
                format_exact(scan.interval_followed),
                format_exact(scan.interval)
            );
            section.report.refuse(found.at, &found.path, says);
        }
        Some(_) => {}
    }
    match section.value_at("fresh_for") {
        None => scan.fresh_for = usual.fresh_for,
        // Not a problem: too short a span only holds starts back, which is safe, and a sweep
        // may well be quicker than its interval allows for.
        Some(found) if scan.fresh_for < scan.interval.saturating_mul(Scan::FRESH_INTERVALS) => {
            let says = format!(
                "{} is less than {} scan intervals of {}: one slow sweep makes every fact stale, and stale facts start nothing",
                format_exact(scan.fresh_for),
                Scan::FRESH_INTERVALS,
                format_exact(scan.interval)
            );
            section.report.note(found.at, &found.path, says);
        }
        Some(_) => {}
    }
}
