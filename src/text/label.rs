//! The names of variants in JSON, configuration and metric labels, from the derives on their enums.

use std::str::FromStr;
use strum::VariantArray;

/// An enum of which each variant has a name.
///
/// Every enum that derives [`strum::EnumString`], [`strum::IntoStaticStr`] and [`VariantArray`] is one.
pub trait Label: Copy + Into<&'static str> + FromStr + VariantArray {
    /// Every variant, in the order of their declaration.
    const ALL: &'static [Self] = Self::VARIANTS;

    /// Each variant, in this order.
    fn each() -> impl ExactSizeIterator<Item = Self> + Clone {
        Self::ALL.iter().copied()
    }

    /// The name of this variant.
    #[must_use]
    fn label(self) -> &'static str {
        self.into()
    }

    /// The variant with this name.
    #[must_use]
    fn from_label(label: &str) -> Option<Self> {
        label.parse().ok()
    }

    /// Every name.
    #[must_use]
    fn labels() -> Vec<&'static str> {
        Self::each().map(Self::label).collect()
    }
}

impl<T: Copy + Into<&'static str> + FromStr + VariantArray> Label for T {}
