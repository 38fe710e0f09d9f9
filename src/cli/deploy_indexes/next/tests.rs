use super::*;
use couchdb_names::Signature;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;

const MB: u64 = 1 << 20;

const OLD: &str = r#"{"_id":"_design/changed","_rev":"1-a","views":{"v":{"map":"old"}}}"#;
const SAME: &str = r#"{"_id":"_design/same","_rev":"1-b","views":{"v":{"map":"same"}}}"#;
const OTHER: &str = r#"{"_id":"_design/other","_rev":"1-c","views":{"v":{"map":"other"}}}"#;

/// One changed, one new, one unchanged and one without views.
fn plan() -> DeploymentPlan {
    let views = |map: &str| json!({ "v": { "map": map } });
    let step = |design: &str| json!({ "design": design, "docs": null, "nodes": [] });
    let document = |id: &str, rev: Option<&str>, field: &str, value: serde_json::Value| {
        let body = json!({ "_id": id, field: value });
        json!({ "id": id, "rev": rev, "built_when_live": [], "body": body })
    };
    let text = json!({
        "version": 1,
        "db": "a",
        "instance": "1",
        "documents": [
            document("_design/changed", Some("1-a"), "views", views("changed")),
            document("_design/new", None, "views", views("new")),
            document("_design/same", Some("1-b"), "views", views("same")),
            document("_design/rules", None, "validate_doc_update", json!("function(){}")),
        ],
        "steps": [step("_design/changed"), step("_design/new")],
    });
    serde_json::from_str(&text.to_string()).unwrap()
}

