//! The forecast under several sets of rules, and the form that chooses them.

use super::{
    Given, Page, Part, Screen,
    cells::{name, to_copy, with_code},
    chart::{self, Line},
    table::still,
};
use crate::{
    model::channel::ChannelPreset,
    serve::report::{OutlookLine, RentProposal, WhatIf},
    text::Label,
    text::size::format_size_short,
};
use maud::{Markup, html};
use std::time::Duration;
use wall_clock::Moment;

/// The page at `/what-if`: `given` are the parameters; `answer` is the forecast, or the reason why
/// there is none.
pub(in crate::serve) fn what_if(given: &Given, answer: Option<&Result<WhatIf, String>>) -> Page {
    let shown = html! {
        @match answer {
            None => {}
            Some(Err(why)) => { @for line in why.lines() { p.banner.worst { (with_code(line)) } } }
            Some(Ok(answer)) => { (forecast(answer)) }
        }
    };
    let parts = vec![Part::new("ask", forms(given)), Part::new("forecast", shown)];
    Page::still(Some(Screen::WhatIf), "What if", parts)
}

fn forms(given: &Given) -> Markup {
    html! {
        p { "How much would be wasted, rewritten and free in the coming days under other rules, compared with the current rules, smoosh's, and no compaction. Files are assumed to grow as observed. This changes nothing; a large cluster takes some seconds." }
        form.filter method="post" action="what-if" {
            label { "rules" select name="channels" {
                option value="" { "current rules" }
                @for preset in ChannelPreset::each() { (choice(given, preset.label(), preset.label())) }
                (choice(given, "smoosh-as-rent", "rent, tuned to smoosh's waste"))
            } }
            (days(given))
            button { "Forecast" }
        }
        form.what-if method="post" action="what-if" {
            label { "or the rules of a configuration" textarea name="config" rows="10" required spellcheck="false" placeholder="channels: rent" { (given.get("config")) } }
            p.quiet { "A whole " code { "recliner.yml" } " or a part of it: only nodes, mode, channels, ignore, limits, headroom, rent and views count. It is not stored." }
            div.filter { (days(given)) button { "Forecast" } }
        }
    }
}

fn choice(given: &Given, value: &str, text: &str) -> Markup {
    html! { option value=(value) selected[given.get("channels") == value] { (text) } }
}

fn days(given: &Given) -> Markup {
    let days = Some(given.get("days")).filter(|days| !days.is_empty()).unwrap_or("7");
    html! { label { "days" input type="number" name="days" min="1" max="366" value=(days); } }
}

fn forecast(answer: &WhatIf) -> Markup {
    let days = (answer.seconds as f64 / 86_400.0).round();
    html! {
        h2 { "The next " (days) @if days > 1.0 { " days" } @else { " day" } }
        p { (answer.trust()) }
        (still("Rules", &answer.rules()))
        p.quiet { (name(&answer.smoosh.says)) ". " (WhatIf::SMOOSH_AT_ITS_BEST) "." }
        @if answer.outlooks.iter().any(|outlook| outlook.coarse) {
            p.quiet { "There were too many compactions to simulate one by one; wait times are upper bounds." }
        }
        h3 { "What compactions would free, over time" }
        (course(answer, |outlook| &outlook.waste_bytes, "wasted"))
        h3 { "All files, over time" }
        (course(answer, |outlook| &outlook.file_bytes, "on disk"))
        @if answer.outlooks.iter().any(|outlook| !outlook.undone.is_empty()) {
            h3 { "Why targets wait at the end" }
            (still("What is still waiting", &answer.undone()))
        }
        @if answer.outlooks.iter().any(|outlook| !outlook.volumes.is_empty()) {
            h3 { "Free space" }
            (still("Free space", &answer.volumes()))
            @for says in answer.withheld() { p.quiet { (name(&says)) } }
        }
        @if let Some(proposal) = &answer.as_rent { (as_rent(proposal)) }
    }
}

/// A chart of one kind of bytes over time, with a line per outlook on one scale.
fn course(answer: &WhatIf, values: fn(&OutlookLine) -> &[u64], word: &str) -> Markup {
    let lines: Vec<Line<'_>> = answer
        .outlooks
        .iter()
        .map(|outlook| Line { class: chart::line_class(&outlook.name), values: values(outlook) })
        .collect();
    let dates = dates(answer);
    let [_, _, until] = &dates;
    let end = |outlook: &OutlookLine| {
        let last = values(outlook).last().copied().unwrap_or_default();
        format!("{}: {} {word} on {until}", outlook.title(), format_size_short(last))
    };
    let says: Vec<String> = answer.outlooks.iter().map(end).collect();
    html! {
        (chart::lines(&lines, &dates, &says.join("; ")))
    }
}

fn dates(answer: &WhatIf) -> [String; 3] {
    let from = Moment::parse(&answer.from);
    [0, 1, 2].map(|part| {
        let date =
            from.map(|from| from.plus(Duration::from_secs(answer.seconds / 2 * part)).date());
        date.unwrap_or_default()
    })
}

fn as_rent(proposal: &RentProposal) -> Markup {
    html! {
        h3 { "The proposed channels" }
        ul {
            @for horizon in &proposal.horizons { li { (name(&horizon.channel)) ": " (name(&horizon.says)) "." } }
            @for finding in &proposal.findings { li { (with_code(finding)) } }
        }
        (to_copy(&proposal.config))
    }
}
