//! The pieces of advice and their gain.

use crate::{
    advice::{AdviceView, rules},
    text::Label,
};
use metrics_text::{Writer, families};
use wall_clock::Moment;

families! {
    ADVICE: Gauge None "recliner_advice" ["code", "severity"]
        "Number of unmuted recommendations; absent before the first sweep has ended.";
    ADVICE_GAIN_BYTES: Gauge Bytes "recliner_advice_gain_bytes" ["code"]
        "Bytes that following the unmuted advice of this code would free.";
}

pub(super) fn write(writer: &mut Writer, view: &AdviceView, now: Moment) {
    if view.checked_at.is_none() {
        return;
    }
    let open: Vec<_> = rules().map(|rule| (rule, view.open_of(rule.code, now))).collect();
    let mut family = writer.family(&ADVICE);
    for (rule, (counts, _)) in &open {
        for severity in rule.severities {
            let count = counts[*severity as usize];
            family.sample(&[rule.code, severity.label()], count);
        }
    }
    writer.write(&ADVICE_GAIN_BYTES, open.iter().map(|(rule, (_, bytes))| ([rule.code], *bytes)));
}
