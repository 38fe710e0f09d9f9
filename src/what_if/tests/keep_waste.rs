//! Horizons that keep waste, compared with the law of the square root.

use super::*;
use crate::{
    model::{priority::PriorityKind, rounding::to_bytes},
    text::Label,
};
use proptest::prelude::*;

/// A view in its own database: live bytes, and garbage per day, in MiB.
fn add_view(draft: &mut Draft, node: NodeIx, name: &str, (live, garbage): (u64, u64)) {
    let db = draft.get_or_add_db(DbName { db: name, suffix: ".17" });
    let shard = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
    draft.set_facts(shard, facts(MIB, MIB, NOW));
    let designs = [Arc::from("_design/app")].into();
    let view = View { signature: Signature([7; 16]), designs, ..View::default() };
    let ix = draft.add_view(db, view);
    draft.set_shard_map(db, ShardMapEntry { copies: 1, ranges: 1 }, &[ix]);
    watch(draft, ix, (live, garbage, 0));
}

/// smoosh with these minimum ratios of databases and views, and without other channels.
fn ratios(dbs: f64, views: f64) -> Policy {
    let ratio = |kind, least| {
        let mut channel = Channel::with_defaults(kind, kind_of(kind), PriorityKind::Ratio);
        channel.min_priority = least;
        channel
    };
    let list = vec![ratio("dbs", dbs), ratio("views", views)];
    Policy::smoosh(&Channels { list, ..Channels::default() })
}

fn kind_of(name: &str) -> TargetKind {
    if name == "dbs" { TargetKind::Db } else { TargetKind::View }
}

/// The same rules, but with channels by rent.
fn rent(rules: &Policy) -> Policy {
    let list = ChannelPreset::Rent.channels();
    Policy { channels: Arc::new(Channels { list, ..Channels::default() }), ..rules.clone() }
}

/// The outlook under smoosh's rules, and the horizons with which rent keeps the same waste.
fn kept(present: &Present, smoosh: &Policy, rent: &Policy, days: u32) -> (Outlook, KeptWaste) {
    let stop = CancellationToken::new();
    let forecast = Outlooks::new(present, days * DAY, &stop).unwrap();
    let proposal = Proposal { name: "smoosh".to_owned(), policy: Some(smoosh.clone()) };
    let outlook = forecast.outlook(&proposal);
    let kept = forecast.keep_waste(&outlook, rent, "rent");
    assert_eq!(kept.outlook.name, "rent");
    (outlook, kept)
}

fn horizon(kept: &KeptWaste, kind: TargetKind) -> KeptHorizon {
    *kept.horizons.iter().find(|horizon| horizon.kind == kind).unwrap()
}

fn assert_within(found: f64, expected: f64, share: f64, what: &str) {
    let off = (found - expected).abs() / expected;
    assert!(off <= share, "{what}: {found}, not {expected}");
}

#[test]
fn horizon_follows_the_square_root_law() {
    // A ratio of k wastes L (k - 1) / 2 on average, and a horizon h wastes sqrt(L g h / 2); they
    // are equal for h = L (k - 1)^2 / (2 g).
    let present = present(&[("a", 1_000, 190, 0)], None);
    for (ratio, days) in [(1.5, 60), (2.0, 90), (1.3, 40)] {
        let smoosh = ratios(ratio, ratio);
        let (outlook, kept) = kept(&present, &smoosh, &rent(&smoosh), days);
        assert_near(outlook.mean_waste(), 1_000.0 * (ratio - 1.0) / 2.0, 0.1, "smoosh's waste");
        let dbs = horizon(&kept, TargetKind::Db);
        let expected = 1_000.0 * (ratio - 1.0_f64).powi(2) / (2.0 * 190.0) * 86_400.0;
        assert_within(dbs.horizon.as_secs_f64(), expected, 0.25, "horizon");
        assert_eq!(dbs.fit, WasteFit::Near);
        assert_within(dbs.waste_bytes as f64, dbs.wanted_bytes as f64, 0.1, "waste");
        // Nothing is known of views, because there are none.
        assert_eq!(horizon(&kept, TargetKind::View).fit, WasteFit::Little);
    }
}

