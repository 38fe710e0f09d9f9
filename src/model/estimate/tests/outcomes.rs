//! Checks the rule against real compactions: refits it with each shape of documents left out, and
//! verifies the table in the module's documentation.

use super::{super::*, reclaimable_bytes};
use crate::{model::facts::OptionalU64, text::Label};
use std::{collections::BTreeMap, fmt::Write as _};

/// The table in the module's documentation.
const HELD_OUT: &str = include_str!("../held_out.md");

/// If less than this share of the file was freed, errors are relative to the file's size instead of the freed bytes.
const SMALL_GAIN_SHARE: f64 = 0.05;

/// One real compaction.
#[derive(Clone, Debug)]
struct MeasuredCompaction {
    shape: String,
    kind: TargetKind,
    facts: Facts,
    after: u64,
    after_active: u64,
    after_external: Option<u64>,
}

impl MeasuredCompaction {
    fn file(&self) -> f64 {
        self.facts.file_bytes.get().unwrap() as f64
    }

    fn active(&self) -> f64 {
        self.facts.active_bytes.get().unwrap() as f64
    }

    fn slack(&self) -> f64 {
        1.0 - self.active() / self.file()
    }

    fn freed(&self) -> f64 {
        self.file() - self.after as f64
    }

    /// The bytes to which this outcome's errors are relative.
    fn scale(&self) -> f64 {
        if self.freed() < SMALL_GAIN_SHARE * self.file() { self.file() } else { self.freed() }
    }

    fn error(&self, reclaimable: Option<u64>) -> f64 {
        (reclaimable.unwrap() as f64 - self.freed()).abs() / self.scale()
    }

    /// The error of smoosh's slack: file minus active bytes, never below zero.
    fn naive_error(&self) -> f64 {
        let Facts { file_bytes, active_bytes, .. } = &self.facts;
        self.error(Some(file_bytes.get().unwrap().saturating_sub(active_bytes.get().unwrap())))
    }

    fn error_of(&self, fit: &FittedParameters) -> f64 {
        let predicted = fit.predicted_bytes(self.kind, &self.facts).unwrap();
        self.error(Some(self.facts.file_bytes.get().unwrap().saturating_sub(predicted)))
    }
}

fn read(csv: &str, outcomes: &mut Vec<MeasuredCompaction>) {
    let mut lines = csv.lines();
    let header: Vec<_> = lines.next().unwrap().split(',').collect();
    for line in lines {
        let row: BTreeMap<_, _> = header.iter().copied().zip(line.split(',')).collect();
        let number = |name: &str| row[name].parse::<u64>().unwrap();
        let kind =
            row.get("kind").map_or(TargetKind::Db, |kind| TargetKind::from_label(kind).unwrap());
        let of_db = |name: &str| OptionalU64::from((kind == TargetKind::Db).then(|| number(name)));
        outcomes.push(MeasuredCompaction {
            shape: row.get("shape").map_or("mixed", |shape| shape).to_owned(),
            kind,
            facts: Facts {
                external_bytes: OptionalU64::new(number("external")),
                update_seq: OptionalU64::new(number("update_seq")),
                docs: of_db("docs"),
                deleted_docs: of_db("deldocs"),
                // None of these files was compacted before.
                compacted_seq: if kind == TargetKind::Db {
                    OptionalU64::new(0)
                } else {
                    OptionalU64::UNKNOWN
                },
                ..Facts::sized(number("file"), number("active"))
            },
            after: number("after_file"),
            after_active: number("after_active"),
            after_external: row.get("after_external").map(|bytes| bytes.parse().unwrap()),
        });
    }
}

fn outcomes() -> Vec<MeasuredCompaction> {
    let mut outcomes = Vec::new();
    read(include_str!("../../../../tests/data/compactions/shapes.csv"), &mut outcomes);
    read(include_str!("../../../../tests/data/compactions/dbs.csv"), &mut outcomes);
    assert_eq!(outcomes.len(), 501);
    outcomes
}

fn of_kind(kind: TargetKind) -> Vec<MeasuredCompaction> {
    outcomes().into_iter().filter(|outcome| outcome.kind == kind).collect()
}

fn shapes(outcomes: &[MeasuredCompaction]) -> BTreeMap<String, Vec<MeasuredCompaction>> {
    let mut shapes: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for outcome in outcomes {
        shapes.entry(outcome.shape.clone()).or_default().push(outcome.clone());
    }
    shapes
}

