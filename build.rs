//! Links jemalloc's settings into programs that use it.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    #[cfg(feature = "jemalloc")]
    jemalloc_settings::link()?;
    Ok(())
}

/// How jemalloc treats memory; `_RJEM_MALLOC_CONF` in the environment of a run wins over it.
#[cfg(feature = "jemalloc")]
mod jemalloc_settings {
    use std::{env, error::Error, fs, path::PathBuf};

    /// One arena, because what one task gave back then serves all others. Nothing is kept for later: a
    /// sweep frees many megabytes that nothing asks for until the next one; with jemalloc's own
    /// settings a process takes half as much again. Each thread's cache is checked every 4 MiB, not
    /// every 64 KiB: each check gives pages back that the next answers ask for again, one in two of them.
    const SETTINGS: &str =
        "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0,tcache_gc_incr_bytes:4194304";

    /// jemalloc reads this symbol if a program defines it. A Rust static with that name would be
    /// unsafe code, and the environment variable that jemalloc's build reads does not reach
    /// `cargo install`.
    pub(super) fn link() -> Result<(), Box<dyn Error>> {
        let source = PathBuf::from(env::var("OUT_DIR")?).join("jemalloc_settings.c");
        fs::write(&source, format!("const char *_rjem_malloc_conf = \"{SETTINGS}\";\n"))?;
        for object in cc::Build::new().file(&source).cargo_metadata(false).compile_intermediates() {
            for kind in ["bins", "benches", "examples"] {
                println!("cargo::rustc-link-arg-{kind}={}", object.display());
            }
        }
        Ok(())
    }
}
