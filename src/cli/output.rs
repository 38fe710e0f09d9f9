//! Everything that commands print, on its one way out.
//!
//! Owns standard output and standard error. What comes from outside (a name, an answer, an error)
//! is escaped here whatever printed it: no letter of it steers a terminal or hides. A value that
//! belongs into one line goes through [`printable`] before, which takes care of line breaks too.

use super::Failure;
use crate::text::escape;
use serde::Serialize;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Says on standard error why a command ends; nothing can be done when that is closed too.
pub(super) fn complain(why: &str) {
    let _closed = writeln!(io::stderr(), "recliner: {}", escape::lines(why));
}

/// Says something on standard error beside the answer, as it is.
pub(super) fn note(line: &str) {
    let _closed = writeln!(io::stderr(), "{}", escape::lines(line));
}

/// A name or a sentence from outside as one line can carry it: what would tear the line or
/// steer the terminal is written out.
pub(super) fn printable(text: &str) -> String {
    escape::line(text).into_owned()
}

/// Prints an answer; a reader that has gone away (`| head`) ends the command quietly.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_part(text).map(drop)
}

/// Prints an answer as JSON, piece by piece: that of a large cluster fills memory otherwise.
pub(super) fn print_json(answer: &impl Serialize) -> Result<(), Failure> {
    print_json_lines([answer]).map(drop)
}

/// Prints part of an answer that goes on; answers whether anybody still reads.
pub(super) fn print_part(text: &str) -> Result<bool, Failure> {
    printed(|out| out.write_all(escape::lines(text).as_bytes()))
}

/// Prints values as JSON, each on its line; answers whether anybody still reads.
pub(super) fn print_json_lines<T: Serialize>(
    values: impl IntoIterator<Item = T>,
) -> Result<bool, Failure> {
    printed(|out| {
        let mut out = BufWriter::new(out);
        for value in values {
            json(&mut out, &value)?;
        }
        out.flush()
    })
}

/// One line of JSON.
fn json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    escape::write_json(&mut *out, value)?;
    out.write_all(b"\n")
}

fn printed(write: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Failure::failed(format!("cannot print the answer: {why}"))),
    }
}
