//! Outlooks compared with results by hand.

mod keep_waste;

use super::*;
use crate::{
    model::{
        channel::ChannelPreset,
        facts::{Facts, OptionalU64},
        target::TargetState,
        window::{Days, Window, WindowEnd, parse_time, parse_zone},
    },
    plan::disk::{Disks, Volume, VolumeSpace},
    table::{DbName, Draft, ShardMapEntry, TargetIx, View},
};
use couchdb_names::{Range, Signature};

const NOW: u64 = 1_795_222_434;
const DAY: Duration = Duration::from_secs(86_400);
const MIB: u64 = 1 << 20;

fn at(seconds: u64) -> Moment {
    Moment::from_unix(seconds)
}

fn facts(file: u64, active: u64, read: u64) -> Facts {
    Facts {
        docs: OptionalU64::new(1_000),
        deleted_docs: OptionalU64::new(0),
        update_seq: OptionalU64::new(1_000),
        compacted_seq: OptionalU64::new(1_000),
        ..Facts::read(file, active, at(read))
    }
}

/// Simulates each proposal for this time.
fn outlooks(present: &Present, proposals: &[Proposal], span: Duration) -> Result<Answer, NoRates> {
    let stop = CancellationToken::new();
    let forecast = Outlooks::new(present, span, &stop)?;
    let outlooks = proposals.iter().map(|proposal| forecast.outlook(proposal)).collect();
    Ok(forecast.answer(outlooks))
}

/// A node with databases: name, live bytes, garbage per day and new live bytes per day, all in MiB;
/// watched for ten days. Each was compacted at the second to last reading.
fn present(dbs: &[(&str, u64, u64, u64)], space: Option<(u64, u64)>) -> Present {
    let mut draft = Draft::new(5);
    let node = draft.get_or_add_node("couchdb@a");
    draft.update_node(node, |node| node.is_member = true);
    for (name, live, garbage, new) in dbs {
        let db = draft.get_or_add_db(DbName { db: name, suffix: ".17" });
        let ix = draft.get_or_add_shard(node, db, None);
        watch(&mut draft, ix, (*live, *garbage, *new));
    }
    published(draft, space)
}

/// Lets a target be read for ten days and then compacted: its live bytes, garbage per day and new live
/// bytes per day, in MiB.
fn watch(draft: &mut Draft, ix: TargetIx, (live, garbage, new): (u64, u64, u64)) {
    let hours = 240;
    for hour in 0..=hours {
        let read = NOW - (hours - hour) * 3_600;
        let (live, new) = (live * MIB, new * MIB * hour / 24);
        draft.set_facts(ix, facts(live + (garbage * MIB * hour / 24) + new, live + new, read));
    }
    let live = (live + 10 * new) * MIB;
    draft.set_facts(ix, facts(live + 4 * 4_096, live, NOW));
}

/// The present of a cluster whose node has a volume with this much free space, and of this size, in MiB.
fn published(mut draft: Draft, space: Option<(u64, u64)>) -> Present {
    let volume = space.map(|(available, size)| Volume {
        name: "/data".into(),
        nodes: vec!["couchdb@a".into()],
        space: Some(VolumeSpace {
            available: available * MIB,
            size: Some(size * MIB),
            held: None,
            measured_at: at(NOW),
        }),
        is_stated: false,
        falling_since: None,
        problem: None,
    });
    let disks = Arc::new(Disks { volumes: volume.into_iter().collect() });
    let conditions = Conditions { disks, ..Conditions::default() };
    Present { snapshot: draft.publish(at(NOW)), conditions, now: at(NOW) }
}

fn by(name: &str, channels: Vec<Channel>) -> Proposal {
    let policy = Policy::smoosh(&Channels::default());
    let channels = Arc::new(Channels { list: channels, ..Channels::default() });
    Proposal { name: name.to_owned(), policy: Some(Policy { channels, ..policy }) }
}

fn only(present: &Present, proposal: Proposal, span: Duration) -> Outlook {
    let answer = outlooks(present, &[proposal], span).unwrap();
    answer.outlooks.into_iter().next().unwrap()
}

fn assert_near(found: u64, expected_mib: f64, tolerance: f64, what: &str) {
    let found = found as f64 / MIB as f64;
    assert!(
        (found - expected_mib).abs() <= tolerance * expected_mib,
        "{what}: {found} MiB, not {expected_mib}"
    );
}

