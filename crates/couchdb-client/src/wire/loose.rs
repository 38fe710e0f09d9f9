//! Reading fields that may hold anything.
//!
//! A field of the wrong type is unknown; it never fails the answer it stands in.

use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
    value::MapAccessDeserializer,
};
use std::{collections::BTreeMap, fmt, marker::PhantomData};

/// A type that can be made of any JSON value, the wrong ones giving "unknown".
pub(super) trait Loose<'de>: Default {
    fn of_u64(_: u64) -> Self {
        Self::default()
    }
    fn of_f64(_: f64) -> Self {
        Self::default()
    }
    fn of_bool(_: bool) -> Self {
        Self::default()
    }
    fn of_str(_: &str) -> Self {
        Self::default()
    }
    fn of_seq<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
    fn of_map<A: MapAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        while items.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

struct LooseVisitor<T>(PhantomData<T>);

impl<'de, T: Loose<'de>> Visitor<'de> for LooseVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("anything")
    }
    fn visit_u64<E>(self, value: u64) -> Result<T, E> {
        Ok(T::of_u64(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<T, E> {
        Ok(u64::try_from(value).map_or_else(|_| T::of_f64(value as f64), T::of_u64))
    }
    fn visit_f64<E>(self, value: f64) -> Result<T, E> {
        Ok(T::of_f64(value))
    }
    fn visit_bool<E>(self, value: bool) -> Result<T, E> {
        Ok(T::of_bool(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<T, E> {
        Ok(T::of_str(value))
    }
    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        T::of_seq(items)
    }
    fn visit_map<A: MapAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        T::of_map(items)
    }
}

/// Reads a field of any type.
pub(super) fn loose<'de, D: Deserializer<'de>, T: Loose<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(LooseVisitor(PhantomData))
}

/// An element of a list or an object.
struct Element<T>(T);

impl<'de, T: Loose<'de>> Deserialize<'de> for Element<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        loose(from).map(Self)
    }
}

/// Counts, sizes and seconds: negative and fractional numbers are unknown.
impl Loose<'_> for Option<u64> {
    fn of_u64(value: u64) -> Self {
        Some(value)
    }
}

impl Loose<'_> for Option<f64> {
    fn of_u64(value: u64) -> Self {
        Some(value as f64)
    }
    fn of_f64(value: f64) -> Self {
        value.is_finite().then_some(value)
    }
    /// An Erlang atom in place of a number, as smoosh sends for a priority without bound.
    fn of_str(value: &str) -> Self {
        (value == "infinity").then_some(f64::INFINITY)
    }
}

impl Loose<'_> for Option<bool> {
    fn of_bool(value: bool) -> Self {
        Some(value)
    }
}

impl Loose<'_> for Option<String> {
    fn of_str(value: &str) -> Self {
        Some(value.to_owned())
    }
}

impl Loose<'_> for Option<couchdb_names::Signature> {
    fn of_str(value: &str) -> Self {
        value.parse().ok()
    }
}

/// A sequence: a number on one node, `"123-g1AAAA…"` for the cluster, of which the
/// number counts (`fabric_view_changes:pack_seqs/1`).
#[derive(Default)]
struct Seq(Option<u64>);

impl Loose<'_> for Seq {
    fn of_u64(value: u64) -> Self {
        Self(Some(value))
    }
    fn of_str(value: &str) -> Self {
        Self(value.split('-').next().and_then(|number| number.parse().ok()))
    }
}

/// A sequence's number, or unknown.
pub(super) fn seq<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    loose(from).map(|Seq(number)| number)
}

/// An object with named fields, each of them loose.
pub(super) trait Object: DeserializeOwned + Default {}

impl<'de, T: Object> Loose<'de> for T {
    fn of_map<A: MapAccess<'de>>(items: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(items))
    }
}

impl<'de, T: Object> Loose<'de> for Option<T> {
    fn of_map<A: MapAccess<'de>>(items: A) -> Result<Self, A::Error> {
        T::of_map(items).map(Some)
    }
}

/// A list without the elements of another type.
impl<'de, T> Loose<'de> for Vec<T>
where
    Option<T>: Loose<'de>,
{
    fn of_seq<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut list = Self::new();
        while let Some(Element(element)) = items.next_element::<Element<Option<T>>>()? {
            room::<T, A::Error>(list.len())?;
            list.extend(element);
        }
        Ok(list)
    }
}

/// The most memory that the entries of one list or object take, in bytes, without their texts:
/// three letters of an answer may make an entry of hundreds of bytes.
const ROOM: usize = 64 << 20;

/// Whether there is room for one more entry beside so many.
pub(super) fn room<T, E: Error>(entries: usize) -> Result<(), E> {
    let most = ROOM / size_of::<T>().max(1);
    if entries < most { Ok(()) } else { Err(E::custom(format!("it has more than {most} entries"))) }
}

/// A list, or unknown where there is none.
impl<'de, T> Loose<'de> for Option<Vec<T>>
where
    Option<T>: Loose<'de>,
{
    fn of_seq<A: SeqAccess<'de>>(items: A) -> Result<Self, A::Error> {
        Vec::<T>::of_seq(items).map(Some)
    }
}

impl<'de, T: Loose<'de>> Loose<'de> for BTreeMap<String, T> {
    fn of_map<A: MapAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut map = Self::new();
        while let Some((key, Element(value))) = items.next_entry()? {
            room::<(String, T), A::Error>(map.len())?;
            map.insert(key, value);
        }
        Ok(map)
    }
}

/// Letters of what is sent as character codes: a shard's suffix has eleven.
const SUFFIX: usize = 11;

/// A text of character codes, as Erlang's strings arrive, or a plain one.
#[derive(Default)]
struct Letters(Option<String>);

impl<'de> Loose<'de> for Letters {
    fn of_str(value: &str) -> Self {
        Self(Some(value.to_owned()))
    }
    fn of_seq<A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut text = Some(String::with_capacity(SUFFIX));
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

/// A text of character codes, or unknown.
pub(super) fn letters<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    loose(from).map(|Letters(text)| text)
}

/// A whole answer that is a list, each of its entries as it should be.
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
                    room::<T, A::Error>(list.len())?;
                    list.push(entry);
                }
                Ok(List(list))
            }
        }
        from.deserialize_seq(Entries(PhantomData))
    }
}
