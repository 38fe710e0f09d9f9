//! Without a pause between starts: a start counts as used once it was sent, whatever its target and
//! whatever CouchDB answers.

use super::*;
use proptest::prelude::*;
use tokio::runtime::Builder;

/// How CouchDB answers requests that start work.
#[derive(Clone, Debug)]
enum Answers {
    Well,
    /// The first requests, this many, get half a body: nobody knows whether they arrived.
    HalfABody(u64),
    /// The first cleanups, this many, are refused. In the simulator a refused compaction runs
    /// nevertheless.
    RefusesCleanups(u64),
    Late(Duration),
}

/// What needs a start, and how CouchDB answers.
#[derive(Clone, Debug)]
struct Case {
    db: bool,
    /// The number of ranges of the database whose view needs a compaction; `None`: no view.
    view: Option<u32>,
    cleanup: bool,
    lagging: bool,
    answers: Answers,
    poll: u64,
    sweep: u64,
}

prop_compose! {
    fn any_case()(
        (db, cleanup, lagging) in any::<(bool, bool, bool)>(),
        view in prop_oneof![Just(None), Just(Some(1)), Just(Some(2))],
        answers in prop_oneof![
            Just(Answers::Well),
            (1..3_u64).prop_map(Answers::HalfABody),
            (1..3_u64).prop_map(Answers::RefusesCleanups),
            (1..20_000_u64).prop_map(|it| Answers::Late(Duration::from_millis(it))),
        ],
        poll in 1..12_u64,
        sweep in prop_oneof![Just(30_u64), Just(240)],
    ) -> Case {
        // The evidence for a cleanup takes a sweep in every case.
        Case { db, view, cleanup: cleanup || !db, lagging, answers, poll, sweep }
    }
}

impl Case {
    fn world(&self) -> Config {
        let mut world = nodes();
        if self.db {
            world = world.with(Database { q: 1, n: 2, docs: 8_000, ..bloated("orders") });
        }
        let design = |name: &str| Design { bytes_per_doc: 1_000, ..Design::new(name) };
        if let Some(q) = self.view {
            let designs = vec![Design { bloat: 8.0, ..design("by_date") }];
            let lean = Database { q, n: 2, bloat: 1.0, ..bloated("users") };
            world = world.with(Database { docs: 8_000, designs, ..lean });
        }
        if self.cleanup {
            let lean = Database { q: 1, n: 2, docs: 1_000, ..lean("mail") };
            world = world.with(Database { designs: vec![design("v")], ..lean });
        }
        if self.lagging {
            let behind = Design { built: 0.2, ..design("late") };
            let lean = Database { q: 1, n: 1, docs: 8_000, ..lean("logs") };
            world = world.with(Database { designs: vec![behind], ..lean });
        }
        slow(world)
    }

    fn yaml(&self) -> String {
        let Self { poll, sweep, .. } = self;
        format!(
            "poll: {poll}s\nscan: {{interval: {sweep}s}}\nlimits: {{wait: 0s, duty: 100%}}\n\
             views: {{enforce: all}}\nwarmer: {{enabled: true, delay: 0s}}\n\
             failure: {{cool_down: 2m}}\n"
        )
    }

    fn rig(&self) -> Rig {
        let rig = Rig::in_mode(Mode::Enforce, START, self.world(), &self.yaml());
        let post = |effect| Fault {
            method: Some(http::Method::POST),
            ..Fault::everywhere(effect).at("/_compact")
        };
        let cleanup = |effect| Fault { path: "/_view_cleanup".into(), ..post(effect) };
        let (effect, times) = match self.answers {
            Answers::Well => return rig,
            Answers::HalfABody(times) => (Effect::HalfBody, Some(times)),
            Answers::RefusesCleanups(times) => (Effect::Status(500), Some(times)),
            Answers::Late(by) => (Effect::Delay(by), None),
        };
        rig.cluster.faults().plan(Fault { times, ..cleanup(effect.clone()) });
        if !matches!(self.answers, Answers::RefusesCleanups(_)) {
            rig.cluster.faults().plan(Fault { times, ..post(effect) });
        }
        rig
    }

    /// The maximum number of requests to a path: one, and for a cleanup, whose progress CouchDB
    /// does not show, one more after each request without a known effect.
    fn most(&self, path: &str) -> usize {
        match self.answers {
            Answers::HalfABody(_) if path.contains("/_compact") => 1,
            Answers::Well | Answers::Late(_) => 1,
            Answers::HalfABody(times) | Answers::RefusesCleanups(times) => {
                1 + usize::try_from(times).expect("it is small")
            }
        }
    }

    async fn check(&self) -> Result<(), TestCaseError> {
        let mut rig = self.rig();
        // One sweep sees the design document, the next one sees it changed.
        rig.wait(40).await;
        let other = Design { views: vec!["other".to_owned()], ..Design::new("v") };
        rig.cluster.world(|world| world.put_design("mail", other));
        rig.wait(900).await;
        let mut posts = rig.posts();
        // Index builds are requested by GET.
        posts.retain(|path, _| !path.contains("update=lazy"));
        for (path, count) in &posts {
            prop_assert!(*count <= self.most(path), "{count} times {path}");
        }
        let sent = |part: &str| posts.keys().any(|path| path.contains(part));
        prop_assert_eq!(sent("orders"), self.db);
        prop_assert_eq!(sent("users"), self.view.is_some());
        prop_assert_eq!(sent("/mail/_view_cleanup"), self.cleanup);
        let builds = rig.asked("/logs/_design/late/_view").len();
        prop_assert_eq!(builds, usize::from(self.lagging));
        let kept = rig.store.kept();
        prop_assert_eq!(kept.intents.len(), 0, "every start has its outcome");
        let ours = kept.recent_outcomes.iter().filter(|it| it.owner == JobOwner::Recliner).count();
        prop_assert_eq!(ours, posts.values().sum::<usize>(), "one outcome for each request");
        Ok(())
    }
}

proptest! {
    #![proptest_config(crate::cases::one_case_in(32))]

    #[test]
    fn without_a_pause_each_start_is_sent_once_until_its_outcome_is_known(case in any_case()) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("it starts").block_on(case.check())?;
    }
}
