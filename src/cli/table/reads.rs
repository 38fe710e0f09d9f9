//! What access logs say about readers, as text.

use super::layout::paragraph;
use crate::{
    cli::printable,
    reads::{LogSource, LogUse, ReadsAnswer},
    serve::report::{Indexes, columns::Table},
    text::{counted, three_digits_short},
};
use access_log::How;

/// Maximum number of uses printed for each log.
const PRINTED: usize = 50;

/// The logs, each with its period and its uses, most requests first.
pub(in crate::cli) fn reads(answer: &ReadsAnswer, width: u16) -> String {
    if answer.sources.is_empty() {
        return paragraph("No access log is being read.", width);
    }
    let parts: Vec<String> = answer.sources.iter().map(|it| source(it, width)).collect();
    parts.join("\n")
}

/// The period that the logs cover, and a line for each index.
pub(in crate::cli) fn indexes(answer: &Indexes, width: u16) -> String {
    let mut text = paragraph(&printable(&answer.says), width);
    if answer.indexes.is_empty() {
        text.push_str(&paragraph("No indexes known.", width));
        return text;
    }
    text.push_str(&answer.table().wrapped(width));
    for says in answer.repeated() {
        text.push_str(&paragraph(&printable(&says), width));
    }
    let rest = (answer.total - answer.indexes.len().min(answer.total)) as u64;
    if rest > 0 {
        text.push_str(&paragraph(
            &format!("And {}.", counted(rest, "smaller one", "smaller ones")),
            width,
        ));
    }
    text
}

fn source(source: &LogSource, width: u16) -> String {
    let name = match (&source.node, &source.log) {
        (Some(node), _) => format!("Log of {node}"),
        (None, log) => format!("Requests in {}", log.as_deref().unwrap_or_default()),
    };
    let mut text = paragraph(&format!("{}: {}", printable(&name), covered(source)), width);
    let mut uses: Vec<&LogUse> = source.uses.iter().filter(|it| it.how != How::Seen).collect();
    uses.sort_by_key(|it| std::cmp::Reverse(it.days.values().sum::<u64>()));
    if uses.is_empty() {
        text.push_str(&paragraph("No index was read.", width));
        return text;
    }
    let shown = uses.get(..PRINTED).unwrap_or(&uses);
    let days = source.covered.len().clamp(1, 30) as f64;
    let per_day = |it: &&LogUse| three_digits_short(it.days.values().sum::<u64>() as f64 / days);
    text.push_str(
        &Table::of(shown)
            .text("database", |it| printable(&it.db))
            .text("design document", |it| printable(&it.ddoc))
            .text("view", |it| printable(&what(it)))
            .text("by", |it| it.class.label().to_owned())
            .number("a day", per_day)
            .text("last", |it| it.last.clone())
            .wrapped(width),
    );
    let rest = (uses.len() - shown.len()) as u64;
    if rest > 0 {
        text.push_str(&paragraph(&format!("And {}.", counted(rest, "other", "others")), width));
    }
    text
}

/// What was read, in a few words.
fn what(it: &LogUse) -> String {
    match it.how {
        How::Read if it.view.is_empty() => "(unknown)".to_owned(),
        How::Read => it.view.clone(),
        How::Find => "(Mango query)".to_owned(),
        How::Function => "(function)".to_owned(),
        How::Written => "(written)".to_owned(),
        How::Refused => "(not found)".to_owned(),
        How::Seen => "(read)".to_owned(),
    }
}

fn covered(source: &LogSource) -> String {
    let (Some((first, _)), Some((last, _))) =
        (source.covered.first_key_value(), source.covered.last_key_value())
    else {
        return "no request.".to_owned();
    };
    let hours: u64 = source.covered.values().map(|it| u64::from(it.count_ones())).sum();
    format!("{first} to {last}, requests in {}.", counted(hours, "hour", "hours"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::reads::Reads;
    use access_log::LogReads;

    #[test]
    fn lists_each_index_with_its_readers() {
        insta::assert_snapshot!(indexes(&Indexes::example(), 120));
    }

    #[test]
    fn table_shows_which_clients_read_which_index() {
        let lines = r#"192.0.2.1 - - [26/Nov/2026:05:00:00 +0000] "GET /db/_design/d/_view/v HTTP/1.1" 200 12 "-" "Mozilla/5.0"
192.0.2.1 - - [27/Nov/2026:05:00:00 +0000] "GET /db/_design/d/_view/v HTTP/1.1" 200 12 "-" "okhttp/4"
192.0.2.1 - - [27/Nov/2026:05:00:00 +0000] "POST /db/_find HTTP/1.1" 200 12 "-" "okhttp/4"
"#;
        let mut logs = LogReads::default();
        crate::reads::read_stream(lines.as_bytes(), "/var/log/nginx/access.log", &mut logs)
            .unwrap();
        insta::assert_snapshot!(reads(&ReadsAnswer::of(&Reads::of_logs(&logs)), 80));
        assert_eq!(reads(&ReadsAnswer::default(), 80), "No access log is being read.\n");
    }
}
