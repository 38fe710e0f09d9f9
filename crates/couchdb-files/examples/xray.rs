//! Prints what the bytes of files are.
//!
//! `cargo run -p couchdb-files --example xray -- FILE…`

use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    for path in env::args().skip(1) {
        let file = fs::read(&path)?;
        let xray = couchdb_files::xray(&file.as_slice())?;
        println!("{path}: {} bytes, exact: {}", xray.file_bytes, xray.exact);
        for it in &xray.parts {
            println!("{:>14} {:>10} {}", it.bytes, it.count, it.part.label());
        }
        println!("{:>14?} after a compaction", xray.after_compaction);
    }
    Ok(())
}
