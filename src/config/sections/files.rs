//! `files`: the directories of a node that are read beside CouchDB.

use crate::{
    config::{
        form::{Form, keys, section},
        values::path,
    },
    model::settings::Files,
};

pub(super) fn form() -> Form<Files> {
    let keys = keys!(Files {
        "files.data_dir" => data_dir, NextSweep, path().optional(),
            "CouchDB's database_dir on this node.";
        "files.view_index_dir" => view_index_dir, NextSweep, path().optional(),
            "CouchDB's view_index_dir on this node; default the same directory.";
    });
    section(keys, |_, _| {})
}
