//! Advice, one block for each piece.

use super::layout::{paragraph, wrap};
use crate::{
    cli::printable,
    serve::report::{Advice, AdviceGain, AdviceLine, AdviceRemedy},
    text::{counted, duration, size::format_size_short},
};
use std::time::Duration;

/// The width of the names before lines.
const NAMES: usize = 7;

/// The advice as text: a sentence, then a block for each piece. Muted pieces have one line each, at the end.
pub(in crate::cli) fn advice(answer: &Advice, width: u16) -> String {
    let mut text = paragraph(&printable(&answer.says), width);
    for line in answer.open() {
        text.push('\n');
        text.push_str(&piece(line, width));
    }
    let more: Vec<String> = answer
        .more
        .iter()
        .map(|more| {
            let what = match more.gain_bytes {
                0 => String::new(),
                bytes => format!(", which free {}", format_size_short(bytes)),
            };
            let findings = counted(more.count, "more finding", "more findings");
            format!("{findings} of {}{what}.", printable(&more.code))
        })
        .collect();
    if !more.is_empty() {
        text.push('\n');
        text.push_str(&paragraph(&format!("Not shown: {}", more.join(" ")), width));
    }
    let muted: Vec<String> =
        answer.advice.iter().filter(|line| line.muted.is_some()).map(muted).collect();
    if !muted.is_empty() {
        text.push_str("\nMuted:\n");
        muted.iter().for_each(|line| wrap(&mut text, "  ", line, width.into()));
    }
    text
}

/// One piece of advice. What to paste is never broken.
fn piece(line: &AdviceLine, width: u16) -> String {
    let mut text = String::new();
    let severity = printable(&line.severity).to_uppercase();
    wrap(&mut text, &format!("{severity}  "), &printable(&line.says), width.into());
    let name = |name: &str| format!("  {name:NAMES$}");
    wrap(&mut text, &name("gain"), &gain(&line.gain), width.into());
    for remedy in &line.remedy {
        wrap(&mut text, &name("do"), &printable(&remedy.says), width.into());
        for pasted in pasted(remedy) {
            text.push_str(&format!("    {pasted}\n"));
        }
    }
    let since = line.since.as_deref().map(|since| format!(", since {}", printable(since)));
    let about = format!(
        "{} {}{}",
        printable(&line.subject.kind),
        printable(&line.subject.name),
        since.unwrap_or_default()
    );
    wrap(&mut text, &name("about"), &about, width.into());
    wrap(
        &mut text,
        &name("code"),
        &format!("{} ({})", printable(&line.code), printable(&line.learn)),
        width.into(),
    );
    text
}

/// The lines to paste.
fn pasted(remedy: &AdviceRemedy) -> impl Iterator<Item = String> {
    remedy.text.iter().flat_map(|text| text.lines()).map(printable)
}

/// What a piece is worth.
fn gain(gain: &AdviceGain) -> String {
    match &*gain.kind {
        "bytes" => format!("{} become free", format_size_short(gain.value)),
        "seconds" => {
            format!("{} of work", duration::format_rounded(Duration::from_secs(gain.value)))
        }
        "risk" => format!("{} at risk", format_size_short(gain.value)),
        other => format!("{} {}", gain.value, printable(other)),
    }
}

/// A muted piece in one line.
fn muted(line: &AdviceLine) -> String {
    let mute = line.muted.as_ref();
    let why = mute.and_then(|mute| mute.why.as_deref()).map(|why| format!(" ({why})"));
    let until = mute.map(|mute| format!(" until {}", mute.until));
    let (code, name) = (&line.code, &line.subject.name);
    printable(&format!(
        "{code} about {name}{}{}",
        until.unwrap_or_default(),
        why.unwrap_or_default()
    ))
}
