//! Rent wastes and rewrites less than thresholds: a small run of the bench `rent`.

use crate::rent_world::{Cost, Rule, World, Writers};
use std::time::Duration;

fn world(writers: Writers) -> World {
    World { databases: 60, days: 10, writers, spread: 1.5, seed: 7 }
}

fn of_waste_and_writing(cost: Cost) -> f64 {
    assert!(cost.compactions_a_day > 1.0, "the rule compacts: {cost:?}");
    cost.mean_waste * cost.rewritten_a_day
}

/// Each threshold and each horizon is a trade-off between waste and writing. Their product measures
/// the quality, because twice the waste buys half the writing.
#[test]
fn rent_wastes_and_rewrites_less_than_thresholds() {
    let thresholds = [Rule::Ratio(2.0), Rule::Slack(512 << 20), Rule::SmooshDefaults];
    for writers in [Writers::Uniform, Writers::OfficeHours, Writers::Mixed] {
        for hours in [6, 24] {
            let rent = Rule::Rent(Duration::from_secs(hours * 3_600));
            let rent = of_waste_and_writing(world(writers).cost(rent));
            for rule in thresholds {
                let share = rent / of_waste_and_writing(world(writers).cost(rule));
                assert!(share <= 0.7, "{writers:?}, {hours} h against {rule:?}: {share:.2}");
            }
        }
    }
}

#[test]
fn simulated_costs_are_reproducible() {
    let costs = || {
        let cost = world(Writers::Mixed).cost(Rule::SmooshDefaults);
        [cost.mean_waste, cost.rewritten_a_day, cost.compactions_a_day].map(f64::to_bits)
    };
    assert_eq!(costs(), costs());
}
