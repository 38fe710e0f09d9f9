use super::*;
use access_log::{MAX_DAY_USES, Request, Used};

const DAY_SECONDS: u64 = 86_400;
const HOUR_SECONDS: u64 = 3_600;
const NOON: u64 = 20_000 * DAY_SECONDS + 12 * HOUR_SECONDS;

fn now() -> Moment {
    Moment::from_unix(NOON)
}

fn request(
    days_ago: u64,
    hour: u64,
    node: Option<&'static str>,
    used: Option<(&'static str, How, Class)>,
) -> Request<'static> {
    let used = used.map(|(names, how, class)| {
        let mut names = names.split(' ');
        let mut next = || names.next().unwrap_or_default().into();
        Used { db: next(), design: next(), view: next(), how, class }
    });
    let at = (20_000 - days_ago) * DAY_SECONDS + hour * HOUR_SECONDS;
    Request { at, node: node.map(Into::into), used }
}

/// Logs with a request in every hour of these days.
fn every_hour(node: Option<&'static str>, days: impl IntoIterator<Item = u64>) -> LogReads {
    let mut logs = LogReads::default();
    for day in days {
        (0..24).for_each(|hour| logs.add(request(day, hour, node, None), "proxy"));
    }
    logs
}

fn nodes<'a>(names: &[&'a str]) -> BTreeSet<&'a str> {
    names.iter().copied().collect()
}

fn covered(reads: &Reads, names: &[&str]) -> Option<u32> {
    reads.covered_days(&nodes(names), now()).map(|(first, last)| last.since(first) + 1)
}

#[test]
fn coverage_reaches_back_to_the_latest_gap_of_any_node() {
    let mut reads = Reads::default();
    reads.add(&every_hour(Some("a"), 1..=90));
    assert_eq!(covered(&reads, &["a"]), Some(90));
    assert_eq!(covered(&reads, &["a", "b"]), None, "nothing is known of b");
    assert_eq!(covered(&reads, &[]), None, "without a node, nothing is known");
    let mut of_b = every_hour(Some("b"), 1..=90);
    let gap = of_b.days.get_mut(&(Source::Node("b".to_owned()), Day(20_000 - 30))).unwrap();
    gap.hours &= !(1 << 7);
    reads.add(&of_b);
    assert_eq!(covered(&reads, &["a", "b"]), Some(29), "an hour without a line is a gap");
    assert_eq!(covered(&reads, &["a"]), Some(90));
}

#[test]
fn coverage_may_lack_yesterday_but_no_earlier_day() {
    let mut reads = Reads::default();
    reads.add(&every_hour(Some("a"), 2..=9));
    assert_eq!(covered(&reads, &["a"]), Some(8));
    let mut reads = Reads::default();
    reads.add(&every_hour(Some("a"), 3..=9));
    assert_eq!(covered(&reads, &["a"]), None);
}

#[test]
fn proxy_log_covers_nodes_only_if_the_proxy_sees_all_requests() {
    let mut reads = Reads::default();
    reads.add(&every_hour(None, 1..=5));
    assert_eq!(covered(&reads, &["a", "b"]), None);
    reads.proxies_see_all = true;
    assert_eq!(covered(&reads, &["a", "b"]), Some(5));
}

#[test]
fn hour_with_possibly_missing_lines_is_a_gap() {
    let mut logs = every_hour(Some("a"), 1..=5);
    logs.break_first_hour();
    let mut reads = Reads::of_logs(&logs);
    assert_eq!(covered(&reads, &["a"]), Some(4));
    // More requests in the same hour do not repair it.
    reads.add(&every_hour(Some("a"), 1..=5));
    assert_eq!(covered(&reads, &["a"]), Some(4));
}

#[test]
fn day_with_too_many_uses_is_a_gap() {
    let mut logs = every_hour(Some("a"), [1]);
    for number in 0..=MAX_DAY_USES {
        let mut more =
            request(1, 3, Some("a"), Some(("db _design/d v", How::Read, Class::Unknown)));
        more.used.as_mut().unwrap().db = format!("db{number}").into();
        logs.add(more, "");
    }
    let day = &logs.days[&(Source::Node("a".to_owned()), Day(20_000 - 1))];
    assert_eq!(day.uses.len(), MAX_DAY_USES);
    let mut source = SourceReads::default();
    source.add(Day(7), day);
    assert_eq!(source.days[&Day(7)].covered(), 0);
}

#[test]
fn reads_are_counted_for_an_index_and_for_each_view() {
    let mut logs = every_hour(Some("a"), 1..=10);
    for (ago, node, names, how, class) in [
        (3, Some("a"), "db _design/d v", How::Read, Class::Unknown),
        (3, None, "db _design/d v", How::Read, Class::Browser),
        (5, Some("a"), "db _design/d w", How::Read, Class::Unknown),
        (2, Some("a"), "db _design/d", How::Seen, Class::Unknown),
        (2, Some("a"), "db _design/dd v", How::Read, Class::Unknown),
        (4, Some("a"), "db _design/e", How::Function, Class::Unknown),
        (1, Some("a"), "db", How::Find, Class::Unknown),
    ] {
        logs.add(request(ago, 3, node, Some((names, how, class))), "proxy");
    }
    let reads = Reads::of_logs(&logs);
    let of = |design: &str, view, is_mango| {
        let readers = reads.readers(Asked { db: "db", designs: &[design], view, is_mango }, now());
        let ago = readers.last.map(|day| Day(20_000).since(day));
        let classes: Vec<&str> = readers.classes.iter().map(|it| it.label()).collect();
        (ago, readers.per_day, classes.join(" "))
    };
    assert_eq!(of("_design/d", None, false), (Some(3), Some(0.2), "browser".to_owned()));
    assert_eq!(of("_design/d", Some("w"), false), (Some(5), Some(0.1), "unknown".to_owned()));
    assert_eq!(of("_design/d", Some("x"), false), (None, Some(0.0), String::new()));
    assert_eq!(of("_design/e", None, false).0, Some(4), "its filter is used");
    assert_eq!(of("_design/e", Some("v"), false).0, None, "but not its view");
    assert_eq!(of("_design/mango", None, true).0, Some(1), "any query may have read it");
    assert_eq!(of("_design/mango", None, false).0, None);
    let nothing = Reads::default()
        .readers(Asked { db: "db", designs: &["_design/d"], view: None, is_mango: false }, now());
    assert_eq!(nothing.per_day, None, "unknown is not zero");
}

#[test]
fn design_document_is_known_since_its_last_write() {
    let mut logs = LogReads::default();
    let mut see = |ago, how| {
        logs.add(request(ago, 3, Some("a"), Some(("db _design/d", how, Class::Unknown))), "proxy");
        Reads::of_logs(&logs)
    };
    let known =
        |reads: &Reads| reads.known_since("db", "_design/d").map(|day| Day(20_000).since(day));
    assert_eq!(known(&Reads::default()), None);
    let mut reads = see(40, How::Seen);
    assert_eq!(known(&reads), Some(40));
    reads.known.insert(("db".to_owned(), "_design/d".to_owned()), Day(20_000 - 50));
    assert_eq!(known(&reads), Some(50));
    assert_eq!(known(&see(10, How::Written)), Some(10));
}
