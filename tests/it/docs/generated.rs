//! Tables of the book that are generated from the code: each is between two comments, and tests
//! compare it with the code. `RECLINER_WRITE=1 cargo test --test it docs::` writes them.

use super::root;
use std::{collections::BTreeSet, env, fs};

const BEGIN: &str = "<!-- begin generated: ";
const END: &str = "<!-- end generated -->";

/// Compares a page's tables with these, by name; or writes them. One test handles all tables of a
/// page, so that no two tests write the page at once.
pub(super) fn hold(page: &str, tables: &[(&str, String)]) {
    let path = root().join("docs/src").join(page);
    let old = fs::read_to_string(&path).expect("the page is readable");
    let mut new = old.clone();
    for (name, table) in tables {
        let begin = format!("{BEGIN}{name} -->\n");
        let at = new.find(&begin).unwrap_or_else(|| panic!("{page} has no table {name:?}"));
        let at = at + begin.len();
        let length = new[at..].find(END).unwrap_or_else(|| panic!("{name:?} of {page} never ends"));
        new.replace_range(at..at + length, &format!("\n{}\n\n", table.trim_end()));
    }
    let in_page: BTreeSet<&str> =
        old.split(BEGIN).skip(1).filter_map(|part| part.split(" -->").next()).collect();
    let generated: BTreeSet<&str> = tables.iter().map(|(name, _)| *name).collect();
    assert_eq!(in_page, generated, "the generated tables of {page}");
    if env::var_os("RECLINER_WRITE").is_some() {
        // Other tests may read the page meanwhile.
        let written = path.with_extension("new");
        fs::write(&written, new).expect("the directory is writable");
        fs::rename(written, &path).expect("the page is writable");
        return;
    }
    let remedy = "RECLINER_WRITE=1 cargo test --test it docs:: writes it";
    let differs = old.lines().zip(new.lines()).find(|(old, new)| old != new);
    assert_eq!(differs, None, "{page}: the current line and the expected one; {remedy}");
    assert_eq!(old.lines().count(), new.lines().count(), "{page}: {remedy}");
}

pub(super) fn table<const COLUMNS: usize>(
    heads: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let line = |cells: [String; COLUMNS]| {
        let cells = cells.map(|cell| {
            let cell = with_code(&cell);
            if cell.is_empty() { "–".to_owned() } else { cell.replace('|', "\\|") }
        });
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(heads.map(str::to_owned));
    text.push_str(&format!("|{}\n", "---|".repeat(COLUMNS)));
    rows.into_iter().for_each(|row| text.push_str(&line(row)));
    text
}

/// A text on one line, with flags, names with underscores and URLs formatted as code.
fn with_code(text: &str) -> String {
    let mut in_code = false;
    let words = text.split_whitespace().map(|word| {
        let was_in_code = in_code;
        in_code ^= word.matches('`').count() % 2 == 1;
        let start = word.len() - word.trim_start_matches('(').len();
        let end = word.trim_end_matches(['.', ',', ';', ':', ')']).len();
        let is_code = word.starts_with("--") || word.contains('_') || word.contains("://");
        if was_in_code || word.contains('`') || !is_code {
            return word.to_owned();
        }
        format!("{}`{}`{}", &word[..start], &word[start..end], &word[end..])
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The words formatted as code, separated by commas.
pub(super) fn codes<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> String {
    let words = words.into_iter().map(|word| format!("`{}`", word.as_ref()));
    words.collect::<Vec<_>>().join(", ")
}

pub(super) fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let end = if text.is_empty() || text.ends_with(['.', '?']) { "" } else { "." };
    first.chain(letters).chain(end.chars()).collect()
}