fn live(text: &str) -> (String, Live) {
    let id: String = serde_json::from_str(fields(text)["_id"].get()).unwrap();
    let rev = serde_json::from_str(fields(text)["_rev"].get()).unwrap();
    (id, Live { rev, text: text.to_owned() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// The request arrives, but its answer is lost.
    Unanswered,
    /// The request is answered, but the next read reaches a copy without it.
    ReadTooEarly,
    /// The command is killed before or after the request arrives.
    KilledBefore,
    KilledAfter,
}

/// A database as CouchDB 3.5.2 keeps it: an index without a design document is deleted at once.
struct Database {
    live: BTreeMap<String, Live>,
    before_last: BTreeMap<String, Live>,
    writes: u64,
    built: BTreeSet<Signature>,
    compacted: BTreeSet<Signature>,
}

fn index(live: &Live) -> Option<Signature> {
    index_of(&live.text)
}

impl Database {
    fn new() -> Self {
        let live: BTreeMap<String, Live> = [OLD, SAME, OTHER].into_iter().map(live).collect();
        let built = live.values().filter_map(index).collect();
        let (before_last, compacted) = (live.clone(), BTreeSet::new());
        Self { live, before_last, writes: 0, built, compacted }
    }

    fn is_built(&self) -> bool {
        self.live.values().filter_map(index).all(|it| self.built.contains(&it))
    }

    /// The contents, without revisions.
    fn contents(&self) -> BTreeMap<&str, String> {
        let content = |live: &Live| with_id(fields(&live.text), "", None);
        self.live.iter().map(|(id, live)| (&**id, content(live))).collect()
    }

    /// Carries out a request if the revision matches.
    fn change(&mut self, id: &str, over: Option<&str>, body: Option<&str>) {
        if over != self.live.get(id).map(|it| &*it.rev) {
            return;
        }
        self.before_last = self.live.clone();
        self.writes += 1;
        let rev = format!("{}-x", self.writes + 1);
        match body {
            Some(body) => {
                let text = with_id(fields(body), id, Some(&rev));
                self.live.insert(id.to_owned(), Live { rev, text });
            }
            None => drop(self.live.remove(id)),
        }
        let named: BTreeSet<Signature> = self.live.values().filter_map(index).collect();
        self.built.retain(|it| named.contains(it));
        self.compacted.retain(|it| named.contains(it));
    }
}

/// The state of a process that the file does not keep.
#[derive(Default)]
struct Process {
    requested: Option<String>,
    ordered: Option<String>,
    written: Option<Action>,
    reads_too_early: bool,
}

struct Run {
    plan: DeploymentPlan,
    db: Database,
    stored: Option<Memory>,
    fates: Vec<Fate>,
}

impl Run {
    fn new(fates: Vec<Fate>) -> Self {
        Self { plan: plan(), db: Database::new(), stored: None, fates }
    }

    fn read(&self, memory: &Memory, process: &mut Process) -> Facts {
        let early = std::mem::take(&mut process.reads_too_early);
        let live = if early { &self.db.before_last } else { &self.db.live };
        let mut facts = Facts { instance: "1".to_owned(), live: live.clone(), ..Facts::default() };
        let staging = present_step(&self.plan, memory, &facts).map(PlannedStep::staging);
        let Some((id, index)) = staging.and_then(|id| {
            let index = index(facts.live.get(&id)?)?;
            Some((id, index))
        }) else {
            return facts;
        };
        let is_compacted = self.db.compacted.contains(&index);
        facts.index = IndexState {
            seq: 1_000,
            pending: if self.db.built.contains(&index) { 0 } else { 900 },
            indexers: usize::from(process.requested.as_ref() == Some(&id)),
            is_settled: process.requested.as_ref() == Some(&id),
            is_ordered: process.ordered.as_ref() == Some(&id),
            parts: vec![(if is_compacted { 10 * MB } else { 100 * MB }, 10 * MB)],
            outcome: (is_compacted && memory.ordered.contains_key(&id)).then_some(Ok(())),
            ..IndexState::default()
        };
        facts
    }

    /// Checks what must hold for every request.
    fn check(&self, memory: &Memory, action: &Action, wanted: Wanted) {
        match action {
            Action::Put { id, .. } if id.ends_with("-next") => {
                assert!(!wanted.back_out);
                assert!(self.db.is_built(), "one build at a time: {action:?}");
            }
            Action::Put { id, body } => {
                assert!(wanted.swap || wanted.back_out, "nothing goes live unasked: {action:?}");
                assert!(self.plan.document(id).is_some(), "{action:?}");
                let index = index_of(body);
                let is_built = index.is_none_or(|it| self.db.built.contains(&it));
                assert!(is_built || wanted.back_out, "what goes live is built: {action:?}");
            }
            Action::Delete { id, .. } => {
                let is_new = matches!(memory.before.get(id), Some(None));
                assert!(id.ends_with("-next") || (wanted.back_out && is_new), "{action:?}");
            }
            Action::Build { .. } | Action::Compact { .. } | Action::Compacted { .. } => {}
        }
    }

    /// Runs the command to its end, restarting it after each kill, or until it has sent `requests` requests.
    fn run(&mut self, wanted: Wanted, mut requests: usize) -> Option<Next> {
        let mut process = Process::default();
        let mut memory = self.stored.clone().unwrap_or_default();
        for _ in 0..1_000 {
            let facts = self.read(&memory, &mut process);
            if process.written.as_ref().is_some_and(|written| !is_visible(written, &facts)) {
                continue;
            }
            remember_before(&self.plan, &mut memory, &facts);
            let next = next(&self.plan, &memory, &facts, wanted);
            let action = match next {
                Next::Ready | Next::Done | Next::Stop(_) => return Some(next),
                Next::Wait(_) => {
                    let id = process.requested.as_ref().and_then(|id| self.db.live.get(id));
                    self.db.built.extend(id.and_then(index));
                    continue;
                }
                Next::Act(action) => action,
            };
            self.check(&memory, &action, wanted);
            requests = requests.checked_sub(1)?;
            let fate = self.fates.pop().unwrap_or(Fate::Answered);
            match &action {
                Action::Put { id, .. } => memory.begin(id),
                Action::Compact { id } => drop(memory.ordered.insert(id.clone(), String::new())),
                Action::Compacted { id } => drop(memory.compacted.insert(id.clone(), None)),
                Action::Delete { .. } | Action::Build { .. } => {}
            }
            if !matches!(action, Action::Build { .. }) {
                self.stored = Some(memory.clone());
            }
            if fate != Fate::KilledBefore {
                self.send(&action, &mut process);
            }
            match fate {
                Fate::KilledBefore | Fate::KilledAfter => {
                    process = Process::default();
                    memory = self.stored.clone().unwrap_or_default();
                }
                Fate::Unanswered => process.written = None,
                Fate::Answered | Fate::ReadTooEarly => {
                    if matches!(action, Action::Put { .. } | Action::Delete { .. }) {
                        process.written = Some(action);
                    }
                    process.reads_too_early =
                        fate == Fate::ReadTooEarly && process.written.is_some();
                }
            }
        }
        panic!("it never ends");
    }

    fn send(&mut self, action: &Action, process: &mut Process) {
        match action {
            Action::Put { id, body } => {
                let rev = fields(body).remove("_rev").map(|it| it.get().replace('"', ""));
                self.db.change(id, rev.as_deref(), Some(body));
            }
            Action::Delete { id, rev } => self.db.change(id, Some(rev), None),
            Action::Build { id } => process.requested = Some(id.clone()),
            Action::Compact { id } => {
                process.ordered = Some(id.clone());
                self.db.compacted.extend(self.db.live.get(id).and_then(index));
            }
            Action::Compacted { .. } => {}
        }
    }
}

const READY: Wanted = Wanted { swap: false, back_out: false, may_not_fit: false };
const SWAP: Wanted = Wanted { swap: true, ..READY };
const BACK: Wanted = Wanted { back_out: true, ..READY };

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        2 => Just(Fate::Answered),
        1 => Just(Fate::Unanswered),
        1 => Just(Fate::ReadTooEarly),
        1 => Just(Fate::KilledBefore),
        1 => Just(Fate::KilledAfter),
    ];
    prop::collection::vec(fate, 0..60)
}

