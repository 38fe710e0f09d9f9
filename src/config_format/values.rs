//! How each type of value is written in the file, with a clear message for each invalid value.

use super::{
    When,
    form::{Form, keys, list, section},
    output::{Output, text as written},
    problem::{alternatives, quoted, suggestion},
    section::{Section, scalar},
};
use crate::text::{
    Label, duration as durations,
    pattern::{self, NamePatterns},
    size,
};
use couchdb_client::{Address, HostPattern, ParseAddressError, Tls};
use serde_json::{Value as Json, json};
use std::{
    fmt::Display,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

/// Maximum duration of any setting: a hundred years.
const MAX_DURATION: Duration = Duration::from_secs(100 * YEAR.as_secs());

/// The length of a leap year.
pub(crate) const YEAR: Duration = Duration::from_secs(366 * 86_400);
/// Minimum duration of anything repeated.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A value, or the reason why its text is invalid.
pub(crate) type Read<T> = Result<T, String>;

/// A duration between `min` and a hundred years.
pub(crate) fn duration(min: Duration) -> Form<Duration> {
    duration_between(min, MAX_DURATION)
}

pub(crate) fn duration_between(min: Duration, max: Duration) -> Form<Duration> {
    // The syntax of `humantime`, in which only 0 may lack a unit.
    let pattern = r"^\s*([0-9]+(\.[0-9]+)?\s*(nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|wks?|w|months?|M|years?|yrs?|y)\s*)+$";
    let text = json!({"type": "string", "pattern": pattern});
    let schema = if min.is_zero() { json!({"anyOf": [text, {"enum": [0, "0"]}]}) } else { text };
    Form::scalar(move |text| read_duration(text, min, max), |span| Output::duration(*span), schema)
}

fn read_duration(text: &str, min: Duration, max: Duration) -> Read<Duration> {
    let found = durations::parse(text)
        .ok_or_else(|| expected(text, "a duration, such as 500ms, 30s, 5m or 1h 30m"))?;
    if found < min {
        let min = durations::format_exact(min);
        return Err(format!("found {}, the minimum is {min}", quoted(text)));
    }
    if found > max {
        let years = max.as_secs() / YEAR.as_secs();
        return Err(format!("found {}, but {years} years is the maximum", quoted(text)));
    }
    Ok(found)
}

/// A size in bytes.
pub(crate) fn bytes() -> Form<u64> {
    Form::scalar(read_bytes, |bytes| Output::bytes(*bytes), bytes_schema(0))
}

/// A size of at least one MiB.
pub(crate) fn bytes_from_mib() -> Form<u64> {
    const MIN: u64 = 1 << 20;
    let read = |text: &str| match read_bytes(text)? {
        size if size < MIN => Err(format!("found {}, the minimum is 1MiB", quoted(text))),
        size => Ok(size),
    };
    Form::scalar(read, |bytes| Output::bytes(*bytes), bytes_schema(MIN))
}

/// A size in bytes, or `infinity` for no limit.
pub(crate) fn bytes_or_infinity() -> Form<Option<u64>> {
    Form::scalar(
        |text| if is_infinity(text) { Ok(None) } else { read_bytes(text).map(Some) },
        |bytes| bytes.map_or_else(|| written("infinity"), Output::bytes),
        json!({"anyOf": [bytes_schema(0), infinity_schema()]}),
    )
}

pub(crate) fn read_bytes(text: &str) -> Read<u64> {
    size::parse(text).map_err(|_| {
        let what = "a size: a number of bytes, or one with a unit, such as 512MiB or 20GB";
        expected(text, what)
    })
}

/// The syntax of sizes in `bytesize`.
pub(crate) fn bytes_schema(min: u64) -> Json {
    let pattern = r"^\s*[0-9]+(\.[0-9]+)?\s*([KkMmGgTtPpEe]?[Bb]?|[KkMmGgTtPpEe][Ii][Bb]?)\s*$";
    json!({"type": ["integer", "string"], "minimum": min, "pattern": pattern})
}

/// The words for no upper bound: recliner's, smoosh's, and YAML's.
pub(crate) fn is_infinity(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "infinity" | ".inf" | "+.inf")
}

