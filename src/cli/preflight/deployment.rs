//! The design documents of a deployment, from a directory or a file.
//!
//! A directory has JSON files, with one document or several, and folders as couchapp and its
//! successors have them: `views/NAME/map.js`, `views/NAME/reduce.js`, `views/lib/…`, `language`,
//! `options.json`, `_id`.

use super::{id_of_file, read};
use crate::{cli::printable, serve::report::documents_in};
use serde_json::{Map, Value, value::RawValue};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Maximum depth of folders of a library.
const MAX_DEPTH: usize = 8;

/// The design documents at a path, each with its `_id`. Other documents of a bundle are left out.
///
/// # Errors
/// What cannot be read, or is no document.
pub(super) fn documents_at(path: &Path) -> Result<Vec<Box<RawValue>>, String> {
    if !path.is_dir() {
        return of_file(path);
    }
    if path.join("views").is_dir() {
        return Ok(vec![of_folder(path)?]);
    }
    let mut documents = Vec::new();
    for entry in entries(path)? {
        if entry.is_dir() {
            if entry.join("views").is_dir() {
                documents.push(of_folder(&entry)?);
            }
        } else if entry.extension().is_some_and(|it| it == "json") {
            documents.extend(of_file(&entry)?);
        }
    }
    match documents.is_empty() {
        true => Err(format!(
            "{} has no design documents: neither JSON files nor folders with views/NAME/map.js",
            shown(path)
        )),
        false => Ok(documents),
    }
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// What is in a directory, sorted by name, without hidden files.
fn entries(path: &Path) -> Result<Vec<PathBuf>, String> {
    let unread = |why: io::Error| format!("{} cannot be read: {why}", shown(path));
    let mut all = Vec::new();
    for entry in fs::read_dir(path).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            all.push(entry.path());
        }
    }
    all.sort_unstable();
    Ok(all)
}

fn of_file(path: &Path) -> Result<Vec<Box<RawValue>>, String> {
    let text = read(path).map_err(|why| format!("{} cannot be read: {why}", shown(path)))?;
    let wrong = |why: serde_json::Error| format!("{} is not JSON: {why}", shown(path));
    let documents = documents_in(&text).map_err(wrong)?;
    let is_one = documents.len() == 1;
    let mut designs = Vec::new();
    for document in documents {
        let fields: Map<String, Value> = serde_json::from_str(document.get()).map_err(wrong)?;
        match fields.get("_id").and_then(Value::as_str) {
            Some(id) if id.starts_with("_design/") => designs.push(document),
            None if is_one => {
                let id = id_of_file(path).ok_or_else(|| format!("{} has no _id", shown(path)))?;
                designs.push(with_id(&document, &id).map_err(wrong)?);
            }
            None if fields.contains_key("views") => {
                return Err(format!("{}: a document with views has no _id", shown(path)));
            }
            Some(_) | None => {}
        }
    }
    Ok(designs)
}

/// The document with an `_id` before its other fields, whose order is kept.
fn with_id(document: &RawValue, id: &str) -> Result<Box<RawValue>, serde_json::Error> {
    let rest = document.get().trim_start().trim_start_matches('{').trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    RawValue::from_string(format!("{{\"_id\":{}{comma}{rest}", Value::from(id)))
}

/// A document in a folder.
fn of_folder(path: &Path) -> Result<Box<RawValue>, String> {
    let mut design = Map::new();
    let id = match read(&path.join("_id")) {
        Ok(id) => id.trim().to_owned(),
        Err(_) => format!("_design/{}", name(path)),
    };
    design.insert("_id".to_owned(), id.into());
    if let Ok(language) = read(&path.join("language")) {
        design.insert("language".to_owned(), language.trim().into());
    }
    let options = path.join("options.json");
    if options.exists() {
        design.insert("options".to_owned(), json_of(&options)?);
    }
    let mut views = Map::new();
    for view in entries(&path.join("views"))? {
        match view.is_dir() {
            true => views.insert(name(&view), of_view(&view, 0)?),
            // A library may be one file.
            false => views.insert(name(&view), value_of(&view)?),
        };
    }
    design.insert("views".to_owned(), views.into());
    serde_json::value::to_raw_value(&design).map_err(|why| format!("{}: {why}", shown(path)))
}

