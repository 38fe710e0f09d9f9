//! A memory-efficient list of many names.

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor},
};
use std::fmt;

/// Names in the order in which they were added, stored in one text: each takes its own bytes and
/// four more.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NameList {
    text: String,
    /// The end of each name in `text`.
    ends: Vec<u32>,
}

impl NameList {
    /// An empty list with capacity for this many names, with this many bytes altogether.
    #[must_use]
    pub fn with_capacity(names: usize, bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), ends: Vec::with_capacity(names) }
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the list contains no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The total length of all names, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The name at this index; `None` beyond the end.
    pub fn get(&self, at: usize) -> Option<&str> {
        let &end = self.ends.get(at)?;
        let from = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.text.get(from as usize..end as usize)
    }

    /// All names, in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut from = 0;
        self.ends.iter().map(move |&end| {
            let name = self.text.get(from..end as usize).unwrap_or_default();
            from = end as usize;
            name
        })
    }

    /// Adds a name. Returns `false` and adds nothing if all names together would have more than
    /// four gigabytes.
    #[must_use]
    pub fn push(&mut self, name: &str) -> bool {
        self.push_parts([name])
    }

    /// Adds a name that is given in parts, like [`push`](Self::push).
    #[must_use]
    pub fn push_parts<const N: usize>(&mut self, parts: [&str; N]) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let Ok(end) = u32::try_from(self.text.len() + length) else { return false };
        parts.iter().for_each(|part| self.text.push_str(part));
        self.ends.push(end);
        true
    }

    /// Frees memory that was reserved for further names.
    pub fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

impl fmt::Debug for NameList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

/// Names beyond four gigabytes are left out.
impl<'a> FromIterator<&'a str> for NameList {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut all = Self::default();
        for name in names {
            if !all.push(name) {
                break;
            }
        }
        all
    }
}

/// Deserializes a list of strings.
impl<'de> Deserialize<'de> for NameList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = NameList;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of names")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NameList, A::Error> {
        let mut names = NameList::default();
        while items.next_element_seed(PushNext(&mut names))?.is_some() {}
        names.shrink_to_fit();
        Ok(names)
    }
}

/// Adds the next name without allocating a `String`.
struct PushNext<'a>(&'a mut NameList);

impl<'de> DeserializeSeed<'de> for PushNext<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for PushNext<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(), E> {
        if self.0.push(name) { Ok(()) } else { Err(E::custom("the names exceed four gigabytes")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn list_behaves_like_a_vector_of_strings(names in prop::collection::vec(".{0,6}", 0..20)) {
            let list: NameList = names.iter().map(String::as_str).collect();
            prop_assert_eq!(list.len(), names.len());
            prop_assert_eq!(list.is_empty(), names.is_empty());
            prop_assert_eq!(list.bytes(), names.concat().len());
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), names.clone());
            let by_index: Vec<_> = (0..names.len()).filter_map(|at| list.get(at)).collect();
            prop_assert_eq!(by_index, names.clone());
            prop_assert_eq!(list.get(names.len()), None);
            prop_assert_eq!(format!("{list:?}"), format!("{names:?}"));
        }
    }

    #[test]
    fn name_can_be_pushed_as_several_parts() {
        let mut names = NameList::with_capacity(2, 16);
        assert!(names.push_parts(["orders", ".1795222434"]));
        assert!(names.push(""));
        assert_eq!(names.iter().collect::<Vec<_>>(), ["orders.1795222434", ""]);
    }
}
