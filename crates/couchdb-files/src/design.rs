//! The signature of a design document's views, by which CouchDB names their index file.
//!
//! Owns the rule that makes it from the document's JSON text, and what CouchDB counts for a
//! group of views without rows. The order of keys counts, so that the text must come as CouchDB
//! sent it. Never reads a file.

mod encode;
mod json;

use couchdb_names::Signature;
use encode::Encoder;
use json::{Json, Pairs, member};
use md5::{Digest, Md5};

/// What follows from a design document for its index files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// The name of its index file since CouchDB 3.
    pub signature: Signature,
    /// The name before; CouchDB 3 renames such a file when it first opens it.
    pub signature_2x: Signature,
    /// Groups of views that share map and options, in the order of [`super::Index::views`].
    pub groups: Vec<EmptyGroup>,
}

/// What CouchDB counts as external bytes of a group of views while it has no rows; `None` where
/// a reduce is not built in, so that only CouchDB can tell.
pub type EmptyGroup = Option<u64>;

/// Why a text gives no signature.
#[derive(Debug, thiserror::Error)]
pub enum BadDesign {
    /// It is not JSON, or not such that numbers can be told apart.
    #[error("not a document that can be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A part that must be an object is none; CouchDB cannot index such a document either.
    #[error("{0} of the design document is no object")]
    NoObject(&'static str),
}

impl Design {
    /// Reads a design document's JSON text.
    ///
    /// # Errors
    /// When it is not JSON, or CouchDB could not make views of it.
    pub fn parse(text: &str) -> Result<Self, BadDesign> {
        let document = object(Some(serde_json::from_str(text)?), "all")?;
        let part = |name| member(&document, name).cloned();
        let views = object(part("views"), "views")?;
        let made_of = MadeOf {
            groups: groups(&views)?,
            language: part("language").unwrap_or_else(|| Json::Text("javascript".to_owned())),
            options: object(part("options"), "options")?,
            lib: sorted(object(member(&views, "lib").cloned(), "views.lib")?),
        };
        Ok(Self {
            signature: made_of.signature(MadeOf::view_3x),
            signature_2x: made_of.signature(MadeOf::view_2x),
            groups: made_of.groups.iter().map(Group::without_rows).collect(),
        })
    }

    /// What CouchDB counts as external bytes of its index while nothing is committed.
    #[must_use]
    pub fn without_rows(&self) -> Option<u64> {
        self.groups.iter().copied().sum()
    }
}

/// Views that share map and options, and so one tree; what comes later stands in front.
struct Group<'a> {
    map: &'a Json,
    options: Pairs,
    maps: Vec<&'a str>,
    reduces: Vec<(&'a str, &'a Json)>,
}

/// What a signature is a digest of.
struct MadeOf<'a> {
    groups: Vec<Group<'a>>,
    language: Json,
    options: Pairs,
    lib: Pairs,
}

/// An object's members; none, where it is absent.
fn object(value: Option<Json>, name: &'static str) -> Result<Pairs, BadDesign> {
    match value {
        None => Ok(Vec::new()),
        Some(Json::Object(pairs)) => Ok(pairs),
        Some(_) => Err(BadDesign::NoObject(name)),
    }
}

/// The groups of views, in the order of their numbers.
fn groups(views: &[(String, Json)]) -> Result<Vec<Group<'_>>, BadDesign> {
    let mut all: Vec<Group<'_>> = Vec::new();
    for (name, view) in views {
        let Json::Object(view) = view else { continue };
        let Some(map) = member(view, "map") else { continue };
        let options = object(member(view, "options").cloned(), "options of a view")?;
        let known = all.iter_mut().find(|group| group.map == map && group.options == options);
        let group = match known {
            Some(group) => group,
            None => {
                all.push(Group { map, options, maps: Vec::new(), reduces: Vec::new() });
                let Some(group) = all.last_mut() else { continue };
                group
            }
        };
        match member(view, "reduce") {
            None | Some(Json::Null) => group.maps.insert(0, name),
            Some(reduce) => group.reduces.insert(0, (name, reduce)),
        }
    }
    all.sort_by(|one, other| {
        one.map.order(other.map).then_with(|| json::pairs(&one.options, &other.options))
    });
    Ok(all)
}