pub(crate) fn infinity_schema() -> Json {
    json!({"const": "infinity"})
}

/// A whole number in a range.
pub(crate) fn integer<T>(range: RangeInclusive<T>) -> Form<T>
where
    T: TryFrom<u64> + PartialOrd + Display + serde::Serialize + 'static,
{
    let schema = json!({"type": "integer", "minimum": range.start(), "maximum": range.end()});
    Form::scalar(move |text| read_integer(text, &range, ""), |it| Output::number(it), schema)
}

/// A whole number in a range, or the word `off` for zero.
pub(crate) fn integer_or_off(range: RangeInclusive<u32>) -> Form<u32> {
    let number = integer(range.clone()).schema(None);
    let read = move |text: &str| match text {
        "off" => Ok(0),
        text => read_integer(text, &range, ", or off for no pace"),
    };
    let write = |number: &u32| match number {
        0 => written("off"),
        number => Output::number(number),
    };
    Form::scalar(read, write, json!({"anyOf": [number, {"const": "off"}]}))
}

/// A non-negative whole number.
pub(crate) fn count() -> Form<u64> {
    let read = |text: &str| {
        read_digits(text).ok_or_else(|| expected(text, "a whole number, zero or more"))
    };
    Form::scalar(read, |count| Output::number(count), json!({"type": "integer", "minimum": 0}))
}

fn read_integer<T: TryFrom<u64> + PartialOrd + Display>(
    text: &str,
    range: &RangeInclusive<T>,
    otherwise: &str,
) -> Read<T> {
    let number = read_digits(text).and_then(|number| T::try_from(number).ok());
    number.filter(|number| range.contains(number)).ok_or_else(|| {
        let (min, max) = (range.start(), range.end());
        expected(text, format_args!("a whole number from {min} to {max}{otherwise}"))
    })
}

fn read_digits(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// A message with the value found and the expected one.
fn expected(text: &str, what: impl Display) -> String {
    format!("found {}, expected {what}", quoted(text))
}

/// A finite number.
pub(crate) fn read_number(text: &str) -> Read<f64> {
    // The words that Rust parses as numbers, such as nan and inf, are not allowed here.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.parse::<f64>()
        .ok()
        .filter(|found| digits && found.is_finite())
        .ok_or_else(|| expected(text, "a number, such as 2 or 2.5"))
}

pub(crate) fn number(range: RangeInclusive<f64>) -> Form<f64> {
    let schema = json!({"type": "number", "minimum": range.start(), "maximum": range.end()});
    let read = move |text: &str| {
        read_number(text).ok().filter(|found| range.contains(found)).ok_or_else(|| {
            let (min, max) = (range.start(), range.end());
            expected(text, format_args!("a number from {min} to {max}"))
        })
    };
    Form::scalar(read, |number| Output::number(number), schema)
}

/// A percentage from `min` to 100%, in percent.
pub(crate) fn percent_from(min: u8) -> Form<f64> {
    let read = move |text: &str| {
        text.strip_suffix('%')
            .and_then(|rest| read_number(rest.trim_end()).ok())
            .filter(|percent| (f64::from(min)..=100.0).contains(percent))
            .ok_or_else(|| {
                expected(text, format_args!("a percentage from {min}% to 100%, such as 10%"))
            })
    };
    // For editors, and only as exact as a readable pattern can be.
    let whole = if min == 0 { "[0-9]{1,2}" } else { "0?[1-9]|[1-9][0-9]" };
    let pattern = format!(r"^\+?(100(\.0*)?|({whole})(\.[0-9]*)?)\s*%$");
    let schema = json!({"type": "string", "pattern": pattern});
    Form::scalar(read, |percent| Output::Text(format!("{percent}%")), schema)
}

/// `true` or `false`.
pub(crate) fn boolean() -> Form<bool> {
    let read = |text: &str| text.parse().map_err(|_| expected(text, "true or false"));
    Form::scalar(read, |value| Output::Bool(*value), json!({"type": "boolean"}))
}

/// A variant of an enum, by its name.
pub(crate) fn one_of<T: Label + PartialEq>() -> Form<T> {
    one_of_words(labelled(T::ALL))
}

/// Reads the name of an enum's variant.
pub(crate) fn read_one_of<T: Label>(text: &str) -> Read<T> {
    read_word(&labelled(T::ALL), text)
}

/// Variants with their names.
pub(crate) fn labelled<T: Label>(variants: &[T]) -> Vec<(&'static str, T)> {
    variants.iter().map(|one| (one.label(), *one)).collect()
}

/// One of these words, with the value of each.
pub(crate) fn one_of_words<T: Copy + PartialEq + 'static>(
    words: Vec<(&'static str, T)>,
) -> Form<T> {
    let schema = json!({"enum": words.iter().map(|(word, _)| *word).collect::<Vec<_>>()});
    let names = words.clone();
    let write = move |value: &T| {
        let word = names.iter().find(|(_, of)| of == value).map(|(word, _)| *word);
        written(word.unwrap_or_default())
    };
    Form::scalar(move |text| read_word(&words, text), write, schema)
}

fn read_word<T: Copy>(words: &[(&'static str, T)], text: &str) -> Read<T> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let near = suggestion(text, &words);
        expected(text, alternatives(&words) + &near)
    })
}

/// A non-empty text without line breaks or other control characters.
pub(crate) fn text() -> Form<String> {
    let read = |text: &str| {
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            return Err(expected(text, "one line of text"));
        }
        Ok(text.to_owned())
    };
    Form::scalar(read, |text| written(text), json!({"type": "string", "pattern": r"\S"}))
}

