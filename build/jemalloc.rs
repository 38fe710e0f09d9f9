//! How jemalloc treats memory; `_RJEM_MALLOC_CONF` in the environment of a run wins over it.

use std::{env, error::Error, fs, path::PathBuf};

/// One arena, because what one task gave back then serves all others. Nothing is kept for later: a
/// sweep frees many megabytes that nothing asks for until the next one; with jemalloc's own
/// settings a process takes half as much again. Each thread's cache is checked every 4 MiB, not
/// every 64 KiB: each check gives pages back that the next answers ask for again, one in two of them.
const SETTINGS: &str = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0,tcache_gc_incr_bytes:4194304";

/// What makes cargo link the settings. jemalloc reads a symbol if the program defines it. A Rust static
/// of that name would be unsafe code, and the environment variable that jemalloc's own build reads does
/// not reach `cargo install`.
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
