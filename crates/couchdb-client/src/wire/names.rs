//! A compact list of names.

use serde::{
    Deserialize,
    de::{Deserializer, SeqAccess, Visitor},
};
use std::fmt;

/// Names in their original order, in one string: a million file names need little more memory than
/// their characters.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Names {
    text: String,
    /// Where each name ends in `text`.
    ends: Vec<u32>,
}

impl Names {
    /// The number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut from = 0;
        self.ends.iter().map(move |&end| {
            let name = self.text.get(from..end as usize).unwrap_or_default();
            from = end as usize;
            name
        })
    }

    /// Adds a name; `false` if the list would exceed 4 GiB.
    fn push(&mut self, name: &str) -> bool {
        let Ok(end) = u32::try_from(self.text.len() + name.len()) else { return false };
        self.text.push_str(name);
        self.ends.push(end);
        true
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut all = Self::default();
        for name in names {
            all.push(name);
        }
        all
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List;
        /// Appends one name without allocating a `String`.
        struct Next<'a>(&'a mut Names);

        impl<'de> serde::de::DeserializeSeed<'de> for Next<'_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
                from.deserialize_str(self)
            }
        }
        impl Visitor<'_> for Next<'_> {
            type Value = ();
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a name")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<(), E> {
                if self.0.push(name) { Ok(()) } else { Err(E::custom("too many names")) }
            }
        }
        impl<'de> Visitor<'de> for List {
            type Value = Names;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list of names")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Names, A::Error> {
                let mut names = Names::default();
                while items.next_element_seed(Next(&mut names))?.is_some() {}
                names.text.shrink_to_fit();
                names.ends.shrink_to_fit();
                Ok(names)
            }
        }
        from.deserialize_seq(List)
    }
}
