//! A design document to be deployed, and what it changes.
//!
//! CouchDB computes one signature from all views, language, options and library of a document, and
//! keeps all its views in the one index that this signature names
//! (`couch_mrview_util:ddoc_to_mrst/2`). So changing one view rebuilds all; validation, filters,
//! shows, updates and other fields are not part of the signature.

use crate::text::listed;
use couchdb_files::Design;
use couchdb_names::Signature;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use strum::{IntoStaticStr, VariantNames};

/// Prefix of the ids of design documents.
const PREFIX: &str = "_design/";

/// The fields that decide which views are built, and when.
pub const INDEX_FIELDS: [&str; 4] = ["autoupdate", "language", "options", "views"];

/// Maximum number of values in a document, because each takes up to a hundred times the memory of
/// its text.
const MAX_VALUES: usize = 50_000;

/// A design document.
#[derive(Clone, Debug)]
pub struct DesignDocument {
    /// Its id, `_design/x`.
    pub id: String,
    /// Its revision; none if the text has none.
    pub rev: Option<String>,
    /// The language of its views, with CouchDB's default.
    pub language: String,
    /// The signature of its index.
    pub signature: Signature,
    /// Its views that have a map function, by name.
    pub views: BTreeMap<String, Value>,
    /// Whether its indexes are built before anybody queries them.
    pub is_updated_automatically: bool,
    pub(super) lib: Option<Value>,
    pub(super) options: Option<Value>,
    pub(super) searches: Vec<SearchIndex>,
    /// Names of its other fields, such as `filters`.
    pub(super) other_fields: BTreeSet<String>,
}

/// Why a text is not a design document that CouchDB could index; it follows the name of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DesignProblem(String);

impl DesignProblem {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// A problem of a deployment of several documents.
    pub fn of_deployment(why: &str) -> Self {
        Self(format!("is not a deployment: it {why}"))
    }

    /// The same for one of several documents.
    #[must_use]
    pub fn of(self, name: &str) -> Self {
        Self(format!("{name} {}", self.0))
    }

    /// A part of the document is something that CouchDB does not accept.
    fn invalid(why: &str) -> Self {
        Self(format!("is not a design document that CouchDB accepts: {why}"))
    }
}

/// How a view differs from the present document.
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewChange {
    /// The present document does not have it.
    Added,
    /// The new document does not have it.
    Removed,
    /// These parts of it differ: `map`, `reduce`, `options`.
    Changed(Vec<&'static str>),
    /// It is the same.
    Same,
}

impl ViewChange {
    /// Every label.
    pub const LABELS: &[&str] = Self::VARIANTS;

    /// The label in JSON.
    pub fn label(&self) -> &'static str {
        self.into()
    }
}

/// What differs between two documents.
#[derive(Clone, Debug, Default)]
pub(super) struct Difference {
    pub(super) views: Vec<(String, ViewChange)>,
    /// Changes that concern all views, as sentences.
    pub(super) document: Vec<String>,
}

/// Whether a JSON text has more values than [`MAX_VALUES`].
fn has_too_many_values(text: &str) -> bool {
    let (mut values, mut is_text, mut is_escaped) = (1_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => values += 1,
            _ => {}
        }
    }
    values > MAX_VALUES
}

