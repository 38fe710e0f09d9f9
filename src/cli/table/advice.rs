//! Advice, one block for each piece.

use super::layout::{paragraph, wrap};
use crate::{
    cli::printable,
    serve::report::{Advice, AdviceGain, AdviceLine, AdviceRemedy},
    text::{counted, duration, size::format_size_short},
};
use std::time::Duration;

/// Width of the labels before lines.
const NAMES: usize = 7;

/// The advice as text: a sentence, then a block for each piece. Muted pieces follow at the end, one
/// line each.
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
                bytes => format!(", worth {}", format_size_short(bytes)),
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
        answer.advice.iter().filter(|line| line.muted.is_some()).map(muted_line).collect();
    if !muted.is_empty() {
        text.push_str("\nMuted:\n");
        muted.iter().for_each(|line| wrap(&mut text, "  ", line, width.into()));
    }
    text
}

/// One piece of advice. Lines to paste are never wrapped.
fn piece(line: &AdviceLine, width: u16) -> String {
    let mut text = String::new();
    let severity = printable(&line.severity).to_uppercase();
    wrap(&mut text, &format!("{severity}  "), &printable(&line.says), width.into());
    if let Some(gain) = gain(&line.gain) {
        wrap(&mut text, &name("gain"), &gain, width.into());
    }
    for remedy in &line.remedy {
        add_remedy(&mut text, &name("do"), remedy, width);
    }
    let since = line.since.as_deref().map(|since| format!(", since {}", printable(since)));
    let subject = match &*line.subject.kind {
        "cluster" => "all of CouchDB".to_owned(),
        kind => format!("{} {}", printable(kind), printable(&line.subject.name)),
    };
    let about = format!("{subject}{}", since.unwrap_or_default());
    wrap(&mut text, &name("about"), &about, width.into());
    wrap(
        &mut text,
        &name("code"),
        &format!("{} ({})", printable(&line.code), printable(&line.learn)),
        width.into(),
    );
    text
}

/// The label before a line.
pub(super) fn name(name: &str) -> String {
    format!("  {name:NAMES$}")
}

/// Adds what to do, after `head`. Lines to paste are never wrapped.
pub(super) fn add_remedy(text: &mut String, head: &str, remedy: &AdviceRemedy, width: u16) {
    wrap(text, head, &printable(&remedy.says), width.into());
    for pasted in remedy.text.iter().flat_map(|text| text.lines()) {
        text.push_str(&format!("    {}\n", printable(pasted)));
    }
}

/// What following the advice gains, as far as it is known.
fn gain(gain: &AdviceGain) -> Option<String> {
    let value = gain.value?;
    Some(match &*gain.kind {
        "bytes" => format!("{} reclaimable", format_size_short(value)),
        "seconds" => format!("{} of work", duration::format_rounded(Duration::from_secs(value))),
        "risk" if value == 0 => return None,
        "risk" => format!("{} at risk", format_size_short(value)),
        other => format!("{value} {}", printable(other)),
    })
}

/// A muted piece in one line.
fn muted_line(line: &AdviceLine) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::report::{AdviceMute, AdviceSubject, MoreAdvice};

    const COMMAND: &str = "curl -u \"$COUCHDB_USER\" -X POST -H 'Content-Type: application/json' \"$COUCHDB_URL\"/orders/_sync_shards";

    fn line(code: &'static str, severity: &'static str, db: &str, says: &str) -> AdviceLine {
        let remedy = |kind: &'static str, says: &str, text: Option<&str>| AdviceRemedy {
            kind: kind.into(),
            says: says.to_owned(),
            text: text.map(str::to_owned),
        };
        let choice = "Decide whether anybody still needs the data; delete the files in the data directory of each node if not.";
        AdviceLine {
            code: code.into(),
            severity: severity.into(),
            subject: AdviceSubject { kind: "database".into(), name: db.to_owned() },
            says: says.to_owned(),
            evidence: std::collections::BTreeMap::new(),
            gain: AdviceGain { kind: "bytes".into(), value: Some(7 << 30) },
            remedy: vec![
                remedy("command", "Create the missing copies:", Some(COMMAND)),
                remedy("choice", choice, None),
                remedy(
                    "configuration",
                    "Or leave it to recliner:",
                    Some("mode: enforce\nchannels: rent"),
                ),
            ],
            learn: format!("/docs/advice.html#{code}"),
            since: Some("2026-11-21T00:54:00Z".to_owned()),
            muted: None,
        }
    }

    #[test]
    fn advice_fits_a_terminal_and_commands_can_be_pasted() {
        let says = "orders lacks 2 shard copies of its 24 on couchdb@a and couchdb@b; the other copies of these ranges have 1.5 GiB.";
        let first = line("missing_copies", "warning", "orders", says);
        let hostile = line("orphan_shards", "info", "old\u{1b}[31m", "Old files.");
        let mute = AdviceMute {
            since: "2026-11-21T00:54:00Z".to_owned(),
            until: "2026-12-21T00:54:00Z".to_owned(),
            by: None,
            why: Some("kept for the auditors".to_owned()),
        };
        let muted = AdviceLine { muted: Some(mute), ..hostile.clone() };
        let answer = Advice {
            checked_at: Some("2026-11-21T00:54:00Z".to_owned()),
            says: "290 GiB reclaimable and 18 GiB in unused files, of 2.1 TiB on disk. 14 recommendations. 1 muted."
                .to_owned(),
            file_bytes: Some(2 << 40),
            waste_bytes: Some(308 << 30),
            gain_bytes: 290 << 30,
            advice: vec![first, hostile, muted],
            more: vec![MoreAdvice { code: "orphan_shards".into(), count: 12, gain_bytes: 3 << 30 }],
        };
        for width in [80, 160] {
            let text = advice(&answer, width);
            assert!(text.contains(COMMAND), "{text}");
            for line in text.lines().filter(|line| !line.contains("curl")) {
                assert!(line.chars().count() <= usize::from(width), "{line}");
            }
        }
        insta::assert_snapshot!([80, 120].map(|width| advice(&answer, width)).join("\n"));
    }
}
