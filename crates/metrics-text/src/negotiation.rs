//! The text format that a client requests.
//!
//! Owns the parsing of `Accept` and of weighted lists in general (RFC 9110, sections 12.4.2 and
//! 12.5.1). Never refuses: a scrape that requests an unavailable format gets text 0.0.4, as from
//! every other exporter.

use super::TextFormat;

/// The format of the answer for a value of the `Accept` header (several values joined by commas).
///
/// A format gets the quality of the most specific range that covers it; the better quality wins,
/// then the more specific range, then the earlier one, then text 0.0.4. Ranges with a malformed
/// quality are ignored. OpenMetrics 0.0.1 is answered with 1.0.0, and Prometheus text 1.0.0 with
/// 0.0.4, whose names are legal in both.
pub fn negotiate(accept: Option<&str>) -> TextFormat {
    let weigh = |format| {
        let ranges = parse_list(accept.unwrap_or_default()).enumerate();
        ranges
            .filter_map(|(place, range)| {
                let (specificity, quality) = (specificity(&range, format)?, range.quality?);
                Some(Preference { specificity, quality, position_from_end: usize::MAX - place })
            })
            .max_by(|a, b| {
                (a.specificity.cmp(&b.specificity))
                    .then(a.quality.total_cmp(&b.quality))
                    .then(a.position_from_end.cmp(&b.position_from_end))
            })
            .filter(|weight| weight.quality > 0.0)
    };
    match (weigh(TextFormat::Text), weigh(TextFormat::OpenMetrics)) {
        (Some(text), Some(open)) if open.preferred_to(&text) => TextFormat::OpenMetrics,
        (None, Some(_)) => TextFormat::OpenMetrics,
        _ => TextFormat::Text,
    }
}

/// A client's preference for a format.
struct Preference {
    specificity: u8,
    quality: f64,
    position_from_end: usize,
}

impl Preference {
    fn preferred_to(&self, other: &Self) -> bool {
        (self.quality.total_cmp(&other.quality))
            .then(self.specificity.cmp(&other.specificity))
            .then(self.position_from_end.cmp(&other.position_from_end))
            .is_gt()
    }
}

/// The specificity with which a media range names a format; `None` if the range does not cover it.
fn specificity(range: &ListItem<'_>, format: TextFormat) -> Option<u8> {
    let (kind, subtype) = range.name.split_once('/')?;
    let (own_kind, own_subtype, exact, near) = match format {
        TextFormat::Text => ("text", "plain", "0.0.4", "1.0.0"),
        TextFormat::OpenMetrics => ("application", "openmetrics-text", "1.0.0", "0.0.1"),
    };
    if kind == "*" {
        return (subtype == "*").then_some(0);
    }
    if !kind.eq_ignore_ascii_case(own_kind) {
        return None;
    }
    if subtype == "*" {
        return Some(1);
    }
    if !subtype.eq_ignore_ascii_case(own_subtype) {
        return None;
    }
    match range.parameter("version") {
        None => Some(2),
        Some(version) if version == near => Some(3),
        Some(version) if version == exact => Some(4),
        Some(_) => None,
    }
}

/// One member of a weighted list: `name;key=value;q=0.5`.
pub(super) struct ListItem<'a> {
    /// The part before the first semicolon.
    pub(super) name: &'a str,
    /// The weight, 0 to 1; 1 if it is missing, `None` if it is malformed.
    pub(super) quality: Option<f64>,
    parameters: &'a str,
}

impl<'a> ListItem<'a> {
    fn parameter(&self, wanted: &str) -> Option<&'a str> {
        unquoted_split(self.parameters, ';').find_map(|parameter| {
            let (key, value) = parameter.split_once('=')?;
            let value = value.trim();
            let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            key.trim().eq_ignore_ascii_case(wanted).then(|| bare.unwrap_or(value))
        })
    }
}

/// The members of a weighted list, such as the value of `Accept`.
pub(super) fn parse_list(list: &str) -> impl Iterator<Item = ListItem<'_>> {
    unquoted_split(list, ',').map(|member| {
        let (name, parameters) = member.split_once(';').unwrap_or((member, ""));
        let mut item = ListItem { name: name.trim(), quality: None, parameters };
        item.quality = item.parameter("q").map_or(Some(1.0), |text| {
            text.parse().ok().filter(|quality| (0.0..=1.0).contains(quality))
        });
        item
    })
}

