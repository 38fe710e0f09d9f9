//! Volumes that fill up, by the growth of the files on them.

use super::super::{Rule, VOLUME_FILLS};
use crate::{
    advice::{
        Evidence, Finding, Findings, FullDates, Gain, Remedy, Severity, Situation, Subject,
        VolumeCourse,
    },
    model::{rounding::to_bytes, settings::advice::AdviceSettings},
    plan::disk::Volume,
    text::{duration::format_rounded, size::format_size_short},
};
use std::time::Duration;
use wall_clock::Moment;

pub(super) const RULE: Rule = Rule {
    code: VOLUME_FILLS,
    finds: "Volumes that will be full soon as writes go now, with the date.",
    because: "CouchDB only appends to its files, so free space shrinks with every write, and a node whose disk is full fails writes and compactions. Compaction gives back what is dead but never what is live: a volume whose live data outgrows it needs more space, or fewer shards. Growth is that of the files' own sizes over days, which compactions do not hide, not that of free space. A view of the cluster counts for its nodes in equal parts. It is a warning from `advice.full_within` and critical from `advice.full_soon` on if compaction keeps up, and information if the volume would last that long only with compaction. A running recliner then also simulates the next thirty days, as `recliner what-if` does, every six hours, and says the dates without compaction, under smoosh as it is set, and under its own rules as if it enforced. Nodes with several volumes are left out, because it is unknown which of their files are on which volume.",
    severities: &[Severity::Info, Severity::Warning, Severity::Critical],
    check,
};

const DAY: Duration = Duration::from_secs(86_400);

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for volume in &situation.inputs.plan.conditions.disks.volumes {
        let Some(course) = VolumeCourse::of(situation, volume) else { continue };
        let Some(severity) = course.severity(situation.settings()) else { continue };
        let gain = Gain::Risk(course.bytes_without_place(severity, situation.settings()));
        findings.offer(severity, gain, || {
            let mut finding = course.finding(volume, severity, gain, situation.now);
            if let Some(dates) = forecast(situation, volume) {
                add_forecast(&mut finding, &dates);
            }
            finding
        });
    }
}

/// What a simulation of the next weeks has for a volume.
fn forecast(situation: &Situation<'_>, volume: &Volume) -> Option<FullDates> {
    situation.inputs.volume_dates.as_ref()?.volumes.get(&volume.name).copied()
}

/// Adds the three dates, in words and in numbers.
fn add_forecast(finding: &mut Finding, dates: &FullDates) {
    let word = |date: Option<Moment>| date.map_or_else(|| "never".to_owned(), |at| at.date());
    finding.says.push_str(&format!(
        " By a simulation it is full: without compaction {}, under smoosh {}, under recliner as configured {}.",
        word(dates.uncompacted),
        word(dates.smoosh),
        word(dates.in_force),
    ));
    let evidence: Evidence = vec![
        ("simulated_full_without_compaction", word(dates.uncompacted).into()),
        ("simulated_full_under_smoosh", word(dates.smoosh).into()),
        ("simulated_full_as_configured", word(dates.in_force).into()),
    ];
    finding.evidence.extend(evidence);
}

impl VolumeCourse {
    fn severity(&self, settings: &AdviceSettings) -> Option<Severity> {
        let within = |time: Option<Duration>, limit| time.is_some_and(|time| time <= limit);
        if within(self.compacted, settings.full_soon) {
            Some(Severity::Critical)
        } else if within(self.compacted, settings.full_within) {
            Some(Severity::Warning)
        } else {
            within(self.uncompacted, settings.full_soon).then_some(Severity::Info)
        }
    }

    /// What will be written in the time that the rule looks ahead and does not fit.
    fn bytes_without_place(&self, severity: Severity, settings: &AdviceSettings) -> u64 {
        let free = self.available as f64;
        let (rate, free, ahead) = match severity {
            Severity::Info => (self.growth.file_rate, free, settings.full_soon),
            Severity::Warning | Severity::Critical => {
                (self.growth.active_rate, free + self.reclaimable, settings.full_within)
            }
        };
        to_bytes(rate.mul_add(ahead.as_secs_f64(), -free))
    }