/// One coefficient's factor for one outcome, in bytes.
type Term = fn(&MeasuredCompaction) -> f64;

fn share_of_active(outcome: &MeasuredCompaction) -> f64 {
    outcome.slack() * outcome.active()
}

fn share_of_tree(outcome: &MeasuredCompaction) -> f64 {
    let tree = outcome.active() - outcome.facts.external_bytes.get().unwrap() as f64;
    outcome.slack() * tree.max(0.0)
}

fn rewrites(outcome: &MeasuredCompaction) -> f64 {
    weighted_rewrites(&outcome.facts).unwrap()
}

/// The coefficient with the least absolute error of the bytes freed, over `outcomes` of one kind,
/// with equal weight for every shape: with a single term, that is a weighted median.
fn fitted(outcomes: &[MeasuredCompaction], headers: u64, term: Term) -> f64 {
    let mut candidates = Vec::new();
    for group in shapes(outcomes).values() {
        for outcome in group.iter().filter(|outcome| term(outcome) > 0.0) {
            let dropped = outcome.active() + headers as f64 - outcome.after as f64;
            let weight = term(outcome) / outcome.scale() / group.len() as f64;
            candidates.push((dropped / term(outcome), weight));
        }
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = candidates.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    for (coefficient, weight) in candidates {
        sum += weight;
        if sum >= half {
            return coefficient;
        }
    }
    unreachable!("half of a positive sum is reached")
}

fn fit(dbs: &[MeasuredCompaction], views: &[MeasuredCompaction]) -> FittedParameters {
    FittedParameters {
        bytes_per_rewrite: fitted(dbs, DB_HEADER_BYTES, rewrites),
        share_of_db: fitted(dbs, DB_HEADER_BYTES, share_of_active),
        share_of_view_tree: fitted(views, VIEW_HEADER_BYTES, share_of_tree),
        share_of_view: fitted(views, VIEW_HEADER_BYTES, share_of_active),
    }
}

/// Median and largest of a set of errors.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    worst: f64,
}

fn spread(errors: impl IntoIterator<Item = f64>) -> Spread {
    let mut errors: Vec<_> = errors.into_iter().collect();
    errors.sort_by(f64::total_cmp);
    let median = f64::midpoint(errors[(errors.len() - 1) / 2], errors[errors.len() / 2]);
    Spread { median, worst: errors[errors.len() - 1] }
}

/// The errors of one group of outcomes, with a fit that excludes their shape.
#[derive(Clone, Debug)]
struct HeldOut {
    shape: String,
    naive: Vec<f64>,
    ours: Vec<f64>,
    /// Our errors without document counts and external bytes.
    bare: Vec<f64>,
}

fn held_out(kind: TargetKind) -> Vec<HeldOut> {
    let all = outcomes();
    let seen = |kind: TargetKind, shape: &str| -> Vec<MeasuredCompaction> {
        let kept = all.iter().filter(|outcome| outcome.kind == kind && outcome.shape != shape);
        kept.cloned().collect()
    };
    shapes(&of_kind(kind))
        .into_iter()
        .map(|(shape, group)| {
            let fit = fit(&seen(TargetKind::Db, &shape), &seen(TargetKind::View, &shape));
            let bare = group.iter().map(|outcome| {
                let (docs, external) = (OptionalU64::UNKNOWN, OptionalU64::UNKNOWN);
                let facts = Facts { docs, external_bytes: external, ..outcome.facts };
                MeasuredCompaction { facts, ..outcome.clone() }.error_of(&fit)
            });
            HeldOut {
                naive: group.iter().map(MeasuredCompaction::naive_error).collect(),
                ours: group.iter().map(|outcome| outcome.error_of(&fit)).collect(),
                bare: bare.collect(),
                shape,
            }
        })
        .collect()
}

/// All groups of a kind combined.
fn combined(groups: &[HeldOut]) -> HeldOut {
    let all = |errors: fn(&HeldOut) -> &Vec<f64>| groups.iter().flat_map(errors).copied().collect();
    HeldOut {
        shape: "all".to_owned(),
        naive: all(|group| &group.naive),
        ours: all(|group| &group.ours),
        bare: all(|group| &group.bare),
    }
}

