//! Floats as they are stored and shown: whole bytes, and single precision.

/// Whole bytes; less than none is none.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion from float saturates"
)]
pub(crate) const fn to_bytes(bytes: f64) -> u64 {
    bytes as u64
}

/// A number with the seven digits that a row of the tables has room for.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "it loses digits, not size")]
pub(crate) const fn to_single(number: f64) -> f32 {
    number as f32
}
