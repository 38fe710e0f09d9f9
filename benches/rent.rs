//! Rent compared with thresholds: the bytes that each rule wastes and rewrites in simulated
//! clusters.
//!
//! ```text
//! cargo bench --bench rent
//! ```
//!
//! It measures no time: a run prints the same numbers everywhere. Sizes and write rates of databases are
//! log-normal and independent of each other. Each rule decides alone and immediately, without limits, for 30
//! days. smoosh's rule is run with many thresholds; those that no other threshold beats in both waste and
//! writing form its frontier. For each of these, the table says how many bytes rent rewrites at the same mean
//! waste, as a share of smoosh's; between two horizons the value is interpolated on logarithmic axes.
//!
//! It takes about a quarter of an hour of CPU time, spread over up to five cores.
//!
//! It prints the tables of the book's page about benchmarks, and draws `docs/src/images/rent.svg`.

mod rent_chart;
mod rent_world;
#[path = "../tests/seeded/mod.rs"]
mod seeded;

use rent_chart::{Chart, Dot, Series, Side};
use rent_world::{Cost, Rule, World, Writers};
use std::{
    fs,
    io::{self, Write as _},
    path::Path,
    thread,
    time::Duration,
};

const DAYS: u64 = 30;
/// One world runs longer, until files that rarely become due have reached a steady state too.
const LONG_DAYS: u64 = 180;
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
/// Spreads of sizes and of write rates: with 1.5, 95 of 100 databases are within a factor of 19 of
/// the median, with 2 within a factor of 50.
const SPREADS: [f64; 2] = [1.5, 2.0];
/// More spreads, for worlds of 400 databases.
const OTHER_SPREADS: [f64; 2] = [1.0, 2.5];
const RATIOS: [f64; 8] = [1.3, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0];
const SLACKS_MIB: [u64; 7] = [128, 256, 512, 1_024, 2_048, 4_096, 8_192];
/// From half an hour to 1,600 hours, so that they cover the mean waste of every threshold.
const HORIZONS_MINUTES: [u64; 16] = [
    30, 60, 120, 180, 240, 360, 720, 1_440, 2_880, 4_320, 6_000, 9_000, 15_000, 24_000, 48_000,
    96_000,
];
/// The maximum median, over all seeds, of the bytes that rent rewrites at equal waste, as a share of smoosh's.
const WANTED: f64 = 0.5;

/// A rule with its cost for each seed.
struct Measured {
    rule: Rule,
    /// One cost for each seed.
    costs: Vec<Cost>,
}

