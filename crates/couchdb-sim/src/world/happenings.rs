//! What happens to a cluster by itself, at moments that are known beforehand.

use super::World;
use crate::config::Deploy;
use std::time::Duration;

/// How long after the start the first change of a design document comes, so that one sees it.
const FIRST_DEPLOY: Duration = Duration::from_secs(100);

/// The same of the first compaction that is killed.
const FIRST_KILL: Duration = Duration::from_secs(150);

/// Bytes that a killed compaction leaves at most: no reason for anybody to look.
const LEAVES: u64 = 4 << 30;

/// One thing that happens, the n-th time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// The deploy at this place.
    Deploy(usize, u32),
    /// A compaction is killed.
    Kill(u32),
}

impl World {
    /// Notes what will happen first.
    pub(super) fn expect_happenings(&mut self) {
        let deploys = (0..self.config.deploys.len()).map(|at| Happening::Deploy(at, 0));
        self.to_come.extend(deploys.map(|what| (FIRST_DEPLOY, what)));
        if self.config.killed_every.is_some() {
            self.to_come.insert((FIRST_KILL, Happening::Kill(0)));
        }
    }

    /// It happens, and will again.
    pub(super) fn happen(&mut self, at: Duration, what: Happening) {
        self.to_come.remove(&(at, what));
        let again = match what {
            Happening::Deploy(place, count) => {
                let Some(deploy) = self.config.deploys.get(place).cloned() else { return };
                let every = deploy.every;
                self.deploy(deploy, count);
                Some((every, Happening::Deploy(place, count.wrapping_add(1))))
            }
            Happening::Kill(count) => {
                self.kill_one(count);
                let every = self.config.killed_every;
                every.map(|every| (every, Happening::Kill(count.wrapping_add(1))))
            }
        };
        if let Some((every, next)) = again {
            self.to_come.insert((at + every.max(Duration::from_secs(1)), next));
        }
    }

    fn deploy(&mut self, deploy: Deploy, count: u32) {
        let Deploy { db, mut design, .. } = deploy;
        for view in &mut design.views {
            view.push_str(&format!("_v{}", count + 2));
        }
        self.put_design(&db, design);
    }

    /// Kills the compaction of a shard that has come farthest, of those that leave little, on one
    /// node after the other, as a crash of its process does.
    fn kill_one(&mut self, count: u32) {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).max(1);
        let node = count % nodes;
        let here = self
            .jobs
            .iter()
            .filter(|(key, _)| !key.is_index() && self.node_of(key.file) == Some(node));
        let written = here.map(|(key, job)| (job.temporary(key.what, self.now), *key));
        let farthest = written.filter(|(bytes, _)| *bytes <= LEAVES).max_by_key(|it| it.0);
        let killed = farthest.map(|(_, key)| key);
        self.drop_jobs(|key| Some(*key) == killed);
    }
}
