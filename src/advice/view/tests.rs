//! Findings that are open, gone and muted, over some days.

use super::*;
use crate::advice::{Gain, Subject, Surplus, rules};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const NOW: Moment = Moment::from_unix(1_795_222_434);
const CODE: &str = "orphan_shards";

fn finding(db: &str, bytes: u64) -> Finding {
    Finding {
        severity: Severity::Info,
        subject: Subject::Database(db.to_owned()),
        says: format!("{db}."),
        evidence: Vec::new(),
        gain: Gain::Bytes(bytes),
        remedy: Vec::new(),
    }
}

fn results(dbs: &[&str], more: u64) -> Vec<RuleResult> {
    let rule = rule_of_code(CODE).unwrap();
    let findings = dbs.iter().map(|db| finding(db, 10)).collect();
    vec![RuleResult {
        rule,
        findings,
        surplus: Surplus { counts: [more, 0, 0], freed_bytes: more },
    }]
}

fn key(subject: &str) -> AdviceKey {
    AdviceKey::of(CODE, subject.to_owned())
}

fn mute_until(until: Moment) -> Option<Mute> {
    Some(Mute { since: NOW, until, by: None, why: Some("kept".to_owned()) })
}

/// The subjects, with the number of days since they were first found.
fn since(view: &AdviceView, now: Moment) -> Vec<(String, u64)> {
    let days = |since: Moment| NOW.age(since).as_secs() / DAY.as_secs();
    let pieces = view.pieces(now).into_iter();
    pieces.map(|it| (it.finding.subject.to_string(), days(it.since.unwrap()))).collect()
}

#[test]
fn keeps_first_seen_time_and_stores_only_changes() {
    let mut view = AdviceView::default();
    assert_eq!(view.update(results(&["a", "b"], 0), NOW).len(), 2);
    assert_eq!(view.update(results(&["a", "b"], 0), NOW.plus(DAY)), []);
    let later = NOW.plus(2 * DAY);
    assert_eq!(view.update(results(&["a"], 0), later), [], "it may return");
    assert_eq!(since(&view, later), [("a".to_owned(), 0)], "what is absent is not listed");
    assert_eq!(view.check_known(&key("b")), Ok(()), "it can be muted");
    assert_eq!(view.update(results(&["a"], 0), later.plus(HOUR)).len(), 1, "b is gone");
    assert_eq!(view.records[&key("b")].gone_at, Some(later));
    let again = NOW.plus(3 * DAY);
    view.update(results(&["a", "b"], 0), again);
    assert_eq!(since(&view, again), [("a".to_owned(), 0), ("b".to_owned(), 3)]);
}

#[test]
fn finding_that_returns_within_a_day_counts_as_the_same() {
    let mut view = AdviceView::default();
    let mut changes = view.update(results(&["a"], 0), NOW).len();
    for minute in 1..24 * 60_u32 {
        // Found for one minute in each hour.
        let found = if minute % 60 == 0 { results(&["a"], 0) } else { Vec::new() };
        let now = NOW.plus(minute * MINUTE);
        changes += view.update(found, now).len();
        assert_eq!(since(&view, now).len(), usize::from(minute % 60 == 0));
    }
    assert_eq!(changes, 1, "it is stored once");
    let gone = NOW.plus(25 * HOUR);
    view.update(Vec::new(), gone);
    assert!(view.records[&key("a")].gone_at.is_some());
    let again = NOW.plus(40 * HOUR);
    view.update(results(&["a"], 0), again);
    assert_eq!(since(&view, again), [("a".to_owned(), 0)], "it returned within a day");
}

#[test]
fn finding_cut_from_the_list_keeps_its_first_seen_time() {
    let mut view = AdviceView::default();
    view.update(results(&["a", "b"], 0), NOW);
    view.update(results(&["a"], 7), NOW.plus(DAY));
    view.update(results(&["a", "b"], 0), NOW.plus(2 * DAY));
    assert_eq!(since(&view, NOW), [("a".to_owned(), 0), ("b".to_owned(), 0)]);
}