/// Splits at `separator` outside quoted strings.
fn unquoted_split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c| {
        if escaped {
            escaped = false;
            return false;
        }
        match c {
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        c == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROMETHEUS_2: &str = "application/openmetrics-text;version=1.0.0,\
        application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const PROMETHEUS_2_NATIVE: &str = "application/vnd.google.protobuf;\
        proto=io.prometheus.client.MetricFamily;encoding=delimited,\
        application/openmetrics-text;version=1.0.0;q=0.8,\
        application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const PROMETHEUS_3: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;\
        q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;\
        escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    const BROWSER: &str =
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";

    #[test]
    fn clients_get_the_format_they_rank_highest() {
        use TextFormat::{OpenMetrics, Text};
        let table = [
            (PROMETHEUS_2, OpenMetrics),
            (PROMETHEUS_2_NATIVE, OpenMetrics),
            (PROMETHEUS_3, OpenMetrics),
            (BROWSER, Text),
            ("*/*", Text),
            ("", Text),
            ("text/plain", Text),
            ("text/*", Text),
            ("text/plain;version=1.0.0;escaping=allow-utf-8", Text),
            ("application/openmetrics-text", OpenMetrics),
            ("application/openmetrics-text; version=0.0.1", OpenMetrics),
            ("APPLICATION/OpenMetrics-Text;Version=\"1.0.0\";Q=0.2", OpenMetrics),
            ("application/openmetrics-text;version=2.0.0", Text),
            ("application/*", OpenMetrics),
            ("application/openmetrics-text;q=0.3,text/plain;q=0.4", Text),
            ("text/plain;q=0.3,application/openmetrics-text;q=0.4", OpenMetrics),
            ("application/openmetrics-text,text/plain", OpenMetrics),
            ("text/plain,application/openmetrics-text", Text),
            ("*/*,application/openmetrics-text", OpenMetrics),
            ("text/*,application/openmetrics-text", OpenMetrics),
            ("application/openmetrics-text;q=0,*/*", Text),
            ("application/openmetrics-text;version=1.0.0;q=0,*/*;q=0.1", Text),
            ("text/plain;q=0,*/*;q=0.5", OpenMetrics),
            ("text/plain;q=0,application/openmetrics-text;q=0", Text),
            ("*/*;q=0", Text),
            ("application/openmetrics-text;version=1.0.0;q=0.000,text/plain;q=0.001", Text),
            ("application/vnd.google.protobuf;encoding=delimited", Text),
            ("application/json", Text),
            ("application/openmetrics-text;q=2,text/plain;q=0.1", Text),
            ("application/openmetrics-text;q=high", Text),
            ("application/openmetrics-text;q=NaN", Text),
            ("application/json;a=\",application/openmetrics-text;\"", Text),
            ("application/json;a=\"\\\",x/y\",application/openmetrics-text", OpenMetrics),
            ("*/plain,;;==,/,\"", Text),
        ];
        for (accept, expected) in table {
            assert_eq!(negotiate(Some(accept)), expected, "{accept}");
        }
        assert_eq!(negotiate(None), Text);
    }

    proptest! {
        #[test]
        fn requests_without_a_known_format_get_text(accept in "[^tT]*", listed in "[a-s/*;=,q.0-9\" ]*") {
            prop_assert_eq!(negotiate(Some(&accept)), TextFormat::Text);
            prop_assert_eq!(negotiate(Some(&listed)), TextFormat::Text);
        }

        #[test]
        fn unknown_media_ranges_do_not_affect_the_format(
            before in "[a-z]{1,9}/[a-z]{1,9}",
            accept in prop::sample::select(&[PROMETHEUS_2, PROMETHEUS_3, BROWSER, "text/plain"][..]),
        ) {
            prop_assume!(before != "text/plain");
            let longer = format!("{before},{accept}");
            prop_assert_eq!(negotiate(Some(&longer)), negotiate(Some(accept)));
        }
    }
}
