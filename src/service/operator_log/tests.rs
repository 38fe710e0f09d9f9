use super::*;
use crate::table::Draft;
use wall_clock::Moment;

const A: &str = "http://a:5984";
const B: &str = "http://b:5984";

/// The observed state, which a test changes.
struct Fixture {
    log: OperatorLog,
    seconds: u64,
    entries: Vec<EntryStatus>,
    login_refused: bool,
    status: ScanStatus,
    nodes: Vec<(&'static str, Option<bool>)>,
}

impl Fixture {
    fn new(urls: &[&str]) -> Self {
        let entry = |url: &&str| EntryStatus { url: url.parse().unwrap(), up: None, why: None };
        Self {
            log: OperatorLog::default(),
            seconds: 0,
            entries: urls.iter().map(entry).collect(),
            login_refused: false,
            status: ScanStatus::default(),
            nodes: Vec::new(),
        }
    }

    fn up(&mut self, url: &str, up: bool) {
        let entry = self.entries.iter_mut().find(|entry| entry.url.as_str() == url).unwrap();
        entry.up = Some(up);
        entry.why = (!up).then(|| format!("{url} refused"));
    }

    /// Checks once a second for the given time; returns the lines with the second of each.
    fn pass(&mut self, seconds: u64) -> Vec<(u64, OperatorLogLine)> {
        let mut draft = Draft::new(1);
        for (name, up) in &self.nodes {
            let ix = draft.get_or_add_node(name);
            draft.update_node(ix, |node| {
                (node.is_member, node.is_served, node.is_up) = (true, true, *up);
            });
        }
        let snapshot = draft.publish(Moment::from_unix(7));
        let mut lines = Vec::new();
        for _ in 0..seconds {
            let observed = ObservedState {
                now: Duration::from_secs(self.seconds),
                entries: &self.entries,
                login_refused: self.login_refused,
                status: &self.status,
                snapshot: &snapshot,
            };
            lines.extend(self.log.check(&observed).into_iter().map(|line| (self.seconds, line)));
            self.seconds += 1;
        }
        lines
    }
}

fn couchdb(urls: &str, why: &str, notice: OutageNotice, before: bool) -> OperatorLogLine {
    OperatorLogLine::CouchDbOutage { urls: urls.to_owned(), why: why.to_owned(), notice, before }
}

const fn lasts(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn logs_couchdb_down_at_start_and_its_first_answer() {
    let mut fixture = Fixture::new(&[A, B]);
    fixture.up(A, false);
    let why = "http://a:5984 refused";
    let urls = "http://a:5984 http://b:5984";
    assert_eq!(fixture.pass(60), [(3, couchdb(urls, why, OutageNotice::Down, false))]);
    fixture.up(B, false);
    let still = OutageNotice::StillDown(lasts(63));
    assert_eq!(fixture.pass(60), [(63, couchdb(urls, why, still, false))]);
    fixture.up(A, true);
    assert_eq!(
        fixture.pass(5),
        [(120, couchdb(urls, "http://b:5984 refused", OutageNotice::Up(lasts(120)), false))]
    );
    // No request was sent, and no answer arrives.
    let mut fixture = Fixture::new(&[A]);
    let none = "no answer so far";
    assert_eq!(fixture.pass(30), [(3, couchdb(A, none, OutageNotice::Down, false))]);
}

#[test]
fn logs_first_sweep_once_and_nothing_while_cluster_answers() {
    let mut fixture = Fixture::new(&[A]);
    fixture.up(A, true);
    assert_eq!(fixture.pass(20), []);
    fixture.nodes = vec![("couchdb@a", Some(true)), ("couchdb@b", Some(false))];
    fixture.status.ready = true;
    fixture.status.last_duration = Some(Duration::from_millis(2_100));
    fixture.status.errors = [(("couchdb@b".into(), "connect"), 2)].into();
    let first = OperatorLogLine::FirstSweep {
        nodes: 1,
        nodes_down: 1,
        targets: 0,
        failed_reads: 2,
        took: Duration::from_millis(2_100),
    };
    let node = |notice| OperatorLogLine::NodeOutage { node: "couchdb@b".to_owned(), notice };
    assert_eq!(fixture.pass(40), [(20, first), (30, node(OutageNotice::Down))]);
    fixture.nodes[1].1 = Some(true);
    assert_eq!(fixture.pass(40_000), [(60, node(OutageNotice::Up(lasts(40))))]);
}

#[test]
fn one_cause_gives_one_log_line() {
    let mut fixture = Fixture::new(&[A, B]);
    fixture.up(A, true);
    fixture.up(B, true);
    fixture.nodes = vec![("couchdb@a", Some(true)), ("couchdb@b", Some(true))];
    assert_eq!(fixture.pass(10), []);
    // Everything fails; what sweeps find later adds no lines.
    fixture.up(A, false);
    fixture.up(B, false);
    let urls = "http://a:5984 http://b:5984";
    let line = |notice| couchdb(urls, "http://a:5984 refused", notice, true);
    assert_eq!(fixture.pass(10), [(13, line(OutageNotice::Down))]);
    fixture.status.problem = Some("nobody answers".to_owned());
    fixture.nodes = vec![("couchdb@a", Some(false)), ("couchdb@b", Some(false))];
    assert_eq!(fixture.pass(50), []);
    // Everything answers again; the next sweep still has to find the nodes up.
    fixture.up(A, true);
    fixture.up(B, true);
    assert_eq!(
        fixture.pass(3),
        [(70, couchdb(urls, "no answer so far", OutageNotice::Up(lasts(60)), true))]
    );
    fixture.status.problem = None;
    assert_eq!(fixture.pass(3), []);
    fixture.nodes = vec![("couchdb@a", Some(true)), ("couchdb@b", Some(true))];
    assert_eq!(fixture.pass(100), []);
    // One of the two URLs fails.
    fixture.up(B, false);
    let url = |notice, why: &str| OperatorLogLine::UrlOutage {
        url: B.to_owned(),
        why: why.to_owned(),
        notice,
    };
    let why = "http://b:5984 refused";
    assert_eq!(fixture.pass(30), [(186, url(OutageNotice::Down, why))]);
    fixture.up(B, true);
    assert_eq!(fixture.pass(30), [(206, url(OutageNotice::Up(lasts(30)), ""))]);
}

#[test]
fn logs_unreadable_cluster_but_not_refused_login() {
    let mut fixture = Fixture::new(&[A]);
    fixture.up(A, true);
    fixture.status.problem = Some("this is no CouchDB".to_owned());
    fixture.status.missing_rights.insert("a right".to_owned());
    let reading = |notice, why: &str| OperatorLogLine::ReadOutage { why: why.to_owned(), notice };
    assert_eq!(
        fixture.pass(30),
        [
            (0, OperatorLogLine::MissingRight("a right".to_owned())),
            (3, reading(OutageNotice::Down, "this is no CouchDB"))
        ]
    );
    fixture.status.problem = None;
    assert_eq!(fixture.pass(30), [(30, reading(OutageNotice::Up(lasts(30)), ""))]);
    fixture.status.problem = Some("nothing was sent".to_owned());
    fixture.login_refused = true;
    assert_eq!(fixture.pass(300), []);
    // The login failed before anything was sent: the password cannot be read.
    let mut fixture = Fixture::new(&[A]);
    fixture.login_refused = true;
    assert_eq!(fixture.pass(300), []);
}

#[test]
fn a_reload_with_other_urls_is_not_an_outage() {
    let mut fixture = Fixture::new(&[A]);
    fixture.up(A, true);
    assert_eq!(fixture.pass(10), []);
    fixture.entries = Fixture::new(&[B]).entries;
    assert_eq!(fixture.pass(60), []);
    fixture.up(B, false);
    assert_eq!(
        fixture.pass(10),
        [(73, couchdb(B, "http://b:5984 refused", OutageNotice::Down, true))]
    );
    fixture.up(B, true);
    assert_eq!(fixture.pass(10).len(), 1);
    // If only files are read, there is no URL and no line.
    assert_eq!(Fixture::new(&[]).pass(100), []);
}
