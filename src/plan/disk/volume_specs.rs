//! The volumes to measure, and the source of each one's free space.
//!
//! Owns the volumes' names. Pure: the task calls it with the settings.

use crate::{
    datadir,
    jobs::{JobKind, Jobs},
    model::settings::limits::{self, Free},
    table::{NodeIx, Snapshot},
};
use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

/// The local directories, and the node they belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDirectories {
    /// The node, by CouchDB's name.
    pub node: String,
    /// Its directories; those on the same file system make up one volume.
    pub directories: Vec<PathBuf>,
}

impl LocalDirectories {
    /// Where the unfinished files of the node's running compactions are. `None` if its tasks are unknown, or
    /// if the index that one of them compacts is unknown.
    pub(super) fn unfinished_files(
        &self,
        jobs: &Jobs,
        snapshot: &Snapshot,
    ) -> Option<Vec<PathBuf>> {
        let node = snapshot.nodes().iter().position(|node| *node.name == *self.node)?;
        let node = NodeIx::from_usize(node)?;
        jobs.polled_nodes.iter().find(|(polled, _)| *polled == node)?;
        let mut files = Vec::new();
        for job in jobs.compactions().filter(|job| job.key.node == node) {
            let signature = match &job.key.kind {
                JobKind::CompactView(_) => {
                    Some(snapshot.target(job.target?)?.view().map(|view| view.signature)?)
                }
                JobKind::CompactDb | JobKind::BuildView(_) | JobKind::BuildSearch(..) => None,
            };
            for name in datadir::compaction_files(&job.key.shard, signature) {
                files.extend(self.directories.iter().map(|directory| directory.join(&name)));
            }
        }
        Some(files)
    }
}

/// How a volume's free space is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceSource {
    /// Through the file system that holds this directory.
    Local(PathBuf),
    /// As the configuration specifies.
    Configured(Free),
}

/// Maximum age of a local measurement. It matters because a hanging file system never answers.
const LOCAL_MAX_AGE: Duration = Duration::from_secs(300);

impl SpaceSource {
    /// Maximum age of a measurement; an older one counts as unknown.
    #[must_use]
    pub const fn max_age(&self) -> Duration {
        match self {
            Self::Configured(Free::Prometheus { max_age, .. }) => *max_age,
            Self::Local(_) | Self::Configured(Free::Available(_)) => LOCAL_MAX_AGE,
        }
    }
}

/// One volume to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Unique.
    pub name: Arc<str>,
    /// The nodes with files on it.
    pub nodes: Vec<Arc<str>>,
    /// How its free space is measured.
    pub source: SpaceSource,
    /// Its size in bytes, if the configuration states it.
    pub stated_size: Option<u64>,
}

/// The volumes: local ones first, then configured ones in the configuration's order.
///
/// Each is named after its first node, with a number added if that name is taken, so a volume has
/// the same name in a process that measures it and in one whose configuration describes it. A node
/// that occurs in a configured volume gets no local volume: the configuration overrides the local
/// measurement.
pub(super) fn volume_specs(
    volumes: &[limits::VolumeSettings],
    local: Option<&LocalDirectories>,
) -> Vec<VolumeSpec> {
    let mut specs = Vec::new();
    let mut names = BTreeSet::new();
    let mut unique = |name: &str| -> Arc<str> {
        let numbered = (2_u32..).map(|number| format!("{name}-{number}"));
        let mut free = std::iter::once(name.to_owned()).chain(numbered);
        free.find(|name| names.insert(name.clone())).unwrap_or_default().into()
    };
    let configured = |node: &String| volumes.iter().any(|volume| volume.nodes.contains(node));
    if let Some(local) = local.filter(|local| !configured(&local.node)) {
        for directory in &local.directories {
            specs.push(VolumeSpec {
                name: unique(&local.node),
                nodes: vec![local.node.as_str().into()],
                source: SpaceSource::Local(directory.clone()),
                stated_size: None,
            });
        }
    }
    for volume in volumes {
        specs.push(VolumeSpec {
            name: unique(volume.nodes.first().map_or("", String::as_str)),
            nodes: volume.nodes.iter().map(|node| node.as_str().into()).collect(),
            source: SpaceSource::Configured(volume.free.clone()),
            stated_size: volume.size,
        });
    }
    specs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_names_are_short_and_unique() {
        let volume = |nodes: &[&str]| limits::VolumeSettings {
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            free: Free::Available(7),
            size: None,
        };
        let local = |node: &str| LocalDirectories {
            node: node.to_owned(),
            directories: vec!["/data".into(), "/views".into()],
        };
        let shared = [volume(&["couchdb@a", "couchdb@b"])];
        let twice = [volume(&["couchdb@a"]), volume(&["couchdb@a"]), volume(&["couchdb@a"])];
        for (volumes, local, names) in [
            (&[][..], None, &[][..]),
            (&shared[..], None, &["couchdb@a"][..]),
            (&twice[..], None, &["couchdb@a", "couchdb@a-2", "couchdb@a-3"][..]),
            (&shared[..], Some(local("couchdb@c")), &["couchdb@c", "couchdb@c-2", "couchdb@a"][..]),
            // A volume has the same name whether it is measured here or configured elsewhere.
            (&[], Some(local("couchdb@a")), &["couchdb@a", "couchdb@a-2"]),
            // The configured volume covers node b.
            (&shared[..], Some(local("couchdb@b")), &["couchdb@a"][..]),
        ] {
            let specs = volume_specs(volumes, local.as_ref());
            let found: Vec<&str> = specs.iter().map(|spec| &*spec.name).collect();
            assert_eq!(found, names);
        }
    }
}
