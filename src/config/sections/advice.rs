//! `advice`: from when on recliner advises something.

use crate::{
    config::{
        form::{Form, keys, section},
        values::{bytes, number, percent_from},
    },
    model::settings::advice::AdviceSettings,
};

pub(super) fn form() -> Form<AdviceSettings> {
    let keys = keys!(AdviceSettings {
        "advice.min_bytes" => min_bytes, Live, bytes(),
            "Advice that would free fewer bytes is not given.";
        "advice.untaken_waste" => untaken_waste_percent, Live, percent_from(1),
            "Share of all files from which on waste that no channel takes is worth advice.";
        "advice.deleted_documents" => deleted_documents_percent, Live, percent_from(1),
            "Share of deleted documents in a database from which on it is advised to be rid of them.";
        "advice.compaction_file_factor" => compaction_file_factor, Live, number(1.0..=100.0),
            "Size of a shard's file times this, from which on the files of its compaction are too large.";
    });
    section(keys, |_, _| {})
}
