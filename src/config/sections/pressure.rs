//! `pressure`: when the servers are too busy for more.

use crate::{
    config::{
        form::{Form, Key, keys, section},
        section::Section,
        values::{SECOND, count, duration},
    },
    model::settings::limits::{Marks, Pressure},
    text::duration::format_exact,
};
use std::time::Duration;

pub(super) fn form() -> Form<Pressure> {
    let span = || duration(Duration::from_millis(1));
    let shown = |span: Duration| format_exact(span);
    let number = |number: u64| number.to_string();
    let keys = keys!(Pressure {
        "pressure.probe_latency" => probe_latency, Live, marks(span, shown),
            "How long a small request of recliner's own takes.";
        "pressure.run_queue" => run_queue, Live, marks(count, number),
            "Erlang processes that wait for a scheduler.";
        "pressure.replication_backlog" => replication_backlog, Live, marks(count, number),
            "Changes that internal replication has still to push.";
        "pressure.indexers" => indexers, Live, marks(count, number),
            "Index builds that run on the node.";
        "pressure.hold_at_most" => hold_at_most, Live, duration(SECOND),
            "The longest that pressure alone holds starts back.";
    });
    section(keys, |_, _| {})
}

/// A high and a low mark, of which the low one is not above the high one.
fn marks<T: PartialOrd + Copy + 'static>(
    form: impl Fn() -> Form<T>,
    shown: fn(T) -> String,
) -> Form<Marks<T>> {
    let keys: Vec<Key<Marks<T>>> = vec![
        Key::new(
            ("high", "Above this nothing is started on the node."),
            None,
            form(),
            |marks| &marks.high,
            |marks| &mut marks.high,
        ),
        Key::new(
            ("low", "At this or below, starts are let go again."),
            None,
            form(),
            |marks| &marks.low,
            |marks| &mut marks.low,
        ),
    ];
    section(keys, move |marks, section: &mut Section<'_, '_>| {
        if marks.low > marks.high {
            section.refuse(format!(
                "low is {} and high is {}; low must not be above high",
                shown(marks.low),
                shown(marks.high)
            ));
        }
    })
}