fn assert_deployed(run: &Run) {
    let mut expected = Database::new().live;
    for document in &run.plan.documents {
        let text = document.body.get().to_owned();
        expected.insert(document.id.clone(), Live { rev: String::new(), text });
    }
    let expected = Database { live: expected, ..Database::new() };
    assert_eq!(run.db.contents(), expected.contents());
    assert!(run.db.is_built());
}

proptest! {
    #[test]
    fn deployment_reaches_the_same_state_wherever_it_is_killed(first in fates(), second in fates()) {
        let mut run = Run::new(first);
        prop_assert_eq!(run.run(READY, usize::MAX), Some(Next::Ready));
        prop_assert!(run.db.is_built());
        let staging: Vec<&String> =
            run.db.live.keys().filter(|id| id.ends_with("-next")).collect();
        prop_assert_eq!(staging, ["_design/changed-next", "_design/new-next"]);
        prop_assert_eq!(run.db.compacted.len(), 2);
        run.fates = second;
        prop_assert_eq!(run.run(SWAP, usize::MAX), Some(Next::Done));
        assert_deployed(&run);
    }

    #[test]
    fn backing_out_at_any_point_restores_the_database(
        (first, second) in (fates(), fates()),
        wanted in prop_oneof![Just(READY), Just(SWAP)],
        requests in 1..40_usize,
        back in 0..20_usize,
    ) {
        let mut run = Run::new(first);
        run.run(wanted, requests);
        run.fates = second;
        // Somebody changes their mind once during the back-out.
        if run.run(BACK, back).is_none() && matches!(run.run(wanted, requests), Some(Next::Stop(_))) {
            // A restored document has another revision than the rehearsal saw.
            prop_assert!(back > 0);
        }
        prop_assert_eq!(run.run(BACK, usize::MAX), Some(Next::Done));
        let before = Database::new();
        prop_assert_eq!(run.db.contents(), before.contents());
    }
}

/// The next step after changing the facts like this.
fn next_with(change: impl FnOnce(&mut Facts), wanted: Wanted) -> Next {
    let live = [OLD, SAME, OTHER].into_iter().map(live).collect();
    let mut facts = Facts { instance: "1".to_owned(), live, ..Facts::default() };
    let memory = Memory::of(&plan());
    change(&mut facts);
    next(&plan(), &memory, &facts, wanted)
}

