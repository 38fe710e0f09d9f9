//! Lenient parsing of fields that may have any type.
//!
//! A field of the wrong type is unknown; it never makes the whole response an error. `serde_with`
//! would do the same with `DefaultOnError` and `VecSkipError`, but it stores the skipped values: 48
//! MiB of `[],` in place of a number take 464 MiB.

use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
    value::MapAccessDeserializer,
};
use std::{collections::BTreeMap, fmt, marker::PhantomData, str};

/// Parses a response, or one line of a feed.
///
/// The encoding of the whole body is checked once. Checking each string, as `from_slice` does,
/// takes a tenth of the time of parsing a shard's response.
///
/// # Errors
/// If the body is not JSON, or not of the expected type.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    match str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        // Ignored fields may contain any bytes.
        Err(_) => serde_json::from_slice(body),
    }
}

/// A type that can be parsed from any JSON value; unexpected values give "unknown".
pub(super) trait Lenient<'de>: Default {
    fn from_u64(_: u64) -> Self {
        Self::default()
    }
    fn from_f64(_: f64) -> Self {
        Self::default()
    }
    fn from_bool(_: bool) -> Self {
        Self::default()
    }
    fn from_str(_: &str) -> Self {
        Self::default()
    }
    fn from_seq<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
    fn from_map<A: MapAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        while items.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

struct LenientVisitor<T>(PhantomData<T>);

impl<'de, T: Lenient<'de>> Visitor<'de> for LenientVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("anything")
    }
    fn visit_u64<E>(self, value: u64) -> Result<T, E> {
        Ok(T::from_u64(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<T, E> {
        Ok(u64::try_from(value).map_or_else(|_| T::from_f64(value as f64), T::from_u64))
    }
    fn visit_f64<E>(self, value: f64) -> Result<T, E> {
        Ok(T::from_f64(value))
    }
    fn visit_bool<E>(self, value: bool) -> Result<T, E> {
        Ok(T::from_bool(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<T, E> {
        Ok(T::from_str(value))
    }
    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        T::from_seq(items)
    }
    fn visit_map<A: MapAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        T::from_map(items)
    }
}

/// Structs of responses, whose fields are all lenient.
macro_rules! lenient {
    ($($(#[$of_struct:meta])* $vis:vis struct $name:ident {
        $($(#[$of_field:meta])* $field_vis:vis $field:ident: $type:ty,)+
    })+) => {$(
        $(#[$of_struct])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(default)]
        $vis struct $name {
            $(
                $(#[$of_field])*
                #[serde(deserialize_with = "crate::wire::lenient::field")]
                $field_vis $field: $type,
            )+
        }
        impl crate::wire::lenient::Object for $name {}
    )+};
}
pub(super) use lenient;

/// Parses a field of any type.
pub(super) fn field<'de, D: Deserializer<'de>, T: Lenient<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(LenientVisitor(PhantomData))
}

/// An element of a list, or a value of an object.
pub(super) struct Element<T>(pub(super) T);

impl<'de, T: Lenient<'de>> Deserialize<'de> for Element<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        field(from).map(Self)
    }
}

/// Counts, sizes, seconds and sequences. Negative and fractional numbers are unknown. The cluster's
/// sequences are `"123-g1AAAA…"`, of which the number is used (`fabric_view_changes:pack_seqs/1`).
impl Lenient<'_> for Option<u64> {
    fn from_u64(value: u64) -> Self {
        Some(value)
    }
    fn from_str(value: &str) -> Self {
        let (number, packed) = value.split_once('-')?;
        number.parse().ok().filter(|_| packed.starts_with('g'))
    }
}

impl Lenient<'_> for Option<f64> {
    fn from_u64(value: u64) -> Self {
        Some(value as f64)
    }
    fn from_f64(value: f64) -> Self {
        value.is_finite().then_some(value)
    }
    /// An Erlang atom instead of a number: smoosh sends `infinity` for an unbounded priority.
    fn from_str(value: &str) -> Self {
        (value == "infinity").then_some(f64::INFINITY)
    }
}

impl Lenient<'_> for Option<bool> {
    fn from_bool(value: bool) -> Self {
        Some(value)
    }
}

impl Lenient<'_> for Option<String> {
    fn from_str(value: &str) -> Self {
        Some(value.to_owned())
    }
}