    fn finding(&self, volume: &Volume, severity: Severity, gain: Gain, now: Moment) -> Finding {
        let by_day = |rate: f64| to_bytes(rate * DAY.as_secs_f64());
        let (written, live) = (by_day(self.growth.file_rate), by_day(self.growth.active_rate));
        let begins = format!(
            "The volume {} has {} free and will be full",
            volume.name,
            format_size_short(self.available)
        );
        let measured = format!("measured over {}", format_rounded(self.watched));
        let says = if severity == Severity::Info {
            let lasts = self.compacted.map_or_else(
                || "does not fill within ten years".to_owned(),
                |time| format!("lasts until {}", date(now, time)),
            );
            format!(
                "{begins} {} if nothing is compacted, because {} a day are written ({measured}); if compaction keeps up, it {lasts}.",
                when(now, self.uncompacted),
                format_size_short(written),
            )
        } else {
            format!(
                "{begins} {} even if compaction keeps up, because live data grows by {} a day ({measured}).",
                when(now, self.compacted),
                format_size_short(live),
            )
        };
        let mut evidence = vec![
            ("available_bytes", self.available.into()),
            ("reclaimable_bytes", to_bytes(self.reclaimable).into()),
            ("written_bytes_per_day", written.into()),
            ("live_growth_bytes_per_day", live.into()),
            ("measured_seconds", self.watched.as_secs().into()),
        ];
        for (name, time) in [
            ("full_without_compaction", self.uncompacted),
            ("full_with_compaction", self.compacted),
        ] {
            if let Some(time) = time {
                evidence.push((name, now.plus(time).rfc3339().into()));
            }
        }
        let subject = Subject::Volume(volume.name.to_string());
        Finding { severity, subject, says, evidence, gain, remedy: remedy(volume, severity) }
    }
}

fn remedy(volume: &Volume, severity: Severity) -> Vec<Remedy> {
    let ahead = Remedy::recliner(
        "Compare how long it lasts without compaction, with smoosh and with recliner:",
        &["what-if", "--days", "30"],
    );
    if severity == Severity::Info {
        return vec![
            ahead,
            Remedy::choice(
                "See that compaction never stalls for days: keep the alerts about growing queues and about recliner itself.",
            ),
        ];
    }
    let nodes: Vec<String> = volume.nodes.iter().map(ToString::to_string).collect();
    vec![
        Remedy::choice(format!(
            "Before that date enlarge the volume of {}, move shards to nodes with more space, or delete data that is not needed.",
            crate::text::listed(&nodes)
        )),
        ahead,
    ]
}

/// `on 2026-12-01, in 10d`.
fn when(now: Moment, time: Option<Duration>) -> String {
    let time = time.unwrap_or_default();
    format!("on {}, in {},", date(now, time), format_rounded(time))
}

