//! What a design document, or a deployment of several, would cost, and the form that asks.

use super::{
    Given, Page, Part, Screen,
    cells::{name, to_copy, with_code},
    table::still,
};
use crate::serve::report::{AdviceRemedy, Preflight, Rehearsal};
use maud::{Markup, html};

#[derive(Debug)]
pub(in crate::serve) enum Predicted {
    Document(Box<Preflight>),
    Deployment(Box<Rehearsal>),
}

/// The page at `/preflight`: `given` are the parameters; `answer` is the prediction, or the reason
/// why there is none.
pub(in crate::serve) fn preflight(
    given: &Given,
    answer: Option<&Result<Predicted, String>>,
) -> Page {
    let shown = html! {
        @match answer {
            None => {}
            Some(Err(why)) => { p.banner.worst { (with_code(why)) } }
            Some(Ok(Predicted::Document(answer))) => { (cost(answer)) }
            Some(Ok(Predicted::Deployment(answer))) => { (rehearsal(answer)) }
        }
    };
    // The answer precedes the form: on a small screen it would end up below a long document.
    let parts = vec![Part::new("cost", shown), Part::new("ask", form(given))];
    Page::still(Some(Screen::Preflight), "What would a new index cost?", parts)
}

fn form(given: &Given) -> Markup {
    html! {
        p { "How long a design document's indexes would take to build, how much space that needs, and whether it fits. Nothing is deployed: recliner only reads the document that the database has now." }
        form.what-if method="post" action="preflight" {
            div.filter {
                label { "database" input name="db" required value=(given.get("db")); }
                label { "its id, if it has no _id" input name="id" placeholder="_design/by_day" value=(given.get("id")); }
            }
            label { "design document (JSON), or a list of several" textarea name="design" rows="12" required spellcheck="false" placeholder={ r#"{"_id": "_design/by_day", "views": {"by_day": {"map": "function (doc) { emit(doc.day); }"}}}"# } { (given.get("design")) } }
            p { button { "Predict the cost" } }
        }
    }
}

fn cost(answer: &Preflight) -> Markup {
    html! {
        p.note { (name(&answer.says)) }
        @if !answer.nodes.is_empty() {
            (still("What the build needs", &answer.table()))
            p.quiet { (with_code(Preflight::COLUMNS)) }
        }
        (section("What changes", &answer.changes()))
        (section("Based on", &answer.rests_on()))
        @if !answer.remedy.is_empty() { h2 { "What to do" } (steps(&answer.remedy)) }
    }
}

fn rehearsal(answer: &Rehearsal) -> Markup {
    let lines = answer.lines();
    html! {
        p.note { (name(&answer.says)) }
        @if !lines.is_empty() {
            (still("What each step needs", &Rehearsal::table(&lines)))
            p.quiet { (with_code(Rehearsal::COLUMNS)) }
        }
        (section("What changes", &answer.changes()))
        (section("Based on", &answer.rests_on()))
        (section("To know", &answer.notes))
    }
}

fn section(title: &str, lines: &[String]) -> Markup {
    html! { @if !lines.is_empty() { h2 { (title) } ul { @for line in lines { li { (with_code(line)) } } } } }
}

/// What to do, step by step.
pub(super) fn steps(remedy: &[AdviceRemedy]) -> Markup {
    html! {
        @for step in remedy {
            p { (with_code(&step.says)) }
            @if let Some(text) = &step.text { (to_copy(text)) }
        }
    }
}
