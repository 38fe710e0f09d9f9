//! Shared by the benches that run `recliner` in a separate process.

use std::{error::Error, fs, io::Write};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// `/proc` gives CPU time in hundredths of a second.
const TICKS: f64 = 100.0;

pub(crate) fn say(line: &str) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}

/// CPU seconds from a `stat` file of `/proc`: the sum of two consecutive fields, user and system
/// time, of which the first is `at` fields after the command's name.
pub(crate) fn cpu(stat: &str, at: usize) -> Result<f64, Failure> {
    let stat = fs::read_to_string(stat)?;
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks = fields.split_whitespace().skip(at).take(2).map(str::parse::<f64>);
    Ok(ticks.collect::<Result<Vec<_>, _>>()?.iter().sum::<f64>() / TICKS)
}
