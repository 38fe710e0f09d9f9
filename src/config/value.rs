//! How each type of value is read: one clear sentence for what is not one.

use super::problem::{alternatives, quoted, suggestion};
use crate::text::{duration as spans, pattern::Patterns, size};
use couchdb_client::{Address, HostPattern, ParseAddressError};
use std::{
    fmt::Display,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

/// The longest duration that anything takes: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

pub(super) type Read<T> = Result<T, String>;

/// A duration between `least` and a hundred years.
pub(super) fn duration(least: Duration) -> impl Fn(&str) -> Read<Duration> {
    move |text| {
        let found = spans::parse(text).ok_or_else(|| {
            format!(
                "found {}, but a duration belongs here, such as 500ms, 30s, 5m or 1h 30m",
                quoted(text)
            )
        })?;
        if found < least {
            let least = spans::exact(least);
            return Err(format!(
                "found {}, but {least} is the least that is allowed",
                quoted(text)
            ));
        }
        if found > LONGEST {
            return Err(format!(
                "found {}, but a hundred years is the most that is allowed",
                quoted(text)
            ));
        }
        Ok(found)
    }
}

/// A size in bytes.
pub(super) fn bytes(text: &str) -> Read<u64> {
    size::parse(text).map_err(|_| {
        format!("found {}, but a size belongs here: a number of bytes, or one with a unit, such as 512MiB or 20GB", quoted(text))
    })
}

/// Bytes in the largest unit that says them exactly, as [`bytes()`] reads them.
pub(super) fn exact_bytes(bytes: u64) -> String {
    [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")]
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// A size in bytes, or `infinity` for none.
pub(super) fn bytes_or_infinity(text: &str) -> Read<Option<u64>> {
    if is_infinity(text) { Ok(None) } else { bytes(text).map(Some) }
}

/// The words for no upper bound: ours, smoosh's, and YAML's own.
pub(super) fn is_infinity(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "infinity" | ".inf" | "+.inf")
}

/// A whole number in a range.
pub(super) fn integer<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Read<T>
where
    T: TryFrom<u64> + PartialOrd + Display,
{
    move |text| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>()
            .ok()
            .filter(|_| digits)
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                format!(
                    "found {}, but a whole number from {least} to {most} belongs here",
                    quoted(text)
                )
            })
    }
}

/// Any whole number that is not negative.
pub(super) fn count(text: &str) -> Read<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u64>().ok().filter(|_| digits).ok_or_else(|| {
        format!("found {}, but a whole number belongs here, zero or more", quoted(text))
    })
}

/// A finite number.
pub(super) fn number(text: &str) -> Read<f64> {
    // The words that Rust reads as numbers, nan and inf, are none here.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.parse::<f64>().ok().filter(|found| digits && found.is_finite()).ok_or_else(|| {
        format!("found {}, but a number belongs here, such as 2 or 2.5", quoted(text))
    })
}

/// A number in a range.
pub(super) fn number_in(range: RangeInclusive<f64>) -> impl Fn(&str) -> Read<f64> {
    move |text| {
        number(text).ok().filter(|found| range.contains(found)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("found {}, but a number from {least} to {most} belongs here", quoted(text))
        })
    }
}

/// A percentage from 0% to 100%, in percent.
pub(super) fn percent(text: &str) -> Read<f64> {
    text.strip_suffix('%')
        .and_then(|rest| number(rest.trim_end()).ok())
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| {
            format!(
                "found {}, but a percentage from 0% to 100% belongs here, such as 10%",
                quoted(text)
            )
        })
}

/// `true` or `false`.
pub(super) fn boolean(text: &str) -> Read<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("found {}, but true or false belongs here", quoted(text))),
    }
}

/// One of some words.
pub(super) fn one_of<T: Copy>(
    all: impl IntoIterator<Item = T> + Clone,
    label: fn(T) -> &'static str,
) -> impl Fn(&str) -> Read<T> {
    move |text| {
        let words: Vec<&'static str> = all.clone().into_iter().map(label).collect();
        all.clone().into_iter().find(|one| label(*one) == text).ok_or_else(|| {
            let near = suggestion(text, &words);
            format!("found {}, but {} belongs here{near}", quoted(text), alternatives(&words))
        })
    }
}

/// A text that is not empty and has no line breaks or other control characters.
pub(super) fn text(text: &str) -> Read<String> {
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        return Err(format!("found {}, but one line of text belongs here", quoted(text)));
    }
    Ok(text.to_owned())
}

/// The path of a file or a directory.
pub(super) fn path(text: &str) -> Read<PathBuf> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!(
            "found {}, but the path of a file or directory belongs here",
            quoted(text)
        ));
    }
    Ok(PathBuf::from(text))
}

/// The URL of a server, `what` it is and one `example`.
pub(super) fn url(what: &'static str, example: &'static str) -> impl Fn(&str) -> Read<Address> {
    move |text| {
        text.parse::<Address>().map_err(|why| match why {
            ParseAddressError::Url { shown, reason } => format!(
                "found {shown}, but the URL of {what} belongs here, such as {example} ({reason})"
            ),
            ParseAddressError::Scheme { shown } => format!(
                "found {shown}, but the URL of {what} begins with http:// or https://, such as {example}"
            ),
            ParseAddressError::Login => format!(
                "found a URL with a user or a password in it, but the URL of {what} is written without, such as {example}"
            ),
            ParseAddressError::Query => format!(
                "found a URL with a query (?) or a fragment (#), but the URL of {what} has none, such as {example}"
            ),
        })
    }
}

/// A host, or every host below a domain.
pub(super) fn host_pattern(text: &str) -> Read<HostPattern> {
    text.parse().map_err(|why| format!("found {}, but {why}", quoted(text)))
}

/// The name of a node, `couchdb@host`.
pub(super) fn node_name(text: &str) -> Read<String> {
    let plain = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| !c.is_control() && !c.is_whitespace() && !"/\"'@,".contains(c))
    };
    match text.split_once('@') {
        Some((name, host)) if plain(name) && plain(host) => Ok(text.to_owned()),
        _ => Err(format!(
            "found {}, but the name of a node belongs here as CouchDB writes it, such as couchdb@couch-a",
            quoted(text)
        )),
    }
}

/// A pattern of names.
pub(super) fn pattern(text: &str) -> Read<String> {
    if text.is_empty() {
        return Err("found an empty pattern; write a name, with * for any characters".to_owned());
    }
    Patterns::new(&[text]).map(|_| text.to_owned()).map_err(|why| why.to_string())
}

/// The name of a channel: smoosh's words, and labels of metrics.
pub(super) fn channel_name(text: &str) -> Read<String> {
    let mut letters = text.bytes();
    let first = letters.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let rest =
        letters.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if first && rest && text.len() <= 64 {
        return Ok(text.to_owned());
    }
    Err(format!(
        "found {}, but a channel's name is a small letter, then small letters, digits and _, at most 64, such as big_dbs",
        quoted(text)
    ))
}

/// Where to listen: `127.0.0.1:10984`, `[::1]:10984`, `localhost:10984`, or `:10984` for
/// every address of the host.
pub(super) fn listen_address(text: &str) -> Read<SocketAddr> {
    let local = |host: &str| match host {
        "" => Some(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        _ => None,
    };
    let named = text
        .rsplit_once(':')
        .and_then(|(host, port)| Some(SocketAddr::new(local(host)?, port.parse().ok()?)));
    text.parse().ok().or(named).ok_or_else(|| {
        format!(
            "found {}, but an address and a port belong here, such as 127.0.0.1:10984 or :10984",
            quoted(text)
        )
    })
}
