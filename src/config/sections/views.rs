//! `views`: which views may be compacted.

use crate::{
    config::{
        form::{Form, keys, section},
        values::one_of,
    },
    model::settings::work::{EnforceViews, ViewSettings},
};

pub(super) fn form() -> Form<ViewSettings> {
    let keys = keys!(ViewSettings {
        "views.enforce" => enforce, Live, one_of::<EnforceViews>(),
            "Which views are compacted: q1, those of databases with one range; all, whole design documents, every copy at once; none.";
    });
    section(keys, |_, _| {})
}
