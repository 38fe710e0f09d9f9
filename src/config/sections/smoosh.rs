//! `smoosh`: what is done about CouchDB's own compaction daemon.

use crate::{
    config::{
        form::{Form, keys, list, section},
        values::{one_of, text},
    },
    model::settings::work::{Smoosh, SmooshMode},
};

pub(super) fn form() -> Form<Smoosh> {
    let keys = keys!(Smoosh {
        "smoosh.mode" => mode, Live, one_of::<SmooshMode>(),
            "coexist counts smoosh's compactions; takeover stops its channels while recliner enforces, and restores them after.";
        "smoosh.takeover" => takeover, Live, list(text()),
            "The channels of smoosh that a takeover stops.";
    });
    section(keys, |_, _| {})
}