fn table() -> String {
    let mut table = String::from(
        "Error of the predicted bytes freed, relative to the bytes really freed (to the file's size \
         if less\nthan 5 % of it was freed), median and worst:\n\n\
         | kind | shape left out | outcomes | naive: median | worst | ours: median | worst | \
         sizes only: median | worst |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for kind in [TargetKind::Db, TargetKind::View] {
        let mut groups = held_out(kind);
        groups.push(combined(&groups));
        for group in groups {
            let shape = if group.shape == "all" { "**all**" } else { &group.shape };
            write!(table, "| {} | {shape} | {} |", kind.label(), group.ours.len()).unwrap();
            for errors in [group.naive, group.ours, group.bare] {
                let Spread { median, worst } = spread(errors);
                write!(table, " {:.2} % | {:.1} % |", 100.0 * median, 100.0 * worst).unwrap();
            }
            table.push('\n');
        }
    }
    table.push_str(
        "\n\"naive\" is file minus active bytes; \"sizes only\" is our prediction without document counts \
         and\nexternal bytes. `mixed` is one generator's 234 shards, every other row is one shape of \
         documents.\nThe two worst dbs are files below 1 MiB of which 6 % was freed.\n",
    );
    table
}

#[test]
fn documented_error_table_matches_the_held_out_data() {
    let table = table();
    println!("{table}");
    assert_eq!(table, HELD_OUT);
}

#[test]
fn fitted_constants_match_a_fit_on_all_outcomes() {
    let exact = fit(&of_kind(TargetKind::Db), &of_kind(TargetKind::View));
    for (name, fitted, exact) in [
        ("bytes_per_rewrite", FITTED.bytes_per_rewrite, exact.bytes_per_rewrite),
        ("share_of_db", FITTED.share_of_db, exact.share_of_db),
        ("share_of_view_tree", FITTED.share_of_view_tree, exact.share_of_view_tree),
        ("share_of_view", FITTED.share_of_view, exact.share_of_view),
    ] {
        assert!((fitted / exact - 1.0).abs() < 0.02, "{name} is {fitted}, its fit {exact}");
    }
}

#[test]
fn no_measured_db_lost_more_active_bytes_than_the_maximum() {
    let parts = outcomes().into_iter().filter(|outcome| outcome.kind == TargetKind::Db);
    let largest = parts
        .map(|outcome| 1.0 - outcome.after_active as f64 / outcome.active())
        .fold(0.0, f64::max);
    assert!((0.32..1.0 / MAX_DROPPED_DIVISOR as f64).contains(&largest), "{largest}");
}

#[test]
fn held_out_data_is_predicted_better_than_by_active_bytes_alone() {
    // (kind, median, worst): our error is at most this share of the naive error.
    for (kind, median, worst) in [(TargetKind::Db, 0.45, 0.2), (TargetKind::View, 0.3, 0.7)] {
        let groups = held_out(kind);
        for group in &groups {
            let (naive, ours) = (spread(group.naive.clone()), spread(group.ours.clone()));
            assert!(ours.median < 0.65 * naive.median, "{kind:?} {}: {ours:?}", group.shape);
            if kind == TargetKind::Db {
                assert!(ours.worst < 0.8 * naive.worst, "{}: {ours:?} {naive:?}", group.shape);
            }
        }
        let all = combined(&groups);
        let (naive, ours) = (spread(all.naive), spread(all.ours));
        assert!(ours.median < median * naive.median, "{kind:?}: {ours:?} {naive:?}");
        assert!(ours.worst < worst * naive.worst, "{kind:?}: {ours:?} {naive:?}");
        let bare = spread(all.bare);
        assert!(bare.median < 0.6 * naive.median, "{kind:?}: sizes only {bare:?} {naive:?}");
    }
}

#[test]
fn nothing_is_reclaimable_in_a_freshly_compacted_file() {
    for outcome in outcomes() {
        let compacted = Facts {
            file_bytes: OptionalU64::new(outcome.after),
            active_bytes: OptionalU64::new(outcome.after_active),
            external_bytes: outcome
                .after_external
                .map_or(outcome.facts.external_bytes, OptionalU64::new),
            compacted_seq: outcome.facts.update_seq,
            ..outcome.facts
        };
        let reclaimable = reclaimable_bytes(outcome.kind, &compacted).unwrap() as f64;
        // A header block or two; the largest files have one every few megabytes.
        let allowed = 8192.0 + outcome.after as f64 / 1024.0;
        assert!(reclaimable <= allowed, "{}: {reclaimable} of {}", outcome.shape, outcome.after);
    }
}
