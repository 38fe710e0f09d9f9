//! What a client reports about the requests it has sent, for metrics.

use std::{fmt, time::Duration};

/// Called at the end of every request.
///
/// Both labels are closed sets: `route` is one of [`Route::LABELS`](crate::Route::LABELS), `code`
/// comes from [`status_label`] or [`ErrorKind::label`](crate::ErrorKind::label). Their
/// concatenations differ too, for metric libraries that join label values without a separator.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A request to `route` ended with `code`, `took` after it was sent.
    fn request_ended(&self, route: &'static str, code: &'static str, took: Duration);
}

/// Ignores every request.
#[derive(Debug)]
pub(super) struct NoObserver;

impl Observer for NoObserver {
    fn request_ended(&self, _: &'static str, _: &'static str, _: Duration) {}
}

/// The label of an HTTP status: its number where CouchDB sends it, else its class.
pub const fn status_label(status: u16) -> &'static str {
    match status {
        200 => "200",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        405 => "405",
        406 => "406",
        409 => "409",
        412 => "412",
        413 => "413",
        415 => "415",
        429 => "429",
        500 => "500",
        501 => "501",
        502 => "502",
        503 => "503",
        504 => "504",
        507 => "507",
        100..=199 => "1xx",
        201..=299 => "2xx",
        300..=399 => "3xx",
        402..=499 => "4xx",
        _ => "5xx",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Route};
    use std::collections::BTreeSet;

    #[test]
    fn route_and_code_labels_stay_unique_when_concatenated() {
        let codes: BTreeSet<&str> = (100..=599)
            .map(status_label)
            .chain(ErrorKind::ALL.iter().map(|kind| kind.label()))
            .collect();
        let mut seen = BTreeSet::new();
        for route in Route::LABELS {
            for code in &codes {
                assert!(seen.insert(format!("{route}{code}")), "{route} {code}");
            }
        }
    }
}
