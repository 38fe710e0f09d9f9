//! Outlooks under several rules side by side, each with a chart of its course.

use super::{
    super::printable,
    layout::{bytes, paragraph},
};
use crate::serve::report::{VolumeOutlookLine, WhatIf};

/// Maximum number of columns of a chart within a table.
const MAX_COLUMNS: usize = 14;

/// The heights of a chart's columns.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(in crate::cli) fn what_if(answer: &WhatIf, width: u16) -> String {
    let days = match answer.seconds / 86_400 {
        1 => "day".to_owned(),
        days => format!("{days} days"),
    };
    let begin = format!("The next {days}. {}", answer.trust());
    let mut text = paragraph(&begin, width);
    text.push('\n');
    text.push_str(&answer.rules().wrapped(width));
    let undone = answer.undone().into_grid(width);
    if !undone.is_empty() {
        let table = undone.wrapped(width);
        text.push_str(&format!("\nWhy targets are still waiting at the end:\n{table}"));
    }
    text.push_str("\nWasted bytes over time, all to one scale:\n");
    text.push_str(&waste_lines(answer));
    let volumes = volumes(answer, width);
    if !volumes.is_empty() {
        text.push_str(&format!("\n{volumes}"));
        for says in answer.withheld() {
            text.push_str(&paragraph(&printable(&says), width));
        }
    }
    let smoosh = format!("{}. {}.", printable(&answer.smoosh.says), WhatIf::SMOOSH_AT_ITS_BEST);
    text.push_str(&format!("\n{}", paragraph(&smoosh, width)));
    for horizon in answer.as_rent.iter().flat_map(|proposal| &proposal.horizons) {
        let says = format!("{}: {}.", printable(&horizon.channel), printable(&horizon.says));
        text.push_str(&paragraph(&says, width));
    }
    if answer.outlooks.iter().any(|outlook| outlook.coarse) {
        let says =
            "There were too many compactions to simulate one by one; wait times are upper bounds.";
        text.push_str(&format!("\n{}", paragraph(says, width)));
    }
    text
}

fn waste_lines(answer: &WhatIf) -> String {
    let outlooks = || answer.outlooks.iter();
    let highest = outlooks().map(|outlook| outlook.peak_waste_bytes).max().unwrap_or_default();
    let names: Vec<String> = outlooks().map(|outlook| printable(outlook.title())).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
    let lines = outlooks().zip(&names).map(|(outlook, name)| {
        let last = outlook.waste_bytes.last().copied().unwrap_or_default();
        format!(
            "  {name:longest$}  {}  {}\n",
            line(&outlook.waste_bytes, highest),
            bytes(Some(last))
        )
    });
    lines.collect()
}

/// A chart with one column for each value; the full height stands for `highest`.
fn line(values: &[u64], highest: u64) -> String {
    let column = |value: &u64| {
        let steps = BARS.len() as u128 - 1;
        let at = u128::from(*value) * steps / u128::from(highest.max(1));
        usize::try_from(at).ok().and_then(|at| BARS.get(at)).copied().unwrap_or('█')
    };
    values.iter().map(column).collect()
}

fn volumes(answer: &WhatIf, width: u16) -> String {
    let most = |name: &str| all_free(answer, name).max().unwrap_or_default();
    let course =
        |it: &VolumeOutlookLine| line(&downsample(it.free_ahead(answer.seconds)), most(&it.name));
    let table = answer.volumes().text("free over time", |(.., it)| course(it)).into_grid(width);
    if table.is_empty() { String::new() } else { table.wrapped(width) }
}

/// The free bytes of one volume over time, under all rules.
fn all_free(answer: &WhatIf, volume: &str) -> impl Iterator<Item = u64> {
    let volumes = answer.outlooks.iter().flat_map(|outlook| &outlook.volumes);
    volumes.filter(move |it| it.name == volume).flat_map(|it| it.free_bytes.iter().copied())
}

