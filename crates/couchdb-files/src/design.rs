//! The signature of a design document's views, which names their index file.
//!
//! Owns its computation from the document's JSON text, and the sizes that CouchDB counts for
//! groups of views without rows. The order of keys matters, so the text must be exactly as CouchDB
//! sent it. Never reads a file.

mod encode;
mod json;

use couchdb_names::Signature;
pub(super) use encode::Encoder;
pub(super) use json::Json;
use json::{Pairs, member};
use md5::{Digest, Md5};

/// The properties of a design document that concern its index files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// The name of its index file since CouchDB 3.
    pub signature: Signature,
    /// The name before CouchDB 3, which renames such a file when it first opens it.
    pub signature_2x: Signature,
    /// Groups of views that share map and options, in the order of [`super::CommittedIndex::views`].
    pub groups: Vec<EmptyGroupBytes>,
}

/// The external bytes that CouchDB counts for a group of views without rows; `None` if a reduce is
/// not built in, so that only CouchDB knows.
pub type EmptyGroupBytes = Option<u64>;

/// Why a text has no signature.
#[derive(Debug, thiserror::Error)]
pub enum DesignError {
    /// It is not JSON, or its numbers are ambiguous.
    #[error("cannot read the document: {0}")]
    Json(#[from] serde_json::Error),
    /// A part that must be an object is not; CouchDB cannot index such a document either.
    #[error("{0} of the design document is not an object")]
    NotAnObject(&'static str),
}

impl Design {
    /// Parses a design document's JSON text.
    ///
    /// # Errors
    ///
    /// If it is not JSON, or CouchDB could not build its views.
    pub fn parse(text: &str) -> Result<Self, DesignError> {
        let document = members_of(Some(serde_json::from_str(text)?), "all")?;
        let part = |name| member(&document, name).cloned();
        let views = members_of(part("views"), "views")?;
        let made_of = SignatureInput {
            groups: group_views(&views)?,
            language: part("language").unwrap_or_else(|| Json::Text("javascript".to_owned())),
            options: members_of(part("options"), "options")?,
            lib: sort_library(members_of(member(&views, "lib").cloned(), "views.lib")?),
        };
        Ok(Self {
            signature: made_of.signature(SignatureInput::view_3x),
            signature_2x: made_of.signature(SignatureInput::view_2x),
            groups: made_of.groups.iter().map(ViewGroupInput::empty_bytes).collect(),
        })
    }

    /// The external bytes that CouchDB counts for its index before the first commit.
    #[must_use]
    pub fn empty_bytes(&self) -> Option<u64> {
        self.groups.iter().copied().sum()
    }
}

/// Views that share map and options, and therefore one tree; later views come first.
struct ViewGroupInput<'a> {
    map: &'a Json,
    options: Pairs,
    maps: Vec<&'a str>,
    reduces: Vec<(&'a str, &'a Json)>,
}

struct SignatureInput<'a> {
    groups: Vec<ViewGroupInput<'a>>,
    language: Json,
    options: Pairs,
    lib: Pairs,
}

/// The term of a document's body: its own fields, without CouchDB's. `None` if it is no JSON object.
pub(super) fn body_term(text: &str) -> Option<Vec<u8>> {
    let Json::Object(mut pairs) = serde_json::from_str(text).ok()? else { return None };
    pairs.retain(|(key, _)| !key.starts_with('_'));
    let mut out = Encoder::new();
    out.json(&Json::Object(pairs));
    Some(out.finish())
}

/// An object's members; empty if it is absent.
fn members_of(value: Option<Json>, name: &'static str) -> Result<Pairs, DesignError> {
    match value {
        None => Ok(Vec::new()),
        Some(Json::Object(pairs)) => Ok(pairs),
        Some(_) => Err(DesignError::NotAnObject(name)),
    }
}