/// Rent compared with one threshold.
struct Comparison {
    rule: Rule,
    /// The bytes that rent rewrites at the same mean waste, as a share: one for each seed in which
    /// the threshold is on the frontier; `None` where no horizon wastes so little.
    shares: Vec<Option<f64>>,
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

fn thresholds() -> Vec<Rule> {
    let ratios = RATIOS.into_iter().map(Rule::Ratio);
    let slacks = SLACKS_MIB.into_iter().map(|mib| Rule::Slack(mib << 20));
    ratios.chain(slacks).chain([Rule::SmooshDefaults]).collect()
}

fn horizons() -> Vec<Rule> {
    let minutes = HORIZONS_MINUTES.into_iter();
    minutes.map(|minutes| Rule::Rent(Duration::from_secs(minutes * 60))).collect()
}

fn measure(world: World, rules: &[Rule]) -> Vec<Measured> {
    let all = move |seed| rules.iter().map(|rule| World { seed, ..world }.cost(*rule)).collect();
    let by_seed: Vec<Vec<Cost>> = thread::scope(|scope| {
        let seeds = SEEDS.map(|seed| scope.spawn(move || all(seed)));
        seeds.into_iter().filter_map(|seed| seed.join().ok()).collect()
    });
    let costs = |at: usize| by_seed.iter().map(|costs| costs[at]).collect();
    let rules = rules.iter().enumerate();
    rules.map(|(at, rule)| Measured { rule: *rule, costs: costs(at) }).collect()
}

/// Whether no other rule is at least as good in waste and writing and better in one of them.
fn on_frontier(rivals: &[Measured], rule: &Measured, seed: usize) -> bool {
    let of = |it: &Measured| it.costs[seed];
    let own = of(rule);
    !rivals.iter().map(of).any(|other| {
        (other.mean_waste < own.mean_waste && other.rewritten_a_day <= own.rewritten_a_day)
            || (other.mean_waste <= own.mean_waste && other.rewritten_a_day < own.rewritten_a_day)
    })
}

/// The bytes that rent rewrites per day at this mean waste. Above the waste of its longest horizon,
/// those of that horizon, which are more; `None` below the waste of its shortest horizon.
fn rewritten_at(rent: &[Cost], waste: f64) -> Option<f64> {
    let longest = rent.last().filter(|longest| longest.mean_waste <= waste);
    if let Some(longest) = longest {
        return Some(longest.rewritten_a_day);
    }
    let pair =
        rent.windows(2).find(|pair| (pair[0].mean_waste..=pair[1].mean_waste).contains(&waste))?;
    let share = (waste / pair[0].mean_waste).ln() / (pair[1].mean_waste / pair[0].mean_waste).ln();
    let (from, to) = (pair[0].rewritten_a_day.ln(), pair[1].rewritten_a_day.ln());
    Some((from + share * (to - from)).exp())
}

/// Rent compared with every threshold that is on the frontier in any seed.
fn comparisons(rivals: &[Measured], rent: &[Measured]) -> Vec<Comparison> {
    let compared = |rival: &Measured| {
        let seeds = (0..SEEDS.len()).filter(|seed| on_frontier(rivals, rival, *seed));
        let share = |seed: usize| {
            let curve: Vec<_> = rent.iter().map(|horizon| horizon.costs[seed]).collect();
            let own = rival.costs[seed];
            Some(rewritten_at(&curve, own.mean_waste)? / own.rewritten_a_day)
        };
        Comparison { rule: rival.rule, shares: seeds.map(share).collect() }
    };
    let all = rivals.iter().map(compared);
    all.filter(|comparison| !comparison.shares.is_empty()).collect()
}

impl Comparison {
    /// The lowest, median and highest share over the seeds.
    fn shares(&self) -> Option<(f64, f64, f64)> {
        let mut known: Vec<f64> = self.shares.iter().copied().flatten().collect();
        known.sort_by(f64::total_cmp);
        Some((*known.first()?, median(&known), *known.last()?))
    }
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Measured {
    /// The median over all seeds.
    fn median(&self, of: impl Fn(&Cost) -> f64) -> f64 {
        median(&self.costs.iter().map(of).collect::<Vec<_>>())
    }

    fn point(&self) -> (f64, f64) {
        (self.median(|cost| cost.mean_waste), self.median(|cost| cost.rewritten_a_day))
    }
}

/// A number of bytes with three digits and a unit.
fn size(bytes: f64) -> String {
    let (number, unit) = if bytes < 1e12 { (bytes / 1e9, "GB") } else { (bytes / 1e12, "TB") };
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$} {unit}")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn name(rule: Rule) -> String {
    match rule {
        Rule::Ratio(ratio) => format!("ratio {ratio}"),
        Rule::Slack(bytes) if bytes >= 1 << 30 => format!("slack {} GiB", bytes >> 30),
        Rule::Slack(bytes) => format!("slack {} MiB", bytes >> 20),
        Rule::SmooshDefaults => "ratio 2 and slack 512 MiB".to_owned(),
        Rule::Rent(horizon) => format!("{} h", horizon.as_secs() as f64 / 3_600.0),
    }
}

fn writers(writers: Writers) -> &'static str {
    match writers {
        Writers::Uniform => "uniform",
        Writers::OfficeHours => "office hours",
        Writers::Mixed => "mixed",
    }
}

/// A world's row in the table of all worlds.
fn summary(world: World, compared: &[Comparison]) -> String {
    let shares: Vec<_> = compared.iter().filter_map(|one| Some((one, one.shares()?))).collect();
    let medians: Vec<f64> = shares.iter().map(|(_, (_, median, _))| *median).collect();
    let worst = shares.iter().max_by(|one, other| one.1.1.total_cmp(&other.1.1));
    let worst = worst.map_or_else(String::new, |(one, (_, median, _))| {
        format!("{} ({})", percent(*median), name(one.rule))
    });
    let seed = shares.iter().map(|(_, (.., high))| *high).fold(0.0, f64::max);
    let missed = medians.iter().filter(|median| **median > WANTED).count();
    format!(
        "| {} | {} | {} | {} | {} | {worst} | {} | {missed} of {} |",
        thousands(world.databases),
        writers(world.writers),
        world.days,
        world.spread,
        percent(median(&medians)),
        percent(seed),
        compared.len(),
    )
}

