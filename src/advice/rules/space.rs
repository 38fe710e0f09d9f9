//! Space: volumes that fill up.

mod volume_fills;

use super::Family;

/// The family.
pub(super) const FAMILY: Family = Family { title: "Disk space", rules: &[volume_fills::RULE] };
