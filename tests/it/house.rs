//! Rules of this repository that rustc and Clippy cannot express.

mod circles;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The floors, lowest first. A module may name only modules on floors below its own.
const FLOORS: &[&[&str]] = &[
    &["text", "tasks"],
    &["log"],
    &["config_format"],
    &["model"],
    &["datadir", "shared_limits"],
    &["table"],
    &["sources"],
    &["jobs"],
    &["scan"],
    &["plan"],
    &["what_if"],
    &["advice"],
    &["store"],
    &["ledger", "reads", "fleet"],
    &["act"],
    &["feeds", "import", "config", "book"],
    &["serve"],
    &["simulated"],
    &["service"],
    &["cli"],
];

/// Modules of the library's tests, which belong to no floor.
const OF_TESTS: [&str; 4] = ["a_limit", "cases", "skipped", "unprivileged"];

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

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
fn modules_use_only_modules_below_them() {
    let src = src();
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
                _ if named == module || OF_TESTS.contains(&named.as_str()) => {}
                Some(other) if other < own => {}
                _ => broken.push(format!("{}: {module} names {named}", path.display())),
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_module_is_listed_in_exactly_one_layer() {
    let lib = fs::read_to_string(src().join("lib.rs")).unwrap();
    let declared: BTreeSet<&str> = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "))
        .map(|name| name.trim_end_matches(';'))
        .collect();
    let listed: Vec<&str> = FLOORS.iter().copied().flatten().copied().collect();
    let distinct: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(distinct, declared);
    assert_eq!(listed.len(), distinct.len(), "a module is on two floors");
}

#[test]
fn source_files_begin_with_module_documentation() {
    let src = src();
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > 50, "the sources are found");
    let mut broken = Vec::new();
    for file in files {
        let content = fs::read_to_string(&file).unwrap();
        let path = file.strip_prefix(&src).unwrap().display().to_string();
        // A module of tests owns nothing beyond what the test names say.
        let of_tests = path.ends_with("tests.rs") || path.contains("tests/");
        if !content.starts_with("//!") && !of_tests {
            broken.push(format!("{path} does not begin with what it owns"));
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}
