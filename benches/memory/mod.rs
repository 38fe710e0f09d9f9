//! The resident memory of processes.

use std::{fs, io};

/// The current and the peak resident memory of a process, in MB.
pub(crate) fn resident(process: u32) -> io::Result<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let of = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0 / 1e6)
    };
    let both = of("VmRSS:").zip(of("VmHWM:"));
    both.ok_or_else(|| io::Error::other("no resident memory in status"))
}
