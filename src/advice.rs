//! Advice: what an operator should do about the cluster, most valuable first.
//!
//! Owns the rules, one file each, and the state of their findings: open since when, and whether
//! muted. A rule is a pure function of a [`Situation`]: it reads no clock, sends no request and
//! changes nothing, and it is silent about unknown facts. [`AdviceTask`] runs all rules once a
//! minute and publishes an [`AdviceView`]; commands that read the cluster once call [`check`].
//! [`preflight`] examines one design document.
//!
//! To add a rule: write a file beside those in `rules/`, add its module and its [`Rule`] to `rules.rs`, and run the
//! tests. The book's page, the labels of the metrics and the words of the API come from that list.

mod copy_history;
mod finding;
mod findings;
mod forecasts;
mod lag_history;
pub mod preflight;
mod readers;
mod remedy;
mod rule;
mod rules;
mod situation;
mod survey;
mod task;
#[cfg(test)]
#[path = "advice/tests/cluster.rs"]
pub(crate) mod test_cluster;
pub(crate) mod tombstones;
mod view;

pub use copy_history::{CopyDifference, CopyHistory, CopyReading};
pub use finding::{Evidence, Finding, Gain, Severity, Subject, Wording};
pub use findings::{Findings, Surplus};
pub use forecasts::{ForecastView, ForecastsByVolume};
pub use lag_history::{LagChange, LagHistory};
pub(crate) use readers::{AskedIndex, covered_days};
pub use remedy::{Remedy, RemedyKind};
pub use rule::{Family, Rule};
pub(crate) use rules::duplicates;
pub use rules::{FAMILIES, rule_of_code, rules};
pub use situation::{AdviceInputs, Situation};
use situation::{grouped_by, total};
pub use survey::{DbSurvey, GrowthSums, NodeSurvey, Survey};
pub use task::{AdviceHandle, AdviceLeft, AdviceSources, AdviceTask, MuteChange, MuteError};
pub use view::{AdviceView, Piece};

use wall_clock::Moment;

/// What one rule found.
#[derive(Clone, Debug)]
pub struct RuleResult {
    /// The rule.
    pub rule: &'static Rule,
    /// The most valuable findings, best first.
    pub findings: Vec<Finding>,
    /// Number and value of the findings that are not shown.
    pub surplus: Surplus,
}

/// Runs every rule. Results are in the order of the rules, without rules that find nothing.
pub fn check(inputs: &AdviceInputs, now: Moment) -> Vec<RuleResult> {
    check_surveyed(inputs, &Survey::of(&inputs.plan.snapshot, now), now)
}

/// [`check`] with an existing [`Survey`].
fn check_surveyed(inputs: &AdviceInputs, survey: &Survey, now: Moment) -> Vec<RuleResult> {
    let situation = Situation { inputs, survey, now };
    let results = rules().map(|rule| {
        let mut findings = Findings::of(rule.severities);
        (rule.check)(&situation, &mut findings);
        let (findings, surplus) = findings.into_parts();
        RuleResult { rule, findings, surplus }
    });
    results.filter(|result| !result.findings.is_empty()).collect()
}
