//! Running shard splits, read once for all starts of the same moment.

use crate::sources::inventory::{Observation, ReadError, Reshard, Source, Stage};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared},
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The running splits, or why they are unknown; several starts can wait for one result.
pub(super) type SplitsFuture = Shared<BoxFuture<'static, Result<Arc<Reshard>, ReadError>>>;

/// The most recent reading.
#[derive(Debug, Default)]
pub(super) struct SplitsCache(Option<(Instant, SplitsFuture)>);

impl SplitsCache {
    /// The running splits. Reads them again if the last reading began more than `every` ago.
    pub(super) fn read(&mut self, source: &Arc<dyn Source>, every: Duration) -> SplitsFuture {
        if let Some((started_at, read)) = &self.0
            && started_at.elapsed() < every
        {
            return read.clone();
        }
        let read = read_splits(Arc::clone(source)).boxed().shared();
        self.0 = Some((Instant::now(), read.clone()));
        read
    }
}

async fn read_splits(source: Arc<dyn Source>) -> Result<Arc<Reshard>, ReadError> {
    let mut observations = source.read(Stage::Splits);
    let mut splits = None;
    while let Some(observation) = observations.next().await {
        if let Observation::Reshard(reshard) = observation {
            splits = Some(reshard?);
        }
    }
    Ok(Arc::new(splits.unwrap_or_default()))
}
