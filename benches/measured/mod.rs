//! What the benches share that run `recliner` as a process of its own.

use std::{error::Error, fs, io::Write};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// `/proc` counts CPU time in hundredths of a second.
const TICKS: f64 = 100.0;

pub(crate) fn say(line: &str) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}

/// CPU seconds out of a `stat` file of `/proc`: two fields in a row, user and system, the
/// first of them `at` fields after the command's name.
pub(crate) fn cpu(stat: &str, at: usize) -> Result<f64, Failure> {
    let stat = fs::read_to_string(stat)?;
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks = fields.split_whitespace().skip(at).take(2).map(str::parse::<f64>);
    Ok(ticks.collect::<Result<Vec<_>, _>>()?.iter().sum::<f64>() / TICKS)
}
