use super::{groups::MAX_LISTED_TARGETS, *};
use RefusalReason as R;

const START: Moment = Moment::from_unix(1_795_222_440);
const NODE: NodeIx = NodeIx::CLUSTER;

fn waiting(at: usize, channel: usize, refused: Option<R>) -> Waiting {
    Waiting { ix: TargetIx::from_usize(at).unwrap(), node: NODE, channel, refused }
}

const fn there(_: TargetIx) -> bool {
    true
}

/// Formats an entry for comparison.
fn shown(entry: &ChangeEntry) -> String {
    let best = entry.listed[0];
    let what = match entry.change {
        About::Queued => format!("queued {}", best.channel),
        About::Refused => best.refused.unwrap().label().to_owned(),
    };
    let of = if entry.targets > 1 { format!(" of {}", entry.targets) } else { String::new() };
    let again = entry.recurrence.map(|again| {
        let [first, last] = [again.first, again.last].map(|at| START.age(at).as_secs());
        format!(", {} again {first}-{last}", again.count)
    });
    what + &of + &again.unwrap_or_default()
}

/// Duration in seconds; the channel of the queue and the reason of the refusal, if queued.
type ScenarioStep = (u64, Option<(usize, Option<R>)>);

/// The entries of one target over the given steps, with a comparison every five seconds.
fn entries_over(steps: &[ScenarioStep]) -> Vec<String> {
    let (mut memory, mut now, mut written) = (PlanHistory::default(), START, Vec::new());
    for (seconds, state) in steps {
        for _ in 0..seconds / 5 {
            let all = state.iter().map(|(channel, refused)| waiting(7, *channel, *refused));
            let found = memory.compare(now, all, there, 10);
            assert_eq!((found.more_queued, found.more_refused), (0, 0));
            let at = START.age(now).as_secs();
            written.extend(found.entries.iter().map(|entry| format!("{at}: {}", shown(entry))));
            now = now.plus(Duration::from_secs(5));
        }
    }
    written
}

const fn refused(reason: R) -> Option<(usize, Option<R>)> {
    Some((1, Some(reason)))
}

#[test]
fn refusal_reason_that_persists_is_recorded_once() {
    for (steps, expected) in [
        (&[(100, refused(R::Headroom))][..], &["0: queued 1", "5: headroom"][..]),
        // A reason that lasts only for a moment.
        (
            &[(5, refused(R::Headroom)), (5, refused(R::Stale)), (10, refused(R::Headroom))],
            &["0: queued 1", "15: headroom"],
        ),
        // Reasons that are all new.
        (
            &[(10, refused(R::Headroom)), (10, refused(R::Futile)), (10, refused(R::CoolDown))],
            &["0: queued 1", "5: headroom", "15: futile", "25: cool_down"],
        ),
        // A job is already recorded by its start and its end.
        (&[(10, Some((1, None))), (90, refused(R::Running))], &["0: queued 1"]),
        (
            &[(10, refused(R::Headroom)), (90, refused(R::Running)), (90, refused(R::Headroom))],
            &["0: queued 1", "5: headroom"],
        ),
        (&[(5, None), (5, Some((1, None)))], &["5: queued 1"]),
        (&[(5, Some((1, None))), (5, Some((0, None)))], &["0: queued 1", "5: queued 0"]),
    ] {
        assert_eq!(entries_over(steps), expected, "{steps:?}");
    }
}

#[test]
fn waiting_for_a_turn_is_recorded_after_a_minute() {
    let turns = [
        (20, refused(R::Ramp)),
        (20, refused(R::NodeLimit)),
        (5, refused(R::ChannelLimit)),
        (20, refused(R::OtherCopyRunning)),
        (600, refused(R::ClusterLimit)),
    ];
    assert_eq!(entries_over(&turns), ["0: queued 1", "60: other_copy_running"]);
    let moments = [
        (10, refused(R::Headroom)),
        (50, refused(R::NodeLimit)),
        (10, refused(R::Headroom)),
        (50, refused(R::Budget)),
        (10, refused(R::Headroom)),
    ];
    assert_eq!(entries_over(&moments), ["0: queued 1", "5: headroom"]);
}

#[test]
fn recurring_changes_become_one_counted_entry_per_hour() {
    let mut steps = Vec::new();
    for _ in 0..60 {
        steps.extend([(20, refused(R::Headroom)), (100, refused(R::NodeLimit))]);
    }
    // Two hours; in each, 58 minutes with a change back to a recorded reason.
    assert_eq!(
        entries_over(&steps),
        ["0: queued 1", "5: headroom", "80: node_limit", "3600: node_limit, 58 again 125-3560",]
    );
    // A window without recurrences resets the state; later changes are new.
    let mut steps = vec![(20, refused(R::Headroom)), (100, refused(R::NodeLimit))];
    steps.extend([(20, refused(R::Headroom)), (2 * 3600 + 600, refused(R::NodeLimit))]);
    steps.push((60, refused(R::Headroom)));
    assert_eq!(
        entries_over(&steps),
        [
            "0: queued 1",
            "5: headroom",
            "80: node_limit",
            "3600: node_limit, 2 again 125-200",
            "7945: headroom",
        ]
    );
}