/// The cost of every threshold and every horizon in one world: the medians over its seeds.
fn details(rivals: &[Measured], rent: &[Measured], compared: &[Comparison]) -> Vec<String> {
    let row = |one: &Measured| {
        let (waste, rewritten) = one.point();
        let found = compared.iter().find(|comparison| comparison.rule == one.rule);
        let shares = found.and_then(Comparison::shares);
        let shares = shares.map_or_else(
            || "–".to_owned(),
            |(low, median, high)| {
                format!("{} ({} to {})", percent(median), percent(low), percent(high))
            },
        );
        let rule = match one.rule {
            Rule::Rent(_) => format!("rent, horizon {}", name(one.rule)),
            rule @ (Rule::Ratio(_) | Rule::Slack(_) | Rule::SmooshDefaults) => name(rule),
        };
        let compactions = one.median(|cost| cost.compactions_a_day);
        format!("| {rule} | {} | {} | {compactions:.0} | {shares} |", size(waste), size(rewritten))
    };
    rivals.iter().chain(rent).map(row).collect()
}

fn picture(world: World, rivals: &[Measured], rent: &[Measured]) -> String {
    let labelled = [
        Rule::Ratio(2.0),
        Rule::Ratio(4.0),
        Rule::Ratio(8.0),
        Rule::Slack(128 << 20),
        Rule::SmooshDefaults,
    ];
    let hours = [1, 2, 6, 24, 72, 400].map(|hours| Rule::Rent(Duration::from_secs(hours * 3_600)));
    let dot = |one: &Measured| {
        let shown = labelled.contains(&one.rule) || hours.contains(&one.rule);
        let label = if shown { name(one.rule) } else { String::new() };
        let (x, y) = one.point();
        Dot { x, y, label }
    };
    let sorted = |mut line: Vec<(f64, f64)>| {
        line.sort_by(|one, other| one.0.total_cmp(&other.0));
        line
    };
    let all: Vec<(f64, f64)> = rivals.iter().map(Measured::point).collect();
    let beaten = |one: &(f64, f64)| all.iter().any(|it| it.0 < one.0 && it.1 < one.1);
    let frontier = all.iter().copied().filter(|one| !beaten(one)).collect();
    let smoosh = Series {
        name: "smoosh's thresholds and their frontier",
        colour: "#c2571a",
        labels: Side::Above,
        dots: rivals.iter().map(dot).collect(),
        line: sorted(frontier),
    };
    let rent = Series {
        name: "rent, by horizon",
        colour: "#1668b0",
        labels: Side::Below,
        dots: rent.iter().map(dot).collect(),
        line: sorted(rent.iter().map(Measured::point).collect()),
    };
    let chart = Chart {
        title: format!("{} simulated databases, {DAYS} days", thousands(world.databases)),
        x_title: "mean waste",
        y_title: "rewritten a day",
        series: vec![smoosh, rent],
    };
    chart.svg()
}

fn thousands(number: u32) -> String {
    let text = number.to_string();
    text.strip_suffix("000").map_or_else(|| text.clone(), |it| format!("{it},000"))
}

fn worlds() -> Vec<World> {
    let mut worlds = Vec::new();
    for databases in [400, 10_000] {
        for spread in SPREADS {
            let kinds = [Writers::Uniform, Writers::OfficeHours, Writers::Mixed];
            let of = |writers| World { databases, days: DAYS, writers, spread, seed: 0 };
            worlds.extend(kinds.map(of));
        }
    }
    let small =
        World { databases: 400, days: DAYS, writers: Writers::Mixed, spread: SPREADS[0], seed: 0 };
    worlds.push(World { days: LONG_DAYS, ..small });
    worlds.extend(OTHER_SPREADS.map(|spread| World { spread, ..small }));
    worlds
}

fn main() -> io::Result<()> {
    say(
        "| databases | writers | days | spread | median | worst threshold | worst seed | above 50 % |",
    )?;
    say("|---:|---|---:|---:|---:|---|---:|---:|")?;
    let mut shown = Vec::new();
    for world in worlds() {
        let (rivals, rent) = (measure(world, &thresholds()), measure(world, &horizons()));
        let compared = comparisons(&rivals, &rent);
        say(&summary(world, &compared))?;
        if world.databases == 10_000
            && world.writers == Writers::Mixed
            && world.spread == SPREADS[0]
        {
            shown = details(&rivals, &rent, &compared);
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/src/images/rent.svg");
            fs::write(path, picture(world, &rivals, &rent))?;
        }
    }
    say("\n| rule | mean waste | rewritten a day | compactions a day | rent at the same waste |")?;
    say("|---|---:|---:|---:|---:|")?;
    shown.iter().try_for_each(|row| say(row))
}
