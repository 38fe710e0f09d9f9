//! The design documents of a deployment, from a directory or a file.
//!
//! A directory has JSON files, with one document or several, and folders in the layout of couchapp
//! and its successors: each file or folder is a field, such as `views/NAME/map.js`,
//! `validate_doc_update.js`, `language`, `options.json` and `_id`.

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
/// If something cannot be read, or is not a document.
pub(super) fn documents_at(path: &Path) -> Result<Vec<Box<RawValue>>, String> {
    if !path.is_dir() {
        return of_file(path);
    }
    if is_document(path) {
        return Ok(of_folder(path)?.into_iter().collect());
    }
    let mut documents = Vec::new();
    for entry in entries(path)? {
        if entry.is_dir() {
            if is_document(&entry) {
                documents.extend(of_folder(&entry)?);
            }
        } else if entry.extension().is_some_and(|it| it == "json") {
            documents.extend(of_file(&entry)?);
        }
    }
    match documents.is_empty() {
        true => Err(format!(
            "{} has no design documents: no JSON files and no folders with views/NAME/map.js",
            shown(path)
        )),
        false => Ok(documents),
    }
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// The entries of a directory, sorted by name, without hidden files.
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
                return Err(format!("{}: one of its documents has views but no _id", shown(path)));
            }
            Some(_) | None => {}
        }
    }
    Ok(designs)
}

/// The document with `_id` placed before its other fields, whose order is kept.
fn with_id(document: &RawValue, id: &str) -> Result<Box<RawValue>, serde_json::Error> {
    let rest = document.get().trim_start().trim_start_matches('{').trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    RawValue::from_string(format!("{{\"_id\":{}{comma}{rest}", Value::from(id)))
}

/// Whether a folder is a single document.
fn is_document(path: &Path) -> bool {
    path.join("views").is_dir() || path.join("_id").is_file()
}

/// The design document in a folder, without its attachments; `None` if its `_id` is not a design document's.
fn of_folder(path: &Path) -> Result<Option<Box<RawValue>>, String> {
    let mut design = fields_of(path, 0)?;
    let default = || format!("_design/{}", path.file_name().unwrap_or_default().display());
    let id = design.entry("_id").or_insert_with(|| default().into());
    if !id.as_str().is_some_and(|id| id.starts_with("_design/")) {
        return Ok(None);
    }
    let text = serde_json::value::to_raw_value(&design);
    text.map(Some).map_err(|why| format!("{}: {why}", shown(path)))
}

/// The files and folders of a folder as fields of an object.
fn fields_of(path: &Path, depth: usize) -> Result<Map<String, Value>, String> {
    if depth > MAX_DEPTH {
        return Err(format!("{} has folders nested more than {MAX_DEPTH} deep", shown(path)));
    }
    let mut fields = Map::new();
    for entry in entries(path)? {
        if !entry.is_dir() {
            let name = entry.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            fields.insert(name, value_of(&entry)?);
        } else if depth > 0 || !entry.ends_with("_attachments") {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            fields.insert(name, fields_of(&entry, depth + 1)?.into());
        }
    }
    Ok(fields)
}

/// A file's JSON, or its text without white space around it, as the tools that deploy folders do.
fn value_of(path: &Path) -> Result<Value, String> {
    if path.extension().is_some_and(|it| it == "json") {
        return json_of(path);
    }
    let text = read(path).map_err(|why| format!("{} cannot be read: {why}", shown(path)))?;
    Ok(text.trim().into())
}

fn json_of(path: &Path) -> Result<Value, String> {
    let text = read(path).map_err(|why| format!("{} cannot be read: {why}", shown(path)))?;
    serde_json::from_str(&text).map_err(|why| format!("{} is not JSON: {why}", shown(path)))
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
    fn folder_file_and_bundle_give_the_same_index_signature() {
        let dir = tempfile::tempdir().unwrap();
        let map = "function (doc) {\n  emit(doc.day, require('views/lib/days').of(doc));\n}";
        let lib = "exports.of = function (doc) { return 1; };";
        write(dir.path(), "app/views/by_day/map.js", &format!("{map}\n"));
        write(dir.path(), "app/views/by_day/reduce.js", "_sum\n");
        write(dir.path(), "app/views/lib/days.js", lib);
        fs::create_dir_all(dir.path().join("app/_attachments")).unwrap();
        fs::write(dir.path().join("app/_attachments/x.png"), [0xff]).unwrap();
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
    fn folder_is_read_as_a_complete_design_document() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app");
        for (name, text) in [
            ("_id", "_design/medic\n"),
            ("language", "javascript\n"),
            ("options.json", "{\"partitioned\": true}"),
            ("rewrites.json", "[1]"),
            ("validate_doc_update.js", "\nfunction (doc) {}\n"),
            ("views/v1.2/map.js", "function (doc) {}"),
            ("nouveau/by_name/index.js", "function (doc) {}"),
            (".couchapprc", "{}"),
        ] {
            write(&path, name, text);
        }
        let documents = documents_at(&path).unwrap();
        let found: Value = serde_json::from_str(documents[0].get()).unwrap();
        let function = "function (doc) {}";
        let wanted = serde_json::json!({
            "_id": "_design/medic",
            "language": "javascript",
            "options": { "partitioned": true },
            "rewrites": [1],
            "validate_doc_update": function,
            "views": { "v1.2": { "map": function } },
            "nouveau": { "by_name": { "index": function } },
        });
        assert_eq!((found, documents.len()), (wanted, 1));
        // A design document without views is deployed too; a document of another kind is not.
        write(dir.path(), "access/_id", "_design/access");
        write(dir.path(), "access/validate_doc_update.js", function);
        write(dir.path(), "settings/_id", "settings");
        let ids: Vec<String> = designs_at(dir.path()).into_iter().map(|it| it.id).collect();
        assert_eq!(ids, ["_design/access", "_design/medic"]);
    }

    #[test]
    fn id_taken_from_the_file_name_keeps_the_field_order() {
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
    fn refuses_paths_without_valid_design_documents() {
        let dir = tempfile::tempdir().unwrap();
        assert!(documents_at(dir.path()).unwrap_err().contains("has no design documents"));
        write(dir.path(), "a.json", "{");
        assert!(documents_at(dir.path()).unwrap_err().contains("a.json is not JSON"));
        write(dir.path(), "a.json", r#"[{"_id":"_design/a"},{"views":{}}]"#);
        assert!(documents_at(dir.path()).unwrap_err().contains("but no _id"));
    }
}
