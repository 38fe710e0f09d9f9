use super::*;
use wall_clock::Moment;

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Value, mark, record, held, wanted, may change → action.
#[test]
fn every_state_of_a_channel_has_one_action() {
    type Line = (Option<&'static str>, bool, bool, bool, bool, bool, Step);
    let restore = || Step::Restore { was: some("2") };
    let take = |was: Option<&str>| Step::Take { was: was.map(str::to_owned) };
    let lines: Vec<Line> = vec![
        // Wanted: at first, after a restart of the node, and after a crash in between.
        (None, false, false, false, true, true, take(None)),
        (Some("3"), false, false, false, true, true, take(Some("3"))),
        (Some("3"), false, true, true, true, true, take(Some("3"))),
        (Some("3"), true, true, false, true, true, take(Some("3"))),
        // It is taken over by this process, or by one whose records are lost.
        (Some("0"), true, true, false, true, true, Step::Keep),
        (Some("0"), true, true, true, true, true, Step::Keep),
        (Some("0"), true, false, false, true, true, Step::Adopt { was: some("2") }),
        // Somebody else stopped it.
        (Some("0"), false, false, false, true, true, Step::StoppedAlready),
        (Some("0"), false, true, true, true, true, Step::Forget),
        // Somebody set another value while it was taken over.
        (Some("5"), true, true, true, true, true, Step::Yield),
        (None, true, false, true, true, true, Step::Yield),
        // No longer wanted: at the end, and after a crash.
        (Some("0"), true, true, true, false, true, restore()),
        (Some("0"), true, true, false, false, true, restore()),
        (Some("0"), true, false, true, false, true, restore()),
        (Some("0"), true, true, true, false, false, restore()),
        // In advise mode, a process changes only what it took over itself.
        (Some("0"), true, true, false, false, false, Step::Stranded),
        (Some("3"), false, true, false, false, false, Step::Leave),
        // Taken over by another machine.
        (Some("0"), true, false, false, false, true, Step::Stranded),
        // No longer this program's.
        (Some("3"), true, true, true, false, true, Step::Forget),
        (None, false, true, false, false, true, Step::Forget),
        (Some("0"), false, true, false, false, true, Step::Forget),
        // Not related to a takeover.
        (Some("0"), false, false, false, false, true, Step::StoppedAlready),
        (Some("3"), false, false, false, false, true, Step::Leave),
        (Some("3"), true, false, false, false, true, Step::Leave),
    ];
    for (value, marked, recorded, held, wanted, may, expected) in lines {
        let mark = Mark { was: some("2"), at: Moment::from_unix(7) };
        let record = TakenOver {
            node: "couchdb@a".to_owned(),
            channel: "ratio_dbs".to_owned(),
            was: some("2"),
        };
        let seen = Seen {
            value,
            mark: marked.then_some(&mark),
            record: recorded.then_some(&record),
            held,
            wanted,
            may,
        };
        assert_eq!(step(&seen), expected, "{seen:?}");
    }
}
