//! The phases of a sweep: what each event does in each phase, and what is read.

use super::*;
use crate::scan::sweep::SweepPhase;

/// A scanner whose readings end only when a test ends them.
struct Scene {
    scanner: Scanner,
    cluster: Cluster,
    now: Now,
    effects: Vec<String>,
}

impl Scene {
    fn new() -> Self {
        let now = Now { wall: START, at: Instant::now() };
        let scanner = Scanner::new(Arc::new(ScanSettings::example()), now);
        let mut scene = Self { scanner, cluster: Cluster::default(), now, effects: vec![] };
        scene.handle(Event::Started);
        scene.wake();
        scene
    }

    fn handle(&mut self, event: Event) {
        self.effects = self.scanner.handle(event, self.now).iter().map(shown_effect).collect();
        self.check();
    }

    /// Checks that the running reads match the state.
    fn check(&self) {
        let (state, reads) = (self.state(), |slot| self.scanner.readings.contains_key(&slot));
        let reads_nodes = self.scanner.sweep.reads_nodes();
        assert_eq!(reads(Slot::Sweep), reads_nodes, "{state:?}");
        assert!(state != SweepPhase::LateNodes || reads(Slot::Late));
        assert!(state != SweepPhase::Views || reads(Slot::ClusterViews));
        assert!(state != SweepPhase::Splits || reads(Slot::Splits));
        assert_eq!(state == SweepPhase::Idle, self.scanner.status.progress.is_none());
    }

    fn state(&self) -> SweepPhase {
        self.scanner.sweep.state()
    }