#[test]
fn stops_if_the_database_changed_since_the_rehearsal() {
    let put = |facts: &mut Facts, text: &str| facts.live.extend([live(text)]);
    let recreated = |facts: &mut Facts| facts.instance = "2".to_owned();
    let changed = |facts: &mut Facts| put(facts, &OLD.replace("1-a", "2-a"));
    let created =
        |facts: &mut Facts| put(facts, r#"{"_id":"_design/rules","_rev":"1-z","language":"x"}"#);
    let taken = |facts: &mut Facts| put(facts, &OLD.replace("changed", "new-next"));
    for wanted in [READY, SWAP] {
        for (change, says) in [
            (&recreated as &dyn Fn(&mut Facts), "is not the database of the rehearsal"),
            (&changed, "_design/changed was changed since the rehearsal"),
            (&created, "_design/rules was changed since the rehearsal"),
            (&taken, "_design/new-next exists with other content"),
        ] {
            let next = next_with(change, wanted);
            assert!(matches!(&next, Next::Stop(why) if why.contains(says)), "{next:?}");
        }
    }
}

#[test]
fn reordering_views_makes_a_different_index() {
    let one = r#"{"_id":"_design/x","views":{"a":{"map":"m"},"b":{"map":"m"}}}"#;
    let other = r#"{"_id":"_design/x","views":{"b":{"map":"m"},"a":{"map":"m"}}}"#;
    assert!(is_same(one, one));
    assert_ne!(index_of(one), index_of(other));
    assert!(!is_same(one, other));
}

#[test]
fn versions_added_by_couchdb_do_not_change_a_document() {
    let given = r#"{"_id":"_design/x","nouveau":{"a":{"index":"f"},"b":{"index":"f"}},"views":{"v":{"map":"m"}}}"#;
    let saved = given.replace(r#""index":"f""#, r#""index":"f","lucene_version":10"#);
    assert!(is_same(given, &saved) && is_same(&saved, given));
    assert!(!is_same(&saved, &saved.replacen("10", "9", 1)));
    assert!(!is_same(given, &saved.replacen("\"f\"", "\"g\"", 1)));
    assert!(!is_same(given, &saved.replace(r#""b""#, r#""c""#)));
    assert!(!is_same(given, r#"{"_id":"_design/x","views":{"v":{"map":"m"}}}"#));
}

#[test]
fn staging_document_has_only_fields_that_define_the_index() {
    let body = r#"{"_id":"_design/x","validate_doc_update":"v","filters":{"f":"f"},"views":{"v":{"map":"m"}},"language":"javascript"}"#;
    let text = format!(
        r#"{{"version":1,"db":"a","instance":"1","documents":[{{"id":"_design/x","rev":null,"built_when_live":[],"body":{body}}}],"steps":[{{"design":"_design/x","docs":null,"nodes":[]}}]}}"#
    );
    let plan: DeploymentPlan = serde_json::from_str(&text).unwrap();
    let staging = plan.staging(&plan.steps[0]).unwrap();
    assert_eq!(fields(&staging).into_keys().collect::<Vec<_>>(), ["_id", "language", "views"]);
    assert_eq!(index_of(&staging), index_of(body));
}

/// The reason given for a step that needs 10 to 20 bytes on each of two nodes.
fn room(volumes: [Option<(&str, u64)>; 2], docs: u64, wanted: Wanted) -> Option<String> {
    let node = |name: &str, volume: Option<(&str, u64)>| PreflightNode {
        node: name.to_owned(),
        copies: 1,
        live_bytes: Some(SpreadLine { low: 4, likely: 5, high: 6 }),
        peak_bytes: Some(SpreadLine { low: 10, likely: 15, high: 20 }),
        old_bytes: None,
        volume: volume.map(|(name, _)| name.to_owned()),
        free_bytes: volume.map(|(_, free)| free),
        reserved_bytes: 0,
        verdict: "fits".into(),
        missing_bytes: None,
    };
    let nodes = vec![node("n1", volumes[0]), node("n2", volumes[1])];
    let step =
        PlannedStep { design: "_design/x".to_owned(), docs: Some(100), nodes: nodes.clone() };
    let facts = Facts { room: nodes, docs: Some(docs), ..Facts::default() };
    let uncompacted = Facts { stays_uncompacted: true, ..facts.clone() };
    let shared = Facts { is_shared: true, ..facts.clone() };
    assert_eq!(lacks_room(&step, &shared, wanted), None);
    let says = lacks_room(&step, &facts, wanted);
    assert!(says.is_some() || lacks_room(&step, &uncompacted, wanted).is_none());
    says
}

#[test]
fn uncompacted_index_needs_no_space_for_a_compaction() {
    let need = |stays_uncompacted| {
        let node = PreflightNode {
            node: "n1".to_owned(),
            copies: 1,
            live_bytes: Some(SpreadLine { low: 4, likely: 5, high: 6 }),
            peak_bytes: Some(SpreadLine { low: 10, likely: 15, high: 20 }),
            old_bytes: None,
            volume: None,
            free_bytes: None,
            reserved_bytes: 0,
            verdict: "unknown".into(),
            missing_bytes: None,
        };
        peak(&node, &Facts { stays_uncompacted, ..Facts::default() })
    };
    assert_eq!(need(false), Some(SpreadLine { low: 10, likely: 15, high: 20 }));
    assert_eq!(need(true), Some(SpreadLine { low: 6, likely: 10, high: 14 }));
}

#[test]
fn builds_only_if_the_free_space_suffices() {
    let all_the_same = Wanted { may_not_fit: true, ..READY };
    let (own, shared) = (
        |free| [Some(("v1", free)), Some(("v2", free))],
        |free| [Some(("v", free)), Some(("v", free))],
    );
    for (volumes, docs, wanted, says) in [
        (own(20), 100, READY, None),
        (own(19), 100, READY, Some("may not fit")),
        (own(19), 100, all_the_same, None),
        (own(9), 100, all_the_same, Some("does not fit")),
        (shared(39), 100, READY, Some("may not fit")),
        (shared(19), 100, all_the_same, Some("does not fit")),
        (own(20), 200, READY, Some("may not fit")),
        ([Some(("v1", 20)), None], 100, READY, Some("It is unknown whether _design/x fits on n2")),
        ([Some(("v1", 20)), None], 100, all_the_same, None),
    ] {
        let said = room(volumes, docs, wanted);
        let is_right = says.map_or_else(
            || said.is_none(),
            |says| said.as_ref().is_some_and(|said| said.contains(says)),
        );
        assert!(is_right, "{volumes:?} {docs}: {said:?}");
    }
}

#[test]
fn asks_the_service_only_before_actions_that_may_build() {
    let live = [OLD, SAME].into_iter().map(live).collect();
    let facts = Facts { live, ..Facts::default() };
    let put = |body: &str| Action::Put { id: "_design/x".to_owned(), body: body.to_owned() };
    let views = r#"{"_id":"_design/x","views":{"v":{"map":"unknown"}}}"#;
    let without = r#"{"_id":"_design/x","filters":{}}"#;
    for (action, wanted, asks) in [
        (put(views), READY, true),
        (put(without), SWAP, true),
        (put(views), BACK, true),
        (put(SAME), BACK, false),
        (put(without), BACK, false),
        (Action::Build { id: String::new() }, READY, true),
        (Action::Delete { id: String::new(), rev: String::new() }, SWAP, false),
        (Action::Compact { id: String::new() }, READY, false),
    ] {
        assert_eq!(may_build(&action, &facts, wanted), asks, "{action:?} {wanted:?}");
    }
}

#[test]
fn stalled_build_without_an_indexer_is_requested_again() {
    let step = |is_to_ask_again, indexers| {
        let text = plan().staging(&plan().steps[0]).unwrap();
        let staging = live(&with_id(fields(&text), "_design/changed-next", Some("1-s")));
        let index = IndexState {
            seq: 60_000,
            pending: 15_000,
            is_settled: true,
            is_to_ask_again,
            indexers,
            ..IndexState::default()
        };
        let change = |facts: &mut Facts| {
            facts.live.extend([staging]);
            facts.index = index;
        };
        next_with(change, READY)
    };
    let id = "_design/changed-next".to_owned();
    assert_eq!(step(true, 0), Action::Build { id }.into());
    assert!(matches!(step(true, 1), Next::Wait(_)));
    assert!(matches!(step(false, 0), Next::Wait(why) if why.contains("no indexer runs")));
}

#[test]
fn failed_compaction_stops_its_run_and_the_next_run_retries_it() {
    let step = |is_ordered, outcome| {
        let text = plan().staging(&plan().steps[0]).unwrap();
        let staging = live(&with_id(fields(&text), "_design/changed-next", Some("1-s")));
        let index = IndexState {
            is_settled: true,
            is_ordered,
            parts: vec![(100 * MB, 10 * MB)],
            outcome,
            ..IndexState::default()
        };
        let change = |facts: &mut Facts| {
            facts.live.extend([staging]);
            facts.index = index;
        };
        next_with(change, READY)
    };
    let failed = || Some(Err("no space".to_owned()));
    let id = "_design/changed-next".to_owned();
    assert!(matches!(step(true, failed()), Next::Stop(why) if why.contains("no space")));
    assert_eq!(step(false, failed()), Action::Compact { id: id.clone() }.into());
    assert_eq!(step(false, None), Action::Compact { id: id.clone() }.into());
    assert!(matches!(step(true, None), Next::Wait(_)));
    assert_eq!(step(true, Some(Ok(()))), Action::Compacted { id }.into());
}
