//! The names of enum variants in JSON, configuration and metric labels, from derives on the enums.

use std::str::FromStr;
use strum::VariantArray;

/// An enum whose variants have names.
///
/// Implemented for every enum that derives [`strum::EnumString`], [`strum::IntoStaticStr`] and
/// [`VariantArray`].
pub trait Label: Copy + Into<&'static str> + FromStr + VariantArray {
    /// Every variant, in declaration order.
    const ALL: &'static [Self] = Self::VARIANTS;

    /// Iterates over every variant, in declaration order.
    fn each() -> impl ExactSizeIterator<Item = Self> + Clone {
        Self::ALL.iter().copied()
    }

    /// The name of this variant.
    fn label(self) -> &'static str {
        self.into()
    }

    /// The variant with this name.
    #[must_use]
    fn from_label(label: &str) -> Option<Self> {
        label.parse().ok()
    }

    /// Every name.
    fn labels() -> Vec<&'static str> {
        Self::each().map(Self::label).collect()
    }
}

impl<T: Copy + Into<&'static str> + FromStr + VariantArray> Label for T {}