impl DesignDocument {
    /// Reads a document's JSON text, exactly as it will be sent: the order of keys is part of the
    /// signature. `id` is used if the text has none.
    ///
    /// # Errors
    /// If CouchDB would not take it as a design document.
    pub fn parse(text: &str, id: Option<&str>) -> Result<Self, DesignProblem> {
        if has_too_many_values(text) {
            let why = format!("has more than {MAX_VALUES} lists, objects, strings and numbers");
            return Err(DesignProblem(why));
        }
        let document = serde_json::from_str(text)
            .map_err(|why| DesignProblem(format!("is not JSON: {why}")))?;
        let Value::Object(document) = document else {
            return Err(DesignProblem::new("is not a design document: it is not a JSON object"));
        };
        let id = id_of(&document, id)?;
        let (views, lib) = views_of(&document)?;
        let language = match document.get("language") {
            None => "javascript".to_owned(),
            Some(Value::String(language)) => language.clone(),
            Some(_) => return Err(DesignProblem::invalid("language is not a string")),
        };
        let signature =
            Design::parse(text).map_err(|why| DesignProblem::invalid(&why.to_string()))?.signature;
        let autoupdate = document.get("autoupdate");
        let off = |value: &Value| *value == false || value.get("views") == Some(&false.into());
        let rev = document.get("_rev").and_then(Value::as_str).map(ToOwned::to_owned);
        Ok(Self {
            id,
            rev,
            language,
            signature,
            views,
            is_updated_automatically: !autoupdate.is_some_and(off),
            lib,
            options: document.get("options").cloned(),
            searches: searches_of(&document),
            other_fields: document.keys().filter(|name| is_other(name)).cloned().collect(),
        })
    }

    /// Fields that the current document has and this one lacks: saving this one removes them. Views
    /// are not among them, and attachments may be kept.
    pub(super) fn lost_fields(&self, present: Option<&Self>) -> Vec<String> {
        let lost = present.map(|present| present.other_fields.difference(&self.other_fields));
        lost.into_iter().flatten().cloned().collect()
    }

    /// Whether its views are in the index with this signature.
    pub(super) fn has_index(&self, signature: Signature) -> bool {
        !self.views.is_empty() && self.signature == signature
    }

    /// Names of the search indexes that are built as well: those that the current document does not
    /// have in the same form.
    pub(super) fn new_searches(&self, present: Option<&Self>) -> Vec<String> {
        let is_same = |one: &SearchIndex, other: &SearchIndex| {
            (one.engine, &one.name) == (other.engine, &other.name)
                && is_same_search(&one.definition, &other.definition)
        };
        let has_same = |search: &SearchIndex| {
            present.is_some_and(|present| present.searches.iter().any(|it| is_same(search, it)))
        };
        let new = self.searches.iter().filter(|search| !has_same(search));
        new.map(|search| search.name.clone()).collect()
    }

    /// Checks that CouchDB has a query server for the language of its views.
    ///
    /// # Errors
    /// If it has views in a language that is not among these.
    pub fn check_language(&self, built: &BTreeSet<String>) -> Result<(), DesignProblem> {
        if self.views.is_empty() || built.contains(&self.language) {
            return Ok(());
        }
        let built = listed(&built.iter().cloned().collect::<Vec<_>>());
        Err(DesignProblem(format!(
            "has views in the language {:?}, which CouchDB does not build; it builds {built}",
            self.language
        )))
    }

    /// The views that another document also has, under any name; empty if anything else that
    /// affects their index differs.
    pub(super) fn views_of(&self, other: &Self) -> BTreeSet<String> {
        let decides = |it: &Self| (it.language.clone(), it.options.clone(), it.lib.clone());
        if decides(self) != decides(other) {
            return BTreeSet::new();
        }
        let shared =
            self.views.iter().filter(|(_, view)| other.views.values().any(|it| it == *view));
        shared.map(|(name, _)| name.clone()).collect()
    }

    /// Differences from the current document; without one, everything is new.
    pub(super) fn difference(&self, present: Option<&Self>) -> Difference {
        let none = BTreeMap::new();
        let before = present.map_or(&none, |present| &present.views);
        let names: BTreeSet<&String> = before.keys().chain(self.views.keys()).collect();
        let views = names.into_iter().map(|name| {
            let change = match (before.get(name), self.views.get(name)) {
                (None, _) => ViewChange::Added,
                (Some(_), None) => ViewChange::Removed,
                (Some(old), Some(new)) => view_change(old, new),
            };
            (name.clone(), change)
        });
        let mut difference = Difference { views: views.collect(), document: Vec::new() };
        let Some(present) = present else { return difference };
        let language =
            format!("The language changes from {} to {}.", present.language, self.language);
        let changes = [
            (self.language != present.language, &*language),
            (self.options != present.options, "The options of the document change."),
            (self.lib != present.lib, "The library (views.lib) changes, which all views share."),
        ];
        let changes = changes.into_iter().filter(|(differs, _)| *differs);
        difference.document = changes.map(|(_, says)| says.to_owned()).collect();
        let are_same = difference.views.iter().all(|(_, change)| *change == ViewChange::Same);
        if self.signature != present.signature && are_same && difference.document.is_empty() {
            difference.document.push(
                "The views are the same, but they or the keys of their options are in another order, which changes the signature. Keep the present order, and nothing is built."
                    .to_owned(),
            );
        }
        difference
    }
}

