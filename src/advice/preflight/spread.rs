//! A range that includes its most likely value.

/// The lowest, most likely and highest expected value, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The lowest.
    pub low: f64,
    /// The most likely.
    pub likely: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    /// Exactly zero.
    pub const ZERO: Self = Self { low: 0.0, likely: 0.0, high: 0.0 };

    /// A range around samples: from the smallest divided by `factor` to the largest times `factor`,
    /// with the median as the likely value; `None` without samples.
    pub fn around(samples: &mut [f64], factor: f64) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (first, last) = (*samples.first()?, *samples.last()?);
        let middle = samples.len() / 2;
        let median = match samples.len().is_multiple_of(2) {
            // Costs differ by factors, so the middle of two is their geometric mean.
            true => (samples.get(middle - 1)? * samples.get(middle)?).sqrt(),
            false => *samples.get(middle)?,
        };
        Some(Self { low: first / factor, likely: median, high: last * factor })
    }

    /// The product with an independent range. Both are rarely at their ends together, so on a
    /// logarithmic scale an end is as far from the likely value as the root of the sum of both
    /// squared distances.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let likely = self.likely * other.likely;
        let far = |one: f64, other: f64| one.ln().hypot(other.ln()).exp();
        let below = far(self.likely / self.low, other.likely / other.low);
        let above = far(self.high / self.likely, other.high / other.likely);
        if below.is_finite() && above.is_finite() {
            return Self { low: likely / below, likely, high: likely * above };
        }
        // Some value is zero.
        Self { low: self.low * other.low, likely, high: self.high * other.high }
    }

    /// Each value times a number.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { low: self.low * factor, likely: self.likely * factor, high: self.high * factor }
    }

    /// Each value combined with that of another range.
    fn each(self, other: Self, with: fn(f64, f64) -> f64) -> Self {
        Self {
            low: with(self.low, other.low),
            likely: with(self.likely, other.likely),
            high: with(self.high, other.high),
        }
    }

    /// Each value plus that of another range.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, |one, other| one + other)
    }

    /// Each value less the corresponding value of the files that are then gone.
    #[must_use]
    pub fn less(self, bytes: f64) -> Self {
        self.plus(Self { low: -bytes, likely: -bytes, high: -bytes })
    }

    /// The larger value at each point of the two ranges.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.each(other, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likely_value_is_the_median() {
        for (samples, likely) in [(&[4.0][..], 4.0), (&[9.0, 4.0], 6.0), (&[100.0, 1.0, 3.0], 3.0)]
        {
            let spread = Spread::around(&mut samples.to_vec(), 2.0).unwrap();
            assert!((spread.likely - likely).abs() < 1e-9, "{spread:?}");
            assert!(spread.low < spread.likely && spread.likely < spread.high, "{spread:?}");
        }
        assert_eq!(Spread::around(&mut [], 2.0), None);
    }

    #[test]
    fn product_of_spreads_is_narrower_than_its_multiplied_bounds() {
        let one = Spread { low: 5.0, likely: 10.0, high: 30.0 };
        let other = Spread { low: 1.0, likely: 2.0, high: 6.0 };
        let product = one.times(other);
        assert!((product.likely - 20.0).abs() < 1e-9, "{product:?}");
        assert!(5.0 < product.low && product.low < 10.0, "{product:?}");
        assert!(60.0 < product.high && product.high < 180.0, "{product:?}");
        let certain = Spread { low: 2.0, likely: 2.0, high: 2.0 };
        assert!((one.times(certain).high - 60.0).abs() < 1e-9);
        assert_eq!(Spread::ZERO.times(other), Spread::ZERO);
    }
}
