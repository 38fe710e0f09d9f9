//! The keys of `recliner.yml`: the book's table and its example.

use super::{
    generated::{codes, hold, sentence, table},
    recliner, section, text,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs};

fn schema() -> Value {
    let schema = recliner(&["check-config", "--schema"]);
    serde_json::from_slice(&schema.stdout).expect("the schema is JSON")
}

/// A key's row: its path, and its description in the schema.
struct KeyRow {
    path: String,
    kind: String,
    default: String,
    takes_effect: String,
    meaning: String,
}

/// The kinds of values that a key accepts, in a few words.
fn kind(schema: &Value) -> String {
    let words: Vec<&str> = schema["oneOf"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["const"].as_str())
        .chain(schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str))
        .collect();
    if !words.is_empty() {
        let mut once = BTreeSet::new();
        return codes(words.into_iter().filter(|word| once.insert(*word)));
    }
    if let Some(word) = schema["const"].as_str() {
        return codes([word]);
    }
    if let Some(either) = schema["anyOf"].as_array() {
        let kinds: BTreeSet<String> = either.iter().map(kind).filter(|it| !it.is_empty()).collect();
        return kinds.into_iter().collect::<Vec<_>>().join(" or ");
    }
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    let one = &schema["type"];
    let several = one.as_array().into_iter().flatten();
    let types: Vec<&str> = several.chain([one]).filter_map(Value::as_str).collect();
    if pattern.contains("nsec") {
        "duration".to_owned()
    } else if pattern.contains("[Ii][Bb]") {
        "size".to_owned()
    } else if pattern.contains('%') {
        "percentage".to_owned()
    } else if pattern.contains("[Hh][Tt][Tt][Pp]") {
        "URL".to_owned()
    } else if types.contains(&"array") {
        format!("list of: {}", kind(&schema["items"]))
    } else if types.contains(&"object") && schema["additionalProperties"].is_object() {
        format!("names, each with: {}", kind(&schema["additionalProperties"]))
    } else if types.contains(&"object") {
        "section".to_owned()
    } else if types.contains(&"integer") {
        match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
            (Some(min), Some(max)) => format!("integer, {min} to {max}"),
            (Some(0), None) => "integer, 0 or more".to_owned(),
            _ => "integer".to_owned(),
        }
    } else if types.contains(&"number") {
        match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
            (Some(min), Some(max)) => format!("number, {min} to {max}"),
            _ => "number".to_owned(),
        }
    } else if types.contains(&"boolean") {
        "`true`, `false`".to_owned()
    } else if types.contains(&"string") {
        "text".to_owned()
    } else {
        String::new()
    }
}

/// The rows of a section's keys, including its subsections.
fn rows_of(schema: &Value, path: &str, since: &str, rows: &mut Vec<KeyRow>) {
    let of_section = since;
    for (name, key) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let is_section = key["properties"].is_object() || key["items"]["properties"].is_object();
        // The default channels are shown on the page about channels.
        let is_list_of_sections = key["items"]["properties"].is_object();
        let default = key["default"].clone();
        let default = match default.as_str() {
            Some(text) => codes([text]),
            None if default.is_null() || is_list_of_sections && default != json!([]) => {
                String::new()
            }
            None => codes([default.to_string()]),
        };
        let mut meaning = sentence(key["description"].as_str().unwrap_or_default());
        for one in key["oneOf"].as_array().into_iter().flatten() {
            if let (Some(word), Some(about)) = (one["const"].as_str(), one["description"].as_str())
            {
                meaning.push_str(&format!(" {}: {}.", codes([word]), about));
            }
        }
        let since = key["x-takes-effect"].as_str().unwrap_or(of_section);
        rows.push(KeyRow {
            kind: if is_section { "section".to_owned() } else { kind(key) },
            default,
            takes_effect: since.to_owned(),
            meaning,
            path: path.clone(),
        });
        rows_of(key, &path, since, rows);
        rows_of(&key["items"], &format!("{path}[]"), since, rows);
        rows_of(&key["additionalProperties"], &format!("{path}.NAME"), since, rows);
    }
}

