//! Months of one file under any writes: what is rewritten for nothing, and what waste stays.

use super::verdict::FileBefore;
use crate::model::{
    channel::{Channel, ChannelPreset},
    correction::Correction,
    facts::{FactSource, Facts, Measurement, OptionalU64},
    records::{AfterCompaction, JobOwner, JobResult, Outcome, TargetRecord, frees_little},
    score::{RentNow, score},
    settings::limits::FailureSettings,
    target::{TargetId, TargetKind},
};
use proptest::prelude::*;
use std::time::Duration;
use wall_clock::Moment;

const MIB: u64 = 1 << 20;
const MINUTE: u64 = 60;
/// Bytes of tree nodes that a write replaces.
const TREE: u64 = 1_100;

const FAILURE: FailureSettings = FailureSettings {
    cool_down: Duration::from_secs(600),
    cool_down_max: Duration::from_secs(3_600),
    quarantine_after: 5,
};

/// Writes for a while.
#[derive(Clone, Copy, Debug)]
struct Writes {
    minutes: u64,
    /// Changes a minute.
    rate: u64,
}

/// A file whose live bytes, after a compaction, are a share of it, as shapes of documents differ.
#[derive(Clone, Debug)]
struct File {
    clean: u64,
    waste: u64,
    active_share: f64,
    document: u64,
    new_share: f64,
    seq: u64,
    compacted_seq: u64,
}

impl File {
    fn write(&mut self, changes: u64) {
        let new = (changes as f64 * self.new_share) as u64;
        self.clean += new * self.document;
        self.waste += changes * TREE + (changes - new) * self.document;
        self.seq += changes;
    }

    const fn size(&self) -> u64 {
        self.clean + self.waste
    }

    fn facts(&self, at: Moment) -> Facts {
        Facts {
            file_bytes: OptionalU64::new(self.size()),
            active_bytes: OptionalU64::new((self.clean as f64 * self.active_share) as u64),
            update_seq: OptionalU64::new(self.seq),
            compacted_seq: OptionalU64::new(self.compacted_seq),
            measured_at: Some(Measurement { at, source: FactSource::Http }),
            ..Facts::default()
        }
    }
}

/// A compaction that runs.
struct Job {
    before: FileBefore,
    started_at: Moment,
    ends: u64,
    /// The waste at its start, which it drops.
    drops: u64,
}

/// What was rewritten, and what for.
#[derive(Clone, Copy, Debug, Default)]
struct Rewritten {
    all: u64,
    in_vain: u64,
    jobs: u64,
    jobs_in_vain: u64,
}

struct Months {
    file: File,
    channels: Vec<Channel>,
    /// Bytes that a compaction writes a minute.
    speed: u64,
    record: TargetRecord,
    job: Option<Job>,
    minute: u64,
    rewritten: Rewritten,
}

impl Months {
    fn takes(&self, facts: &Facts) -> bool {
        let mut channels = self.channels.iter();
        channels.any(|it| score(it, TargetKind::Db, facts, RentNow::UNKNOWN).is_ok())
    }

    /// Whether the file would be compacted now.
    fn is_due(&self, facts: &Facts, now: Moment) -> bool {
        let predicted = Correction::NONE.predicted_bytes(TargetKind::Db, facts).unwrap();
        self.takes(facts)
            && !frees_little(self.file.size(), predicted)
            && self.record.backoff(TargetKind::Db, facts, Correction::NONE, now).is_none()
    }

    fn step(&mut self, changes: u64) {
        self.minute += 1;
        self.file.write(changes);
        let now = Moment::from_unix(self.minute * MINUTE);
        if self.job.as_ref().is_some_and(|job| job.ends <= self.minute)
            && let Some(job) = self.job.take()
        {
            self.end(&job, now);
        }
        let facts = self.file.facts(now);
        if self.job.is_none() && self.is_due(&facts, now) {
            self.job = Some(Job {
                before: FileBefore::of(TargetKind::Db, &facts, Correction::NONE),
                started_at: now,
                ends: self.minute + 1 + self.file.clean / self.speed,
                drops: self.file.waste,
            });
        }
    }

    fn end(&mut self, job: &Job, now: Moment) {
        self.file.waste -= job.drops;
        self.file.compacted_seq = self.file.seq;
        let (facts, before, after) =
            (self.file.facts(now), job.before.file_bytes.unwrap(), self.file.size());
        let changes = self.file.seq - job.before.update_seq.unwrap();
        let left = AfterCompaction {
            file_bytes: Some(after),
            active_bytes: facts.active_bytes.get(),
            predicted_bytes: Correction::NONE.predicted_bytes(TargetKind::Db, &facts),
            update_seq: Some(self.file.seq),
            changes: Some(changes),
            changes_bytes: job.before.waste_of_changes(changes),
            not_upgraded: false,
        };
        let in_vain = frees_little(before, after);
        let outcome = Outcome {
            target: TargetId::Cleanup { db: "a".into() },
            kind: TargetKind::Db,
            node: "couchdb@a".into(),
            design: None,
            channel: None,
            owner: JobOwner::Recliner,
            ordered_by: None,
            started_at: job.started_at,
            ended_at: now,
            before_bytes: Some(before),
            after_bytes: Some(after),
            predicted_bytes: job.before.predicted_bytes,
            ending: if in_vain { JobResult::NothingFreed } else { JobResult::Freed },
            why: None,
        };
        self.record.record_outcome(&outcome, left, &FAILURE);
        self.rewritten.all += after;
        self.rewritten.jobs += 1;
        if in_vain {
            self.rewritten.in_vain += after;
            self.rewritten.jobs_in_vain += 1;
        }
    }
}

fn pattern() -> impl Strategy<Value = Vec<Writes>> {
    let rate = prop_oneof![Just(0_u64), 1_u64..100, 100_u64..20_000, Just(200_000)];
    let writes = (1_u64..2_000, rate).prop_map(|(minutes, rate)| Writes { minutes, rate });
    proptest::collection::vec(writes, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn hardly_anything_is_rewritten_in_vain_and_no_waste_stays_for_ever(
        size in 20_u64..100_000, waste in 0_u64..3, active_share in 0.9..1.0, document in 100_u64..5_000,
        new_share in 0.0..0.3, speed in 100_u64..10_000, pattern in pattern(),
    ) {
        let file = File {
            clean: size * MIB,
            waste: size * MIB * waste,
            active_share,
            document,
            new_share,
            seq: size * MIB / document,
            compacted_seq: 0,
        };
        let channels = ChannelPreset::Smoosh.channels();
        let mut months = Months {
            file,
            channels,
            speed: speed * MIB,
            record: TargetRecord::default(),
            job: None,
            minute: 0,
            rewritten: Rewritten::default(),
        };
        while months.minute < 90 * 1_440 && months.file.size() < 20 << 40 {
            for writes in &pattern {
                (0..writes.minutes).for_each(|_| months.step(writes.rate));
            }
        }
        let Rewritten { all, in_vain, .. } = months.rewritten;
        prop_assert!(in_vain as f64 <= 0.02 * all as f64, "{:?}", months.rewritten);
        (0..30 * 1_440).for_each(|_| months.step(0));
        let facts = months.file.facts(Moment::from_unix(months.minute * MINUTE));
        let stays = months.file.waste as f64 / months.file.size() as f64;
        prop_assert!(stays < 0.1 || !months.takes(&facts), "{stays} of {:?}", months.file);
    }
}
