//! `views`: which views may be compacted.

use crate::{
    config::{
        form::{Form, keys, section},
        values::one_of,
    },
    model::settings::work::{EnforceViews, Views},
};

pub(super) fn form() -> Form<Views> {
    let keys = keys!(Views {
        "views.enforce" => enforce, Live, one_of(EnforceViews::ALL, EnforceViews::label),
            "Which views are compacted: q1, those of databases with one range; all, whole design documents, every copy at once; none.";
    });
    section(keys, |_, _| {})
}
