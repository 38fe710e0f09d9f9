//! Labels put together once for all families that have them.
//!
//! Owns their text as a line has it between its braces. Never judges what a label says.
//! Used where a hundred thousand series are three families over the same targets: the
//! values are looked up and escaped once and then copied, not three times.

use super::{family::Family, writer::push_escaped};

/// Sets of label values, in the order they were added, for families with the same labels.
#[derive(Clone, Debug)]
pub struct LabelSets<const N: usize> {
    names: [&'static str; N],
    text: String,
    /// Where each set ends in `text`.
    ends: Vec<usize>,
}

/// One of [`LabelSets`].
#[derive(Clone, Copy, Debug)]
pub struct LabelSet<'a, const N: usize> {
    pub(super) names: &'a [&'static str; N],
    text: &'a str,
}

impl<'a, const N: usize> LabelSet<'a, N> {
    /// `first="…",second="…"`, escaped: the same text is the same series.
    #[must_use]
    pub const fn text(self) -> &'a str {
        self.text
    }
}

impl<const N: usize> LabelSets<N> {
    /// None yet, for families with the labels of this one.
    #[must_use]
    pub const fn new(family: &Family<N>) -> Self {
        Self { names: family.labels, text: String::new(), ends: Vec::new() }
    }

    /// Adds the values of one set, in the order of the labels.
    pub fn push(&mut self, values: &[&str; N]) {
        let mut before = "";
        for (name, value) in self.names.iter().zip(values) {
            self.text.extend([before, *name, "=\""]);
            push_escaped(&mut self.text, value);
            before = "\",";
        }
        if N > 0 {
            self.text.push('"');
        }
        self.ends.push(self.text.len());
    }

    /// The sets, in the order they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = LabelSet<'_, N>> {
        let mut from = 0;
        self.ends.iter().map(move |&end| {
            let text = self.text.get(from..end).unwrap_or_default();
            from = end;
            LabelSet { names: &self.names, text }
        })
    }
}
