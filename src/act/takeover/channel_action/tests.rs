use super::*;
use wall_clock::Moment;

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Value, mark, record, held, wanted, may change → action.
#[test]
fn every_state_of_a_channel_has_one_action() {
    type Case = (Option<&'static str>, bool, bool, bool, bool, bool, ChannelAction);
    let restore = || ChannelAction::Restore { was: some("2") };
    let take = |was: Option<&str>| ChannelAction::TakeOver { was: was.map(str::to_owned) };
    let lines: Vec<Case> = vec![
        // Wanted: at first, after a restart of the node, and after a crash in between.
        (None, false, false, false, true, true, take(None)),
        (Some("3"), false, false, false, true, true, take(Some("3"))),
        (Some("3"), false, true, true, true, true, take(Some("3"))),
        (Some("3"), true, true, false, true, true, take(Some("3"))),
        // It is taken over by this process, or by one whose records are lost.
        (Some("0"), true, true, false, true, true, ChannelAction::KeepTakenOver),
        (Some("0"), true, true, true, true, true, ChannelAction::KeepTakenOver),
        (Some("0"), true, false, false, true, true, ChannelAction::AddRecord { was: some("2") }),
        // Somebody else stopped it.
        (Some("0"), false, false, false, true, true, ChannelAction::StoppedByOthers),
        (Some("0"), false, true, true, true, true, ChannelAction::RemoveRecords),
        // Somebody set another value while it was taken over.
        (Some("5"), true, true, true, true, true, ChannelAction::LeaveToOperator),
        (None, true, false, true, true, true, ChannelAction::LeaveToOperator),
        // No longer wanted: at the end, and after a crash.
        (Some("0"), true, true, true, false, true, restore()),
        (Some("0"), true, true, false, false, true, restore()),
        (Some("0"), true, false, true, false, true, restore()),
        (Some("0"), true, true, true, false, false, restore()),
        // In advise mode, a process changes only what it took over itself.
        (Some("0"), true, true, false, false, false, ChannelAction::Stranded),
        (Some("3"), false, true, false, false, false, ChannelAction::Leave),
        // Taken over by another machine.
        (Some("0"), true, false, false, false, true, ChannelAction::Stranded),
        // No longer taken over by this program.
        (Some("3"), true, true, true, false, true, ChannelAction::RemoveRecords),
        (None, false, true, false, false, true, ChannelAction::RemoveRecords),
        (Some("0"), false, true, false, false, true, ChannelAction::RemoveRecords),
        // Not related to a takeover.
        (Some("0"), false, false, false, false, true, ChannelAction::StoppedByOthers),
        (Some("3"), false, false, false, false, true, ChannelAction::Leave),
        (Some("3"), true, false, false, false, true, ChannelAction::Leave),
    ];
    for (value, marked, recorded, held, wanted, may, expected) in lines {
        let mark = TakeoverMark { was: some("2"), at: Moment::from_unix(7) };
        let record = TakeoverRecord {
            node: "couchdb@a".to_owned(),
            channel: "ratio_dbs".to_owned(),
            previous: some("2"),
        };
        let facts = ChannelFacts {
            value,
            mark: marked.then_some(&mark),
            record: recorded.then_some(&record),
            held,
            wanted,
            may,
        };
        assert_eq!(decide(&facts), expected, "{facts:?}");
    }
}
