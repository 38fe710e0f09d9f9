//! Prints the smoosh channels of an ini file and the findings about its settings.
//!
//! ```text
//! cargo run -p compaction-settings --example findings -- /opt/couchdb/etc/local.ini 3.5.0
//! ```
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use compaction_settings::{NodeConfig, read_smoosh};
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or("usage: findings FILE [VERSION]")?;
    let version = arguments.next().unwrap_or_else(|| "3.5.0".to_owned());
    let bytes = fs::read(&path)?;

    let node = NodeConfig::from_ini("node", &version, [(path.as_str(), bytes.as_slice())]);
    let settings = read_smoosh(&node);
    for channel in &settings.channels {
        let priority = channel.priority.map_or_else(|| "none".to_owned(), |it| it.to_string());
        println!(
            "{}: {} by {priority}, at most {} at a time",
            channel.name, channel.kind, channel.concurrency
        );
    }
    settings.findings.iter().for_each(|finding| println!("{finding}"));
    Ok(())
}
