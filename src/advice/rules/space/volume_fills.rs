//! Volumes that fill up, by the growth of the files on them.

use crate::{
    advice::{
        Evidence, Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording,
        rule::VOLUME_FILLS,
        volume_course::{VolumeCourse, dates_of},
    },
    model::{rounding::to_bytes, settings::advice::AdviceSettings},
    plan::disk::Volume,
    text::{duration::format_rounded, size::format_size_short},
    what_if::FillDates,
};
use std::time::Duration;
use wall_clock::Moment;

pub(crate) const RULE: Rule = Rule {
    code: VOLUME_FILLS,
    finds: "Volumes that will be full soon as writes go now, with the date.",
    because: "CouchDB only appends to its files, so free space shrinks with every write, and a node whose disk is full fails writes and compactions. Compaction gives back what is dead but never what is live: a volume whose live data outgrows it needs more space, or fewer shards. Growth is that of the files' own sizes over days, which compactions do not hide, not that of free space. A view of the cluster counts for its nodes in equal parts. It is a warning from `advice.full_within` and critical from `advice.full_soon` on if compaction keeps up, and information if the volume would last that long only with compaction. A running recliner then also simulates the next thirty days, as `recliner what-if` does, every six hours, and says the dates without compaction, with smoosh as it is set, and with its own rules as if it enforced. From then on these dates decide, and no other is said: the simulation follows each file from the writes of the last hours to those of the last days, and knows what a limit holds back and that compaction frees part of what CouchDB counts as live. Nodes with several volumes are left out, because it is unknown which of their files are on which volume.",
    severities: &[Severity::Info, Severity::Warning, Severity::Critical],
    untried: Some("it takes days of growth, and what helps is a larger disk"),
    ..Rule::info(check)
};

const DAY: Duration = Duration::from_secs(86_400);

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for volume in &situation.inputs.plan.conditions.disks.volumes {
        let (now, settings) = (situation.now, situation.settings());
        let Some(course) = VolumeCourse::of(situation, volume) else { continue };
        // The simulation runs only while this rule finds something, so its dates never end a
        // finding.
        let Some(measured) = course.severity(settings) else { continue };
        let dates = dates_of(situation, volume, &course);
        let severity =
            if dates.is_simulated { severity_of(&dates, settings, now) } else { measured };
        // Once the volume is full, nothing more can be written to any of its files.
        let gain = Gain::Risk(course.live);
        findings.offer_as(severity, gain, || course.finding(situation, volume, severity, &dates));
    }
}

/// Severity by the later of the two simulated dates with compaction.
fn severity_of(dates: &FillDates, settings: &AdviceSettings, now: Moment) -> Severity {
    let Some(full_at) = dates.smoosh.zip(dates.compacted).map(|(one, two)| one.max(two)) else {
        return Severity::Info;
    };
    match now.age(full_at) {
        time if time <= settings.full_soon => Severity::Critical,
        time if time <= settings.full_within => Severity::Warning,
        _ => Severity::Info,
    }
}

/// The three dates in a sentence.
fn dates_in_words(dates: &FillDates) -> String {
    let on = |date: Option<Moment>| match date {
        Some(at) => format!("on {}", at.date()),
        None => "never".to_owned(),
    };
    let first = match dates.uncompacted {
        Some(_) => format!("full {}", on(dates.uncompacted)),
        None => "never full".to_owned(),
    };
    let [smoosh, own] = [dates.smoosh, dates.compacted].map(on);
    format!(
        "Forecast: {first} without compaction, {smoosh} with smoosh, {own} with recliner as configured."
    )
}

fn evidence_of(dates: &FillDates) -> Evidence {
    if dates.is_simulated {
        return vec![
            ("simulated_full_without_compaction", word(dates.uncompacted).into()),
            ("simulated_full_under_smoosh", word(dates.smoosh).into()),
            ("simulated_full_as_configured", word(dates.compacted).into()),
        ];
    }
    let measured =
        [("full_without_compaction", dates.uncompacted), ("full_with_compaction", dates.compacted)];
    measured.into_iter().filter_map(|(name, at)| Some((name, at?.rfc3339().into()))).collect()
}

