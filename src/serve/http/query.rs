//! Parameters that several routes of the API share.

use super::{error::ApiError, state::AppState};
use crate::text::{Label, duration};
use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use std::{borrow::Cow, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// The default and the maximum number of entries per response.
pub(super) const LIMIT: usize = 100;
pub(super) const LARGEST: usize = 10_000;

/// The query of a request. An invalid query is refused before the handler runs.
pub(super) struct ValidQuery<Q>(pub(super) Q);

impl<Q: DeserializeOwned> FromRequestParts<AppState> for ValidQuery<Q> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let query = Query::<Q>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(ApiError::bad_query)
    }
}

/// A route without parameters: a parameter is an error, as everywhere in the API.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

/// A value by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named<T>(pub(super) T);

impl<'de, T: Label> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value_of(&Cow::<str>::deserialize(from)?).map(Self)
    }
}

fn value_of<T: Label, E: serde::de::Error>(name: &str) -> Result<T, E> {
    T::from_label(name)
        .ok_or_else(|| E::custom(format!("{name:?} is not one of {}", T::labels().join(", "))))
}

impl<T: Label> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": T::labels() })
    }
}

/// Values by their names, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedList<T>(pub(super) Vec<T>);

impl<T> Default for NamedList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Label> Deserialize<'de> for NamedList<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let names = Cow::<str>::deserialize(from)?;
        let names = names.split(',').filter(|name| !name.is_empty());
        Ok(Self(names.map(value_of).collect::<Result<_, _>>()?))
    }
}

impl<T: Label> JsonSchema for NamedList<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Names".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<Named<T>>::json_schema(generator)
    }
}

/// Which end of the order comes first.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortOrder {
    Asc,
    Desc,
}

/// A page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRange {
    pub(super) offset: usize,
    pub(super) limit: usize,
}

impl PageRange {
    pub(super) fn new(offset: Option<usize>, limit: Option<usize>) -> Result<Self, String> {
        let limit = limit.unwrap_or(LIMIT);
        if limit > LARGEST {
            return Err(format!(
                "limit {limit} is more than {LARGEST}: read page by page with offset"
            ));
        }
        Ok(Self { offset: offset.unwrap_or(0), limit })
    }

    /// The entries of `list` on this page.
    pub(super) fn of<T>(self, list: &[T]) -> &[T] {
        let from = self.offset.min(list.len());
        let to = from.saturating_add(self.limit).min(list.len());
        list.get(from..to).unwrap_or_default()
    }
}

/// Parses a time as the API and the commands accept it: a timestamp, a day, or an age.
pub(super) fn time(parameter: &str, text: &str, now: Moment) -> Result<Moment, String> {
    let ago = || {
        let then = Duration::from_secs(now.unix()).saturating_sub(duration::parse(text)?);
        Some(Moment::from_unix(then.as_secs()))
    };
    // A day begins at midnight UTC.
    let day = || Moment::parse(&[text, "T00:00:00Z"].concat());
    Moment::parse(text).or_else(ago).or_else(day).ok_or_else(|| {
        format!("{parameter}={text:?} is not a valid time (try 2h or 2026-11-21T00:00:00Z)")
    })
}

/// The value of a parameter in the URL, not decoded.
pub(super) fn written<'a>(raw: &'a str, name: &str) -> Option<&'a str> {
    raw.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}
