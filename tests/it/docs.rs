//! The book and the README describe every flag, metric, route, reason and key of the program, and
//! none that does not exist.

pub(crate) mod command_line;
mod configuration;
mod generated;
mod tables;

use recliner::serve::http::families;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

const README: &str = include_str!("../../README.md");

/// All pages of the book, concatenated.
static BOOK: LazyLock<&'static str> = LazyLock::new(|| {
    let mut pages = Vec::new();
    files(&root().join("docs/src"), &mut pages);
    pages.retain(|page| page.extension().is_some_and(|it| it == "md"));
    pages.sort();
    let texts = pages.iter().map(|page| fs::read_to_string(page).expect("it is readable"));
    String::leak(texts.collect::<Vec<_>>().join("\n"))
});

const HELD_OUT: &str = include_str!("../../src/model/estimate/held_out.md");
const CI: &str = include_str!("../../.ci/run");
const REPORT: &str = include_str!("../../src/serve/report.rs");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn recliner(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_recliner"))
        .args(args)
        .env_remove("COUCHDB_USER")
        .env_remove("COUCHDB_PASSWORD")
        .current_dir(root())
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program prints UTF-8")
}

/// The part of the book from one heading to the next of the same or a higher level.
fn section(title: &str) -> &'static str {
    let heading = BOOK
        .match_indices(title)
        .map(|(at, _)| at)
        .find(|at| {
            let line = &BOOK[BOOK[..*at].rfind('\n').map_or(0, |end| end + 1)..];
            let line = line.lines().next().unwrap_or_default();
            line.starts_with('#') && line.trim_start_matches('#').trim() == title
        })
        .unwrap_or_else(|| panic!("the book has no section {title:?}"));
    let start = BOOK[..heading].rfind('\n').map_or(0, |end| end + 1);
    let depth = BOOK[start..].chars().take_while(|c| *c == '#').count();
    let body = &BOOK[heading + title.len()..];
    let mut in_code = false;
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        let level = line.chars().take_while(|c| *c == '#').count();
        if !in_code && (1..=depth).contains(&level) {
            break;
        }
        at += line.len();
    }
    &body[..at]
}

/// The cells of each row of a section's tables; rows whose first cell is not code are headers.
fn rows(section: &'static str) -> Vec<Vec<&'static str>> {
    section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// The words in backticks.
fn code(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn first_cells(title: &str) -> BTreeSet<String> {
    rows(section(title)).iter().flat_map(|row| code(row[0])).collect()
}

#[test]
fn book_names_only_existing_metrics() {
    let known: BTreeSet<&str> = families::all().map(|family| family.name).collect();
    let unknown: Vec<&str> = [README, *BOOK]
        .iter()
        .flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || "_:^".contains(c))))
        // Names with a colon belong to recording rules, which the runbook's tests check. Names with
        // `_0` are file names of packages.
        .filter(|word| {
            let name = word.trim_start_matches('^');
            name.starts_with("recliner_") && !name.contains(':') && !name.contains("_0")
        })
        .filter(|word| {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|ending| word.strip_suffix(ending))
                .unwrap_or(word);
            let prefix =
                word.strip_prefix('^').or_else(|| Some(*word).filter(|word| word.ends_with('_')));
            let is_prefix =
                prefix.is_some_and(|prefix| known.iter().any(|name| name.starts_with(prefix)));
            !known.contains(word) && !known.contains(base) && !is_prefix
        })
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn book_lists_every_target_field() {
    let fields: BTreeSet<String> = REPORT
        .lines()
        .skip_while(|line| !line.starts_with("pub struct Target {"))
        .skip(1)
        .take_while(|line| *line != "}")
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next())
        .map(str::to_owned)
        .collect();
    assert!(fields.len() > 5, "fields are found in the source: {fields:?}");
    assert_eq!(first_cells("A target in JSON"), fields);
}

#[test]
fn book_has_the_prediction_error_table() {
    // Views are alike in every shape, so the book has their sum only.
    let is_in_book = |line: &&str| !line.starts_with("| view |") || line.contains("**all**");
    let table: Vec<&str> = HELD_OUT.trim().lines().filter(is_in_book).collect();
    assert!(BOOK.contains(&table.join("\n")), "it has to read\n\n{}", table.join("\n"));
}

#[test]
fn readme_names_the_required_test_command() {
    let (_, last) = CI.rsplit_once("cargo test").expect("tests are run");
    let arguments = last.lines().next().unwrap_or_default().replace(" --no-fail-fast", "");
    let last = format!("cargo test{arguments}");
    let blocks: Vec<&str> = README.split("```").skip(1).step_by(2).collect();
    assert!(
        blocks.iter().any(|block| block.lines().any(|line| last == line.trim())),
        "the README has no {last:?}"
    );
}

