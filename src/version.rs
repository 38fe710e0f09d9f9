//! stub
/// stub
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u32);
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