/// A library with the keys of all its levels in order.
fn sorted(lib: Pairs) -> Pairs {
    let mut all: Pairs = lib
        .into_iter()
        .map(|(key, value)| {
            let Json::Object(inner) = value else { return (key, value) };
            (key, Json::Object(sorted(inner)))
        })
        .collect();
    all.sort_by(|one, other| one.0.as_bytes().cmp(other.0.as_bytes()));
    all
}

impl MadeOf<'_> {
    fn signature(&self, view: fn(&Self, &mut Encoder, i128, &Group<'_>)) -> Signature {
        let mut out = Encoder::new();
        out.tuple(4);
        out.list(self.groups.iter().enumerate(), |out, (number, group)| {
            view(self, out, number as i128, group);
        });
        out.json(&self.language);
        out.pairs(&self.options);
        library(&mut out, &self.lib);
        Signature(Md5::digest(out.finish()).into())
    }

    /// CouchDB's record `mrview`, of an index that is not opened.
    fn view_3x(&self, out: &mut Encoder, number: i128, group: &Group<'_>) {
        out.tuple(9);
        group.head(out, number);
        out.pairs(&group.options);
    }

    /// The same as CouchDB 2 had it.
    fn view_2x(&self, out: &mut Encoder, number: i128, group: &Group<'_>) {
        out.tuple(13);
        group.head(out, number);
        out.atom("nil");
        out.atom("nil");
        for option in ["seq_indexed", "keyseq_indexed"] {
            out.json(member(&self.options, option).unwrap_or(&Json::Bool(false)));
        }
        out.pairs(&group.options);
    }
}

/// A sorted library: inner objects are bare lists of pairs.
fn library(out: &mut Encoder, lib: &[(String, Json)]) {
    out.list(lib.iter(), |out, (key, value)| {
        out.tuple(2);
        out.binary(key);
        match value {
            Json::Object(inner) => library(out, inner),
            Json::Null
            | Json::Bool(_)
            | Json::Integer(_)
            | Json::Float(_)
            | Json::Text(_)
            | Json::Array(_) => out.json(value),
        }
    });
}

impl Group<'_> {
    /// What the records of all versions begin with.
    fn head(&self, out: &mut Encoder, number: i128) {
        out.atom("mrview");
        out.integer(number);
        out.integer(0);
        out.integer(0);
        out.list(self.maps.iter(), |out, name| out.binary(name));
        out.list(self.reduces.iter(), |out, (name, reduce)| {
            out.tuple(2);
            out.binary(name);
            out.json(reduce);
        });
        out.json(self.map);
        out.atom("nil");
    }

    /// The size of the term that the reduces give for no rows.
    fn without_rows(&self) -> EmptyGroup {
        let sizes: Option<Vec<u64>> =
            self.reduces.iter().map(|(_, reduce)| reduced_to(reduce)).collect();
        let sizes = sizes?;
        Some(match sizes.len() as u64 {
            0 => 2,
            count if sizes.iter().all(|size| *size == ZERO) => 4 + count,
            _ => 7 + sizes.iter().sum::<u64>(),
        })
    }
}

/// Bytes of the number 0 as a term; a list of such is shorter, being a string.
const ZERO: u64 = 2;

/// Bytes of the term that a reduce gives for no rows.
fn reduced_to(reduce: &Json) -> Option<u64> {
    /// What the names begin with, as CouchDB goes by that.
    const BUILT_IN: [(&str, u64); 8] = [
        ("_sum", ZERO),
        ("_count", ZERO),
        // Five zeros in a tuple.
        ("_stats", 12),
        // The empty sketch of 3.5's couch_hyper.
        ("_approx_count_distinct", 47),
        // The rest give `[]`.
        ("_first", 1),
        ("_last", 1),
        ("_top_", 1),
        ("_bottom_", 1),
    ];
    let Json::Text(reduce) = reduce else { return None };
    BUILT_IN.iter().find(|(name, _)| reduce.starts_with(name)).map(|(_, size)| *size)
}

#[cfg(test)]
#[path = "tests/designs.rs"]
mod tests;