/// The path of a file or a directory; a relative one starts at the directory of the configuration
/// file.
pub(crate) fn path() -> Form<PathBuf> {
    Form::with_default(
        |report, node, path, _| {
            let found = scalar(report, node, path, read_path)?;
            Some(report.base.join(found))
        },
        |path: &PathBuf| Some(Output::path(path)),
        || json!({"type": "string", "minLength": 1}),
    )
}

fn read_path(text: &str) -> Read<PathBuf> {
    if text.is_empty() || text.contains('\0') {
        return Err(expected(text, "the path of a file or directory"));
    }
    Ok(PathBuf::from(text))
}

/// Trusted authorities and a client certificate; a change takes effect at `when`.
pub(crate) fn tls_files(when: When) -> Form<Tls> {
    let keys = keys!(Tls {
        /// A PEM file with the only authorities, or server certificates, to trust.
        "ca_file" => ca_file, (when), path().optional();
        /// A PEM file with a client certificate; it needs key_file too.
        "cert_file" => cert_file, (when), path().optional();
        /// A PEM file with the client certificate's private key; it needs cert_file too.
        "key_file" => key_file, (when), path().optional();
    });
    let both = json!({"cert_file": ["key_file"], "key_file": ["cert_file"]});
    section(keys, check_tls).with_schema(json!({"dependentRequired": both}))
}

fn check_tls(_: &mut Tls, section: &mut Section<'_, '_>) {
    for (given, missing) in [("cert_file", "key_file"), ("key_file", "cert_file")] {
        if section.key_at(missing).is_none() {
            let says = format!("found {given} without {missing}; a client certificate needs both");
            section.refuse_key(given, says);
        }
    }
}

/// The URL of a CouchDB server.
pub(crate) fn couchdb_url() -> Form<Address> {
    url("a CouchDB server", "http://couch-a:5984")
}

/// The URL of a server; `what` and `example` appear in messages.
pub(crate) fn url(what: &'static str, example: &'static str) -> Form<Address> {
    let schema = json!({
        "type": "string",
        "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+(/[^?#]*)?$",
        "examples": [example],
    });
    let write = |url: &Address| Output::Text(url.to_string());
    Form::scalar(move |text| read_url(text, what, example), write, schema)
}

/// A value of `--couchdb.url`.
pub(crate) fn read_couchdb_url(text: &str) -> Read<Address> {
    if matches!(text.parse::<Address>(), Err(ParseAddressError::Login)) {
        return Err("found a URL with a user or a password in it; write it without them, such as http://couch-a:5984, and set COUCHDB_USER and COUCHDB_PASSWORD".to_owned());
    }
    read_url(text, "a CouchDB server", "http://couch-a:5984")
}