fn word(date: Option<Moment>) -> String {
    date.map_or_else(|| "never".to_owned(), |at| at.date())
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

    fn finding(
        &self,
        situation: &Situation<'_>,
        volume: &Volume,
        severity: Severity,
        dates: &FillDates,
    ) -> Wording {
        let says = if dates.is_simulated {
            self.says_simulated(volume, severity, dates)
        } else {
            self.says_measured(volume, severity, situation.now)
        };
        let (written, live) = self.rates_by_day();
        let mut evidence = vec![
            ("available_bytes", self.available.into()),
            ("reclaimable_bytes", self.reclaimable.into()),
            ("written_bytes_per_day", written.into()),
            ("live_growth_bytes_per_day", live.into()),
            ("measured_seconds", self.watched.as_secs().into()),
        ];
        let fits = situation.inputs.plan.largest_shard_that_fits(volume);
        evidence.extend(fits.map(|bytes| ("largest_shard_that_fits_bytes", bytes.into())));
        evidence.extend(evidence_of(dates));
        let subject = Subject::Volume(volume.name.to_string());
        Wording { subject, says, evidence, remedy: remedy(volume, severity) }
    }

    /// Bytes written per day, and bytes by which live data grows per day.
    fn rates_by_day(&self) -> (u64, u64) {
        let by_day = |rate: f64| to_bytes(rate * DAY.as_secs_f64());
        (by_day(self.growth.file_rate), by_day(self.growth.active_rate))
    }

    fn says_simulated(&self, volume: &Volume, severity: Severity, dates: &FillDates) -> String {
        let (written, live) = self.rates_by_day();
        let grows = match severity {
            Severity::Info => format!("{} a day are written", format_size_short(written)),
            Severity::Warning | Severity::Critical => {
                format!("live data grows by {} a day", format_size_short(live))
            }
        };
        format!(
            "The volume {} has {} free, and {grows} (measured over {}). {}",
            volume.name,
            format_size_short(self.available),
            format_rounded(self.watched),
            dates_in_words(dates)
        )
    }

    fn says_measured(&self, volume: &Volume, severity: Severity, now: Moment) -> String {
        let (written, live) = self.rates_by_day();
        let begins = format!(
            "The volume {} has {} free and will be full",
            volume.name,
            format_size_short(self.available)
        );
        let measured = format!("measured over {}", format_rounded(self.watched));
        if severity != Severity::Info {
            return format!(
                "{begins} {} even if compaction keeps up, because live data grows by {} a day ({measured}).",
                when(now, self.compacted),
                format_size_short(live),
            );
        }
        let lasts = self.compacted.map_or_else(
            || "does not fill within ten years".to_owned(),
            |time| format!("lasts until {}", date(now, time)),
        );
        format!(
            "{begins} {} if nothing is compacted, because {} a day are written ({measured}); if compaction keeps up, it {lasts}.",
            when(now, self.uncompacted),
            format_size_short(written),
        )
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
            "See that compaction never stalls for days: keep the alerts about growing queues and about recliner itself.".into(),
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
    use crate::advice::Finding;
    use crate::{
        advice::test_cluster::{NOW, Shard, TestCluster},
        model::channel::Channels,
        plan::disk::{Disks, VolumeSpace},
        what_if::VolumeDates,
    };
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;
    const DAYS: u64 = 86_400;

    fn cluster_of(shard: Shard, available: u64) -> TestCluster {
        let mut cluster = TestCluster::with_shards(&[shard]);
        let space = VolumeSpace { available, size: None, held: None, measured_at: NOW };
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

    /// A node that wrote 10 GiB a day over five days, of which `live` GiB stay, with this many
    /// bytes free.
    fn found(live: u64, available: u64) -> Vec<Finding> {
        let (file, active) = (200 * GIB, 100 * GIB);
        let shard = Shard::new("orders", "a", 0, file).with_active(active);
        found_of(shard.grown_from(5 * DAYS, file - 50 * GIB, active - 5 * live * GIB), available)
    }

    #[test]
    fn reports_when_live_data_outgrows_a_volume() {
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
    fn is_critical_if_the_volume_is_full_soon() {
        let shard = Shard::new("orders", "a", 0, 200 * GIB);
        let critical = found_of(shard.grown_from(2 * DAYS, 100 * GIB, 100 * GIB), 300 * GIB);
        assert_eq!(critical[0].severity, Severity::Critical);
        let Gain::Risk(bytes) = critical[0].gain else { panic!("{critical:?}") };
        assert_eq!(bytes / GIB, 200, "all live bytes on the volume, and no more");
    }

    #[test]
    fn reports_volume_full_in_a_week_without_compaction() {
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
    fn reports_three_simulated_dates() {
        let shard = Shard::new("orders", "a", 0, 200 * GIB);
        let shard = shard.grown_from(5 * DAYS, 150 * GIB, 150 * GIB);
        let mut cluster = cluster_of(shard, 100 * GIB);
        let dates = VolumeDates::of(&cluster.plan(), &Channels::default(), NOW).unwrap();
        let of_a = dates.volumes["a"];
        let days = |at: Option<Moment>| at.map(|at| (at.unix() - NOW.unix() + DAYS / 2) / DAYS);
        // Everything that is written stays live, so no compaction helps.
        assert_eq!([of_a.uncompacted, of_a.smoosh, of_a.compacted].map(days), [Some(10); 3]);
        let two_weeks = Some(NOW.plus(14 * DAY));
        cluster.volume_dates = Some(VolumeDates {
            from: NOW,
            volumes: [("a".into(), FillDates { compacted: two_weeks, ..of_a })].into(),
        });
        let inputs = cluster.inputs();
        let survey = crate::advice::Survey::of(&inputs.plan.snapshot, NOW);
        let situation = Situation { inputs: &inputs, survey: &survey, now: NOW };
        let mut findings = Findings::of(RULE.severities);
        check(&situation, &mut findings);
        let found = findings.into_parts().0;
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "The volume a has 100 GiB free, and live data grows by 10 GiB a day (measured over 5d). Forecast: full on 2026-12-01 without compaction, on 2026-12-01 with smoosh, on 2026-12-05 with recliner as configured."
        );
        assert_eq!(only.severity, Severity::Warning);
        let dates = only.evidence.iter().filter(|(name, _)| name.contains("full")).count();
        assert_eq!(dates, 3, "no other date is given");
        let course_dates = crate::advice::volume_course::fill_dates(&situation)["a"];
        assert_eq!(
            (course_dates.compacted, course_dates.uncompacted),
            (two_weeks, of_a.uncompacted)
        );
    }

    #[test]
    fn simulated_dates_decide_the_severity() {
        let severity = |smoosh: Option<u64>, in_force: Option<u64>| {
            let shard = Shard::new("orders", "a", 0, 200 * GIB);
            let mut cluster =
                cluster_of(shard.grown_from(5 * DAYS, 150 * GIB, 150 * GIB), 100 * GIB);
            let date =
                |days: Option<u64>| days.map(|days| Moment::from_unix(NOW.unix() + days * DAYS));
            let (smoosh, in_force) = (date(smoosh), date(in_force));
            let dates = FillDates {
                uncompacted: date(Some(3)),
                smoosh,
                compacted: in_force,
                is_simulated: true,
            };
            cluster.volume_dates =
                Some(VolumeDates { from: NOW, volumes: [("a".into(), dates)].into() });
            let found = cluster.findings_of(&RULE);
            assert!(!found[0].says.contains("keeps up"), "{}", found[0].says);
            found[0].severity
        };
        assert_eq!(severity(Some(5), Some(3)), Severity::Critical);
        assert_eq!(severity(Some(5), Some(29)), Severity::Warning);
        assert_eq!(severity(Some(40), Some(5)), Severity::Info);
        assert_eq!(severity(None, Some(5)), Severity::Info, "smoosh keeps it free");
    }

    #[test]
    fn is_silent_after_only_a_few_hours() {
        let shard = Shard::new("orders", "a", 0, 200 * GIB);
        assert_eq!(found_of(shard.clone().grown_from(DAYS - 60, GIB, GIB), GIB), []);
        assert_eq!(found_of(shard, GIB), []);
    }
}
