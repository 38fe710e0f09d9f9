//! One line, in whichever format it is.

use crate::{Line, json, line};

/// Reads a line, without its newline.
pub fn read_line(line: &[u8]) -> Line<'_> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.first() == Some(&b'{') {
        return json::read(line);
    }
    match line::parts(line) {
        Some(parts) => Line::Request(parts.request()),
        None => Line::Other,
    }
}

#[cfg(test)]
mod tests;