/// The files of a folder as fields of an object.
fn of_view(path: &Path, depth: usize) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err(format!("{} has more than {MAX_DEPTH} folders in each other", shown(path)));
    }
    let mut fields = Map::new();
    for entry in entries(path)? {
        let value = if entry.is_dir() { of_view(&entry, depth + 1)? } else { value_of(&entry)? };
        fields.insert(name(&entry), value);
    }
    Ok(fields.into())
}

/// A file's JSON, or its text without white space at its end.
fn value_of(path: &Path) -> Result<Value, String> {
    if path.extension().is_some_and(|it| it == "json") {
        return json_of(path);
    }
    let text = read(path).map_err(|why| format!("{} cannot be read: {why}", shown(path)))?;
    Ok(text.trim_end().into())
}

fn json_of(path: &Path) -> Result<Value, String> {
    let text = read(path).map_err(|why| format!("{} cannot be read: {why}", shown(path)))?;
    serde_json::from_str(&text).map_err(|why| format!("{} is not JSON: {why}", shown(path)))
}

/// The name of a file without its extension.
fn name(path: &Path) -> String {
    path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::preflight::DesignDocument;

    fn write(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn designs_at(path: &Path) -> Vec<DesignDocument> {
        let documents = documents_at(path).unwrap();
        documents.iter().map(|it| DesignDocument::parse(it.get(), None).unwrap()).collect()
    }

    #[test]
    fn folders_files_and_bundles_give_the_same_index() {
        let dir = tempfile::tempdir().unwrap();
        let map = "function (doc) {\n  emit(doc.day, require('views/lib/days').of(doc));\n}";
        let lib = "exports.of = function (doc) { return 1; };";
        write(dir.path(), "app/views/by_day/map.js", &format!("{map}\n"));
        write(dir.path(), "app/views/by_day/reduce.js", "_sum\n");
        write(dir.path(), "app/views/lib/days.js", lib);
        write(dir.path(), "app/_attachments/x.txt", "no view");
        let views = serde_json::json!({
            "by_day": { "map": map, "reduce": "_sum" },
            "lib": { "days": lib },
        });
        write(dir.path(), "one.json", &serde_json::json!({ "views": views }).to_string());
        let bundle = serde_json::json!({ "docs": [
            { "_id": "_design/two", "views": views },
            { "_id": "settings", "views": "no design document" },
        ]});
        write(dir.path(), "bundle.json", &bundle.to_string());
        write(dir.path(), "notes.txt", "no document");
        let found = designs_at(dir.path());
        let ids: Vec<&str> = found.iter().map(|it| &*it.id).collect();
        assert_eq!(ids, ["_design/app", "_design/two", "_design/one"]);
        let signatures: Vec<_> = found.iter().map(|it| it.signature).collect();
        assert!(signatures.iter().all(|it| *it == signatures[0]), "{signatures:?}");
        assert_eq!(designs_at(&dir.path().join("app"))[0].id, "_design/app");
        assert_eq!(designs_at(&dir.path().join("bundle.json"))[0].id, "_design/two");
    }

    #[test]
    fn an_id_from_the_files_name_keeps_the_order_of_the_other_fields() {
        let text = r#" { "views": {"b":{"map":"m"},"a":{"map":"m"}}}"#;
        let raw = RawValue::from_string(text.trim().to_owned()).unwrap();
        let with = with_id(&raw, "_design/x").unwrap();
        let signature = |text: &str, id| DesignDocument::parse(text, id).unwrap().signature;
        assert_eq!(signature(with.get(), None), signature(text, Some("_design/x")));
        assert_eq!(
            with_id(&RawValue::from_string("{}".to_owned()).unwrap(), "a").unwrap().get(),
            r#"{"_id":"a"}"#
        );
    }

    #[test]
    fn says_what_is_no_deployment() {
        let dir = tempfile::tempdir().unwrap();
        assert!(documents_at(dir.path()).unwrap_err().contains("has no design documents"));
        write(dir.path(), "a.json", "{");
        assert!(documents_at(dir.path()).unwrap_err().contains("a.json is not JSON"));
        write(dir.path(), "a.json", r#"[{"_id":"_design/a"},{"views":{}}]"#);
        assert!(documents_at(dir.path()).unwrap_err().contains("has no _id"));
    }
}