#[test]
fn gives_no_outlook_if_growth_was_never_observed() {
    let mut draft = Draft::new(5);
    let node = draft.get_or_add_node("couchdb@a");
    let db = draft.get_or_add_db(DbName { db: "new", suffix: ".17" });
    let ix = draft.get_or_add_shard(node, db, None);
    draft.set_facts(ix, facts(2 * MIB, MIB, NOW));
    let (conditions, now) = (Conditions::default(), at(NOW + 60));
    let present = Present { snapshot: draft.publish(now), conditions, now };
    let nothing = Proposal { name: "nothing".into(), policy: None };
    assert_eq!(outlooks(&present, &[nothing], DAY), Err(NoRates));
}

#[test]
fn without_compactions_waste_and_files_keep_growing_as_before() {
    let present = present(&[("a", 1_000, 100, 20), ("b", 500, 0, 0)], Some((2_000, 9_000)));
    let nothing = Proposal { name: "nothing".into(), policy: None };
    let answer = outlooks(&present, &[nothing], 10 * DAY).unwrap();
    assert_eq!(answer.evidence.watched_bytes, answer.evidence.file_bytes);
    assert_eq!(answer.evidence.watched, 10 * DAY);
    let outlook = &answer.outlooks[0];
    assert_near(outlook.samples[SAMPLES - 1].waste_bytes, 1_000.0, 0.02, "waste in ten days");
    assert_near(outlook.mean_waste(), 500.0, 0.02, "mean waste");
    let grown = outlook.samples[SAMPLES - 1].file_bytes - outlook.samples[0].file_bytes;
    assert_near(grown, 1_200.0, 0.02, "growth");
    let volume = &outlook.volumes[0];
    assert_near(volume.free_bytes[SAMPLES - 1], 800.0, 0.02, "free");
    let last = volume.freed.0[SAMPLES - 1];
    assert_near(to_bytes(last.waste), 1_000.0, 0.02, "waste written");
    assert_eq!(last.freed, 0.0);
}

#[test]
fn bytes_that_no_longer_fit_the_volume_do_not_become_waste() {
    let present = present(&[("a", 1_000, 100, 20)], Some((300, 9_000)));
    let nothing = Proposal { name: "nothing".into(), policy: None };
    let outlook = only(&present, nothing, 10 * DAY);
    let [first, last] = [outlook.samples[0], outlook.samples[SAMPLES - 1]];
    assert_near(last.file_bytes - first.file_bytes, 300.0, 0.02, "what fits of 1,200 MiB");
    assert_near(last.waste_bytes - first.waste_bytes, 250.0, 0.02, "waste of that");
}

#[test]
fn present_splits_and_builds_do_not_delay_simulated_starts() {
    let waits = |change: &dyn Fn(&mut Draft)| {
        let mut draft = Draft::new(5);
        let node = draft.get_or_add_node("couchdb@a");
        draft.update_node(node, |node| node.is_member = true);
        let db = draft.get_or_add_db(DbName { db: "a", suffix: ".17" });
        let ix = draft.get_or_add_shard(node, db, None);
        watch(&mut draft, ix, (1_000, 900, 0));
        let designs = [Arc::from("_design/app")].into();
        let view = View { signature: Signature([7; 16]), designs, ..View::default() };
        let view = draft.add_view(db, view);
        draft.set_shard_map(db, ShardMapEntry { copies: 1, ranges: 1 }, &[view]);
        watch(&mut draft, view, (1_000, 900, 0));
        change(&mut draft);
        let present = published(draft, None);
        let outlook = only(&present, by("smoosh", ChannelPreset::Smoosh.channels()), 6 * DAY);
        assert!(outlook.compactions > 10, "{}", outlook.compactions);
        let reasons: Vec<_> = outlook.undone.iter().map(|undone| undone.reason).collect();
        (outlook.longest_wait.unwrap_or_default(), reasons)
    };
    let set = |draft: &mut Draft, change: &dyn Fn(&mut Draft, TargetIx)| {
        let all: Vec<TargetIx> = draft.current().targets().map(TargetRef::ix).collect();
        all.into_iter().for_each(|ix| change(draft, ix));
    };
    let none = waits(&|_| {});
    assert!(none.0 < Duration::from_secs(3_600), "{none:?}");
    let split =
        waits(&|draft| set(draft, &|draft, ix| draft.set_state(ix, TargetState::Resharding)));
    let behind = waits(&|draft| {
        set(draft, &|draft, ix| {
            let target = draft.current().target(ix).unwrap();
            let mut facts = target.facts();
            facts.flags.updater_running = true;
            facts.updates_pending = OptionalU64::new(9);
            draft.set_facts(ix, facts);
        });
    });
    assert_eq!((split, behind), (none.clone(), none));
}

