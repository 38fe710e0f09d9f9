//! Prints what the bytes of files are.
//!
//! `SAMPLE=0.01 cargo run -p couchdb-files --example xray -- FILE…`

use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let share = env::var("SAMPLE").ok().and_then(|share| share.parse().ok());
    let sample = share.map(|share| couchdb_files::Sample { share, seed: 1 });
    for path in env::args().skip(1) {
        let file = fs::read(&path)?;
        let xray = couchdb_files::xray(&file.as_slice(), sample)?;
        println!("{path}: {} bytes, exact: {}", xray.file_bytes, xray.exact);
        for it in &xray.parts {
            println!("{:>14} ±{:<9} {:>10} {}", it.bytes, it.error, it.count, it.part.label());
        }
        println!("{:>14?} ±{} after a compaction", xray.after_compaction, xray.error);
    }
    Ok(())
}
