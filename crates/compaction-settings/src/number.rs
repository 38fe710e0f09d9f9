//! Reads numbers like smoosh (`smoosh_server:to_number/3`): a float, otherwise an integer, in
//! Erlang's notation, or the word `infinity`.

/// 4 EiB, which is more than the bytes of any file and so more than any ratio or slack. Stands for
/// `infinity` as a minimum.
pub(crate) const BEYOND: u64 = 1 << 62;
/// Less than any ratio or slack except zero.
pub(crate) const LEAST: f64 = 1e-15;

/// A number setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// The word `infinity`, which is greater than every number.
    Infinity,
    /// An integer; one beyond 127 bits is clamped.
    Integer(i128),
    /// A number with a decimal point.
    Float(f64),
}

/// Reads `2.5`, `1.0e9`, `7` or `infinity`; `None` for anything else, such as `1e9` or `2.`.
pub(crate) fn number(text: &str) -> Option<Number> {
    if text == "infinity" {
        return Some(Number::Infinity);
    }
    float(text).map(Number::Float).or_else(|| integer(text).map(Number::Integer))
}

/// `list_to_integer/1`: an optional sign and digits.
pub(crate) fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let beyond = if text.starts_with('-') { i128::MIN } else { i128::MAX };
    Some(text.parse().unwrap_or(beyond))
}

/// `list_to_float/1`: digits are required on both sides of the point.
fn float(text: &str) -> Option<f64> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, rest) = text.strip_prefix(['+', '-']).unwrap_or(text).split_once('.')?;
    let (fraction, exponent) = match rest.split_once(['e', 'E']) {
        Some((fraction, exponent)) => (fraction, Some(exponent)),
        None => (rest, None),
    };
    let exponent_reads = exponent
        .is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)));
    (digits(whole) && digits(fraction) && exponent_reads)
        .then(|| text.parse().ok())
        .flatten()
        .filter(|value: &f64| value.is_finite())
}

impl Number {
    /// The number as a strict lower bound of a file's size: whole bytes, never negative.
    pub(crate) fn min_bytes(self) -> u64 {
        self.whole_bytes().unwrap_or(BEYOND)
    }

    /// The number as an inclusive upper bound of a file's size; `None` if there is no bound.
    pub(crate) fn max_bytes(self) -> Option<u64> {
        self.whole_bytes()
    }

    fn whole_bytes(self) -> Option<u64> {
        match self {
            Self::Infinity => None,
            Self::Integer(value) => {
                Some(u64::try_from(value.clamp(0, i128::from(BEYOND))).unwrap_or(BEYOND))
            }
            Self::Float(value) =>
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "clamped to what a u64 holds; the fraction is dropped on purpose"
                )]
                Some(value.clamp(0.0, BEYOND as f64) as u64)
            }
        }
    }

    /// The number as a strict lower bound of a priority.
    ///
    /// A float zero differs from an integer zero: smoosh uses the bound itself as the priority of a
    /// file without live bytes, and treats only the integer zero as "no".
    pub(crate) fn min_priority(self) -> f64 {
        let beyond = BEYOND as f64;
        match self {
            Self::Infinity => beyond,
            Self::Integer(value) => (value as f64).clamp(-beyond, beyond),
            Self::Float(0.0) => LEAST,
            Self::Float(value) => value.clamp(-beyond, beyond),
        }
    }

    /// The number as an inclusive upper bound of a priority; infinity if there is no bound.
    pub(crate) fn max_priority(self) -> f64 {
        match self {
            Self::Infinity => f64::INFINITY,
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_parse_like_in_erlang() {
        for (text, read) in [
            ("infinity", Some(Number::Infinity)),
            ("2", Some(Number::Integer(2))),
            ("+2", Some(Number::Integer(2))),
            ("-1", Some(Number::Integer(-1))),
            ("2.5", Some(Number::Float(2.5))),
            ("1.0e9", Some(Number::Float(1e9))),
            ("1.0E-2", Some(Number::Float(0.01))),
            ("99999999999999999999999999999999999999999", Some(Number::Integer(i128::MAX))),
            ("1e9", None),
            ("2.", None),
            (".5", None),
            ("1_000", None),
            ("1.0e999", None),
            ("Infinity", None),
            ("5 ", None),
            ("20GB", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(number(text), read, "{text}");
        }
    }

    #[test]
    fn size_bounds_are_rounded_to_whole_bytes() {
        let bytes = |text| {
            let number = number(text).unwrap();
            (number.min_bytes(), number.max_bytes())
        };
        assert_eq!(bytes("1048576.5"), (1_048_576, Some(1_048_576)));
        assert_eq!(bytes("-1"), (0, Some(0)));
        assert_eq!(bytes("infinity"), (BEYOND, None));
        assert_eq!(bytes("1.0e300"), (BEYOND, Some(BEYOND)));
    }

    proptest! {
        #[test]
        fn numbers_in_arbitrary_text_have_finite_bounds(text in ".{0,40}") {
            if let Some(number) = number(&text) {
                prop_assert!(number.min_bytes() <= BEYOND);
                prop_assert!(number.min_priority().is_finite());
            }
        }
    }
}
