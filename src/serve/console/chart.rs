//! SVG charts drawn on the server. Each also has its numbers in words, for people who cannot see
//! it.

use crate::{
    model::rounding::to_bytes,
    text::size::{format_size_short, signed},
};
use maud::{Markup, html};

/// One segment of a bar: the CSS class of its colour, and its size.
pub(super) struct Segment {
    pub(super) class: &'static str,
    pub(super) size: f64,
}

/// A bar of segments; the rest of `whole` is empty. `says` is the text alternative.
pub(super) fn stacked(class: &str, segments: &[Segment], whole: f64, says: &str) -> Markup {
    let scale = if whole > 0.0 { 1000.0 / whole } else { 0.0 };
    let mut from = 0.0;
    html! {
        svg class=(class) viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label=(says) {
            rect.free x="0" y="0" width="1000" height="20" {}
            @for segment in segments {
                @let width = (segment.size.max(0.0) * scale).clamp(0.0, 1000.0 - from);
                rect class=(segment.class) x=(round(from)) y="0" width=(round(width)) height="20" {}
                @let () = from += width;
            }
        }
    }
}

/// A share from 0 to 1 as a bar.
pub(super) fn share(share: f64, says: &str) -> Markup {
    stacked("bar-chart", &[Segment { class: "live", size: share }], 1.0, says)
}

/// A column chart of two numbers per step, such as bytes freed and rewritten in an hour.
pub(super) fn columns(
    pairs: &[(f64, f64)],
    first: &str,
    last: &str,
    top: &str,
    says: &str,
) -> Markup {
    const HEIGHT: f64 = 90.0;
    let highest = pairs.iter().fold(0.0_f64, |most, (one, other)| most.max(*one).max(*other));
    let step = 600.0 / pairs.len().max(1) as f64;
    let tall = |value: f64| if highest > 0.0 { value / highest * HEIGHT } else { 0.0 };
    html! {
        svg.chart viewBox="0 0 600 120" role="img" aria-label=(says) {
            line.axis x1="0" y1="100" x2="600" y2="100" {}
            @for (at, (one, other)) in pairs.iter().enumerate() {
                @let x = at as f64 * step;
                rect.live x=(round(x + step * 0.1)) y=(round(100.0 - tall(*one))) width=(round(step * 0.38)) height=(round(tall(*one))) {}
                rect.waste x=(round(x + step * 0.5)) y=(round(100.0 - tall(*other))) width=(round(step * 0.38)) height=(round(tall(*other))) {}
            }
            text x="0" y="10" { (top) }
            text x="0" y="115" { (first) }
            text x="600" y="115" text-anchor="end" { (last) }
        }
    }
}

/// One line of a chart: the CSS class of its stroke, and its values at equal steps.
pub(super) struct Line<'a> {
    pub(super) class: &'static str,
    pub(super) values: &'a [u64],
}

/// Bytes over time on one scale from zero, with the dates of the beginning, middle and end. Lines
/// differ by colour and dashes.
pub(super) fn lines(lines: &[Line<'_>], dates: &[String; 3], says: &str) -> Markup {
    const HEIGHT: f64 = 110.0;
    let highest = lines.iter().flat_map(|line| line.values).copied().max().unwrap_or_default();
    let points = |line: &Line<'_>| {
        let step = 600.0 / line.values.len().saturating_sub(1).max(1) as f64;
        let tall = |value: u64| value as f64 / highest.max(1) as f64 * HEIGHT;
        let at = line.values.iter().enumerate();
        let at =
            at.map(|(at, value)| [round(at as f64 * step), round(120.0 - tall(*value))].join(","));
        at.collect::<Vec<_>>().join(" ")
    };
    html! {
        svg.chart viewBox="0 0 600 135" role="img" aria-label=(says) {
            line.axis x1="0" y1="120" x2="600" y2="120" {}
            @for line in lines { polyline class=(line.class) points=(points(line)) {} }
            text x="0" y="8" { (format_size_short(highest)) }
            @for (at, (date, anchor)) in dates.iter().zip(["start", "middle", "end"]).enumerate() {
                text x=(at * 300) y="132" text-anchor=(anchor) { (date) }
            }
        }
    }
}

