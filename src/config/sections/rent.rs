//! `rent`: how the horizons of channels by rent adapt to what is scarce.

use crate::{
    config::{
        form::{Form, keys, section},
        values::{percent, percent_from},
    },
    model::settings::limits::RentSettings,
};

pub(super) fn form() -> Form<RentSettings> {
    let keys = keys!(RentSettings {
        "rent.comfortable" => comfortable_percent, Live, percent(),
            "Free share of a volume below which horizons shrink, where the volume's size is known.";
        "rent.scarce_horizon" => scarce_horizon_percent, Live, percent_from(1),
            "What is left of a horizon where no more is free than headroom.keep_free.";
    });
    section(keys, |_, _| {})
}
