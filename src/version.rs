//! stub
/// stub
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u32);
