//! The book that the program carries: the files of `docs/src`, their order, and the pages as HTML.
//!
//! Follows the rules of mdBook, which builds the same files for the web: the syntax of pages, the
//! names of anchors, and the meaning of `SUMMARY.md`. It never answers requests:
//! [`serve::http`](crate::serve::http) does, and `recliner mixin runbook` prints one page.

mod contents;
mod render;

pub use contents::{Chapter, Contents, Part};
pub use render::{Heading, Page};

use std::sync::LazyLock;

/// Every file of the book with its name under `docs/src`, sorted by name.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/book_files.rs"));

/// The list of contents, which is not a page itself.
const SUMMARY: &str = "SUMMARY.md";

/// The names of all files, relative to `docs/src`.
pub fn file_names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The bytes of a file, such as `images/page.png`.
pub fn file(name: &str) -> Option<&'static [u8]> {
    let at = FILES.binary_search_by_key(&name, |(name, _)| name).ok()?;
    FILES.get(at).map(|(_, bytes)| *bytes)
}

/// The source of a page, such as `alerts.md`.
pub fn source(page: &str) -> Option<&'static str> {
    std::str::from_utf8(file(page)?).ok()
}

/// The list of contents, read once.
pub fn contents() -> &'static Contents {
    static CONTENTS: LazyLock<Contents> =
        LazyLock::new(|| Contents::read(source(SUMMARY).unwrap_or_default()));
    &CONTENTS
}

/// The source of a page for readers outside the book: links to other pages and images begin with
/// `base`.
pub fn with_links_to(page: &str, base: &str) -> Option<String> {
    source(page).map(|source| render::with_links_to(source, base))
}

#[cfg(test)]
mod tests;