/// How a sum changed, from top to bottom: the bar before, one bar for each change that begins where the last one
/// ended, and the bar after. The scale begins below the smallest bar, not at zero.
pub(super) fn waterfall([before, after]: [i64; 2], steps: &[(String, i64)], says: &str) -> Markup {
    const ROW: usize = 22;
    let mut at = before;
    let mut bars = vec![("before".to_owned(), before, None)];
    for (label, change) in steps {
        let from = at;
        at = at.saturating_add(*change);
        bars.push((label.clone(), at, Some((from, *change))));
    }
    bars.push(("after".to_owned(), after, None));
    let (least, most) = bars
        .iter()
        .fold((before, before), |(least, most), (_, at, _)| (least.min(*at), most.max(*at)));
    let span = (most as f64 - least as f64).max(1.0);
    let place = |at: i64| 200.0 + (at as f64 - least as f64 + span * 0.15) / (span * 1.15) * 300.0;
    let height = bars.len() * ROW;
    html! {
        svg.chart viewBox={ "0 0 600 " (height) } role="img" aria-label=(says) {
            @for (row, (label, at, change)) in bars.iter().enumerate() {
                @let y = row * ROW;
                @let (from, to) = change.map_or((200.0, place(*at)), |(from, _)| (place(from), place(*at)));
                @let class = match change { None => "other", Some((_, 0..)) => "waste", Some((_, ..0)) => "live" };
                @let value = change.map_or_else(|| signed(*at).trim_start_matches('+').to_owned(), |(_, change)| signed(change));
                text x="0" y=(y + 14) { (label) }
                rect class=(class) x=(round(from.min(to))) y=(y + 3) width=(round((to - from).abs().max(1.0))) height="15" {}
                text x="600" y=(y + 14) text-anchor="end" { (value) }
            }
        }
    }
}

/// The CSS class of the line of an outlook under these rules.
pub(super) fn line_class(rules: &str) -> &'static str {
    match rules {
        "nothing" => "line of-nothing",
        "smoosh" => "line of-smoosh",
        "proposed" => "line of-proposed",
        _ => "line of-force",
    }
}

/// A short sample of a line for the legend.
pub(super) fn swatch(class: &str) -> Markup {
    html! { svg.swatch viewBox="0 0 26 8" aria-hidden="true" { line class=(class) x1="0" y1="4" x2="26" y2="4" {} } }
}

/// A score relative to the channel's lowest accepted score, on a logarithmic scale.
pub(super) fn against_threshold(score: f64, least: f64, says: &str) -> Markup {
    let place = |value: f64| {
        if value <= 0.0 || least <= 0.0 {
            return 0.0;
        }
        (200.0 + (value / least).log10() * 100.0).clamp(2.0, 398.0)
    };
    let at = place(score);
    html! {
        svg.scale viewBox="0 0 400 26" role="img" aria-label=(says) {
            line.axis x1="0" y1="12" x2="400" y2="12" {}
            rect.live x="0" y="9" width=(round(at)) height="6" {}
            line.mark x1="200" y1="2" x2="200" y2="22" {}
            circle.dot cx=(round(at)) cy="12" r="5" {}
        }
    }
}

/// A scatter plot of predicted and actual bytes on logarithmic scales; on the diagonal both are
/// equal.
pub(super) fn scatter(points: &[(f64, f64)], says: &str) -> Markup {
    let positive =
        points.iter().flat_map(|(one, other)| [*one, *other]).filter(|value| *value > 0.0);
    let (least, most) = positive
        .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    let (low, high) = (least.log2().floor(), most.log2().ceil());
    let place =
        |value: f64| if high > low { (value.log2() - low) / (high - low) * 280.0 } else { 140.0 };
    let end = |power: f64| format_size_short(to_bytes(power.exp2()));
    html! {
        @if least.is_finite() {
            svg.chart viewBox="0 0 600 320" role="img" aria-label=(says) {
                line.axis x1="40" y1="290" x2="320" y2="290" {}
                line.axis x1="40" y1="10" x2="40" y2="290" {}
                line.axis x1="40" y1="290" x2="320" y2="10" {}
                @for (predicted, real) in points.iter().filter(|(one, other)| *one > 0.0 && *other > 0.0) {
                    circle.dot cx=(round(40.0 + place(*predicted))) cy=(round(290.0 - place(*real))) r="3" {}
                }
                text x="40" y="306" { (end(low)) }
                text x="320" y="306" text-anchor="end" { (end(high)) " predicted" }
                text x="44" y="16" { (end(high)) " actual" }
            }
        }
    }
}

/// A week from Monday, hour by hour: whether compactions may start. `now` is the current hour of
/// the week.
pub(super) fn week(open: &[bool], now: f64, says: &str) -> Markup {
    let step = 560.0 / open.len().max(1) as f64;
    html! {
        svg.chart viewBox="0 0 560 34" role="img" aria-label=(says) {
            @for (at, open) in open.iter().enumerate() {
                rect class=(if *open { "open" } else { "closed" }) x=(round(at as f64 * step)) y="0" width=(round(step)) height="16" {}
            }
            @for (at, day) in ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].iter().enumerate() {
                line.axis x1=(at * 80) y1="0" x2=(at * 80) y2="20" {}
                text x=(at * 80 + 3) y="30" { (day) }
            }
            line.now x1=(round(now / 168.0 * 560.0)) y1="0" x2=(round(now / 168.0 * 560.0)) y2="20" {}
        }
    }
}

/// A coordinate with one decimal: more cannot be seen and only makes the page longer.
fn round(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}