#[test]
fn databases_and_views_have_separate_horizons() {
    let mut draft = Draft::new(5);
    let node = draft.get_or_add_node("couchdb@a");
    draft.update_node(node, |node| node.is_member = true);
    for (at, live) in [900, 1_000, 1_100].into_iter().enumerate() {
        let name = format!("db{at}");
        let db = draft.get_or_add_db(DbName { db: &name, suffix: ".17" });
        let ix = draft.get_or_add_shard(node, db, None);
        watch(&mut draft, ix, (live, 190, 0));
        add_view(&mut draft, node, &format!("view{at}"), (live, 410));
    }
    let present = published(draft, None);
    let smoosh = ratios(1.4, 3.0);
    let (outlook, kept) = kept(&present, &smoosh, &rent(&smoosh), 60);
    let both = outlook.mean_waste_of(TargetKind::Db) + outlook.mean_waste_of(TargetKind::View);
    assert_within(both as f64, outlook.mean_waste() as f64, 0.001, "the sum of both");
    for (kind, ratio, garbage) in [(TargetKind::Db, 1.4, 190.0), (TargetKind::View, 3.0, 410.0)] {
        let found = horizon(&kept, kind);
        assert_eq!(found.fit, WasteFit::Near, "{found:?}");
        assert_within(found.waste_bytes as f64, found.wanted_bytes as f64, 0.1, "waste");
        let expected = 1_000.0 * (ratio - 1.0_f64).powi(2) / (2.0 * garbage) * 86_400.0;
        assert_within(found.horizon.as_secs_f64(), expected, 0.4, kind.label());
    }
    let channels = &kept.policy.channels.list;
    for kind in [TargetKind::Db, TargetKind::View] {
        let channel = channels.iter().find(|channel| channel.kind == kind).unwrap();
        assert_eq!(channel.horizon, horizon(&kept, kind).horizon);
    }
}

#[test]
fn reports_when_limits_leave_more_waste_than_wanted() {
    let names: Vec<String> = (0..20).map(|at| format!("db{at}")).collect();
    let dbs: Vec<_> = names.iter().map(|name| (name.as_str(), 10_000, 100_000, 0)).collect();
    let present = present(&dbs, None);
    let smoosh = ratios(1.5, 1.5);
    let mut tight = rent(&smoosh);
    tight.rules.limits = Limits { bytes_per_hour: 1 << 30, ..tight.rules.limits };
    let (_, kept) = kept(&present, &smoosh, &tight, 2);
    let found = horizon(&kept, TargetKind::Db);
    assert_eq!(found.fit, WasteFit::More, "{found:?}");
    assert!(found.waste_bytes > 2 * found.wanted_bytes, "{found:?}");
}

#[test]
fn simulation_without_compactions_gives_a_lower_bound_of_horizon() {
    let present = present(&[("a", 1_000, 19, 0)], None);
    let smoosh = ratios(2.0, 2.0);
    let (outlook, kept) = kept(&present, &smoosh, &rent(&smoosh), 7);
    assert_eq!(outlook.compactions, 0);
    let found = horizon(&kept, TargetKind::Db);
    assert_eq!(found.fit, WasteFit::Longer, "{found:?}");
    assert_within(found.waste_bytes as f64, found.wanted_bytes as f64, 0.1, "waste");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 8, ..ProptestConfig::default() })]

    #[test]
    fn suggested_horizon_keeps_the_mean_waste(
        sizes in prop::collection::vec((2.0_f64..4.0, -1.5_f64..-0.2), 4..9),
        ratio in 1.3_f64..5.0,
    ) {
        // Live bytes span two decades; garbage per day, as a share of them, spans more than one.
        let dbs: Vec<(String, u64, u64)> = sizes
            .iter()
            .enumerate()
            .map(|(at, (live, share))| {
                let live = 10_f64.powf(*live);
                (format!("db{at}"), to_bytes(live), to_bytes(live * 10_f64.powf(*share)))
            })
            .collect();
        let dbs: Vec<_> = dbs.iter().map(|(name, live, garbage)| (&**name, *live, *garbage, 0)).collect();
        let smoosh = ratios(ratio, ratio);
        let (outlook, kept) = kept(&present(&dbs, None), &smoosh, &rent(&smoosh), 30);
        let found = horizon(&kept, TargetKind::Db);
        let (waste, wanted) = (kept.outlook.mean_waste() as f64, outlook.mean_waste() as f64);
        prop_assert!((waste - wanted).abs() <= 0.1 * wanted, "{found:?} for {dbs:?}");
        prop_assert!(matches!(found.fit, WasteFit::Near | WasteFit::Longer), "{found:?}");
    }
}
