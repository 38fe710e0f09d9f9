//! jemalloc's settings; `_RJEM_MALLOC_CONF` in the environment of a process overrides them.

use std::{env, error::Error, fs, path::PathBuf};

/// One arena, so that memory that one task frees serves all others. Free pages are not retained: a
/// sweep frees many megabytes that nothing needs until the next sweep; with jemalloc's own settings a
/// process takes half as much again. Each thread's cache is checked every 4 MiB instead of every 64
/// KiB: each check returns pages, half of which the next responses request again.
const SETTINGS: &str = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0,tcache_gc_incr_bytes:4194304";

/// Compiles the settings and returns the directives that make cargo link them. jemalloc reads a symbol
/// if the program defines it. A Rust static of that name would need unsafe code, and the environment
/// variable that jemalloc's own build reads does not reach `cargo install`.
pub(crate) fn settings() -> Result<Vec<String>, Box<dyn Error>> {
    let source = PathBuf::from(env::var("OUT_DIR")?).join("jemalloc_settings.c");
    fs::write(&source, format!("const char *_rjem_malloc_conf = \"{SETTINGS}\";\n"))?;
    let objects = cc::Build::new().file(&source).cargo_metadata(false).compile_intermediates();
    let link = |object: PathBuf| {
        ["bins", "benches", "examples"]
            .map(|kind| format!("cargo::rustc-link-arg-{kind}={}", object.display()))
    };
    Ok(objects.into_iter().flat_map(link).collect())
}