pub(crate) fn read_url(text: &str, what: &str, example: &str) -> Read<Address> {
    text.parse::<Address>().map_err(|why| match why {
        ParseAddressError::Url { shown, reason } => format!(
            "found {shown}, expected the URL of {what}, such as {example} ({reason})"
        ),
        ParseAddressError::Scheme { shown } => format!(
            "found {shown}, but the URL of {what} begins with http:// or https://, such as {example}"
        ),
        ParseAddressError::Login => format!(
            "found a URL with a user or a password in it; write the URL of {what} without them, such as {example}"
        ),
        ParseAddressError::Query => format!(
            "found a URL with a query (?) or a fragment (#), but the URL of {what} has none, such as {example}"
        ),
    })
}

/// A host, or every host below a domain.
pub(crate) fn host_pattern() -> Form<HostPattern> {
    let read = |text: &str| text.parse().map_err(|why| format!("found {}, {why}", quoted(text)));
    let pattern = r"^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.*$|:";
    let schema = json!({"type": "string", "pattern": pattern, "not": {"pattern": "/"}});
    Form::scalar(read, |host: &HostPattern| Output::Text(host.to_string()), schema)
}

/// The name of a node, such as `couchdb@host`.
pub(crate) fn node_name() -> Form<String> {
    let pattern = r#"^[^\s/"'@,]+@[^\s/"'@,]+$"#;
    Form::scalar(
        read_node_name,
        |name| written(name),
        json!({"type": "string", "pattern": pattern}),
    )
}

pub(crate) fn read_node_name(text: &str) -> Read<String> {
    let plain = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| !c.is_control() && !c.is_whitespace() && !"/\"'@,".contains(c))
    };
    match text.split_once('@') {
        Some((name, host)) if plain(name) && plain(host) => Ok(text.to_owned()),
        _ => {
            Err(expected(text, "the name of a node as CouchDB writes it, such as couchdb@couch-a"))
        }
    }
}

/// A list of name patterns.
pub(crate) fn patterns() -> Form<NamePatterns> {
    list(pattern()).map(
        |texts| NamePatterns::new(&texts).map_err(|why| Some(why.to_string())),
        |patterns| patterns.texts().to_vec(),
    )
}

/// Maximum length of a pattern in bytes: twice the longest name of a shard.
const MAX_PATTERN: usize = 512;

/// A pattern of names.
pub(crate) fn pattern() -> Form<String> {
    let read = |text: &str| {
        if text.len() > MAX_PATTERN {
            let length = text.len();
            return Err(format!("found a pattern of {length} bytes; the longest is {MAX_PATTERN}"));
        }
        if text.is_empty() {
            return Err(
                "found an empty pattern; write a name, with * for any characters".to_owned()
            );
        }
        NamePatterns::new(&[text]).map(|_| text.to_owned()).map_err(|why| why.to_string())
    };
    let schema = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_PATTERN,
        "pattern": "^([^\\[{}\\\\]|\\\\.)*$",
    });
    Form::scalar(read, |pattern| written(pattern), schema).inspect(|report, node, path, text| {
        if pattern::has_wildcard(text) {
            report.count_wildcard(node.at, path);
        }
    })
}

/// A host name without a port, as in the `Host` header of a request.
pub(crate) fn read_host_name(text: &str) -> Read<String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_part) {
        return Ok(text.to_owned());
    }
    Err(expected(text, "a name without scheme and port, such as recliner.example.com"))
}

/// The address to listen on: `127.0.0.1:10984`, `[::1]:10984`, `localhost:10984`, or `:10984` for
/// all addresses of the host.
pub(crate) fn read_listen_address(text: &str) -> Read<SocketAddr> {
    let local = |host: &str| match host {
        "" => Some(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        _ => None,
    };
    let named = text
        .rsplit_once(':')
        .and_then(|(host, port)| Some(SocketAddr::new(local(host)?, port.parse().ok()?)));
    let what = "an address and a port, such as 127.0.0.1:10984 or :10984";
    text.parse().ok().or(named).ok_or_else(|| expected(text, what))
}
