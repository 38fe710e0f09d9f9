//! Signatures compared with those that CouchDB computed.

use super::*;
use crate::{
    Header, read,
    tests::files::{expected, file},
};
use serde_json::Value;

fn signatures(text: &str) -> (String, String) {
    let design = Design::parse(text).unwrap();
    (design.signature.to_string(), design.signature_2x.to_string())
}

#[test]
fn each_recorded_view_has_the_signature_of_its_design_document() {
    let mut compared = 0;
    for (name, expected) in expected() {
        if let Some(text) = expected["ddoc_raw"].as_str() {
            let wanted = expected["http"]["signature"].as_str().unwrap();
            assert_eq!(signatures(text).0, wanted, "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared, 12);
}

#[test]
fn external_size_of_each_recorded_index_equals_couchdbs() {
    let mut compared = 0;
    for (name, expected) in expected() {
        let (Some(text), wanted) =
            (expected["ddoc_raw"].as_str(), &expected["http"]["sizes"]["external"])
        else {
            continue;
        };
        let design = Design::parse(text).unwrap();
        let bytes = file(&name);
        let got = match read(&bytes.as_slice()).unwrap().header {
            // CouchDB found a different signature there and reset the index.
            Header::View(view) if name == "dmg_view_wrong_sig.view" => {
                assert_ne!(view.signature, design.signature);
                design.empty_bytes()
            }
            Header::View(view) => match view.committed {
                Some(index) => index.external_with(&design.groups),
                None => design.empty_bytes(),
            },
            Header::Db(_) | Header::Compaction(_) => None,
        };
        assert_eq!(Value::from(got), *wanted, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 12);
}