/// Whether a field is neither CouchDB's own nor part of what is compared view by view.
fn is_other(name: &str) -> bool {
    !name.starts_with('_') && !INDEX_FIELDS.contains(&name)
}

fn id_of(document: &Map<String, Value>, given: Option<&str>) -> Result<String, DesignProblem> {
    let is_named = |id: &str| id.len() > PREFIX.len() && id.starts_with(PREFIX);
    let other_id = |id: &str| {
        DesignProblem(format!(
            "is not a design document: its _id is {id:?}; ids of design documents begin with _design/"
        ))
    };
    match (document.get("_id"), given) {
        (Some(Value::String(id)), _) if is_named(id) => Ok(id.clone()),
        (Some(Value::String(id)), _) => Err(other_id(id)),
        (Some(_), _) => Err(DesignProblem::invalid("_id is not a string")),
        (None, _) if !has_indexes(document) => Err(DesignProblem::new(
            "is not a design document: it has neither views nor search indexes nor an _id that begins with _design/",
        )),
        (None, Some(id)) if is_named(id) => Ok(id.to_owned()),
        (None, Some(id)) => Err(other_id(id)),
        (None, None) => Err(DesignProblem::new("has no _id; add \"_id\": \"_design/NAME\"")),
    }
}

/// Whether it defines indexes of any kind, as only design documents do.
fn has_indexes(document: &Map<String, Value>) -> bool {
    document.contains_key("views") || SEARCH_KEYS.iter().any(|key| document.contains_key(*key))
}

/// The views with map functions, and the library.
fn views_of(
    document: &Map<String, Value>,
) -> Result<(BTreeMap<String, Value>, Option<Value>), DesignProblem> {
    let mut found = BTreeMap::new();
    let views = match document.get("views") {
        None => return Ok((found, None)),
        Some(Value::Object(views)) => views,
        Some(_) => return Err(DesignProblem::invalid("views is not an object")),
    };
    for (name, view) in views.iter().filter(|(name, _)| *name != "lib") {
        let Value::Object(parts) = view else {
            return Err(DesignProblem::invalid(&format!("the view {name:?} is not an object")));
        };
        match parts.get("map") {
            Some(Value::String(_) | Value::Object(_)) => found.insert(name.clone(), view.clone()),
            Some(_) => {
                return Err(DesignProblem::invalid(&format!(
                    "the map of the view {name:?} is not a string"
                )));
            }
            None => return Err(DesignProblem::invalid(&format!("the view {name:?} has no map"))),
        };
    }
    Ok((found, views.get("lib").cloned()))
}

/// Whether two definitions of a search index say the same. Where one lacks `lucene_version`, CouchDB 3.5.2 added
/// it to the other when it saved the document (`nouveau_plugin_couch_db:add_versions_to_doc/1`).
pub fn is_same_search(one: &Value, other: &Value) -> bool {
    let parts = |definition: &Value| {
        let mut rest = definition.clone();
        let version = rest.as_object_mut().and_then(|fields| fields.remove("lucene_version"));
        (version, rest)
    };
    let ((one, rest), (other, other_rest)) = (parts(one), parts(other));
    rest == other_rest && (one == other || one.is_none() || other.is_none())
}

/// A search index of a document: of nouveau, or of Clouseau.
#[derive(Clone, Debug)]
pub(super) struct SearchIndex {
    engine: &'static str,
    name: String,
    definition: Value,
}

/// The keys under which a document has search indexes: Clouseau's and nouveau's.
const SEARCH_KEYS: [&str; 2] = ["indexes", "nouveau"];

