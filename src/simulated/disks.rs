//! The simulated nodes' disks, measured like real volumes.
//!
//! Maps volumes to disks: a volume with a Prometheus query uses the node's name as the query.
//! Never decides whether a job fits. Used by the disk task, in `recliner demo` and in tests.

use crate::{
    model::settings::limits::Free,
    plan::disk::{SpaceMeter, SpaceSource, VolumeMeasurement, VolumeSpace},
};
use couchdb_sim::Cluster;
use futures::future::{BoxFuture, FutureExt as _, ready};
use std::path::PathBuf;
use wall_clock::Moment;

/// Measures the disks of a simulated cluster.
#[derive(Clone, Debug)]
pub struct SimulatedDisks(pub Cluster);

impl SpaceMeter for SimulatedDisks {
    fn measure(
        &self,
        source: &SpaceSource,
        _unfinished: Option<Vec<PathBuf>>,
        now: Moment,
    ) -> BoxFuture<'static, Result<VolumeMeasurement, String>> {
        let space = match source {
            SpaceSource::Configured(Free::Prometheus { query: node, .. }) => {
                self.disk_space(node, now)
            }
            SpaceSource::Configured(Free::Available(available)) => {
                Ok(VolumeSpace { available: *available, size: None, held: None, measured_at: now })
            }
            SpaceSource::Local(_) => Err("a simulated node has no directory".to_owned()),
        };
        ready(space.map(|space| VolumeMeasurement { space, device: None })).boxed()
    }
}

impl SimulatedDisks {
    fn disk_space(&self, node: &str, at: Moment) -> Result<VolumeSpace, String> {
        let disk = self.0.world(|world| world.disk(node));
        let disk = disk.ok_or_else(|| format!("there is no simulated node {node:?}"))?;
        let available = disk
            .available()
            .ok_or_else(|| format!("the simulated disk of {node} has no size limit"))?;
        Ok(VolumeSpace { available, size: disk.capacity, held: None, measured_at: at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use couchdb_sim::faulty_demo_config;
    use std::time::Duration;
    use wall_clock::Clock;

    #[tokio::test]
    async fn a_nodes_disk_is_found_by_the_nodes_name() {
        let clock = Clock::System;
        let cluster = Cluster::new(faulty_demo_config(), 1, clock).unwrap();
        let disks = SimulatedDisks(cluster.clone());
        let measure = |query: &str| {
            let source = SpaceSource::Configured(Free::Prometheus {
                url: "http://simulation".parse().unwrap(),
                query: query.to_owned(),
                size_query: None,
                max_age: Duration::from_secs(60),
            });
            disks.measure(&source, None, clock.now())
        };
        let space = measure("couchdb@sim-2.local").await.unwrap().space;
        let disk = cluster.world(|world| world.disk("couchdb@sim-2.local")).unwrap();
        assert_eq!(space.size, disk.capacity);
        // Writes continue between the two measurements.
        let apart = space.available.abs_diff(disk.available().unwrap());
        assert!(apart < 1 << 30, "{apart} bytes apart");
        assert!(measure("couchdb@sim-9.local").await.unwrap_err().contains("sim-9"));
        let fixed = disks
            .measure(&SpaceSource::Configured(Free::Available(7)), None, clock.now())
            .await
            .unwrap();
        assert_eq!((fixed.space.available, fixed.space.size), (7, None));
    }
}
