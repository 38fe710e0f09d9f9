//! Volumes that fill up, by their forecasts.

use crate::{
    advice::{
        Evidence, Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording,
        rule::VOLUME_FILLS,
    },
    model::{forecast::Forecast, settings::advice::AdviceSettings},
    plan::disk::Volume,
    table::Waste,
    text::{duration::format_rounded, size::format_size_short},
    what_if::VolumeForecasts,
};
use wall_clock::Moment;

pub(crate) const RULE: Rule = Rule {
    code: VOLUME_FILLS,
    finds: "Volumes that will be full soon, with the date.",
    because: "CouchDB only appends to its files, so free space shrinks with every write, and a node whose disk is full fails writes and compactions. Compaction frees waste but never live data: a volume whose live data outgrows it needs more space, or fewer shards. The dates are those of the [forecast](commands.md#when-a-volume-is-full): without compaction, with smoosh as configured, and with recliner's own rules as if it enforced. It is a warning within `advice.full_within` and critical within `advice.full_soon` if both of the latter dates are within that time, and info if the volume would be full within `advice.full_soon` only without compaction. There is no forecast until growth has been measured for two days, and none further ahead than twice the time measured. Nodes with several volumes are left out, because it is unknown which of their files are on which volume.",
    severities: &[Severity::Info, Severity::Warning, Severity::Critical],
    untried: Some("it takes days of growth, and what helps is a larger disk"),
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for volume in &situation.inputs.plan.conditions.disks.volumes {
        let Some(Ok(forecasts)) = situation.inputs.forecasts.get(&volume.name) else { continue };
        let severity = severity_of(forecasts, situation.settings(), situation.now);
        let Some(severity) = severity else { continue };
        let files = situation.inputs.plan.waste_on(volume);
        // Once the volume is full, nothing more can be written to any of its files.
        let gain = Gain::Risk(files.and_then(Waste::live_bytes).unwrap_or_default());
        findings.offer_as(severity, gain, || finding(situation, volume, severity, forecasts));
    }
}

/// Severity by the later of the two dates with compaction, or else by the date without.
fn severity_of(
    forecasts: &VolumeForecasts,
    settings: &AdviceSettings,
    now: Moment,
) -> Option<Severity> {
    let VolumeForecasts { uncompacted, smoosh, in_force } = forecasts;
    let compacted = smoosh.full.median.zip(in_force.full.median).map(|(one, two)| one.max(two));
    match compacted.map(|at| now.age(at)) {
        Some(time) if time <= settings.full_soon => return Some(Severity::Critical),
        Some(time) if time <= settings.full_within => return Some(Severity::Warning),
        Some(_) | None => {}
    }
    let uncompacted = uncompacted.full.median.map(|at| now.age(at));
    uncompacted.filter(|time| *time <= settings.full_soon).map(|_| Severity::Info)
}

/// The date on which a volume will be full, or how far the forecast reaches.
fn word(forecast: &Forecast) -> String {
    let beyond = || format!("not within {}", format_rounded(forecast.reach()));
    forecast.full.median.map_or_else(beyond, Moment::date)
}

/// The three dates in a sentence.
fn dates_in_words(forecasts: &VolumeForecasts) -> String {
    let on = |forecast: &Forecast| match forecast.full.median {
        Some(at) => format!("on {}", at.date()),
        None => word(forecast),
    };
    let VolumeForecasts { uncompacted, smoosh, in_force } = forecasts;
    let range = in_force.full.likely().map_or_else(String::new, |range| format!(" ({range})"));
    format!(
        "Forecast: full {} without compaction, {} with smoosh, {} with recliner as configured{range}.",
        on(uncompacted),
        on(smoosh),
        on(in_force),
    )
}

/// Bytes by which free space shrinks per day, averaged over the next week or until it is gone.
fn by_day(forecast: &Forecast) -> u64 {
    let free = forecast.days.iter().map(|range| range.median);
    let week: Vec<u64> = free.take(7).take_while(|free| *free > 0).collect();
    let left = week.last().copied().unwrap_or_default();
    forecast.free_bytes.saturating_sub(left) / (week.len() as u64).max(1)
}

fn finding(
    situation: &Situation<'_>,
    volume: &Volume,
    severity: Severity,
    forecasts: &VolumeForecasts,
) -> Wording {
    let VolumeForecasts { uncompacted, smoosh, in_force } = forecasts;
    let (written, lost) = (by_day(uncompacted), by_day(in_force));
    let grows = match severity {
        Severity::Info => format!("{} a day are written", format_size_short(written)),
        Severity::Warning | Severity::Critical => {
            format!("{} a day are lost even with compaction", format_size_short(lost))
        }
    };
    let says = format!(
        "The volume {} has {} free, and {grows} (measured for {}). {}",
        volume.title(),
        format_size_short(uncompacted.free_bytes),
        format_rounded(uncompacted.watched),
        dates_in_words(forecasts)
    );
    let plan = &situation.inputs.plan;
    let reclaimable = plan.waste_on(volume).and_then(Waste::reclaimable_bytes);
    let mut evidence: Evidence = vec![
        ("available_bytes", uncompacted.free_bytes.into()),
        ("written_bytes_per_day", written.into()),
        ("lost_bytes_per_day", lost.into()),
        ("measured_seconds", uncompacted.watched.as_secs().into()),
        ("simulated_full_without_compaction", word(uncompacted).into()),
        ("simulated_full_under_smoosh", word(smoosh).into()),
        ("simulated_full_as_configured", word(in_force).into()),
    ];
    evidence.extend(reclaimable.map(|bytes| ("reclaimable_bytes", bytes.into())));
    let fits = plan.largest_shard_that_fits(volume);
    evidence.extend(fits.map(|bytes| ("largest_shard_that_fits_bytes", bytes.into())));
    let subject = Subject::Volume(volume.name.to_string());
    Wording { subject, says, evidence, remedy: remedy(volume, severity) }
}

