//! The JSON Schema accepts what the reader accepts, and refuses invalid values of single keys.

use super::*;
use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// The schema, compiled once for many documents.
struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    fn new() -> Self {
        let mut schemas = Schemas::new();
        let mut compiler = Compiler::new();
        compiler.add_resource("recliner.json", schema()).unwrap();
        let index = compiler.compile("recliner.json", &mut schemas).unwrap();
        Self { schemas, index }
    }

    /// Validates a document; the error lists its problems.
    fn validate(&self, text: &str) -> Result<(), String> {
        let document: Value = yaml_serde::from_str(text).map_err(|why| why.to_string())?;
        self.schemas.validate(&document, self.index).map_err(|why| why.to_string())
    }
}

/// Files with problems that no schema can detect: YAML syntax, two keys that conflict, names of
/// time zones, and texts that need a parser.
const BEYOND_A_SCHEMA: [&str; 17] = [
    "a_tag.yml",
    "alias_to_itself.yml",
    "alias_unknown.yml",
    "aliases_without_end.yml",
    "channel_bounds.yml",
    "channel_twice.yml",
    "duplicate_key.yml",
    "failure.yml",
    "interval_followed.yml",
    "login.yml",
    "marks.yml",
    "no_nodes.yml",
    "password_without_user.yml",
    "shared_limits.yml",
    "two_documents.yml",
    "user_without_password.yml",
    "all_and_more.yml",
];

/// The book's `recliner.yml`.
fn example() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/src/configuration.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, block) = page.split_once("```yaml\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn schema_accepts_all_valid_examples() {
    let validator = Validator::new();
    validator.validate(&example()).unwrap_or_else(|why| panic!("the book: {why}"));
    let full = fs::read_to_string(data().join("full.yml")).unwrap();
    let written = [to_yaml(&settings(&full)), to_yaml(&settings(""))];
    let written = written.into_iter().map(|text| ("written".to_owned(), text));
    let sound = examples::files("noted").into_iter().chain([("full.yml".to_owned(), full)]);
    for (name, text) in sound.chain(written) {
        validator.validate(&text).unwrap_or_else(|why| panic!("{name}: {why}\n{text}"));
    }
}

#[test]
fn schema_refuses_invalid_examples() {
    let validator = Validator::new();
    let taken: Vec<String> = examples::files("bad")
        .into_iter()
        .filter(|(name, _)| !BEYOND_A_SCHEMA.contains(&&**name))
        .filter(|(_, text)| validator.validate(text).is_ok())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(taken, [""; 0]);
}

#[test]
fn schema_and_reader_refuse_the_same_values() {
    let validator = Validator::new();
    for text in [
        "poll: 5",
        "poll: 5 parsecs",
        "poll: [5s]",
        "polls: 5s",
        "limits: {wait: 5}",
        "limits: {per_node: -1}",
        "limits: {bytes_per_hour: 20Q}",
        "headroom: {keep_free: 101%}",
        "headroom: {volumes: [{nodes: [couchdb@a]}]}",
        "couchdb: {urls: [couch-a]}",
        "couchdb: {urls: [\"http://adm:x@couch-a\"]}",
        "couchdb: {cold_reads_per_second: on}",
        "couchdb: {tls: {cert_file: a}}",
        "nodes: [couch-a]",
        "channels: [{name: a}]",
        "channels: [{name: a, kind: cleanup, priority: ratio}]",
        "channels: [{name: a, kind: db, min_priority: 1GiB}]",
        "channels: [{name: a, kind: db, windows: [{from: 8}]}]",
        "channels: [{name: a, kind: db, windows: [{days: [monday]}]}]",
        "views: {enforce: q2}",
        "journal: {events: {max_size: 3}}",
        "scan: 5m",
        "web: {}",
    ] {
        assert!(validator.validate(text).is_err(), "the schema accepts {text}");
        assert!(load_text(&flags(), text).is_err(), "the reader accepts {text}");
    }
}

#[test]
fn schema_and_reader_accept_the_same_units() {
    let validator = Validator::new();
    for text in [
        "limits: {wait: 0}",
        "limits: {duty: 1%}",
        "limits: {duty: 100%}",
        "limits: {wait: 1h 30m}",
        "limits: {wait: 1.5s}",
        "limits: {bytes_per_hour: 1048576}",
        "limits: {bytes_per_hour: 20 GB}",
        "limits: {bytes_per_hour: 1.5KiB}",
        "headroom: {keep_free: 12.5%}",
        "headroom: {keep_free: 100%}",
        "couchdb: {cold_reads_per_second: 7}",
        "couchdb: {trust_node_hosts: [\"fd00::1\", 10.0.0.7]}",
        "channels: [{name: a, kind: db, priority: slack, min_priority: 1GiB, max_priority: 2GiB}]",
        "channels: [{name: a, kind: db, max_priority: infinity, max_size: infinity}]",
        "channels: [{name: a, kind: db, windows: [{days: [Fri - mon], to: \"24:00\"}]}]",
        "warmer: {limit: 3}",
    ] {
        validator.validate(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        load_text(&flags(), text).unwrap_or_else(|why| panic!("{text}: {why}"));
    }
}

/// Collects every key of a document, as `.section.key`; all items of a list count as one.
fn keys_of(document: &Value, path: &str, keys: &mut std::collections::BTreeSet<String>) {
    for (name, value) in document.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        keys_of(value, &path, keys);
        keys.insert(path);
    }
    for item in document.as_array().into_iter().flatten() {
        keys_of(item, path, keys);
    }
}

#[test]
fn example_in_book_has_every_key() {
    let mut written = std::collections::BTreeSet::new();
    keys_of(&yaml_serde::from_str(&example()).unwrap(), "", &mut written);
    let mut missing = Vec::new();
    each_key(&schema(), "", &mut |path, key| {
        if key["deprecated"] != true && !written.contains(path) {
            missing.push(path.to_owned());
        }
    });
    assert_eq!(missing, [""; 0]);
}

/// Calls `look` with the path and the schema of every key.
fn each_key(schema: &Value, path: &str, look: &mut impl FnMut(&str, &Value)) {
    for (name, key) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        look(&path, key);
        each_key(key, &path, look);
        each_key(&key["items"], &path, look);
    }
}

#[test]
fn schema_describes_every_key_and_refuses_unknown_ones() {
    let mut keys = 0;
    each_key(&schema(), "", &mut |path, key| {
        keys += 1;
        let about = key["description"].as_str().unwrap_or_default();
        assert!(about.ends_with('.') && about.len() > 10, "{path}: {about:?}");
        let is_section = key["properties"].is_object();
        assert!(!is_section || key["additionalProperties"] == false, "{path} accepts any key");
    });
    assert!(keys > 90, "{keys} keys");
}

#[test]
fn schema_has_the_defaults_of_the_reader() {
    let defaults = schema();
    let key = |section: &str, key: &str| {
        defaults["properties"][section]["properties"][key]["default"].clone()
    };
    assert_eq!(key("limits", "per_node"), 2);
    assert_eq!(key("limits", "bytes_per_hour"), "500GiB");
    assert_eq!(key("headroom", "keep_free"), "10%");
    assert_eq!(key("scan", "interval"), "5m");
    assert_eq!(key("couchdb", "username"), Value::Null);
    assert_eq!(defaults["properties"]["mode"]["default"], "advise");
    assert_eq!(defaults["properties"]["nodes"]["default"][0], "_all");
}
