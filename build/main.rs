//! Runs before the crate is compiled: lists the files of the book, determines the revision, and
//! links jemalloc's settings.

mod book;
#[cfg(feature = "jemalloc")]
mod jemalloc;
mod revision;

use std::{env, error::Error, path::Path};

#[expect(clippy::print_stdout, reason = "a build script talks to cargo on standard output")]
fn main() -> Result<(), Box<dyn Error>> {
    let root = env::var("CARGO_MANIFEST_DIR")?;
    println!("cargo::rerun-if-changed=build");
    print!("{}", book::directives(Path::new(&root))?);
    print!("{}", revision::directives(Path::new(&root))?);
    #[cfg(feature = "jemalloc")]
    for directive in jemalloc::settings()? {
        println!("{directive}");
    }
    Ok(())
}