fn remedy(volume: &Volume, severity: Severity) -> Vec<Remedy> {
    let ahead = Remedy::recliner(
        "Compare how long the space lasts without compaction, with smoosh and with recliner:",
        &["what-if", "--days", "30"],
    );
    if severity == Severity::Info {
        return vec![
            ahead,
            "Make sure that compaction never stalls for days: keep the alerts about growing queues and about recliner itself.".into(),
        ];
    }
    let nodes: Vec<String> = volume.nodes.iter().map(ToString::to_string).collect();
    vec![
        Remedy::choice(format!(
            "Before that date, enlarge the volume of {}, move shards to nodes with more space, or delete unneeded data.",
            crate::text::listed(&nodes)
        )),
        ahead,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::{
            Finding,
            test_cluster::{NOW, Shard, TestCluster},
        },
        model::forecast::{DAY, FreeRange, FullRange, Withheld},
    };
    use std::time::Duration;

    const GIB: u64 = 1 << 30;

    /// A forecast of 60 days: full after `full_after` days, give or take two.
    fn forecast(full_after: Option<u32>) -> Forecast {
        let at = |days: u32| NOW.plus(DAY * days);
        let full = full_after.map_or_else(FullRange::default, |days| FullRange {
            early: Some(at(days - 2)),
            median: Some(at(days)),
            late: Some(at(days + 2)),
        });
        let free = |day: u64| match full_after.map(u64::from) {
            Some(days) => 100 * GIB - 100 * GIB * day.min(days) / days,
            None => 100 * GIB,
        };
        let days = (1..=60).map(|day| {
            let median = free(day);
            FreeRange { low: median, median, high: median }
        });
        Forecast {
            made_at: NOW,
            free_bytes: 100 * GIB,
            watched: 30 * DAY,
            days: days.collect(),
            full,
        }
    }

    fn found(dates: [Option<u32>; 3]) -> Vec<Finding> {
        let shard = Shard::new("orders", "a", 0, 200 * GIB).with_active(150 * GIB);
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.set_volumes([("a", "a", Some(100 * GIB)), ("b", "b", None)]);
        let [uncompacted, smoosh, in_force] = dates.map(forecast);
        let forecasts = VolumeForecasts { uncompacted, smoosh, in_force };
        let withheld = Err(Withheld::Watched(Duration::from_secs(3_600)));
        cluster.forecasts = [("a".into(), Ok(forecasts)), ("b".into(), withheld)].into();
        cluster.findings_of(&RULE)
    }

    #[test]
    fn states_when_the_volume_fills_under_three_policies() {
        let warning = found([Some(10), Some(12), Some(20)]);
        let [only] = &warning[..] else { panic!("{warning:?}") };
        assert_eq!(
            only.says,
            "The volume a has 100 GiB free, and 5 GiB a day are lost even with compaction (measured for 30d). Forecast: full on 2026-12-01 without compaction, on 2026-12-03 with smoosh, on 2026-12-11 with recliner as configured (80 % likely between 2026-12-09 and 2026-12-13)."
        );
        assert_eq!(only.severity, Severity::Warning);
        let Gain::Risk(bytes) = only.gain else { panic!("{warning:?}") };
        assert_eq!(bytes / GIB, 147, "all that compaction leaves on the volume");
    }

    #[test]
    fn severity_follows_the_later_of_the_two_compaction_forecasts() {
        let severity = |smoosh, in_force| {
            found([Some(3), smoosh, in_force]).first().map(|finding| finding.severity)
        };
        assert_eq!(severity(Some(5), Some(3)), Some(Severity::Critical));
        assert_eq!(severity(Some(5), Some(29)), Some(Severity::Warning));
        assert_eq!(severity(Some(40), Some(5)), Some(Severity::Info));
        assert_eq!(severity(None, Some(5)), Some(Severity::Info), "smoosh keeps it free");
    }

    #[test]
    fn volume_kept_free_only_by_compaction_has_severity_info() {
        let info = found([Some(5), None, None]);
        let [only] = &info[..] else { panic!("{info:?}") };
        assert_eq!(
            only.says,
            "The volume a has 100 GiB free, and 20 GiB a day are written (measured for 30d). Forecast: full on 2026-11-26 without compaction, not within 60d with smoosh, not within 60d with recliner as configured."
        );
        assert_eq!(found([Some(8), None, None]), []);
        assert_eq!(found([None, None, None]), []);
    }
}