#[test]
fn smoosh_defaults_waste_half_of_the_slack_limit_on_average() {
    let present = present(&[("a", 1_000, 500, 0)], None);
    let outlook = only(&present, by("smoosh", ChannelPreset::Smoosh.channels()), 20 * DAY);
    // Slack of 512 MiB is reached before a ratio of 2.
    assert_near(outlook.mean_waste(), 256.0, 0.1, "mean waste");
    let each = 512.0 / 500.0;
    assert_near(outlook.rewritten_bytes, 1_000.0 * (20.0_f64 / each).floor(), 0.06, "rewritten");
    assert_eq!(outlook.undone, []);
    assert!(!outlook.is_coarse);
}

#[test]
fn rent_follows_the_square_root_law() {
    // Due when g t^2 / 2 is the horizon times the data: after sqrt(2 h A / g).
    let present = present(&[("a", 1_000, 500, 0)], None);
    let outlook = only(&present, by("rent", ChannelPreset::Rent.channels()), 20 * DAY);
    let period = (2.0 * 1_000.0 / 500.0_f64).sqrt();
    assert_near(outlook.mean_waste(), 500.0 * period / 2.0, 0.1, "mean waste");
    assert_near(outlook.rewritten_bytes, 1_000.0 * (20.0 / period).floor(), 0.11, "rewritten");
}

/// Idle databases become due one after another, each between two plans.
#[test]
fn targets_that_become_due_between_two_plans_are_compacted() {
    const DATABASES: u64 = 900;
    let mut draft = Draft::new(5);
    let node = draft.get_or_add_node("couchdb@a");
    draft.update_node(node, |node| node.is_member = true);
    for number in 0..DATABASES {
        let db = draft.get_or_add_db(DbName { db: &format!("db{number}"), suffix: ".17" });
        let ix = draft.get_or_add_shard(node, db, None);
        // With a horizon of one day, these become due after two hours to six and a half days.
        let due_after_hours = 2.0 + 154.0 * number as f64 / DATABASES as f64;
        let waste = to_bytes(100.0 * 24.0 / due_after_hours * MIB as f64);
        for read in [NOW - 3_600, NOW] {
            draft.set_facts(ix, facts(100 * MIB + waste, 100 * MIB, read));
        }
    }
    let present = published(draft, None);
    let outlook = only(&present, by("rent", ChannelPreset::Rent.channels()), 7 * DAY);
    assert!(outlook.is_coarse, "one plan decides about several");
    assert_eq!(outlook.compactions, DATABASES);
}

#[test]
fn targets_that_exceed_the_limits_stay_uncompacted() {
    let names: Vec<String> = (0..20).map(|at| format!("db{at}")).collect();
    let dbs: Vec<_> = names.iter().map(|name| (name.as_str(), 10_000, 100_000, 0)).collect();
    let present = present(&dbs, None);
    let Proposal { policy: Some(policy), .. } = by("x", ChannelPreset::Smoosh.channels()) else {
        panic!("it has a policy")
    };
    let limits = Limits { bytes_per_hour: 1 << 30, ..policy.rules.limits };
    let rules = Rules { limits, ..policy.rules.clone() };
    let tight = Proposal { name: "tight".into(), policy: Some(Policy { rules, ..policy }) };
    let roomy = by("roomy", ChannelPreset::Smoosh.channels());
    let answer = outlooks(&present, &[tight, roomy], 2 * DAY).unwrap();
    let [tight, roomy] = &answer.outlooks[..] else { panic!("two") };
    assert!(tight.undone_targets() > 10 && tight.undone_bytes() > 0, "{tight:?}");
    let reasons: Vec<_> = tight.undone.iter().map(|undone| undone.reason).collect();
    assert!(reasons.contains(&RefusalReason::Budget), "{reasons:?}");
    assert!(tight.longest_wait.unwrap() > Duration::from_secs(10 * 3_600));
    assert!(tight.mean_waste() > 2 * roomy.mean_waste());
    assert!(tight.rewritten_bytes < roomy.rewritten_bytes);
}