/// The crates in this section of the manifest, each with the rest of its line.
fn listed<'a>(manifest: &'a str, section: &str) -> BTreeMap<&'a str, &'a str> {
    let heading = format!("[{section}]");
    manifest
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(['.', ' ', '=']))
        .collect()
}

#[test]
fn every_dependency_is_explained_and_used() {
    let read = |path: PathBuf| fs::read_to_string(path).expect("the file is readable");
    let root_manifest = read(root().join("Cargo.toml"));
    let workspace = listed(&root_manifest, "workspace.dependencies");
    let external: BTreeSet<&str> = workspace
        .iter()
        .filter(|(_, rest)| !rest.contains("path ="))
        .map(|(name, _)| *name)
        .collect();

    let contributing = read(root().join("CONTRIBUTING.md"));
    let (_, table) = contributing.split_once("\n## Dependencies\n").expect("the section exists");
    let rows: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(name, reason)| {
            assert!(reason.trim_end_matches(['|', ' ']).len() > 2, "{name} has no reason");
            name
        })
        .collect();
    assert_eq!(
        rows.iter().copied().collect::<BTreeSet<_>>(),
        external,
        "the table and Cargo.toml list the same crates"
    );
    assert!(rows.is_sorted_by(|a, b| a < b), "rows are sorted and unique: {rows:?}");

    let crates = fs::read_dir(root().join("crates")).expect("it is readable");
    let manifests: Vec<String> = crates
        .map(|entry| read(entry.expect("it is readable").path().join("Cargo.toml")))
        .chain([root_manifest.clone()])
        .collect();
    let mut used = BTreeSet::new();
    for manifest in &manifests {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, rest) in listed(manifest, section) {
                assert!(rest.contains("workspace = true"), "{name} has a version of its own");
                used.insert(name);
            }
        }
    }
    let all: BTreeSet<&str> = workspace.keys().copied().collect();
    assert_eq!(used, all, "what crates use, and [workspace.dependencies]");
}

/// The anchor of a heading in rendered Markdown.
fn anchor(heading: &str) -> String {
    heading
        .trim_matches(|c| c == '#' || c == ' ')
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The anchors of a text's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

/// The destinations of a text's relative links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = text.match_indices("](");
    links
        .map(|(at, _)| text[at + 2..].split(')').next().unwrap_or_default())
        .filter(|link| !link.contains("://"))
}

/// Links within the book are tested where it is rendered.
#[test]
fn every_link_in_repository_documents_resolves() {
    let mut texts = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    for dir in ["alerts", "dashboards", "deploy"] {
        files(&root().join(dir), &mut texts);
    }
    texts.retain(|text| text.extension().is_some_and(|it| it == "md"));
    let mut broken = Vec::new();
    for path in texts {
        let text = fs::read_to_string(&path).expect("it is readable");
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            let leads = match fs::read_to_string(&to) {
                Ok(text) => anchor.is_empty() || anchors(&text).contains(anchor),
                Err(_) => to.exists(),
            };
            if !leads {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the tree is readable") {
        let path = entry.expect("the tree is readable").path();
        if path.is_dir() {
            files(&path, out);
        } else {
            out.push(path);
        }
    }
}

#[test]
fn no_file_mentions_issues_or_local_paths() {
    // Assembled here, so that this file does not contain them.
    let forbidden = [
        ["issue", " #"].concat(),
        ["/wo", "rk/"].concat(),
        ["/ho", "me/"].concat(),
        ["/ro", "ot/"].concat(),
        ["fa", "rm-"].concat(),
    ];
    let mut all = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    for dir in
        ["docs/src", "src", "crates", "benches", "tests", ".ci", "alerts", "dashboards", "deploy"]
    {
        files(&root().join(dir), &mut all);
    }
    let mut found = Vec::new();
    for file in all {
        let Ok(content) = fs::read_to_string(&file) else { continue };
        for (at, line) in content.lines().enumerate() {
            // A path below a variable in a script ends in such a word too.
            let line = line.to_lowercase();
            let is_forbidden = forbidden.iter().any(|word| {
                let mut places = line.match_indices(word.as_str());
                places.any(|(at, _)| {
                    !word.starts_with('/') || !line[..at].ends_with(|c: char| c.is_alphanumeric())
                })
            });
            if is_forbidden {
                found.push(format!("{}:{}: {}", file.display(), at + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