impl Lenient<'_> for Option<couchdb_names::Signature> {
    fn from_str(value: &str) -> Self {
        value.parse().ok()
    }
}

/// An object with named fields, each of them lenient.
pub(super) trait Object: DeserializeOwned + Default {}

impl<'de, T: Object> Lenient<'de> for T {
    fn from_map<A: MapAccess<'de>>(items: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(items))
    }
}

impl<'de, T: Object> Lenient<'de> for Option<T> {
    fn from_map<A: MapAccess<'de>>(items: A) -> Result<Self, A::Error> {
        T::from_map(items).map(Some)
    }
}

/// A list from which elements of other types are dropped.
impl<'de, T> Lenient<'de> for Vec<T>
where
    Option<T>: Lenient<'de>,
{
    fn from_seq<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut list = Self::new();
        while let Some(Element(element)) = items.next_element::<Element<Option<T>>>()? {
            check_capacity::<T, A::Error>(list.len())?;
            list.extend(element);
        }
        Ok(list)
    }
}

/// The maximum memory for the entries of one list or object, in bytes, without their strings.
/// Three bytes of a response can create an entry of hundreds of bytes.
const MAX_ENTRY_BYTES: usize = 64 << 20;

/// Checks that one more entry is allowed.
pub(super) fn check_capacity<T, E: Error>(entries: usize) -> Result<(), E> {
    let max = MAX_ENTRY_BYTES / size_of::<T>().max(1);
    if entries < max { Ok(()) } else { Err(E::custom(format!("it has more than {max} entries"))) }
}

/// A list, or unknown if there is none.
impl<'de, T> Lenient<'de> for Option<Vec<T>>
where
    Option<T>: Lenient<'de>,
{
    fn from_seq<A: SeqAccess<'de>>(items: A) -> Result<Self, A::Error> {
        Vec::<T>::from_seq(items).map(Some)
    }
}

impl<'de, T: Lenient<'de>> Lenient<'de> for BTreeMap<String, T> {
    fn from_map<A: MapAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut map = Self::new();
        while let Some((key, Element(value))) = items.next_entry()? {
            check_capacity::<(String, T), A::Error>(map.len())?;
            map.insert(key, value);
        }
        Ok(map)
    }
}

/// The length of a shard's suffix, which is sent as character codes.
const SUFFIX_LENGTH: usize = 11;

/// A string, or a list of character codes, as Erlang's strings are sent.
#[derive(Default)]
struct CharCodes(Option<String>);

impl<'de> Lenient<'de> for CharCodes {
    fn from_str(value: &str) -> Self {
        Self(Some(value.to_owned()))
    }
    fn from_seq<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut text = Some(String::with_capacity(SUFFIX_LENGTH));
        while let Some(Element(code)) = items.next_element::<Element<Option<u64>>>()? {
            let letter = code.and_then(|code| u32::try_from(code).ok()).and_then(char::from_u32);
            text = text.zip(letter).map(|(mut text, letter)| {
                text.push(letter);
                text
            });
        }
        Ok(Self(text))
    }
}

/// A string or its character codes, or unknown.
pub(super) fn char_codes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    field(from).map(|CharCodes(text)| text)
}

/// A response that is a list. Each entry must have the expected type.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = List<T>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(entry) = items.next_element()? {
                    check_capacity::<T, A::Error>(list.len())?;
                    list.push(entry);
                }
                Ok(List(list))
            }
        }
        from.deserialize_seq(Entries(PhantomData))
    }
}