fn date(now: Moment, time: Duration) -> String {
    now.plus(time).date()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::{
            VolumeDates,
            test_cluster::{NOW, Shard, TestCluster},
        },
        model::channel::Channels,
        plan::disk::{Disks, VolumeSpace},
    };
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;
    const DAYS: u64 = 86_400;

    fn cluster_of(shard: Shard, available: u64) -> TestCluster {
        let mut cluster = TestCluster::with_shards(&[shard]);
        let space = VolumeSpace { available, size: None, measured_at: NOW };
        let volume = |name: &str, space| Volume {
            name: name.into(),
            nodes: vec![name.into()],
            space,
            falling_since: None,
            problem: None,
        };
        let volumes = vec![volume("a", Some(space)), volume("b", None)];
        cluster.conditions.disks = Arc::new(Disks { volumes });
        cluster
    }

    fn found_of(shard: Shard, available: u64) -> Vec<Finding> {
        cluster_of(shard, available).findings_of(&RULE)
    }

    /// A node that wrote 10 GiB a day over five days, of which `live` GiB stay, with so much free.
    fn found(live: u64, available: u64) -> Vec<Finding> {
        let (file, active) = (200 * GIB, 100 * GIB);
        let shard = Shard::new("orders", "a", 0, file).with_active(active);
        found_of(shard.grown_from(5 * DAYS, file - 50 * GIB, active - 5 * live * GIB), available)
    }

    #[test]
    fn live_data_that_outgrows_a_volume_is_told_with_the_date() {
        let warning = found(10, 100 * GIB);
        let [only] = &warning[..] else { panic!("{warning:?}") };
        assert_eq!(only.severity, Severity::Warning);
        assert_eq!(
            only.says,
            "The volume a has 100 GiB free and will be full on 2026-12-11, in 20d, even if compaction keeps up, because live data grows by 10 GiB a day (measured over 5d)."
        );
        assert_eq!(found(10, 1)[0].severity, Severity::Warning, "100 GiB can be freed");
        assert_eq!(found(10, 200 * GIB + GIB), [], "31 days are enough");
    }

    #[test]
    fn it_is_critical_if_it_is_soon() {
        let shard = Shard::new("orders", "a", 0, 200 * GIB);
        let critical = found_of(shard.grown_from(2 * DAYS, 100 * GIB, 100 * GIB), 300 * GIB);
        assert_eq!(critical[0].severity, Severity::Critical);
        let Gain::Risk(bytes) = critical[0].gain else { panic!("{critical:?}") };
        assert_eq!(bytes / GIB, 1_199, "30 days of 50 GiB, less what is free");
    }

    #[test]
    fn a_week_without_compaction_is_worth_knowing() {
        let info = found(0, 65 * GIB);
        let [only] = &info[..] else { panic!("{info:?}") };
        assert_eq!(only.severity, Severity::Info);
        assert_eq!(
            only.says,
            "The volume a has 65 GiB free and will be full on 2026-11-27, in 6d 12h, if nothing is compacted, because 10 GiB a day are written (measured over 5d); if compaction keeps up, it does not fill within ten years."
        );
        assert_eq!(found(0, 71 * GIB), []);
    }

    #[test]
    fn three_dates_of_a_simulation_are_told() {
        let shard = Shard::new("orders", "a", 0, 200 * GIB);
        let shard = shard.grown_from(5 * DAYS, 150 * GIB, 150 * GIB);
        let mut cluster = cluster_of(shard, 100 * GIB);
        let dates = VolumeDates::of(&cluster.plan(), &Channels::default(), NOW).unwrap();
        let of_a = dates.volumes["a"];
        let days = |at: Option<Moment>| at.map(|at| (at.unix() - NOW.unix() + DAYS / 2) / DAYS);
        // All that is written stays, so no compaction helps.
        assert_eq!([of_a.uncompacted, of_a.smoosh, of_a.in_force].map(days), [Some(10); 3]);
        let never = FullDates { in_force: None, ..of_a };
        cluster.volume_dates =
            Some(VolumeDates { from: NOW, volumes: [("a".into(), never)].into() });
        let found = cluster.findings_of(&RULE);
        let says = &found[0].says;
        assert!(
            says.ends_with(" By a simulation it is full: without compaction 2026-12-01, under smoosh 2026-12-01, under recliner as configured never."),
            "{says}"
        );
        assert_eq!(found[0].evidence.len(), 10);
    }

    #[test]
    fn a_few_hours_tell_nothing() {
        let shard = Shard::new("orders", "a", 0, 200 * GIB);
        assert_eq!(found_of(shard.clone().grown_from(DAYS - 60, GIB, GIB), GIB), []);
        assert_eq!(found_of(shard, GIB), []);
    }
}