/// Reduces many values to few, so that the chart fits into a table: the minimum of each group of
/// neighbours.
fn downsample(values: &[u64]) -> Vec<u64> {
    let size = values.len().div_ceil(MAX_COLUMNS).max(1);
    values.chunks(size).filter_map(|group| group.iter().min().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::RefusalReason,
        serve::report::{FullDates, SmooshRules, UndoneLine, VolumeOutlookLine},
    };
    use crate::{serve::report::OutlookLine, text::Label};

    const GIB: u64 = 1 << 30;

    fn outlook(name: &str, waste: [u64; 3]) -> OutlookLine {
        let undone = |(reason, targets, gib): (RefusalReason, u64, u64)| UndoneLine {
            reason: reason.label().into(),
            says: reason.meaning().to_owned(),
            targets,
            reclaimable_bytes: gib * GIB,
        };
        let reasons = [(RefusalReason::Headroom, 7, 3), (RefusalReason::Window, 12, 1)];
        let undone: Vec<_> =
            reasons.into_iter().filter(|_| name == "in force").map(undone).collect();
        OutlookLine {
            name: name.to_owned(),
            mean_waste_bytes: waste.iter().sum::<u64>() / 3,
            peak_waste_bytes: waste.into_iter().max().unwrap(),
            rewritten_bytes_per_day: 3e9,
            freed_bytes: GIB,
            compactions_per_day: 7.25,
            longest_wait_seconds: Some(5_400),
            undone_targets: undone.iter().map(|it| it.targets).sum(),
            undone_bytes: undone.iter().map(|it| it.reclaimable_bytes).sum(),
            undone,
            coarse: false,
            waste_bytes: waste.into(),
            file_bytes: waste.into(),
            volumes: vec![VolumeOutlookLine {
                name: "/data".to_owned(),
                nodes: Vec::new(),
                free_bytes: vec![90 * GIB, 80 * GIB, 70 * GIB],
                full: FullDates {
                    full_at: (name == "nothing").then(|| "2026-12-24T00:00:00Z".to_owned()),
                    ..FullDates::default()
                },
                forecast_seconds: Some(60 * 86_400),
                forecast_withheld: None,
            }],
        }
    }

    #[test]
    fn shows_outlooks_side_by_side() {
        let answer = WhatIf {
            from: "2026-11-23T10:00:00Z".to_owned(),
            seconds: 604_800,
            step_seconds: 302_400.0,
            watched_bytes: 900 * GIB,
            file_bytes: 1_000 * GIB,
            watched_seconds: 86_400,
            smoosh: SmooshRules {
                settings: "cluster".into(),
                nodes: vec!["couchdb@a".to_owned()],
                other_nodes: vec!["couchdb@b".to_owned()],
                says: "smoosh is shown with the settings of couchdb@a; couchdb@b has different settings"
                    .to_owned(),
            },
            outlooks: vec![
                outlook("nothing", [10 * GIB, 40 * GIB, 80 * GIB]),
                outlook("in force", [10 * GIB, 9 * GIB, 0]),
            ],
            as_rent: None,
        };
        insta::assert_snapshot!(what_if(&answer, 100));
        assert!(what_if(&answer, 80).lines().all(|line| line.chars().count() <= 80));

        // The simulation alone says nothing about free space days ahead.
        let mut answer = answer;
        for volume in answer.outlooks.iter_mut().flat_map(|it| &mut it.volumes) {
            let nodes = ["couchdb@a", "couchdb@b", "couchdb@c"].map(str::to_owned);
            (volume.name, volume.nodes) = (nodes[0].clone(), nodes.into());
            (volume.free_bytes, volume.full) = (vec![90 * GIB, 0, 0], FullDates::default());
            volume.forecast_seconds = None;
            volume.forecast_withheld = Some("growth was watched for 14m".to_owned());
        }
        insta::assert_snapshot!(volumes(&answer, 100) + &answer.withheld().concat());
    }
}