/// Three nodes with databases of two ranges and three copies, each with a view; sizes and growth differ
/// by two decades, and every copy wastes at the same rate.
fn cluster(databases: u64, facts_of_first: impl Fn(&mut Facts)) -> Present {
    let mut draft = Draft::new(5);
    let names = ["couchdb@a", "couchdb@b", "couchdb@c"];
    let nodes = names.map(|name| {
        let node = draft.get_or_add_node(name);
        draft.update_node(node, |node| node.is_member = true);
        node
    });
    for at in 0..databases {
        let live = 5 << (at % 7);
        let garbage = live << (at % 5);
        let name = format!("db{at}");
        let db = draft.get_or_add_db(DbName { db: &name, suffix: ".17" });
        let middle = u32::MAX / 2;
        for node in nodes {
            for range in [Range { from: 0, to: middle }, Range { from: middle + 1, to: u32::MAX }] {
                let ix = draft.get_or_add_shard(node, db, Some(range));
                watch(&mut draft, ix, (live, garbage, 0));
                if at == 0 {
                    let mut facts = facts(live * MIB, live * MIB / 2, NOW);
                    facts_of_first(&mut facts);
                    draft.set_facts(ix, facts);
                }
            }
        }
        let designs = [Arc::from("_design/app")].into();
        let view = View { signature: Signature([7; 16]), designs, ..View::default() };
        let ix = draft.add_view(db, view);
        draft.set_shard_map(db, ShardMapEntry { copies: 6, ranges: 2 }, &[ix]);
        watch(&mut draft, ix, (live, garbage / 4, 0));
    }
    published(draft, None)
}

/// recliner's own limits, with short horizons.
fn short_horizons(minutes: u64) -> Proposal {
    let mut channels = ChannelPreset::Rent.channels();
    for channel in &mut channels {
        channel.horizon = Duration::from_secs(60 * minutes);
    }
    let Proposal { policy: Some(policy), .. } = by("rent", channels) else {
        panic!("it has a policy")
    };
    let limits = Limits { bytes_per_hour: u64::MAX, ..Limits::default() };
    let rules = Rules { limits, ..policy.rules.clone() };
    Proposal { name: "rent".to_owned(), policy: Some(Policy { rules, ..policy }) }
}

fn compactions_a_day(present: &Present, proposal: Proposal, days: u32) -> f64 {
    let outlook = only(present, proposal, days * DAY);
    println!(
        "{days} days: {} compactions, coarse: {}, {:?}",
        outlook.compactions, outlook.is_coarse, outlook.undone
    );
    outlook.compactions as f64 / f64::from(days)
}

#[test]
fn compactions_per_day_do_not_depend_on_the_simulated_time() {
    for (databases, minutes) in [(8, 10), (8, 30), (30, 10)] {
        let present = cluster(databases, |_| {});
        let a_day = |days| compactions_a_day(&present, short_horizons(minutes), days);
        let expected = a_day(1);
        assert!(expected > 20.0, "{expected}");
        for days in [2, 4, 7] {
            let found = a_day(days);
            let what = format!("{databases} databases, {minutes} minutes, {days} days");
            assert!((found / expected - 1.0).abs() < 0.1, "{what}: {found}, not {expected}");
        }
    }
}

#[test]
fn frequently_compacted_files_do_not_shrink_below_live_bytes() {
    let present = cluster(4, |_| {});
    let outlook = only(&present, short_horizons(10), 7 * DAY);
    let files = |at: usize| outlook.samples[at].file_bytes;
    let live: u64 = (0..4).map(|at| (5 << at) * 12 * MIB).sum();
    for at in SAMPLES / 2..SAMPLES {
        assert!((live..2 * live).contains(&files(at)), "{} of {live} at {at}", files(at));
    }
}

#[test]
fn compactions_running_at_the_start_delay_no_others() {
    let busy = cluster(8, |facts| facts.flags.compact_running = true);
    let idle = cluster(8, |_| {});
    let [busy, idle] = [busy, idle].map(|it| compactions_a_day(&it, short_horizons(60), 2));
    assert!((busy / idle - 1.0).abs() < 0.02, "{busy}, not {idle}");
}

#[test]
fn target_is_compacted_before_it_outgrows_its_channel() {
    let present = present(&[("a", 1_000, 900, 0)], None);
    let mut channels = ChannelPreset::Smoosh.channels();
    channels.iter_mut().for_each(|channel| channel.max_size = Some(2_000 * MIB));
    let outlook = only(&present, by("smoosh", channels), 20 * DAY);
    assert!(outlook.compactions > 20, "{}", outlook.compactions);
}

