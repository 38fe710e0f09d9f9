//! Times as logs write them.

use jiff::Timestamp;

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// `27/Nov/2026:05:00:00 +0100`, as nginx writes it, or without a zone and with thousandths, as HAProxy does.
pub(crate) fn common(text: &[u8]) -> Option<u64> {
    let is = |at: usize, byte: u8| text.get(at) == Some(&byte);
    if !(is(2, b'/') && is(6, b'/') && is(11, b':') && is(14, b':') && is(17, b':')) {
        return None;
    }
    let month = MONTHS.iter().position(|month| text.get(3..6) == Some(month))? as u64 + 1;
    let number = |from, to| digits(text.get(from..to)?);
    let days = days(number(7, 11)?, month, number(0, 2)?)?;
    let at = seconds(days, (number(12, 14)?, number(15, 17)?, number(18, 20)?))?;
    match text.get(20..26) {
        Some([b' ', sign @ (b'+' | b'-'), zone @ ..]) => {
            let (hours, minutes) = (digits(&zone[..2])?, digits(&zone[2..])?);
            let ahead = hours * 3600 + minutes * 60;
            if *sign == b'+' { at.checked_sub(ahead) } else { Some(at + ahead) }
        }
        _ => Some(at),
    }
}

/// `2026-11-27T05:36:06.830527Z`, as CouchDB writes it; other zones too.
pub(crate) fn rfc3339(text: &[u8]) -> Option<u64> {
    let is = |at: usize, byte: u8| text.get(at) == Some(&byte);
    if !(is(4, b'-') && is(7, b'-') && is(10, b'T') && is(13, b':') && is(16, b':')) {
        return None;
    }
    if text.last() != Some(&b'Z') {
        let parsed: Timestamp = str::from_utf8(text).ok()?.parse().ok()?;
        return u64::try_from(parsed.as_second()).ok();
    }
    let number = |from, to| digits(text.get(from..to)?);
    let days = days(number(0, 4)?, number(5, 7)?, number(8, 10)?)?;
    seconds(days, (number(11, 13)?, number(14, 16)?, number(17, 19)?))
}

/// Seconds since 1970, perhaps with a fraction, or milliseconds.
pub(crate) fn unix(text: &[u8]) -> Option<u64> {
    let end = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    match digits(&text[..end])? {
        seconds @ 0..=99_999_999_999 => Some(seconds),
        milliseconds => Some(milliseconds / 1000),
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    let is_number = (1..=15).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.iter().fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0')))
}

fn seconds(days: u64, (hour, minute, second): (u64, u64, u64)) -> Option<u64> {
    let is_time = hour < 24 && minute < 60 && second <= 60;
    is_time.then(|| days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days since 1970, by the calendar that counts years from March.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=2105).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    (365 * year + year / 4 - year / 100 + year / 400 + of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        for text in [
            "1970-01-01T00:00:00Z",
            "2000-02-29T23:59:59.5Z",
            "2026-11-27T05:36:06.830527Z",
            "2026-11-27T06:36:06+01:00",
            "2100-03-01T00:00:00Z",
        ] {
            let expected: Timestamp = text.parse().unwrap();
            assert_eq!(rfc3339(text.as_bytes()), u64::try_from(expected.as_second()).ok(), "{text}");
        }
        let at = rfc3339(b"2026-11-27T05:00:00Z");
        for text in ["27/Nov/2026:05:00:00 +0000", "27/Nov/2026:06:30:00 +0130", "26/Nov/2026:22:00:00 -0700", "27/Nov/2026:05:00:00.123"] {
            assert_eq!(common(text.as_bytes()), at, "{text}");
        }
        assert_eq!((unix(b"1795755600.25"), unix(b"1795755600250")), (at, at));
        for wrong in ["", "27/Foo/2026:05:00:00", "2026-11-27T25:00:00Z", "2026-13-27T05:00:00Z", "27/Nov/2026:5:00:00", "9999999999999999"] {
            let of = [common, rfc3339, unix].map(|read| read(wrong.as_bytes()));
            assert_eq!(of, [None; 3], "{wrong}");
        }
    }
}
