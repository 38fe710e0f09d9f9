//! Windows in which the largest target of a channel cannot be compacted.

use super::super::queues::{gain_of_waste, queued};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording},
    model::{channel::Channel, window::Openings},
    plan::Plan,
    table::TargetRef,
    text::{counted, duration::format_rounded, size::format_size_short},
};
use std::time::Duration;

pub(crate) const RULE: Rule = Rule {
    code: "window_too_short",
    finds: "Channels whose longest time window is too short for their largest target at the measured rate.",
    because: "CouchDB offers no way to stop a running compaction, so with `strict_window` recliner does not start what would not end before the window closes: such a target never starts. Without it the compaction runs on into the hours that the window should keep free, which has severity info. The rate is that of recliner's own compactions; without one, the rule is silent.",
    severities: &[Severity::Info, Severity::Warning],
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let plan = &*situation.inputs.plan;
    let Some(rate) = plan.conditions.constraints.measured_rate() else { return };
    for (at, channel) in plan.channels.list.iter().enumerate() {
        let Some(opening) = Openings::of(&channel.windows, situation.now).longest(situation.now)
        else {
            continue;
        };
        let Some(late) = Late::of(plan, at, rate, opening) else { continue };
        let (severity, gain) = match channel.strict_window {
            true => (Severity::Warning, gain_of_waste(plan, late.reclaimable)),
            false => {
                (Severity::Info, Gain::Seconds(late.longest.saturating_sub(opening).as_secs()))
            }
        };
        if channel.strict_window && late.reclaimable < situation.settings().min_bytes {
            continue;
        }
        findings.offer_as(severity, gain, || late.finding(plan, channel, opening));
    }
}

/// The queued targets of a channel that take longer than its longest window.
struct Late<'a> {
    count: u64,
    reclaimable: u64,
    largest: TargetRef<'a>,
    /// How long the largest compaction takes.
    longest: Duration,
}

impl<'a> Late<'a> {
    fn of(plan: &'a Plan, channel: usize, rate: f64, opening: Duration) -> Option<Self> {
        let mut late: Option<Self> = None;
        for (_, target) in queued(plan).filter(|(queue, _)| queue.channel_index == channel) {
            let predicted = target.correction().predicted_bytes(target.kind(), &target.facts());
            let takes = predicted.map(|bytes| Duration::try_from_secs_f64(bytes as f64 / rate));
            let Some(takes) = takes.and_then(Result::ok).filter(|takes| *takes > opening) else {
                continue;
            };
            let reclaimable = target.reclaimable_bytes().unwrap_or_default();
            let late = late.get_or_insert(Self {
                count: 0,
                reclaimable: 0,
                largest: target,
                longest: takes,
            });
            late.count += 1;
            late.reclaimable = late.reclaimable.saturating_add(reclaimable);
            if takes > late.longest {
                (late.largest, late.longest) = (target, takes);
            }
        }
        late
    }

    fn finding(&self, plan: &Plan, channel: &Channel, opening: Duration) -> Wording {
        // recliner does not start it outside the window, not even by an order.
        let by_hand = plan.start_if_ordered(self.largest).map(|start| {
            let says = "Or make CouchDB compact the largest one at a time that suits you:";
            Remedy::couchdb_at(says, start.request.method.as_str(), &start.request.path, None)
        });
        let waiting = counted(self.count, "target that waits", "targets that wait");
        let follows = match (channel.strict_window, self.count) {
            (true, 1) => {
                format!("it never starts ({} to free)", format_size_short(self.reclaimable))
            }
            (true, _) => {
                format!("they never start ({} to free)", format_size_short(self.reclaimable))
            }
            (false, _) => "compactions continue after it has closed".to_owned(),
        };
        Wording {
            subject: Subject::Channel(channel.name.to_string()),
            says: format!(
                "The channel {} is open for at most {} at a time, too short for {waiting} (the largest takes {}): {follows}.",
                channel.name,
                format_rounded(opening),
                format_rounded(self.longest),
            ),
            evidence: vec![
                ("longest_opening_seconds", opening.as_secs().into()),
                ("longest_compaction_seconds", self.longest.as_secs().into()),
                ("largest_target", self.largest.id().to_string().into()),
                ("targets", self.count.into()),
                ("reclaimable_bytes", self.reclaimable.into()),
            ],
            remedy: std::iter::once(Remedy::configuration(
                format!(
                    "Give the channel {} a window of at least {}, for example on weekends:",
                    channel.name,
                    format_rounded(self.longest)
                ),
                "    windows:\n      - {days: [sat, sun], from: \"00:00\", to: \"24:00\"}",
            ))
            .chain(by_hand)
            .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::{
        advice::test_cluster::{Shard, TestCluster},
        jobs::TargetConstraints,
        model::{
            channel::Mode,
            window::{Days, Window, parse_zone},
        },
    };
    use jiff::civil;
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;

    /// A shard with `live` GiB of live data, in a channel that is open for four hours.
    fn found(live: u64, strict: bool, rate: Option<f64>) -> Vec<Finding> {
        let shard = Shard::new("orders", "a", 0, 5 * live * GIB).with_active(live * GIB);
        let mut cluster = TestCluster::with_shards(&[shard]);
        let time = |hour| civil::Time::new(hour, 0, 0, 0).unwrap();
        let zone = parse_zone("UTC").unwrap();
        let window = Window { days: Days::ALL, from: time(1), to: time(5), zone };
        cluster.rules.mode = Mode::Enforce;
        cluster.channels = cluster.channels.map(|channel| Channel {
            windows: vec![window.clone()],
            strict_window: strict,
            ..channel.clone()
        });
        cluster.conditions.constraints = Arc::new(TargetConstraints {
            rewrite_bytes_per_second: rate,
            ..TargetConstraints::default()
        });
        cluster.findings_of(&RULE)
    }

    /// A rate of 100 GiB in 4 hours.
    const RATE: f64 = 100.0 * GIB as f64 / 14_400.0;

    #[test]
    fn warns_if_a_strict_window_is_too_short_for_a_target() {
        let found = found(200, true, Some(RATE));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!((only.severity, only.gain.kind()), (Severity::Warning, "bytes"));
        assert_eq!(
            only.says,
            "The channel ratio_dbs is open for at most 4h at a time, too short for 1 target that waits (the largest takes 7h 31m): it never starts (812 GiB to free)."
        );
    }

    #[test]
    fn lenient_window_that_is_too_short_has_severity_info() {
        let found = found(200, false, Some(RATE));
        assert_eq!((found[0].severity, found[0].gain), (Severity::Info, Gain::Seconds(12_672)));
        assert!(found[0].says.ends_with(": compactions continue after it has closed."));
    }

    #[test]
    fn is_silent_if_targets_fit_or_the_rate_is_unknown() {
        assert_eq!(found(99, true, Some(RATE)), []);
        assert_eq!(found(200, true, None), []);
    }
}
