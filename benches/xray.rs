//! X-rays of real files at an unlimited rate: megabytes per second on one core.
//!
//! `RECLINER_BENCH_XRAY` names the files, separated by colons.

use recliner::datadir::{ReadPace, xray_file};
use std::{env, io::Write as _, path::Path};
use tokio::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 5;

fn main() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let Ok(files) = env::var("RECLINER_BENCH_XRAY") else {
        writeln!(out, "RECLINER_BENCH_XRAY names no files")?;
        return Ok(());
    };
    for file in files.split(':') {
        let mut best = f64::MAX;
        let mut size = 0;
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let xray = xray_file(Path::new(file), None, &ReadPace::default())?;
            best = best.min(begun.elapsed().as_secs_f64());
            size = xray.file_bytes;
        }
        let rate = size as f64 / best / 1e6;
        writeln!(out, "{file}: {size} bytes in {:.0} ms, {rate:.0} MB/s", best * 1e3)?;
    }
    Ok(())
}