#[test]
fn forgets_findings_gone_for_a_month() {
    let mut view = AdviceView::default();
    view.update(results(&["a"], 0), NOW);
    view.update(Vec::new(), NOW.plus(DAY));
    view.update(Vec::new(), NOW.plus(2 * DAY));
    assert_eq!(view.update(Vec::new(), NOW.plus(30 * DAY)), []);
    let forgotten = view.update(Vec::new(), NOW.plus(31 * DAY));
    assert_eq!(forgotten, [StateChange::SetAdvice(key("a"), None)]);
    assert!(view.records.is_empty());
}

#[test]
fn muted_advice_is_marked_and_not_counted_until_unmuted() {
    let mut view = AdviceView::default();
    view.update(results(&["a", "b"], 3), NOW);
    assert_eq!(view.open_of(CODE, NOW), ([5, 0, 0], 23));
    let change = view.set_mute(key("a"), mute_until(NOW.plus(DAY)));
    assert!(matches!(change, StateChange::SetAdvice(_, Some(_))));
    assert_eq!(view.open_of(CODE, NOW), ([4, 0, 0], 13));
    let muted: Vec<bool> = view.pieces(NOW).iter().map(|it| it.muted.is_some()).collect();
    assert_eq!(muted, [true, false]);
    assert_eq!(view.open_of(CODE, NOW.plus(DAY)), ([5, 0, 0], 23));
    view.set_mute(AdviceKey::of_code(CODE), mute_until(NOW.plus(DAY)));
    assert_eq!(view.open_of(CODE, NOW), ([0, 0, 0], 0), "the mute covers the whole code");
}

#[test]
fn mute_outlives_its_finding() {
    let mut view = AdviceView::default();
    view.update(results(&["a"], 0), NOW);
    view.set_mute(key("a"), mute_until(NOW.plus(90 * DAY)));
    view.update(Vec::new(), NOW.plus(DAY));
    view.update(Vec::new(), NOW.plus(60 * DAY));
    view.update(results(&["a"], 0), NOW.plus(61 * DAY));
    assert_eq!(view.open_of(CODE, NOW.plus(61 * DAY)), ([0, 0, 0], 0));
    view.update(Vec::new(), NOW.plus(95 * DAY));
    assert!(view.records.values().all(|record| record.mute.is_none()));
}

#[test]
fn unmuting_advice_without_findings_removes_its_record() {
    let mut view = AdviceView::default();
    view.set_mute(AdviceKey::of_code(CODE), mute_until(NOW.plus(DAY)));
    let change = view.set_mute(AdviceKey::of_code(CODE), None);
    assert_eq!(change, StateChange::SetAdvice(AdviceKey::of_code(CODE), None));
    assert!(view.records.is_empty());
}

#[test]
fn order_about_unknown_advice_is_refused_with_the_known_ones() {
    let mut view = AdviceView::default();
    view.update(results(&["a"], 0), NOW);
    assert_eq!(view.check_known(&key("a")), Ok(()));
    assert_eq!(view.check_known(&AdviceKey::of_code(CODE)), Ok(()));
    let unknown = view.check_known(&AdviceKey::of_code("orphans")).unwrap_err();
    assert!(unknown.starts_with("no advice has the code \"orphans\"; codes: "), "{unknown}");
    assert!(unknown.contains(CODE), "{unknown}");
    let other = view.check_known(&key("b")).unwrap_err();
    assert_eq!(other, "no advice orphan_shards is about \"b\"; it is about a");
    let none = rules().map(|rule| rule.code).find(|code| *code != CODE).unwrap();
    let none = view.check_known(&AdviceKey::of(none, "b".to_owned())).unwrap_err();
    assert!(none.contains(" has no open advice, "), "{none}");
    view.set_mute(key("a"), mute_until(NOW.plus(DAY)));
    assert_eq!(
        view.not_muted(&key("b")),
        "orphan_shards about b is not muted; muted: orphan_shards about a"
    );
    assert_eq!(
        view.not_muted(&AdviceKey::of_code("orphans")),
        "no advice has the code \"orphans\"; muted: orphan_shards about a"
    );
}
