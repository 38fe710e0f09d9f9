//! `journal`: what is kept, for how long and in how many bytes.

use crate::{
    config::{
        form::{Form, keys, section},
        values::{SECOND, bytes_from_mib, duration},
    },
    model::settings::work::{JournalRetention, Keep},
};

pub(super) fn form() -> Form<JournalRetention> {
    let keys = keys!(JournalRetention {
        "journal.events" => events, Live, keep(),
            "What happened.";
        "journal.outcomes" => outcomes, Live, keep(),
            "How compactions and index builds ended.";
    });
    section(keys, |_, _| {})
}

fn keep() -> Form<Keep> {
    let keys = keys!(Keep {
        "keep" => keep, Live, duration(SECOND),
            "For how long it is kept.";
        "max_size" => max_size, Live, bytes_from_mib(),
            "In how many bytes it is kept; the older entries go first.";
    });
    section(keys, |_, _| {})
}