fn tables_of_keys() -> String {
    const HEADS: [&str; 4] = ["key", "value", "default", "meaning"];
    let cells = |row: KeyRow| {
        let KeyRow { path, kind, default, takes_effect, mut meaning } = row;
        if !["at once", ""].contains(&takes_effect.as_str()) {
            meaning.push_str(&format!(" A change takes effect with the {takes_effect}."));
        }
        [codes([path]), kind, default, meaning]
    };
    let schema = schema();
    let (mut text, mut single) = (String::new(), Vec::new());
    for (name, section) in schema["properties"].as_object().expect("the schema has keys") {
        let mut rows = Vec::new();
        rows_of(section, "", "", &mut rows);
        rows_of(&section["items"], "", "", &mut rows);
        // A list that a single word may replace.
        for one in section["anyOf"].as_array().into_iter().flatten() {
            rows_of(&one["items"], "", "", &mut rows);
        }
        if rows.is_empty() {
            rows_of(&json!({"properties": {name.as_str(): section}}), "", "", &mut single);
            continue;
        }
        let mut about = sentence(section["description"].as_str().unwrap_or_default());
        // A note that applies to all rows is printed once.
        let effects: BTreeSet<String> = rows.iter().map(|row| row.takes_effect.clone()).collect();
        if let Some(effect) = effects.first().filter(|it| effects.len() == 1 && **it != "at once") {
            about.push_str(&format!(" Changes take effect with the {effect}."));
            rows.iter_mut().for_each(|row| row.takes_effect.clear());
        }
        let table = table(HEADS, rows.into_iter().map(cells));
        text.push_str(&format!("### {}\n\n{about}\n\n{table}\n", codes([name])));
    }
    let single = table(HEADS, single.into_iter().map(cells));
    format!("### Keys without a section\n\n{single}\n{text}")
}

#[test]
fn book_lists_the_default_channels() {
    const KEYS: [&str; 7] =
        ["name", "kind", "priority", "min_priority", "min_size", "capacity", "concurrency"];
    let schema = schema();
    let channels = schema["properties"]["channels"]["default"].as_array();
    let rows = channels.expect("there are default channels").iter().map(|channel| {
        KEYS.map(|key| match (&channel[key], channel[key].as_str()) {
            (Value::Null, _) => String::new(),
            (_, Some(text)) => codes([text]),
            (other, None) => codes([other.to_string()]),
        })
    });
    hold("channels.md", &[("channels", table(KEYS, rows))]);
}

#[test]
fn book_lists_every_configuration_key() {
    hold("configuration.md", &[("keys", tables_of_keys())]);
}

/// The book's `recliner.yml`.
fn yaml() -> &'static str {
    section("Configuration")
        .split("```yaml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the book has a recliner.yml")
}

/// Each key of a document, with the unindented key above it.
fn keys(document: &str) -> BTreeSet<(String, String)> {
    let mut top = String::new();
    let mut found = BTreeSet::new();
    for line in document.lines() {
        let line = line.split(" #").next().unwrap_or_default();
        if line.starts_with(|c: char| c.is_ascii_lowercase()) {
            top = line.split(':').next().unwrap_or_default().to_owned();
        }
        let line = format!("{line} ");
        for (at, _) in line.match_indices(": ") {
            let word = line[..at].rsplit(|c: char| !(c.is_ascii_lowercase() || c == '_')).next();
            if let Some(word) = word.filter(|word| !word.is_empty() && *word != top) {
                found.insert((top.clone(), word.to_owned()));
            }
        }
        found.insert((top.clone(), String::new()));
    }
    found
}

/// The names of all properties in a part of a JSON Schema, except deprecated ones.
fn property_names(schema: &Value, names: &mut BTreeSet<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        let current = properties.iter().filter(|(_, one)| one["deprecated"] != true);
        names.extend(current.map(|(name, _)| name.clone()));
    }
    let parts = schema.as_array().into_iter().flatten();
    let parts = parts.chain(schema.as_object().into_iter().flat_map(serde_json::Map::values));
    parts.for_each(|part| property_names(part, names));
}

#[test]
fn books_example_configuration_is_valid_and_complete() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), yaml()).expect("a temporary file");
    let checked =
        recliner(&["check-config", "--config.file", file.path().to_str().expect("a plain path")]);
    let stdout = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let findings: Vec<&str> = stdout.lines().filter(|line| line.starts_with('#')).collect();
    assert!(findings.is_empty(), "{findings:#?}");

    let schema = schema();
    let mut described = BTreeSet::new();
    for (top, section) in schema["properties"].as_object().expect("the schema has keys") {
        described.insert((top.clone(), String::new()));
        let mut names = BTreeSet::new();
        property_names(section, &mut names);
        described.extend(names.into_iter().map(|name| (top.clone(), name)));
    }
    let written = keys(yaml());
    let missing: Vec<_> = described.difference(&written).collect();
    assert!(missing.is_empty(), "the book's recliner.yml lacks {missing:?}");
}
