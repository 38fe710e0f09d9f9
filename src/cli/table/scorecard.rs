//! Compares what recliner would have done while it only advised with what really happened.

use super::layout::{bytes, paragraph};
use crate::{
    cli::printable,
    serve::report::{Scorecard, ScorecardLine, columns::Table},
};

pub(in crate::cli) fn scorecard(answer: &Scorecard, width: u16) -> String {
    let mut text = String::new();
    if let Some((real, advised)) = answer.real.as_ref().zip(answer.advised.as_ref()) {
        text.push_str(&sides(answer, real, advised, width));
        text.push('\n');
        let note = "The values for recliner count the compactions it would have run, and the waste left after those and the real ones.";
        text.push_str(&paragraph(note, width));
        for (name, line) in [("that really ran", real), ("of recliner", advised)] {
            let count = line.unmeasured_compactions;
            if count > 0 {
                let says = format!(
                    "The bytes leave out {count} of the compactions {name}: their sizes are unknown."
                );
                text.push_str(&paragraph(&says, width));
            }
        }
        text.push('\n');
    }
    text.push_str(&paragraph(&printable(&answer.says), width));
    text
}

/// Both sides as a table with one row each; if that does not fit, with one column each.
fn sides(answer: &Scorecard, real: &ScorecardLine, advised: &ScorecardLine, width: u16) -> String {
    let conflicts = answer.conflicts.map_or_else(String::new, |count| count.to_string());
    let sides = [("as it was", real, String::new()), ("had recliner enforced", advised, conflicts)];
    let rows = Table::of(&sides)
        .text("", |(name, ..)| (*name).to_owned())
        .number("mean waste", |(_, it, _)| bytes(Some(it.mean_waste_bytes)))
        .number("peak waste", |(_, it, _)| bytes(Some(it.peak_waste_bytes)))
        .number("freed", |(_, it, _)| bytes(Some(it.freed_bytes)))
        .number("written", |(_, it, _)| bytes(Some(it.rewritten_bytes)))
        .number("compactions", |(_, it, _)| it.compactions.to_string())
        .number("peak extra space", |(_, it, _)| bytes(Some(it.peak_extra_bytes)))
        .number("conflicts", |(.., conflicts)| conflicts.clone())
        .into_grid(width);
    if rows.fits(width) { rows.wrapped(width) } else { rows.transposed().wrapped(width) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn scorecard_fits_a_terminal() {
        let line = |waste: u64| ScorecardLine {
            mean_waste_bytes: waste * GIB,
            peak_waste_bytes: 2 * waste * GIB,
            freed_bytes: 300 * GIB,
            rewritten_bytes: 120 * GIB,
            compactions: 1_234,
            unmeasured_compactions: waste / 20,
            peak_extra_bytes: 3 * GIB,
        };
        let answer = Scorecard {
            from: Some("2026-11-16T10:00:00Z".to_owned()),
            until: "2026-11-23T10:30:00Z".to_owned(),
            state: "advising".into(),
            advised_seconds: 600_000,
            enforced_seconds: 0,
            missing_seconds: 4_800,
            real: Some(line(20)),
            advised: Some(line(9)),
            conflicts: Some(17),
            running: 1,
            incomplete: false,
            says:
                "Switch to enforce: that would have meant 11 GiB less waste. This rests on 7 days."
                    .to_owned(),
        };
        for width in [80, 160] {
            let text = scorecard(&answer, width);
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{text}");
        }
        insta::assert_snapshot!([80, 120].map(|width| scorecard(&answer, width)).join("\n"));
        let nothing = Scorecard { real: None, advised: None, conflicts: None, ..answer };
        assert!(
            scorecard(&nothing, 80).starts_with("Switch to enforce"),
            "only the sentence is left"
        );
    }
}
