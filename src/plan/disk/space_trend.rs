//! Detects free space that falls faster than the jobs on a volume explain.
//!
//! Owns the last samples of one volume. Pure: the task feeds it.
//!
//! Space that shrinks because clients write to CouchDB is no reason to stop: compaction gives it
//! back. So a fall counts only if it would fill the volume soon, and stops counting once filling it
//! would take at least twice that time.

use crate::jobs::{Job, JobKey};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use wall_clock::Moment;

/// The samples used are the shortest run that spans this duration.
const MIN_SPAN: Duration = Duration::from_secs(120);
const MIN_SAMPLES: usize = 3;
/// A fall counts if it would fill the volume within this time.
const FULL_SOON: Duration = Duration::from_secs(3_600);
/// Samples further apart than this are not compared.
const MAX_SAMPLE_GAP: Duration = Duration::from_secs(900);

#[derive(Clone, Copy, Debug)]
struct SpaceSample {
    at: Moment,
    available: u64,
    /// Bytes that jobs wrote since the previous sample.
    explained_bytes: u64,
}

/// The last samples of a volume.
#[derive(Clone, Debug, Default)]
pub(super) struct SpaceTrend {
    samples: VecDeque<SpaceSample>,
    /// Each job's reservation at the last sample.
    reserved: BTreeMap<JobKey, u64>,
    falling_since: Option<Moment>,
}

impl SpaceTrend {
    /// When space began to fall too fast.
    pub(super) const fn falling_since(&self) -> Option<Moment> {
        self.falling_since
    }

    /// Records a sample and the jobs on the volume at that time. Ignores a sample that is not newer
    /// than the last one.
    pub(super) fn record(&mut self, at: Moment, available: u64, jobs: &[&Job]) {
        let last = self.samples.back().copied();
        if last.is_some_and(|last| at <= last.at) {
            return;
        }
        for job in jobs {
            // Bytes that a job wrote before it was first seen count as well.
            self.reserved.entry(job.key.clone()).or_insert_with(|| job.peak_bytes());
        }
        let now: BTreeMap<JobKey, u64> =
            jobs.iter().map(|job| (job.key.clone(), job.reserved_bytes)).collect();
        let written = self
            .reserved
            .iter()
            .map(|(key, before)| before.saturating_sub(now.get(key).copied().unwrap_or_default()));
        let explained = written.fold(0, u64::saturating_add);
        self.reserved = now;
        // An increase in free space, such as at the end of a job, hides how much fell before it.
        let restarts =
            |last: SpaceSample| available > last.available || last.at.age(at) > MAX_SAMPLE_GAP;
        if last.is_some_and(restarts) {
            self.samples.clear();
        }
        self.samples.push_back(SpaceSample { at, available, explained_bytes: explained });
        while self.samples.len() > MIN_SAMPLES
            && self.samples.get(1).is_some_and(|second| second.at.age(at) >= MIN_SPAN)
        {
            self.samples.pop_front();
        }
        self.update(at, available);
    }

    fn update(&mut self, now: Moment, available: u64) {
        let Some(first) = self.samples.front() else { return };
        let span = first.at.age(now);
        if self.samples.len() < MIN_SAMPLES || span < MIN_SPAN {
            return;
        }
        let fell = first.available.saturating_sub(available);
        let written = || self.samples.iter().skip(1).map(|sample| sample.explained_bytes);
        // The list of jobs may be up to one interval older than the disk measurement.
        let behind = written().max().unwrap_or_default();
        let explained = written().fold(behind, u64::saturating_add);
        let unexplained = fell.saturating_sub(explained);
        // Seconds until the volume is full at this rate; infinite if nothing falls.
        let full_in = available as f64 / (unexplained as f64 / span.as_secs_f64());
        match self.falling_since {
            None if unexplained > 0 && full_in < FULL_SOON.as_secs_f64() => {
                self.falling_since = Some(first.at);
            }
            Some(_) if unexplained == 0 || full_in > 2.0 * FULL_SOON.as_secs_f64() => {
                self.falling_since = None;
            }
            None | Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        jobs::{JobKind, JobPhase},
        model::{records::JobOwner, target::TargetKind},
        table::NodeIx,
    };

    const GIB: u64 = 1 << 30;

    fn job(reserved: u64, progress: Option<f64>) -> Job {
        let key =
            JobKey { node: NodeIx::CLUSTER, shard: "shards/a".into(), kind: JobKind::CompactDb };
        Job {
            key,
            target: None,
            target_kind: TargetKind::Db,
            owner: JobOwner::Other,
            channel: None,
            started_at: Moment::from_unix(0),
            phase: JobPhase::Running,
            progress,
            last_progress_at: Moment::from_unix(0),
            reserved_bytes: reserved,
            file_bytes: None,
            predicted_bytes: None,
        }
    }

    /// Columns: seconds, GiB free, GiB reserved by a job and its progress, expected start of the
    /// fall.
    type Line = (u64, u64, Option<(u64, f64)>, Option<u64>);

    #[test]
    fn alarms_only_at_unexplained_loss_that_soon_fills_the_volume() {
        let tables: &[(&str, &[Line])] = &[
            ("two samples are not enough", &[(0, 100, None, None), (200, 10, None, None)]),
            (
                "three within a minute are not enough",
                &[(0, 100, None, None), (30, 90, None, None), (60, 80, None, None)],
            ),
            (
                "a fall that fills it within the hour, until it is over",
                &[
                    (0, 100, None, None),
                    (60, 95, None, None),
                    (120, 90, None, Some(0)),
                    // An increase clears the samples but not the alarm.
                    (180, 95, None, Some(0)),
                    (240, 95, None, Some(0)),
                    (300, 95, None, None),
                ],
            ),
            (
                "a slow fall is normal writing",
                &[(0, 100, None, None), (60, 100, None, None), (120, 98, None, None)],
            ),
            (
                "what a job writes is explained",
                &[
                    (0, 100, Some((20, 0.0)), None),
                    (60, 95, Some((15, 0.25)), None),
                    (120, 90, Some((10, 0.5)), None),
                ],
            ),
            (
                "so is what it wrote before it was seen, and at its end",
                &[(0, 100, None, None), (60, 90, Some((10, 0.5)), None), (120, 80, None, None)],
            ),
            (
                "a job explains no more than it writes",
                &[
                    (0, 100, Some((20, 0.0)), None),
                    (60, 90, Some((19, 0.05)), None),
                    (120, 80, Some((18, 0.1)), Some(0)),
                ],
            ),
            (
                "a repeated sample is ignored, and a long gap resets the samples",
                &[
                    (0, 100, None, None),
                    (60, 95, None, None),
                    (60, 95, None, None),
                    (2_000, 90, None, None),
                    (2_060, 85, None, None),
                    (2_120, 80, None, Some(2_000)),
                ],
            ),
        ];
        for (name, lines) in tables {
            let mut trend = SpaceTrend::default();
            for (seconds, free, running, falling) in *lines {
                let job = running.map(|(gib, done)| job(gib * GIB, Some(done)));
                let jobs: Vec<&Job> = job.iter().collect();
                trend.record(Moment::from_unix(*seconds), free * GIB, &jobs);
                let falling = falling.map(Moment::from_unix);
                assert_eq!(trend.falling_since(), falling, "{name}, at {seconds}");
            }
        }
    }
}