#[test]
fn targets_left_uncompacted_have_a_reason() {
    let names: Vec<String> = (0..6).map(|at| format!("db{at}")).collect();
    let dbs: Vec<_> = names.iter().map(|name| (name.as_str(), 1_000, 900, 0)).collect();
    let reasons = |present: &Present, change: &dyn Fn(&mut Policy)| -> Vec<(RefusalReason, u64)> {
        let Proposal { name, policy } = by("smoosh", ChannelPreset::Smoosh.channels());
        let mut policy = policy.unwrap();
        change(&mut policy);
        let outlook = only(present, Proposal { name, policy: Some(policy) }, 5 * DAY);
        assert!(outlook.undone.is_sorted_by_key(|undone| std::cmp::Reverse(undone.bytes)));
        let sums: u64 = outlook.undone.iter().map(|undone| undone.bytes).sum();
        assert_eq!(outlook.undone_bytes(), sums);
        let waste = outlook.samples.last().unwrap().waste_bytes;
        assert!(sums <= waste, "{sums} of {waste}");
        outlook.undone.iter().map(|undone| (undone.reason, undone.targets)).collect()
    };
    let roomy = present(&dbs, Some((90_000, 100_000)));
    assert_eq!(reasons(&roomy, &|_| {}), []);
    let none = |policy: &mut Policy| policy.rules.limits.per_node = 0;
    assert_eq!(reasons(&roomy, &none), [(RefusalReason::NodeLimit, 6)]);
    let full = present(&dbs, Some((1_500, 100_000)));
    let keep_free = |policy: &mut Policy| policy.rules.headroom.keep_free_percent = 10.0;
    assert_eq!(reasons(&full, &keep_free), [(RefusalReason::Headroom, 6)]);
    // The outlooks end at 00:53, when each target has been due since the window closed the day
    // before.
    let closed = |policy: &mut Policy| {
        let window = Window {
            days: Days::ALL,
            from: parse_time("01:00", WindowEnd::From).unwrap(),
            to: parse_time("01:30", WindowEnd::To).unwrap(),
            zone: parse_zone("UTC").unwrap(),
        };
        let at_night =
            |channel: &Channel| Channel { windows: vec![window.clone()], ..channel.clone() };
        policy.channels = Arc::new(policy.channels.map(at_night));
    };
    assert_eq!(reasons(&roomy, &closed), [(RefusalReason::Window, 6)]);
}

#[test]
fn adjacent_windows_give_the_same_outlook_as_one_covering_them() {
    let present = present(&[("a", 1_000, 900, 20), ("b", 300, 30, 5)], Some((90_000, 100_000)));
    let window = |from: i64, to: i64| {
        let time =
            |minutes: i64| jiff::civil::Time::midnight() + jiff::Span::new().minutes(minutes);
        let zone = parse_zone("Europe/Berlin").unwrap();
        Window { days: Days::ALL, from: time(from), to: time(to), zone }
    };
    let outlook = |windows: Vec<Window>| {
        let channel = |channel: Channel| Channel { windows: windows.clone(), ..channel };
        let channels = ChannelPreset::Smoosh.channels().into_iter().map(channel);
        only(&present, by("smoosh", channels.collect()), 366 * DAY)
    };
    let short = (60..570).step_by(2).map(|minute| window(minute, minute + 2)).collect();
    assert_eq!(outlook(short), outlook(vec![window(60, 570)]));
}

#[test]
fn a_volume_that_fills_up_shortens_the_horizon() {
    let dbs = [("a", 300, 30, 0)];
    let outlook =
        |space| only(&present(&dbs, space), by("rent", ChannelPreset::Rent.channels()), 40 * DAY);
    let (wide, tight) = (outlook(Some((90_000, 100_000))), outlook(Some((1_500, 10_000))));
    assert!(tight.compactions > wide.compactions, "{} {}", tight.compactions, wide.compactions);
    assert!(tight.peak_waste() < wide.peak_waste());
}

#[test]
fn outlooks_are_reproducible() {
    let present = present(&[("a", 1_000, 500, 1), ("b", 100, 900, 3)], Some((9_000, 20_000)));
    let proposals = [
        by("smoosh", ChannelPreset::Smoosh.channels()),
        by("rent", ChannelPreset::Rent.channels()),
    ];
    assert_eq!(outlooks(&present, &proposals, 9 * DAY), outlooks(&present, &proposals, 9 * DAY));
}

#[test]
fn stopped_forecast_begins_no_more_compactions() {
    let present = present(&[("a", 1_000, 100, 20)], None);
    let compactions = |is_stopped: bool| {
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let _running = (!is_stopped).then_some(guard);
        let forecast = Outlooks::new(&present, 10 * DAY, &stop).unwrap();
        forecast.outlook(&by("smoosh", ChannelPreset::Smoosh.channels())).compactions
    };
    assert!(compactions(false) > 0);
    assert_eq!(compactions(true), 0);
}
