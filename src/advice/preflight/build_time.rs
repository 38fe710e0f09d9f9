//! How long a build takes, from the builds that recliner has seen.

use super::{
    DesignDocument, Spread,
    node_space::{Placement, placements},
};
use crate::{advice::Survey, model::records::BuildSpeed, plan::Plan, table::TargetRef};

/// Factor of the range around builds of the same database: other functions are faster or slower.
const AROUND_OWN: f64 = 1.5;

/// Factor of the range around builds of other databases, whose documents differ.
const AROUND_OTHERS: f64 = 4.0;

/// Seconds until all copies are built, with the number of builds that this is based on; `None` if
/// no build in this language was measured, or the number of changes is unknown.
pub(super) fn seconds(
    plan: &Plan,
    db: &str,
    design: &DesignDocument,
    placed: &[Placement],
) -> Option<(Spread, usize)> {
    seconds_of(plan, db, (&design.language, design.views.len()), placed)
}

/// The same for a language and a number of views.
fn seconds_of(
    plan: &Plan,
    db: &str,
    (language, views): (&str, usize),
    placed: &[Placement],
) -> Option<(Spread, usize)> {
    let speeds = &plan.conditions.constraints.build_speeds;
    let is_alike =
        |speed: &&BuildSpeed| speed.language.as_ref().is_none_or(|built| **built == *language);
    let own: Vec<&BuildSpeed> = speeds.iter().filter(is_alike).filter(|it| it.db == db).collect();
    let (measured, factor) = match own.is_empty() {
        false => (own, AROUND_OWN),
        true => (speeds.iter().filter(is_alike).collect(), AROUND_OTHERS),
    };
    let rate = rate(&measured, views, factor)?;
    let indexers = measured.iter().map(|it| it.indexers).max()?.max(1);
    let mut seconds = Spread::ZERO;
    for node in placed {
        seconds = seconds.max(seconds_on(node, rate, indexers)?);
    }
    Some((seconds, measured.len()))
}

/// Seconds needed to rebuild an existing index; `None` if unknown.
pub fn rebuild_seconds(plan: &Plan, survey: &Survey, index: TargetRef<'_>) -> Option<Spread> {
    let view = index.view()?;
    let placed = placements(survey, &plan.snapshot, index.db());
    let (language, views) = (&*view.language, view.functions.len().max(1));
    let (seconds, _) = seconds_of(plan, index.db_name().db, (language, views), &placed)?;
    Some(seconds)
}

/// Changes that one indexer processes in a second.
///
/// Part of the time goes to reading a document and passing it to the functions, and part to each
/// function. So a document with more views is slower at most in proportion to their number.
fn rate(measured: &[&BuildSpeed], views: usize, factor: f64) -> Option<Spread> {
    let (mut slow, mut even, mut fast) = (Vec::new(), Vec::new(), Vec::new());
    for speed in measured {
        let ratio = speed.views.map_or(1.0, |known| f64::from(known) / views.max(1) as f64);
        slow.push(speed.rate() * ratio.min(1.0));
        even.push(speed.rate() * ratio.sqrt());
        fast.push(speed.rate() * ratio.max(1.0));
    }
    Some(Spread {
        low: Spread::around(&mut slow, factor)?.low,
        likely: Spread::around(&mut even, factor)?.likely,
        high: Spread::around(&mut fast, factor)?.high,
    })
}

/// Seconds until the copies on a node are built.
///
/// At best each copy has an indexer as fast as the measured ones; at worst the node runs no more of
/// them at a time than the most that ran before.
fn seconds_on(node: &Placement, rate: Spread, indexers: u32) -> Option<Spread> {
    let (largest, all) = (node.largest_changes? as f64, node.changes?);
    let at_worst = largest.max(all / f64::from(indexers.min(node.copies).max(1)));
    Some(Spread {
        low: largest / rate.high,
        likely: (largest * at_worst).sqrt() / rate.likely,
        high: at_worst / rate.low,
    })
}
