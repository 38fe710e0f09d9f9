//! Label values prepared once for all families with the same labels.
//!
//! Owns their text between a line's name and its value. Never interprets a label. Used where a
//! hundred thousand series are several families over the same targets: the values are looked up
//! and escaped once and then copied.

use super::{escape::push_escaped, family::Family};

/// Sets of label values, in the order they were added, for families with the same labels.
#[derive(Clone, Debug)]
pub struct LabelSets<const N: usize> {
    names: [&'static str; N],
    text: String,
    /// The end of each set in `text`.
    ends: Vec<usize>,
}

/// One of the [`LabelSets`].
#[derive(Clone, Copy, Debug)]
pub struct LabelSet<'a, const N: usize> {
    pub(super) names: &'a [&'static str; N],
    text: &'a str,
}

impl<'a, const N: usize> LabelSet<'a, N> {
    /// `{first="…",second="…"} `, escaped: equal texts are equal series.
    pub const fn text(self) -> &'a str {
        self.text
    }
}

impl<const N: usize> LabelSets<N> {
    /// An empty collection for families with the labels of this one, with capacity for `sets` sets
    /// whose values have `letters` bytes altogether.
    ///
    /// Too much capacity costs nothing because unused memory is never touched; growing costs
    /// another allocation and a copy.
    pub fn with_capacity(family: &Family<N>, sets: usize, letters: usize) -> Self {
        let between: usize = family.labels.iter().map(|name| name.len() + r#"="","#.len()).sum();
        Self {
            names: family.labels,
            text: String::with_capacity(sets.saturating_mul(between + "{} ".len()) + letters),
            ends: Vec::with_capacity(sets),
        }
    }

    /// Adds the values of one set, in the order of the labels, and returns that set.
    pub fn push(&mut self, values: &[&str; N]) -> LabelSet<'_, N> {
        let from = self.text.len();
        let mut before = "{";
        for (name, value) in self.names.iter().zip(values) {
            self.text.extend([before, *name, "=\""]);
            push_escaped(&mut self.text, value);
            before = "\",";
        }
        self.text.push_str(if N > 0 { "\"} " } else { "{} " });
        self.ends.push(self.text.len());
        LabelSet { names: &self.names, text: self.text.get(from..).unwrap_or_default() }
    }

    /// The size of all sets together, in bytes.
    pub const fn size(&self) -> usize {
        self.text.len()
    }

    /// The sets, in insertion order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = LabelSet<'_, N>> {
        let mut from = 0;
        self.ends.iter().map(move |&end| {
            let text = self.text.get(from..end).unwrap_or_default();
            from = end;
            LabelSet { names: &self.names, text }
        })
    }
}
