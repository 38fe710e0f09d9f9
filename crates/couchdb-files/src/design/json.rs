//! JSON that keeps its original order.
//!
//! Owns the values of a design document as CouchDB represents them: keys in their order, integers
//! distinct from other numbers, and Erlang's term order.

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use std::{cmp::Ordering, collections::HashSet, fmt};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    Array(Vec<Self>),
    Object(Pairs),
}

/// The members of an object.
pub(crate) type Pairs = Vec<(String, Json)>;

pub(super) fn member<'a>(pairs: &'a [(String, Json)], name: &str) -> Option<&'a Json> {
    pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

impl Json {
    /// Erlang's term order: numbers, atoms, tuples (which include objects), lists, binaries.
    pub(crate) fn cmp_erlang(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one.cmp(other),
            (Self::Integer(_) | Self::Float(_), Self::Integer(_) | Self::Float(_)) => {
                self.number().total_cmp(&other.number())
            }
            (Self::Text(one), Self::Text(other)) => one.as_bytes().cmp(other.as_bytes()),
            (Self::Array(one), Self::Array(other)) => cmp_lists(one, other, Self::cmp_erlang),
            (Self::Object(one), Self::Object(other)) => cmp_pairs(one, other),
            (one, other) => (one.rank(), one.atom()).cmp(&(other.rank(), other.atom())),
        }
    }

    /// The sort order of view keys: null, false, true, numbers, texts, arrays, objects. Texts compare first without
    /// case, then with it; locales are ignored.
    pub(crate) fn cmp_view(&self, other: &Self) -> Ordering {
        const fn class(value: &Json) -> u8 {
            match value {
                Json::Null => 0,
                Json::Bool(false) => 1,
                Json::Bool(true) => 2,
                Json::Integer(_) | Json::Float(_) => 3,
                Json::Text(_) => 4,
                Json::Array(_) => 5,
                Json::Object(_) => 6,
            }
        }
        match (self, other) {
            (Self::Integer(_) | Self::Float(_), Self::Integer(_) | Self::Float(_)) => {
                self.cmp_erlang(other)
            }
            (Self::Text(one), Self::Text(two)) => {
                let folded =
                    |text: &str| text.chars().flat_map(char::to_lowercase).collect::<String>();
                folded(one).cmp(&folded(two)).then_with(|| two.cmp(one))
            }
            (Self::Array(one), Self::Array(two)) => cmp_lists(one, two, Self::cmp_view),
            (Self::Object(one), Self::Object(two)) => cmp_lists(one, two, |one, two| {
                one.0.cmp(&two.0).then_with(|| one.1.cmp_view(&two.1))
            }),
            (one, two) => class(one).cmp(&class(two)),
        }
    }

    const fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) | Self::Float(_) => 0,
            Self::Null | Self::Bool(_) => 1,
            Self::Object(_) => 2,
            Self::Array(_) => 3,
            Self::Text(_) => 4,
        }
    }

    /// The corresponding atom in Erlang.
    pub(super) const fn atom(&self) -> Option<&'static str> {
        match self {
            Self::Null => Some("null"),
            Self::Bool(true) => Some("true"),
            Self::Bool(false) => Some("false"),
            Self::Integer(_)
            | Self::Float(_)
            | Self::Text(_)
            | Self::Array(_)
            | Self::Object(_) => None,
        }
    }

    const fn number(&self) -> f64 {
        match self {
            Self::Integer(value) => *value as f64,
            Self::Float(value) => *value,
            Self::Null | Self::Bool(_) | Self::Text(_) | Self::Array(_) | Self::Object(_) => 0.0,
        }
    }
}

/// Erlang's order of lists of pairs.
pub(super) fn cmp_pairs(one: &[(String, Json)], other: &[(String, Json)]) -> Ordering {
    cmp_lists(one, other, |one, other| {
        one.0.as_bytes().cmp(other.0.as_bytes()).then_with(|| one.1.cmp_erlang(&other.1))
    })
}

fn cmp_lists<T>(one: &[T], other: &[T], order: impl Fn(&T, &T) -> Ordering) -> Ordering {
    let first = one.iter().zip(other).map(|(one, other)| order(one, other)).find(|it| it.is_ne());
    first.unwrap_or_else(|| one.len().cmp(&other.len()))
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OrderedJsonVisitor)
    }
}

struct OrderedJsonVisitor;

/// Integers of this size or more are parsed as floats too, so the two cannot be distinguished.
const MIN_AMBIGUOUS_NUMBER: f64 = 18_446_744_073_709_551_616.0;

impl<'de> Visitor<'de> for OrderedJsonVisitor {
    type Value = Json;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        if value.abs() >= MIN_AMBIGUOUS_NUMBER || value < i64::MIN as f64 {
            return Err(E::custom("a number is too large to tell whether it is whole"));
        }
        Ok(Json::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(next) = from.next_element()? {
            all.push(next);
        }
        Ok(Json::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut all: Pairs = Vec::new();
        while let Some(next) = from.next_entry()? {
            all.push(next);
        }
        // CouchDB keeps the last value of a repeated key, at its own position.
        let mut seen = HashSet::with_capacity(all.len());
        let mut keep: Vec<bool> = all.iter().rev().map(|(key, _)| seen.insert(&**key)).collect();
        all.retain(|_| keep.pop().unwrap_or(true));
        Ok(Json::Object(all))
    }
}
