//! House rules that rustc and Clippy cannot express.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The floors, lowest first. A module may name only modules on floors below its own.
const FLOORS: &[&[&str]] = &[
    &["clock", "log", "size", "target", "version"],
    &["facts", "pattern", "window", "couch"],
    &["channel", "exposition", "estimate"],
    &["score", "snapshot"],
    &["queue", "inventory"],
    &["plan"],
    &["scanner", "smoosh"],
    &["planner"],
    &["report"],
    &["settings"],
    &["http", "config"],
    &["sim"],
    &["service"],
    &["cli"],
];

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("src is readable") {
        let path = entry.expect("src is readable").path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            out.push(path);
        }
    }
}

/// Returns every top-level module that `source` names through `crate::`.
fn modules_named(source: &str) -> BTreeSet<String> {
    let code: String = source
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n");
    let ident = |s: &str| -> String {
        s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = code[at + "crate::".len()..].trim_start();
        let Some(group) = rest.strip_prefix('{') else {
            named.insert(ident(rest));
            continue;
        };
        let mut depth = 0;
        let mut at_item = true;
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => at_item = true,
                c if at_item && !c.is_whitespace() => {
                    named.insert(ident(&group[i..]));
                    at_item = false;
                }
                _ => {}
            }
        }
    }
    named
}

#[test]
fn modules_use_only_lower_floors() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let floor = |module: &str| FLOORS.iter().position(|names| names.contains(&module));
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut broken = Vec::new();
    for file in files {
        let path = file.strip_prefix(&src).unwrap();
        let first = path.iter().next().unwrap().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        if ["lib", "main"].contains(&module) {
            continue;
        }
        let Some(own) = floor(module) else {
            broken.push(format!("{module} is on no floor"));
            continue;
        };
        for named in modules_named(&fs::read_to_string(&file).unwrap()) {
            match floor(&named) {
                _ if named == module => {}
                Some(other) if other < own => {}
                _ => broken.push(format!("{}: {module} names {named}", path.display())),
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
