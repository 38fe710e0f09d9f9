//! The list of the book's files, which `src/book.rs` includes: a page or an image that is added to
//! `docs/src` becomes part of the program without any other change.

use std::{env, error::Error, fmt::Write as _, fs, path::Path, path::PathBuf};

/// Writes `book_files.rs`; returns cargo's directive with the directory on which the list depends.
pub(crate) fn directives(root: &Path) -> Result<String, Box<dyn Error>> {
    let book = root.join("docs/src");
    let list = list_of_files(&book).map_err(|why| format!("{}: {why}", book.display()))?;
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("book_files.rs"), list)?;
    Ok(format!("cargo::rerun-if-changed={}\n", book.display()))
}

/// The files of a directory and of its subdirectory `images`, as Rust source of a slice of names and
/// contents, sorted by name.
fn list_of_files(directory: &Path) -> Result<String, Box<dyn Error>> {
    let mut names = Vec::new();
    for below in ["", "images"] {
        for entry in fs::read_dir(directory.join(below))? {
            let path = entry?.path();
            if path.is_file() {
                let name = path.strip_prefix(directory)?.to_str().ok_or("a name is no UTF-8")?;
                names.push(name.to_owned());
            }
        }
    }
    names.sort();
    let mut list = String::from("&[\n");
    for name in names {
        let path = directory.join(&name);
        writeln!(list, "    ({name:?}, include_bytes!({path:?})),")?;
    }
    list.push_str("]\n");
    Ok(list)
}