/// The groups of views, ordered by their numbers.
fn group_views(views: &[(String, Json)]) -> Result<Vec<ViewGroupInput<'_>>, DesignError> {
    let mut all: Vec<ViewGroupInput<'_>> = Vec::new();
    for (name, view) in views {
        let Json::Object(view) = view else { continue };
        let Some(map) = member(view, "map") else { continue };
        let options = members_of(member(view, "options").cloned(), "options of a view")?;
        let known = all.iter_mut().find(|group| group.map == map && group.options == options);
        let group = match known {
            Some(group) => group,
            None => {
                all.push(ViewGroupInput { map, options, maps: Vec::new(), reduces: Vec::new() });
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
        one.map.cmp_erlang(other.map).then_with(|| json::cmp_pairs(&one.options, &other.options))
    });
    Ok(all)
}

/// A library with sorted keys at every level.
fn sort_library(lib: Pairs) -> Pairs {
    let mut all: Pairs = lib
        .into_iter()
        .map(|(key, value)| {
            let Json::Object(inner) = value else { return (key, value) };
            (key, Json::Object(sort_library(inner)))
        })
        .collect();
    all.sort_by(|one, other| one.0.as_bytes().cmp(other.0.as_bytes()));
    all
}

impl SignatureInput<'_> {
    fn signature(&self, view: fn(&Self, &mut Encoder, i128, &ViewGroupInput<'_>)) -> Signature {
        let mut out = Encoder::new();
        out.tuple(4);
        out.list(self.groups.iter().enumerate(), |out, (number, group)| {
            view(self, out, number as i128, group);
        });
        out.json(&self.language);
        out.pairs(&self.options);
        encode_library(&mut out, &self.lib);
        Signature(Md5::digest(out.finish()).into())
    }

    /// CouchDB's record `mrview` of an index that is not open.
    fn view_3x(&self, out: &mut Encoder, number: i128, group: &ViewGroupInput<'_>) {
        out.tuple(9);
        group.encode_head(out, number);
        out.pairs(&group.options);
    }

    /// The same record in CouchDB 2.
    fn view_2x(&self, out: &mut Encoder, number: i128, group: &ViewGroupInput<'_>) {
        out.tuple(13);
        group.encode_head(out, number);
        out.atom("nil");
        out.atom("nil");
        for option in ["seq_indexed", "keyseq_indexed"] {
            out.json(member(&self.options, option).unwrap_or(&Json::Bool(false)));
        }
        out.pairs(&group.options);
    }
}

/// A sorted library: inner objects are bare lists of pairs.
fn encode_library(out: &mut Encoder, lib: &[(String, Json)]) {
    out.list(lib.iter(), |out, (key, value)| {
        out.tuple(2);
        out.binary(key);
        match value {
            Json::Object(inner) => encode_library(out, inner),
            Json::Null
            | Json::Bool(_)
            | Json::Integer(_)
            | Json::Float(_)
            | Json::Text(_)
            | Json::Array(_) => out.json(value),
        }
    });
}

impl ViewGroupInput<'_> {
    /// The common beginning of the records of all versions.
    fn encode_head(&self, out: &mut Encoder, number: i128) {
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

    /// The size of the term to which the reduces evaluate without rows.
    fn empty_bytes(&self) -> EmptyGroupBytes {
        let sizes: Option<Vec<u64>> =
            self.reduces.iter().map(|(_, reduce)| empty_reduction_bytes(reduce)).collect();
        let sizes = sizes?;
        Some(match sizes.len() as u64 {
            0 => 2,
            count if sizes.iter().all(|size| *size == ZERO_BYTES) => 4 + count,
            _ => 7 + sizes.iter().sum::<u64>(),
        })
    }
}

/// Size of the number 0 as a term; a list of such numbers is shorter because it is a string.
const ZERO_BYTES: u64 = 2;

/// Size of the term to which a reduce evaluates without rows.
fn empty_reduction_bytes(reduce: &Json) -> Option<u64> {
    /// Prefixes of names, because CouchDB compares prefixes.
    const BUILT_IN: [(&str, u64); 8] = [
        ("_sum", ZERO_BYTES),
        ("_count", ZERO_BYTES),
        // Five zeros in a tuple.
        ("_stats", 12),
        // The empty sketch of CouchDB 3.5's couch_hyper.
        ("_approx_count_distinct", 47),
        // The others evaluate to `[]`.
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
