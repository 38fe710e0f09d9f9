//! A report as a self-contained page: it loads and runs nothing, so that it can be sent by mail.

use super::{cells::with_code, frame::asset};
use crate::{serve::report::Report, text::document::Block};
use maud::{DOCTYPE, Markup, PreEscaped, html};

pub(crate) fn report_document(report: &Report) -> String {
    let style = asset("console.css").map_or("", |asset| asset.text);
    let title = report.title();
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body.report {
                main {
                    h1 { (title) }
                    @for block in report.blocks() { (written(&block)) }
                }
                footer { "recliner " (env!("CARGO_PKG_VERSION")) }
            }
        }
    };
    document.into_string()
}

fn written(block: &Block) -> Markup {
    match block {
        Block::Heading(heading) => html! { h2 { (heading) } },
        Block::Paragraph(says) => html! { p { (with_code(says)) } },
        Block::List(lines) => html! { ul { @for line in lines { li { (with_code(line)) } } } },
        Block::Table(columns, rows) => html! {
            div.wide { table {
                thead { tr { @for (name, is_number) in columns { th.n[*is_number] { (name) } } } }
                tbody { @for row in rows { tr {
                    @for (cell, (_, is_number)) in row.iter().zip(columns) { td.n[*is_number] { (with_code(cell)) } }
                } } }
            } }
        },
    }
}