#[test]
fn a_target_that_leaves_and_re_enters_its_queue_is_counted() {
    let mut steps = Vec::new();
    for _ in 0..70 {
        steps.extend([(30, Some((1, Some(R::Headroom)))), (30, None)]);
    }
    assert_eq!(
        entries_over(&steps),
        [
            "0: queued 1",
            "5: headroom",
            "3600: queued 1, 60 again 60-3600",
            "3600: headroom, 59 again 65-3545",
        ]
    );
    // Moves between two channels.
    let mut steps = Vec::new();
    for _ in 0..62 {
        steps.extend([(30, Some((1, None))), (30, Some((2, None)))]);
    }
    assert_eq!(
        entries_over(&steps),
        ["0: queued 1", "30: queued 2", "3600: queued 1, 119 again 60-3600"]
    );
    // An hour later, entering the queue is new again.
    let steps = [(10, Some((1, None))), (3600, None), (10, refused(R::Headroom))];
    assert_eq!(entries_over(&steps), ["0: queued 1", "3610: queued 1", "3615: headroom"]);
}

#[test]
fn new_target_at_the_same_position_is_not_confused_with_the_old() {
    let (mut memory, mut now) = (PlanHistory::default(), START);
    let first = waiting(7, 1, Some(R::Headroom));
    let second = Waiting { ix: first.ix.next_generation(), ..first };
    let mut look = |memory: &mut PlanHistory, which: Waiting, waits: bool| {
        now = now.plus(Duration::from_secs(5));
        let found =
            memory.compare(now, waits.then_some(which).into_iter(), |ix| ix == which.ix, 10);
        found.entries.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(look(&mut memory, first, true), ["queued 1"]);
    assert_eq!(look(&mut memory, first, true), ["headroom"]);
    for _ in 0..3 {
        assert!(look(&mut memory, first, false).is_empty());
        assert!(look(&mut memory, first, true).is_empty());
    }
    assert!(look(&mut memory, first, false).is_empty());
    assert_eq!(look(&mut memory, second, true), ["queued 1"]);
    assert_eq!(look(&mut memory, second, true), ["headroom"]);
    // Its recurrences are not attributed to the new target either.
    for _ in 0..WINDOW.as_secs() / 5 {
        assert!(look(&mut memory, second, true).is_empty());
    }
}

#[test]
fn changes_of_many_targets_share_one_entry_that_lists_them() {
    let mut memory = PlanHistory::default();
    let all = |few: usize, many: usize| {
        let few = (0..few).map(|at| waiting(at, 1, Some(R::Futile)));
        let many = (0..many).map(|at| waiting(100 + at, 2, Some(R::Headroom)));
        few.chain(many).collect::<Vec<_>>()
    };
    let mut look = |seconds: u64, all: &[Waiting]| {
        let now = START.plus(Duration::from_secs(seconds));
        memory.compare(now, all.iter().copied(), there, 100)
    };
    let texts = |found: &PlanChanges| found.entries.iter().map(shown).collect::<Vec<_>>();
    let few = ["queued 1"; 3];
    assert_eq!(texts(&look(0, &all(3, 24))), [&few[..], &["queued 2 of 24"]].concat());
    let found = look(5, &all(3, 24));
    let few = ["futile"; 3];
    assert_eq!(texts(&found), [&few[..], &["headroom of 24"]].concat());
    let named: Vec<usize> = found.entries[3].listed.iter().map(|it| it.ix.as_usize()).collect();
    assert_eq!(named, (100..124).collect::<Vec<_>>());
    // Two nodes give two entries.
    let mut two = all(0, 34);
    for it in &mut two[24..] {
        it.node = NodeIx::from_usize(1).unwrap();
    }
    assert_eq!(texts(&look(10, &two)), ["queued 2 of 10"]);
    assert_eq!(texts(&look(15, &two)), ["headroom of 10"]);
    // Recurrences of all of them are one entry too.
    for seconds in (20..3600).step_by(20) {
        look(seconds, &[]);
        assert!(texts(&look(seconds + 5, &two)).is_empty());
        assert!(texts(&look(seconds + 10, &two)).is_empty());
    }
    assert_eq!(
        texts(&look(3605, &two)),
        [
            "queued 2 of 24, 4296 again 25-3585",
            "queued 2 of 10, 1790 again 25-3585",
            "headroom of 24, 4296 again 30-3590",
            "headroom of 10, 1790 again 30-3590",
        ]
    );
}

#[test]
fn million_changes_become_few_entries_and_a_count() {
    let mut memory = PlanHistory::default();
    let node = |at: usize| NodeIx::from_usize(at % 500).unwrap();
    let all = || {
        let one = move |at| Waiting { node: node(at), ..waiting(at, 2, Some(R::Headroom)) };
        (0..1_000_000).map(one)
    };
    let mut look =
        |seconds: u64| memory.compare(START.plus(Duration::from_secs(seconds)), all(), there, 100);
    let found = look(0);
    assert_eq!((found.entries.len(), found.more_queued, found.more_refused), (100, 800_000, 0));
    assert!(
        found.entries.iter().all(|it| it.targets == 2_000 && it.listed.len() == MAX_LISTED_TARGETS)
    );
    let found = look(5);
    assert_eq!((found.entries.len(), found.more_queued, found.more_refused), (100, 0, 800_000));
    assert_eq!(look(10), PlanChanges::default());
}
