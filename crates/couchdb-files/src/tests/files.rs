//! Each recorded file compared with its recorded values.

use super::super::*;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::PathBuf};

pub(crate) fn data() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"))
}

/// The content of `expected.json`, by file.
pub(crate) fn expected() -> BTreeMap<String, Value> {
    serde_json::from_slice(&fs::read(data().join("expected.json")).unwrap()).unwrap()
}

pub(crate) fn file(name: &str) -> Vec<u8> {
    fs::read(data().join(name)).unwrap()
}

/// A header in the format of `expected.json`.
fn parsed(file: &str, bytes: &dyn Bytes) -> Value {
    let headed = read(bytes);
    let place = |place: HeaderPosition| {
        json!({"offset": place.at, "bytes": place.length, "checksum": place.checksum.label(),
            "rejected": place.false_headers, "tail": place.bytes_after})
    };
    let headed = match headed {
        Ok(headed) => headed,
        Err(why) => {
            let mut error = why.label().to_owned();
            if let HeaderError::UnknownDiskVersion { version, .. } = why {
                error = format!("unsupported disk version {version}");
            }
            let mut all = json!({"error": error,
                "sizes": {"file": bytes.size(), "active": null, "external": null}});
            if let Some(at) = why.position() {
                all["header"] = place(at);
            }
            return all;
        }
    };
    let mut all = match &headed.header {
        Header::Db(db) | Header::Compaction(db) => {
            let tree = |tree: TreeSize| tree.bytes();
            let epochs: Vec<Value> =
                db.epochs.iter().map(|epoch| json!([epoch.node, epoch.since])).collect();
            // The scratch file's trees belong to the other file.
            let own = !file.ends_with(".compact.meta");
            json!({
                "disk_version": db.disk_version, "header_arity": db.fields,
                "update_seq": db.update_seq, "compacted_seq": db.compacted_seq,
                "doc_count": db.docs, "doc_del_count": db.deleted_docs, "uuid": db.uuid,
                "epochs": epochs, "purge_count": db.purges, "revs_limit": db.revs_limit,
                "purge_infos_limit": db.purge_infos_limit,
                "purge_seq": last_purge(bytes, db),
                "sizes": {"file": headed.file_bytes, "active": db.active.filter(|_| own),
                    "external": db.external.filter(|_| own)},
                "tree_sizes": {"id": tree(db.trees.id), "seq": tree(db.trees.seq),
                    "local": tree(db.trees.local), "purge": tree(db.trees.purge),
                    "purge_seq": tree(db.trees.purge_seq)},
            })
        }
        Header::View(view) => match &view.committed {
            None => json!({"signature": view.signature.to_string(), "state": "reset",
                "update_seq": 0,
                "sizes": {"file": headed.file_bytes, "active": 0, "external": null}}),
            Some(index) => {
                let group = |group: &ViewGroup| {
                    let external = match group.tree {
                        TreeSize::Empty => Some(2),
                        TreeSize::Bytes(_) | TreeSize::Unknown => group.external,
                    };
                    json!({"active": group.tree.bytes(), "external": external,
                        "rows": group.rows, "reds": group.reduces})
                };
                json!({
                    "signature": view.signature.to_string(), "update_seq": index.update_seq,
                    "purge_seq": index.purge_seq, "id_tree_size": index.id_tree.bytes(),
                    "collator_versions": index.collators,
                    "views": index.views.iter().map(group).collect::<Vec<_>>(),
                    "sizes": {"file": headed.file_bytes, "active": index.active,
                        "external": index.external},
                })
            }
        },
    };
    all["header"] = place(headed.position);
    all
}

/// Recorded values that are not part of a header, or have a different form there.
const NOT_COMPARED: [&str; 7] =
    ["kind", "db_file_name", "comp_header", "props", "security", "header_format", "empty_views"];

#[test]
fn every_recorded_file_parses_to_its_recorded_values() {
    let expected = expected();
    assert_eq!(expected.len(), 41);
    for (name, expected) in expected {
        let bytes = file(&name);
        let got = parsed(&name, &bytes.as_slice());
        let mut wanted = expected["parsed"].clone();
        let fields = wanted.as_object_mut().unwrap();
        fields.retain(|field, _| !NOT_COMPARED.contains(&field.as_str()));
        // Sequences of groups are not decoded.
        for group in fields.get_mut("views").and_then(Value::as_array_mut).into_iter().flatten() {
            group.as_object_mut().unwrap().retain(|field, _| !field.ends_with("_seq"));
        }
        for absent in ["epochs", "collator_versions"] {
            if got.get(absent) == Some(&json!([])) {
                fields.entry(absent).or_insert_with(|| json!([]));
            }
        }
        assert_eq!(got, wanted, "{name}");
    }
}
