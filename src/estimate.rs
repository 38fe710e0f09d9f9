//! stub
use crate::{facts::Facts, target::Kind};
/// stub
#[must_use]
pub fn predicted(_kind: Kind, facts: &Facts) -> Option<u64> {
    facts.active.get()
}
/// stub
#[must_use]
pub fn reclaimable(kind: Kind, facts: &Facts) -> Option<u64> {
    Some(facts.file.get()?.saturating_sub(predicted(kind, facts)?))
}
