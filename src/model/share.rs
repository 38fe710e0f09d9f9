//! A share of what clusters on the same storage may do together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Compactions at a time, and bytes of files whose compaction starts within an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// Compactions at a time.
    pub jobs: usize,
    /// Size, before compaction, of files whose compaction starts within any hour, in bytes.
    pub bytes_per_hour: u64,
}

impl Share {
    /// Nothing.
    pub const NONE: Self = Self { jobs: 0, bytes_per_hour: 0 };
    /// No limit.
    pub const ALL: Self = Self { jobs: usize::MAX, bytes_per_hour: u64::MAX };

    /// The larger of the two, separately for each number.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.zip(other, usize::max, u64::max)
    }

    /// The smaller of the two, separately for each number.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.zip(other, usize::min, u64::min)
    }

    /// The sum of the two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, usize::saturating_add, u64::saturating_add)
    }

    /// What remains of this after the other is taken.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self.zip(other, usize::saturating_sub, u64::saturating_sub)
    }

    /// Whether both numbers are within the other's.
    #[must_use]
    pub const fn fits(self, other: Self) -> bool {
        self.jobs <= other.jobs && self.bytes_per_hour <= other.bytes_per_hour
    }

    fn zip(self, other: Self, jobs: fn(usize, usize) -> usize, bytes: fn(u64, u64) -> u64) -> Self {
        Self {
            jobs: jobs(self.jobs, other.jobs),
            bytes_per_hour: bytes(self.bytes_per_hour, other.bytes_per_hour),
        }
    }
}

impl std::iter::Sum for Share {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        shares.fold(Self::NONE, Self::plus)
    }
}
