//! Lines that are not JSON: CouchDB's own, and those of proxies.

use crate::{Agent, Parts, time};

/// How many bytes may precede CouchDB's own part, or the time: a collector may write a prefix.
const MAX_PREFIX_BYTES: usize = 512;

/// A line that is not JSON.
pub(crate) fn parts(line: &[u8]) -> Option<Parts<'_>> {
    if let Some(parts) = find(line, b"[notice] ").and_then(|at| couchdb(&line[at..])) {
        return Some(parts);
    }
    let head = &line[..line.len().min(MAX_PREFIX_BYTES)];
    let mut from = 0;
    while let Some(open) = head[from..].iter().position(|byte| *byte == b'[') {
        let at = from + open + 1;
        if let Some(when) = time::common(line.get(at..(at + 27).min(line.len()))?) {
            let close = at + line[at..].iter().position(|byte| *byte == b']')?;
            return proxy(when, line.get(close + 2..)?);
        }
        from = at;
    }
    None
}

/// `chttpd:maybe_log/2` after the time, node and process: nonce, host, client, user, method, path, status, ok, ms.
fn couchdb(line: &[u8]) -> Option<Parts<'_>> {
    let mut head = line[b"[notice] ".len()..].splitn(4, |byte| *byte == b' ');
    let (at, node, _process, rest) = (head.next()?, head.next()?, head.next()?, head.next()?);
    let mut tail = rest.rsplitn(6, |byte| *byte == b' ');
    let (ms, _ended, status) = (tail.next()?, tail.next()?, tail.next()?);
    let (path, method, _who) = (tail.next()?, tail.next()?, tail.next()?);
    if !ms.iter().all(u8::is_ascii_digit) || path.first() != Some(&b'/') {
        return None;
    }
    Some(Parts {
        at: time::rfc3339(at)?,
        node: Some(str::from_utf8(node).ok()?),
        method,
        path,
        status: number(status)?,
        agent: Agent::UNKNOWN,
    })
}

/// The part after the time in the common, combined and HAProxy formats.
fn proxy(at: u64, rest: &[u8]) -> Option<Parts<'_>> {
    let is_common = rest.first() == Some(&b'"');
    let open = rest.iter().position(|byte| *byte == b'"')?;
    let (method, path, after) = request_line(&rest[open + 1..])?;
    let (status, agent) = if is_common {
        let mut fields = after.strip_prefix(b"\" ")?.splitn(3, |byte| *byte == b' ');
        let (status, _bytes) = (fields.next()?, fields.next());
        let mut quoted = fields.next().unwrap_or_default().split(|byte| *byte == b'"');
        // The referrer comes first, with a space between the two.
        let agent = quoted.nth(3).map_or(Agent::UNKNOWN, Agent::of);
        (status, agent)
    } else {
        let head = &rest[..open];
        let status = head.split(|byte| *byte == b' ').nth(3)?;
        let captured = head.iter().position(|byte| *byte == b'{').map(|at| &head[at + 1..]);
        let captured = captured.and_then(|rest| rest.split(|byte| *byte == b'}').next());
        (status, captured.map_or(Agent::UNKNOWN, Agent::among))
    };
    Some(Parts { at, node: None, method, path, status: number(status)?, agent })
}

/// Method and path of `GET /path HTTP/1.1"`, and the rest from its closing quotation mark.
pub(crate) fn request_line(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = text.iter().position(|byte| *byte == b' ')?;
    let (method, rest) = (&text[..space], &text[space + 1..]);
    // A request that the log truncates has no end, and its names may be incomplete.
    let end = rest.iter().position(|byte| matches!(byte, b' ' | b'"'))?;
    let quote = rest[end..].iter().position(|byte| *byte == b'"').map_or(rest.len(), |at| end + at);
    method.iter().all(u8::is_ascii_uppercase).then_some((method, &rest[..end], &rest[quote..]))
}

pub(crate) fn number(text: &[u8]) -> Option<u16> {
    match text {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Some(digit(a) * 100 + digit(b) * 10 + digit(c))
        }
        _ => None,
    }
}

/// Where a text begins within the first bytes of a line.
fn find(line: &[u8], text: &[u8]) -> Option<usize> {
    if line.starts_with(text) {
        return Some(0);
    }
    let head = &line[..line.len().min(MAX_PREFIX_BYTES)];
    head.windows(text.len()).position(|part| part == text)
}
