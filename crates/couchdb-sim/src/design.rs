//! Design documents as CouchDB stores them, and the signatures of their indexes.
//!
//! Owns the JSON of a described design document. Does not know its database or how far its index is
//! built. Used by the world, and by the routes that return documents.

use super::{
    config::{Design, Search},
    growth::{key_of, mix},
};
use couchdb_names::{Engine, Signature};
use serde_json::{Map, Value, json as value};

/// A design document as CouchDB returns it.
pub(super) fn document(design: &Design) -> Map<String, Value> {
    if let Some(saved) = &design.saved {
        return saved.clone();
    }
    let mut doc = Map::new();
    let id = format!("_design/{}", design.name);
    doc.insert("_rev".to_owned(), revision(&id).into());
    doc.insert("_id".to_owned(), id.into());
    if design.language != "javascript" {
        doc.insert("language".to_owned(), design.language.as_str().into());
    }
    if !design.autoupdate {
        doc.insert("autoupdate".to_owned(), false.into());
    }
    for (engine, field) in [(Engine::Nouveau, "nouveau"), (Engine::Clouseau, "indexes")] {
        let of = design.searches.iter().filter(|search| search.engine == engine);
        let defined: Map<String, Value> = of.map(search).collect();
        if !defined.is_empty() {
            doc.insert(field.to_owned(), defined.into());
        }
    }
    if design.views.is_empty() && design.searches.is_empty() {
        doc.insert("filters".to_owned(), value!({"all": "function(doc){return true}"}));
        return doc;
    }
    if design.views.is_empty() {
        return doc;
    }
    // An index named `by-r` is on the field `r`.
    let field = |name: &str| name.strip_prefix("by-").unwrap_or(name).to_owned();
    let view = |name: &String| {
        let mut view = match design.language.as_str() {
            "query" => value!({
                "map": {"fields": {field(name): "asc"}, "partial_filter_selector": {}},
                "options": {"def": {"fields": [field(name)]}},
            }),
            _ => value!({"map": format!("function(doc){{emit(doc[{name:?}],null)}}")}),
        };
        if let Some(view) = view.as_object_mut().filter(|_| reduces(design)) {
            view.insert("reduce".to_owned(), "_count".into());
        }
        view
    };
    let views: Map<String, Value> =
        design.views.iter().map(|name| (name.clone(), view(name))).collect();
    doc.insert("views".to_owned(), views.into());
    doc
}

/// The definition of a search index on the field that its name gives.
fn search(search: &Search) -> (String, Value) {
    let (field, analyzer) = match search.engine {
        Engine::Nouveau => ("index(\"text\",", "default_analyzer"),
        Engine::Clouseau => ("index(", "analyzer"),
    };
    let name = &search.name;
    let function = format!("function(doc){{{field}{name:?},doc[{name:?}])}}");
    (name.clone(), value!({analyzer: "standard", "index": function}))
}

/// A document that a client saves over this one, and its revision. Its index is not built.
pub(super) fn saved_over(
    old: Option<&Design>,
    name: &str,
    mut body: Map<String, Value>,
    at: u64,
) -> (Design, String) {
    let before = old.map_or_else(String::new, rev_of);
    let generation = before.split('-').next().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    let hash = key_of(&Value::from(body.clone()).to_string());
    let rev = format!("{}-{:016x}{:016x}", generation + 1, mix(hash, at), mix(hash, 2));
    body.insert("_id".to_owned(), format!("_design/{name}").into());
    body.insert("_rev".to_owned(), rev.clone().into());
    let views: Map<String, Value> =
        body.get("views").and_then(Value::as_object).cloned().unwrap_or_default();
    let text = |field: &str| body.get(field).and_then(Value::as_str);
    let design = Design {
        reduces: views.values().any(|view| view.get("reduce").is_some()),
        views: views.into_iter().map(|(name, _)| name).filter(|name| name != "lib").collect(),
        language: text("language").unwrap_or("javascript").to_owned(),
        autoupdate: body.get("autoupdate") != Some(&false.into()),
        built: 0.0,
        saved: Some(body),
        ..Design::new(name)
    };
    (design, rev)
}

/// The revision of a document.
pub(super) fn rev_of(design: &Design) -> String {
    let saved = design.saved.as_ref().and_then(|it| it.get("_rev")?.as_str());
    saved.map_or_else(|| revision(&format!("_design/{}", design.name)), ToOwned::to_owned)
}

/// A first revision.
pub(super) fn revision(id: &str) -> String {
    let key = key_of(id);
    format!("1-{:016x}{:016x}", mix(key, 1), mix(key, 2))
}

/// Whether the views of a design document reduce; mango's always do.
pub(super) fn reduces(design: &Design) -> bool {
    design.reduces || design.language == "query"
}

/// The signature of a document's index, which depends on its map and reduce functions, not on its
/// name.
pub(super) fn signature_of(design: &Design) -> Signature {
    let text = Value::from(document(design)).to_string();
    // Every described document has a signature.
    couchdb_files::Design::parse(&text).map_or(Signature([0; 16]), |parsed| parsed.signature)
}
