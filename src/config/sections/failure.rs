//! `failure`: what follows a failed compaction.

use crate::{
    config::{
        form::{Form, keys, section},
        section::Section,
        values::{SECOND, duration, integer},
    },
    model::settings::limits::FailureSettings,
    text::duration::format_exact,
};

pub(super) fn form() -> Form<FailureSettings> {
    let keys = keys!(FailureSettings {
        "failure.cool_down" => cool_down, Live, duration(SECOND),
            "How long a target rests after a failed compaction; doubles with each further one.";
        "failure.cool_down_max" => cool_down_max, Live, duration(SECOND),
            "The longest rest after failures.";
        "failure.quarantine_after" => quarantine_after, Live, integer(1..=1_000),
            "Failures in a row after which a target waits for an operator.";
    });
    section(keys, check)
}

fn check(failure: &mut FailureSettings, section: &mut Section<'_, '_>) {
    if section.value_at("cool_down_max").is_none() {
        failure.cool_down_max = failure.cool_down_max.max(failure.cool_down);
    }
    if failure.cool_down > failure.cool_down_max {
        section.refuse(format!(
            "cool_down is {} and cool_down_max is {}; the longest must not be below the first",
            format_exact(failure.cool_down),
            format_exact(failure.cool_down_max)
        ));
    }
}
