//! CouchDB and files as one source.

use super::{FilesSource, HttpSource, Observation, Source, Stage};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use std::{fmt::Debug, future::ready, sync::Arc};

/// The files in directories that this process does not read through [`walk`](crate::datadir::walk()).
pub trait Directories: Debug + Send + Sync + 'static {
    /// Reads all these directories. MUST end, as a [`Source`] must.
    fn read(&self) -> BoxStream<'static, Observation>;
}

/// CouchDB, the files of one node, or both.
///
/// CouchDB provides the members of the cluster and the placement of copies; without it there is only
/// the node of the files. The files are read in a separate stage.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// CouchDB, if configured.
    pub http: Option<HttpSource>,
    /// The node's own directories, if configured.
    pub files: Option<FilesSource>,
    /// Other nodes' directories.
    pub elsewhere: Vec<Arc<dyn Directories>>,
}

impl Source for Sources {
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation> {
        let observations = match (&stage, &self.http, &self.files) {
            (Stage::Disk, ..) => {
                let files = self.files.clone().map(|files| files.disk(self.http.clone()));
                let elsewhere = self.elsewhere.iter().map(|directories| directories.read());
                stream::select_all(files.into_iter().chain(elsewhere)).boxed()
            }
            (_, None, None) => stream::empty().boxed(),
            (_, Some(http), _) => return http.read(stage),
            (_, None, Some(files)) => files.alone(&stage),
        };
        observations.chain(stream::once(ready(Observation::StageEnded))).boxed()
    }
}