    /// Wakes the scanner until nothing is due.
    fn wake(&mut self) {
        while self.scanner.next_wake().is_some_and(|at| at <= self.now.at) {
            self.handle(Event::Wake);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now.at += time;
        self.now.wall = self.now.wall.plus(time);
        self.wake();
    }

    /// Ends a read with all answers of the cluster; does nothing if the slot reads nothing.
    fn end(&mut self, slot: Slot) {
        let Some(Reading { stage, .. }) = self.scanner.readings.get(&slot) else { return };
        let mut batch = self.cluster.answers(stage.clone());
        batch.push(Observation::StageEnded);
        self.handle(Event::Observed(slot, batch));
    }

    /// A scene brought to a state by ending the stages before it.
    fn at(state: SweepPhase) -> Self {
        Self::new().to(state)
    }

    fn to(mut self, state: SweepPhase) -> Self {
        for _ in 0..9 {
            match self.state() {
                found if found == state => return self,
                SweepPhase::Views => self.end(Slot::ClusterViews),
                SweepPhase::Splits => self.end(Slot::Splits),
                SweepPhase::Idle
                | SweepPhase::Nodes
                | SweepPhase::Map
                | SweepPhase::Files
                | SweepPhase::Strays
                | SweepPhase::Disk
                | SweepPhase::Shards
                | SweepPhase::LateNodes => self.end(Slot::Sweep),
            }
        }
        panic!("reached {:?} instead of {state:?}", self.state());
    }

    /// A scene that continues without the second node, which has not answered.
    fn late() -> Self {
        let mut scene = Self::new();
        scene.only_first_node_answers();
        scene.pass(Duration::from_secs(3));
        scene
    }

    fn only_first_node_answers(&mut self) {
        let mut answers = self.cluster.answers(Stage::Nodes);
        answers.truncate(2);
        self.handle(Event::Observed(Slot::Sweep, answers));
    }

    /// A scene in which the second node is down.
    fn down(state: SweepPhase) -> Self {
        let mut scene = Self::new();
        scene.cluster.down[1] = true;
        scene.to(state)
    }
}

fn shown_effect(effect: &Effect) -> String {
    match effect {
        Effect::Start(slot, stage) => format!("start {slot:?}: {}", stage.label()),
        Effect::Stop(slot) => format!("stop {slot:?}"),
        Effect::Rename { from, to } => format!("rename {from:?} {to:?}"),
        Effect::Publish(..) => "publish".to_owned(),
        Effect::PublishRunning(_) => "publish running".to_owned(),
        Effect::Emit(_) => "emit".to_owned(),
        Effect::WarnDamaged(_) => "warn".to_owned(),
    }
}

#[test]
fn each_event_leads_from_each_phase_to_the_expected_one() {
    use SweepPhase::{Disk, Files, Idle, LateNodes, Map, Nodes, Shards, Splits, Strays, Views};
    type Apply = (&'static str, fn(&mut Scene));
    type Row<'a> = (&'static str, &'a dyn Fn() -> Scene, [SweepPhase; 7]);
    let events: [Apply; 7] = [
        ("its stage ends", |it| it.end(Slot::Sweep)),
        ("the late nodes answer", |it| it.end(Slot::Late)),
        ("the views are read", |it| it.end(Slot::ClusterViews)),
        ("the splits are read", |it| it.end(Slot::Splits)),
        ("late nodes are no longer waited for", |it| it.pass(Duration::from_secs(3))),
        ("a sweep is commanded", |it| {
            it.handle(Event::Command(ScanCommand::Sweep));
            it.pass(Duration::from_secs(1));
        }),
        ("the interval is over", |it| it.pass(Duration::from_secs(300))),
    ];
    let one_answered = || {
        let mut scene = Scene::new();
        scene.only_first_node_answers();
        scene
    };
    let splits_known = |state| {
        let mut scene = Scene::at(Nodes);
        scene.end(Slot::Splits);
        scene.to(state)
    };
    let rows: [Row<'_>; 18] = [
        ("idle", &|| Scene::at(Idle), [Idle, Idle, Idle, Idle, Idle, Nodes, Nodes]),
        ("nodes", &|| Scene::at(Nodes), [Map, Nodes, Nodes, Nodes, Nodes, Nodes, Nodes]),
        ("nodes, one answered", &one_answered, [Map, Nodes, Nodes, Nodes, Map, Nodes, Map]),
        ("map", &|| Scene::at(Map), [Files, Map, Map, Map, Map, Map, Map]),
        ("files", &|| Scene::at(Files), [Strays, Files, Files, Files, Files, Files, Files]),
        ("strays", &|| Scene::at(Strays), [Disk, Strays, Strays, Strays, Strays, Strays, Strays]),
        ("disk", &|| Scene::at(Disk), [Shards, Disk, Disk, Disk, Disk, Disk, Disk]),
        ("shards", &|| Scene::at(Shards), [Views, Shards, Shards, Shards, Shards, Shards, Shards]),
        ("views", &|| Scene::at(Views), [Views, Views, Splits, Views, Views, Views, Views]),
        (
            "views, splits known",
            &|| splits_known(Views),
            [Views, Views, Idle, Views, Views, Views, Views],
        ),
        ("splits", &|| Scene::at(Splits), [Splits, Splits, Splits, Idle, Splits, Splits, Splits]),
        ("map, late", &Scene::late, [Files, Map, Map, Map, Map, Map, Map]),
        (
            "shards, late",
            &|| Scene::late().to(Shards),
            [LateNodes, Shards, Shards, Shards, Shards, Shards, Shards],
        ),
        (
            "late nodes",
            &|| Scene::late().to(LateNodes),
            [LateNodes, Files, LateNodes, LateNodes, LateNodes, Nodes, Nodes],
        ),
        // A delay of one sweep's end does not delay the next sweep.
        (
            "views, a node down",
            &|| Scene::down(Views),
            [Views, Views, Idle, Views, Views, Nodes, Nodes],
        ),
        (
            "a sweep while the previous one's views are read",
            &|| {
                let mut scene = Scene::down(Views);
                scene.pass(Duration::from_secs(300));
                scene
            },
            [Map, Nodes, Nodes, Nodes, Nodes, Nodes, Nodes],
        ),
        (
            "its nodes were read, the previous one's views are being read",
            &|| {
                let mut scene = Scene::down(Views);
                scene.pass(Duration::from_secs(300));
                scene.to(Views)
            },
            [Views, Views, Views, Views, Views, Nodes, Nodes],
        ),
        (
            "a sweep while the previous one awaits a node",
            &|| {
                let mut scene = Scene::late().to(LateNodes);
                scene.pass(Duration::from_secs(300));
                scene
            },
            [Map, Nodes, Nodes, Nodes, Nodes, Nodes, Nodes],
        ),
    ];
    for (name, scene, expected) in rows {
        for ((event, apply), expected) in events.iter().zip(expected) {
            let mut scene = scene();
            apply(&mut scene);
            assert_eq!(scene.state(), expected, "{name}: {event}");
        }
    }
}

#[test]
fn a_sweep_starts_and_stops_its_readings_in_order() {
    let mut scene = Scene::new();
    let expected: [&[&str]; 6] = [
        &["stop Sweep", "start Sweep: map"],
        &["stop Sweep", "start Sweep: files"],
        &["stop Sweep", "start Sweep: strays"],
        &["stop Sweep", "start Sweep: disk"],
        &["stop Sweep", "start Sweep: shards"],
        &["stop Sweep", "start ClusterViews: views", "publish"],
    ];
    for expected in expected {
        scene.end(Slot::Sweep);
        assert_eq!(scene.effects, expected);
    }
    scene.end(Slot::ClusterViews);
    assert_eq!(scene.effects, ["stop ClusterViews"]);
    scene.end(Slot::Splits);
    assert_eq!(scene.effects, ["stop Splits", "emit", "publish"]);

    // Late nodes are still asked under their own slot until the next sweep asks them.
    let mut scene = Scene::new();
    scene.only_first_node_answers();
    scene.now.at += Duration::from_secs(3);
    while scene.state() == SweepPhase::Nodes {
        scene.handle(Event::Wake);
    }
    assert_eq!(scene.effects, ["rename Sweep Late", "start Sweep: map"]);
    let mut scene = scene.to(SweepPhase::LateNodes);
    scene.pass(Duration::from_secs(300));
    assert_eq!(scene.state(), SweepPhase::Nodes);
    scene.end(Slot::Sweep);
    assert_eq!(scene.effects, ["stop Sweep", "stop Late", "start Sweep: map"]);
}

#[test]
fn each_wake_up_handles_one_due_timer() {
    let mut scene = Scene::at(SweepPhase::Idle);
    // The first poll follows the listing.
    scene.wake();
    let wake = scene.scanner.next_wake().unwrap();
    assert!(wake > scene.now.at);
    scene.handle(Event::Wake);
    assert_eq!(scene.effects, Vec::<String>::new());
    scene.now.at += Duration::from_secs(400);
    let mut done = Vec::new();
    while scene.scanner.next_wake().is_some_and(|at| at <= scene.now.at) {
        scene.handle(Event::Wake);
        done.push(scene.effects.join(", "));
    }
    assert!(done.iter().any(|it| it.starts_with("start Sweep: nodes")), "{done:?}");
    assert!(done.len() < 9, "{done:?}");
}
