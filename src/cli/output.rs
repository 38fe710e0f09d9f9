//! All output of commands.
//!
//! Owns standard output and standard error. External text (a name, an answer, an error) is escaped
//! here, whichever command prints it: no character of it controls a terminal or is invisible. A
//! value within one line is passed through [`printable`] first, which escapes line breaks too.

use super::{CommandError, Exit};
use crate::text::{counted, escape};
use rustix::fs::OFlags;
use serde::Serialize;
use std::{
    fs,
    io::{self, BufWriter, StdoutLock, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Prints on standard error why a command ends; ignores write errors.
pub(super) fn print_error(why: &str) {
    let _closed = writeln!(io::stderr(), "recliner: {}", escape::escape_lines(why));
}

/// Prints what could not be read, and returns the exit code of an incomplete answer.
pub(super) fn print_problems(problems: &[String]) -> Exit {
    problems.iter().for_each(|why| print_error(&printable(why)));
    if problems.is_empty() { Exit::Done } else { Exit::Incomplete }
}

/// Prints a line on standard error in addition to the answer.
pub(super) fn print_note(line: &str) {
    let _closed = writeln!(io::stderr(), "{}", escape::escape_lines(line));
}

/// External text in a form that fits on one line: line breaks and terminal control characters are
/// escaped.
pub(super) fn printable(text: &str) -> String {
    escape::escape_line(text).into_owned()
}

/// Prints an answer; a closed pipe (`| head`) ends the command quietly.
pub(super) fn print(text: &str) -> Result<(), CommandError> {
    print_part(text).map(drop)
}

/// Prints text that belongs to this program, such as a script, unchanged.
pub(super) fn print_own(text: &[u8]) -> Result<(), CommandError> {
    write_stdout(|out| out.write_all(text)).map(drop)
}

/// Prints part of a binary file. A closed pipe is an error, because the reader would miss the rest.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), CommandError> {
    match write_stdout(|out| out.write_all(bytes))? {
        true => Ok(()),
        false => Err(CommandError::failed(
            "cannot print the file: the program reading standard output ended early",
        )),
    }
}

/// Writes files with these names and contents into a directory, which is created if it is missing,
/// and prints their paths.
pub(super) fn write_files(
    directory: &Path,
    files: &[(impl AsRef<Path>, impl AsRef<[u8]>)],
) -> Result<(), CommandError> {
    let failed = |path: &Path, why: io::Error| {
        CommandError::failed(format!("cannot write {}: {why}", path.display()))
    };
    fs::create_dir_all(directory).map_err(|why| failed(directory, why))?;
    for (name, content) in files {
        let path = directory.join(name);
        // In a directory shared by several users, a symbolic link could lead anywhere.
        let written = fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .and_then(|mut file| file.write_all(content.as_ref()));
        written.map_err(|why| failed(&path, why))?;
    }
    let count = counted(files.len() as u64, "file", "files");
    print_note(&format!("Wrote {count} to {}.", directory.display()));
    Ok(())
}

/// Prints an answer as JSON piece by piece: as one string, the answer of a large cluster would fill
/// the memory.
pub(super) fn print_json(answer: &impl Serialize) -> Result<(), CommandError> {
    print_json_lines([answer]).map(drop)
}

/// Prints part of an ongoing answer; returns whether the output is still open.
pub(super) fn print_part(text: &str) -> Result<bool, CommandError> {
    write_stdout(|out| out.write_all(escape::escape_lines(text).as_bytes()))
}

/// Prints values as JSON, one per line; returns whether the output is still open.
pub(super) fn print_json_lines<T: Serialize>(
    values: impl IntoIterator<Item = T>,
) -> Result<bool, CommandError> {
    write_stdout(|out| {
        let mut out = BufWriter::new(out);
        for value in values {
            write_json_line(&mut out, &value)?;
        }
        out.flush()
    })
}

fn write_json_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    escape::write_escaped_json(&mut *out, value)?;
    out.write_all(b"\n")
}

fn write_stdout(
    write: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>,
) -> Result<bool, CommandError> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(CommandError::failed(format!("cannot print the answer: {why}"))),
    }
}
