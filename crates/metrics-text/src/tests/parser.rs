//! A strict parser of both formats, as far as recliner writes them.

use super::super::TextFormat;
use std::collections::BTreeSet;

#[derive(Debug, Default, PartialEq)]
pub(super) struct ParsedFamily {
    pub(super) name: String,
    pub(super) help: String,
    pub(super) kind: String,
    pub(super) unit: String,
    pub(super) samples: Vec<ParsedSample>,
}

/// A sample; its value is compared bit by bit, so that NaN equals itself.
#[derive(Debug, PartialEq)]
pub(super) struct ParsedSample {
    name: String,
    labels: Vec<(String, String)>,
    bits: u64,
}

impl ParsedSample {
    pub(super) fn new(name: &str, labels: &[(&str, &str)], value: f64) -> Self {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
        Self { name: name.to_owned(), labels: labels.collect(), bits: value.to_bits() }
    }
}

/// Parses a whole text: families in order, each once, with HELP, TYPE, an optional UNIT, and then
/// samples with names that match its type.
pub(super) fn parse(format: TextFormat, text: &str) -> Result<Vec<ParsedFamily>, String> {
    let body = match format {
        TextFormat::Text => text,
        TextFormat::OpenMetrics => text.strip_suffix("# EOF\n").ok_or("no end")?,
    };
    let mut families: Vec<ParsedFamily> = Vec::new();
    let mut names = BTreeSet::new();
    let lines = body.strip_suffix('\n').into_iter().flat_map(|body| body.split('\n'));
    for line in lines {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| format!("no help: {line}"))?;
            if !names.insert(name.to_owned()) {
                return Err(format!("{name} occurs twice"));
            }
            let quotes = format == TextFormat::OpenMetrics;
            let help = unescape(help, quotes)?;
            families.push(ParsedFamily { name: name.to_owned(), help, ..ParsedFamily::default() });
            continue;
        }
        let family = families.last_mut().ok_or("a line before any family")?;
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family.kind = of_family(family, rest)?.to_owned();
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            family.unit = of_family(family, rest)?.to_owned();
            if !family.name.ends_with(&format!("_{}", family.unit)) || format == TextFormat::Text {
                return Err(format!("wrong unit: {line}"));
            }
        } else {
            let sample = sample(line)?;
            if !belongs(format, family, &sample.name) {
                return Err(format!("{} does not belong to {}", sample.name, family.name));
            }
            family.samples.push(sample);
        }
    }
    match families.iter().find(|family| family.samples.is_empty() || family.kind.is_empty()) {
        Some(family) => Err(format!("{} is incomplete", family.name)),
        None => Ok(families),
    }
}

fn of_family<'a>(family: &ParsedFamily, rest: &'a str) -> Result<&'a str, String> {
    match rest.split_once(' ') {
        Some((name, word)) if name == family.name && family.samples.is_empty() => Ok(word),
        _ => Err(format!("{rest} is in the wrong place")),
    }
}

fn belongs(format: TextFormat, family: &ParsedFamily, name: &str) -> bool {
    let suffix = name.strip_prefix(&family.name);
    match (&*family.kind, format) {
        ("counter", TextFormat::OpenMetrics) => suffix == Some("_total"),
        ("histogram", _) => matches!(suffix, Some("_bucket" | "_sum" | "_count")),
        ("gauge" | "counter" | "unknown", _) => suffix == Some(""),
        _ => false,
    }
}

fn sample(line: &str) -> Result<ParsedSample, String> {
    let wrong = |what: &str| format!("{what}: {line:?}");
    let end = line.find(['{', ' ']).ok_or_else(|| wrong("no value"))?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    let mut before = '{';
    while !rest.starts_with([' ', '}']) {
        rest = rest.strip_prefix(before).ok_or_else(|| wrong("no separator"))?;
        let (label, value) = rest.split_once("=\"").ok_or_else(|| wrong("no label value"))?;
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
        let (raw, after) = quoted(value).ok_or_else(|| wrong("an open quote"))?;
        if !is_name(label) {
            return Err(wrong("no label name"));
        }
        labels.push((label.to_owned(), unescape(raw, true)?));
        rest = after;
        before = ',';
    }
    let value = if labels.is_empty() { rest.strip_prefix(' ') } else { rest.strip_prefix("} ") };
    let number: f64 = match value.ok_or_else(|| wrong("no value"))? {
        "NaN" => f64::NAN,
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        text if text.bytes().all(|byte| b"0123456789.e+-".contains(&byte)) => {
            text.parse().map_err(|_| wrong("no number"))?
        }
        _ => return Err(wrong("no number")),
    };
    let labels: Vec<_> = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
    Ok(ParsedSample::new(name, &labels, number))
}

/// The text before the quote that ends a value, still escaped, and the text after that quote.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(at)
    })?;
    Some((&text[..end], &text[end + 1..]))
}

fn unescape(text: &str, quotes: bool) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('\\') => '\\',
                Some('n') => '\n',
                Some('"') if quotes => '"',
                other => return Err(format!("no such escape: {other:?}")),
            },
            '"' if quotes => return Err("a bare quote".to_owned()),
            c => c,
        });
    }
    Ok(out)
}
