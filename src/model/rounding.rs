//! Conversions of floats to their stored form: whole bytes, and single precision.

/// Whole bytes; negative values become zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion from float saturates"
)]
pub(crate) const fn to_bytes(bytes: f64) -> u64 {
    bytes as u64
}

/// A number in single precision: seven digits, which is all that a row of the tables has room for.
#[expect(clippy::cast_possible_truncation, reason = "it loses digits, not magnitude")]
pub(crate) const fn to_single(number: f64) -> f32 {
    number as f32
}
