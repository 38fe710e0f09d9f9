//! A source for tests in which nothing is read.

use super::{Observation, Source, Stage};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};

/// A source that never answers.
#[derive(Debug)]
pub(crate) struct SilentSource;

impl Source for SilentSource {
    fn read(&self, _stage: Stage) -> BoxStream<'static, Observation> {
        stream::pending().boxed()
    }
}