/// The search indexes of a document. CouchDB ignores entries that are not objects; entries without
/// a definition are ignored here. Neither affects which views are built.
fn searches_of(document: &Map<String, Value>) -> Vec<SearchIndex> {
    let of_engine = |engine: &'static str| {
        let indexes = document.get(engine).and_then(Value::as_object).into_iter().flatten();
        indexes.map(move |(name, definition)| SearchIndex {
            engine,
            name: name.clone(),
            definition: definition.clone(),
        })
    };
    SEARCH_KEYS.into_iter().flat_map(of_engine).collect()
}

fn view_change(old: &Value, new: &Value) -> ViewChange {
    let differs = |part: &&str| {
        // A null `reduce` counts as absent.
        let part = |view: &Value| view.get(*part).filter(|value| !value.is_null()).cloned();
        part(old) != part(new)
    };
    let parts: Vec<&str> = ["map", "reduce", "options"].into_iter().filter(differs).collect();
    if parts.is_empty() { ViewChange::Same } else { ViewChange::Changed(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DesignDocument, DesignProblem> {
        DesignDocument::parse(text, None)
    }

    fn design(views: &str) -> DesignDocument {
        parse(&format!(r#"{{"_id":"_design/x","views":{views}}}"#)).unwrap()
    }

    #[test]
    fn fields_missing_from_the_new_document_are_reported_lost() {
        let present = parse(
            r#"{"_id":"_design/x","_rev":"1-a","_attachments":{},"views":{"a":{"map":"m"}},
                "options":{},"autoupdate":false,"validate_doc_update":"v","filters":{}}"#,
        );
        let (present, new) = (present.unwrap(), design(r#"{"a":{"map":"m"}}"#));
        assert_eq!(new.lost_fields(Some(&present)), ["filters", "validate_doc_update"]);
        assert!(present.lost_fields(Some(&new)).is_empty() && new.lost_fields(None).is_empty());
    }

    #[test]
    fn only_new_or_changed_search_indexes_are_built() {
        let text = r#"{"_id":"_design/x","nouveau":{"by_text":{"index":"f"}},"indexes":{"old":{"index":"g"}}}"#;
        let design = parse(text).unwrap();
        assert!(design.views.is_empty());
        assert_eq!(design.new_searches(None), ["old", "by_text"]);
        assert_eq!(design.new_searches(Some(&design)), [""; 0]);
        let present = r#"{"_id":"_design/x","nouveau":{"by_text":{"index":"other"}},"indexes":{"old":{"index":"g"}}}"#;
        assert_eq!(design.new_searches(Some(&parse(present).unwrap())), ["by_text"]);
        let saved = text.replace(r#""f""#, r#""f","lucene_version":10"#);
        let (saved, older) = (parse(&saved).unwrap(), parse(&saved.replace("10", "9")).unwrap());
        assert_eq!(design.new_searches(Some(&saved)), [""; 0]);
        assert_eq!(older.new_searches(Some(&saved)), ["by_text"]);
        let unnamed = r#"{"indexes":{"a":{}}}"#;
        assert_eq!(DesignDocument::parse(unnamed, Some("_design/y")).unwrap().id, "_design/y");
        assert!(parse(unnamed).unwrap_err().to_string().starts_with("has no _id"));
    }

    #[test]
    fn says_why_a_text_is_not_a_design_document() {
        for (text, says) in [
            ("{", "is not JSON: EOF while parsing an object at line 1 column 1"),
            ("[]", "is not a design document: it is not a JSON object"),
            (
                "{}",
                "is not a design document: it has neither views nor search indexes nor an _id that begins with _design/",
            ),
            (
                r#"{"_id":"order:7"}"#,
                "is not a design document: its _id is \"order:7\"; ids of design documents begin with _design/",
            ),
            (
                r#"{"_id":"_design/","views":{}}"#,
                "is not a design document: its _id is \"_design/\"; ids of design documents begin with _design/",
            ),
            (r#"{"views":{}}"#, "has no _id; add \"_id\": \"_design/NAME\""),
            (
                r#"{"_id":"_design/x","views":[]}"#,
                "is not a design document that CouchDB accepts: views is not an object",
            ),
            (
                r#"{"_id":"_design/x","views":{"a":{"reduce":"_sum"}}}"#,
                "is not a design document that CouchDB accepts: the view \"a\" has no map",
            ),
            (
                r#"{"_id":"_design/x","views":{"a":{"map":3}}}"#,
                "is not a design document that CouchDB accepts: the map of the view \"a\" is not a string",
            ),
            (
                r#"{"_id":"_design/x","views":{"a":{"map":""}},"options":3}"#,
                "is not a design document that CouchDB accepts: options of the design document is not an object",
            ),
        ] {
            assert_eq!(parse(text).map(|it| it.id).unwrap_err().to_string(), says, "{text}");
        }
    }

    #[test]
    fn given_id_is_used_only_if_text_has_none() {
        let given = |text| DesignDocument::parse(text, Some("_design/file")).map(|it| it.id);
        assert_eq!(given(r#"{"views":{}}"#).unwrap(), "_design/file");
        assert_eq!(given(r#"{"_id":"_design/x","views":{}}"#).unwrap(), "_design/x");
    }

    #[test]
    fn names_language_that_couchdb_does_not_build() {
        let built = ["erlang", "javascript"].map(str::to_owned).into();
        let check = |views| {
            let text =
                format!(r#"{{"_id":"_design/x","language":"coffeescript","views":{views}}}"#);
            parse(&text).unwrap().check_language(&built).map_err(|why| why.to_string())
        };
        assert_eq!(check("{}"), Ok(()));
        let says = "has views in the language \"coffeescript\", which CouchDB does not build; it builds erlang and javascript";
        assert_eq!(check(r#"{"a":{"map":"->"}}"#), Err(says.to_owned()));
        assert_eq!(design(r#"{"a":{"map":"m"}}"#).check_language(&built), Ok(()));
    }

    #[test]
    fn fields_outside_the_signature_do_not_count_as_changes() {
        let present = design(r#"{"a":{"map":"m"},"b":{"map":"n","reduce":"_sum"}}"#);
        let text = r#"{"_id":"_design/x","_rev":"3-x","filters":{"f":"x"},
            "views":{"a":{"map":"m","reduce":null},"b":{"map":"n","reduce":"_sum"}}}"#;
        let same = parse(text).unwrap();
        assert_eq!(same.signature, present.signature);
        let difference = same.difference(Some(&present));
        assert!(difference.views.iter().all(|(_, change)| *change == ViewChange::Same));
        assert!(difference.document.is_empty(), "{difference:?}");
    }

    #[test]
    fn difference_names_changed_views_and_their_parts() {
        let present = design(
            r#"{"a":{"map":"m"},"b":{"map":"n","reduce":"_sum"},"gone":{"map":"g"},"lib":{"l":"1"}}"#,
        );
        let new = design(
            r#"{"a":{"map":"m2"},"b":{"map":"n","reduce":"_count"},"more":{"map":"g"},"lib":{"l":"2"}}"#,
        );
        let difference = new.difference(Some(&present));
        let views: Vec<_> =
            difference.views.iter().map(|(name, it)| (name.as_str(), it.label())).collect();
        assert_eq!(
            views,
            [("a", "changed"), ("b", "changed"), ("gone", "removed"), ("more", "added")]
        );
        assert_eq!(difference.views[1].1, ViewChange::Changed(vec!["reduce"]));
        assert_eq!(
            difference.document,
            ["The library (views.lib) changes, which all views share."]
        );
    }

    #[test]
    fn reordering_views_with_the_same_map_is_an_avoidable_rebuild() {
        let present = design(r#"{"a":{"map":"m"},"b":{"map":"m"}}"#);
        let new = design(r#"{"b":{"map":"m"},"a":{"map":"m"}}"#);
        assert_ne!(present.signature, new.signature);
        let difference = new.difference(Some(&present));
        assert_eq!(difference.document.len(), 1, "{difference:?}");
        assert!(difference.document[0].contains("which changes the signature"));
    }
}
