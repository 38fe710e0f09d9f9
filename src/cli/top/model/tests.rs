use super::{
    super::fixture::{answers, events, explained, id, model, now},
    *,
};
use std::time::Duration;

/// Presses keys one after the other; returns what they ask for.
fn press(model: &mut Model, keys: &[Key]) -> Vec<Request> {
    keys.iter().filter_map(|key| model.press(*key)).collect()
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

/// The keys of the rows that are shown.
fn titles(model: &Model) -> Vec<String> {
    model.listed().rows.iter().map(super::super::list::Row::title).collect()
}

#[test]
fn keys_lead_to_screens() {
    use Screen::{Events, Jobs, Overview, Queue};
    for (keys, expected) in [
        (&[][..], Overview),
        (&[Key::Char('2')], Jobs),
        (&[Key::Char('3')], Queue),
        (&[Key::Char('4'), Key::Char('1')], Overview),
        (&[Key::Tab, Key::Tab], Queue),
        (&[Key::Left], Events),
        (&[Key::Left, Key::Right], Overview),
        // A popup takes the key first.
        (&[Key::Char('?'), Key::Char('2')], Overview),
        (&[Key::Char('?'), Key::Char('2'), Key::Char('2')], Jobs),
        // A channel leads to what waits for it.
        (&[Key::Down, Key::Enter], Queue),
    ] {
        let mut model = model("enforce");
        assert_eq!(press(&mut model, keys), []);
        assert_eq!(model.screen, expected, "{keys:?}");
    }
    let mut model = model("enforce");
    press(&mut model, &[Key::Down, Key::Enter]);
    assert_eq!(titles(&model), ["telemetry", "archive"], "the queue of slack_dbs");
}

#[test]
fn q_and_ctrl_c_quit_but_q_is_a_letter_where_text_is_typed() {
    for (keys, quits) in [
        (&[Key::Char('q')][..], true),
        (&[Key::Interrupt], true),
        (&[Key::Char('/'), Key::Char('q')], false),
        (&[Key::Char('/'), Key::Interrupt], true),
        (&[Key::Char('S'), Key::Char('q')], false),
        (&[Key::Char('S'), Key::Interrupt], true),
        (&[Key::Char('?'), Key::Char('q')], false),
        (&[Key::Escape], false),
    ] {
        let asked = press(&mut model("enforce"), keys);
        assert_eq!(asked.contains(&Request::Quit), quits, "{keys:?}");
    }
}

#[test]
fn a_list_is_filtered_while_typing_and_sorted_by_any_column() {
    let mut model = model("enforce");
    press(&mut model, &[Key::Char('3')]);
    assert_eq!(titles(&model).len(), 5);
    press(&mut model, &[vec![Key::Char('/')], typed("slack")].concat());
    assert!(model.typing);
    assert_eq!(titles(&model), ["telemetry", "archive"]);
    press(&mut model, &[Key::Enter, Key::Char('o')]);
    assert!(!model.typing);
    assert_eq!(titles(&model), ["archive", "telemetry"], "sorted by name");
    press(&mut model, &[Key::Char('O')]);
    assert_eq!(titles(&model), ["telemetry", "archive"]);
    press(&mut model, &[Key::Escape]);
    assert_eq!(titles(&model).len(), 5, "the filter is gone, the order stays");
    assert_eq!(titles(&model)[0], "telemetry");
    // Each screen has its own.
    press(&mut model, &[Key::Char('2')]);
    assert_eq!(model.list().filter, "");
    assert_eq!(titles(&model), ["orders", "carts/2026", "build of carts/2026/_design/open"]);
}

#[test]
fn enter_explains_the_selected_target_and_a_late_answer_is_not_shown() {
    let mut model = model("enforce");
    let asked = press(&mut model, &[Key::Char('3'), Key::Enter]);
    let sessions = id("couchdb@node-1.example", "sessions");
    assert_eq!(asked, [Request::Explain(sessions.clone())]);
    assert!(matches!(model.popup, Some(Popup::Waiting(_))));
    let answer = || Update::Explained { asked: sessions.clone(), found: Ok(vec![explained()]) };
    model.apply(answer());
    assert!(matches!(model.popup, Some(Popup::Explained { .. })));
    press(&mut model, &[Key::Down, Key::Down, Key::Up]);
    assert!(matches!(model.popup, Some(Popup::Explained { scroll: 1, .. })));
    press(&mut model, &[Key::Escape]);
    assert!(model.popup.is_none());
    model.apply(answer());
    assert!(model.popup.is_none(), "nobody waits for it any more");
    press(&mut model, &[Key::Enter]);
    let gone = "no target has this id".to_owned();
    model.apply(Update::Explained { asked: sessions, found: Err(gone.clone()) });
    assert!(matches!(&model.popup, Some(Popup::Said { text, .. }) if *text == gone));
}

/// The text of the confirmation on the screen.
fn asked(model: &Model) -> String {
    match &model.popup {
        Some(Popup::Confirm(confirmation)) => confirmation.paragraphs().join("\n"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_order_is_sent_once_and_only_after_its_exact_request_was_shown() {
    let mut model = model("enforce");
    press(&mut model, &[Key::Char('3'), Key::Char('S')]);
    assert!(asked(&model).contains(r#"POST /api/v1/suspend {"scope":"all"}"#));
    press(&mut model, &[vec![Key::Tab], typed("a \"move\"x"), vec![Key::Backspace]].concat());
    let shown = asked(&model);
    let request = r#"POST /api/v1/suspend {"scope":"channel:ratio_dbs","why":"a \"move\""}"#;
    assert!(shown.contains(request), "{shown}");
    assert!(shown.contains("No compaction of channel ratio_dbs starts"), "{shown}");
    let sent = press(&mut model, &[Key::Enter, Key::Enter, Key::Escape, Key::Char('x')]);
    let [Request::Send(order)] = sent.as_slice() else { panic!("{sent:?}") };
    assert!(matches!(&order, Order::Suspend { why, .. } if why == "a \"move\""));
    assert!(asked(&model).contains("waiting for the answer"));
    let answer = Ok("Channel ratio_dbs is suspended.".to_owned());
    model.apply(Update::Ordered { order: order.clone(), answer });
    assert!(matches!(&model.popup, Some(Popup::Said { title, .. }) if title == "Done: suspend"));
}

#[test]
fn an_order_that_is_not_allowed_says_what_to_set_and_is_not_sent() {
    let mut model = model("enforce");
    let weighed = press(&mut model, &[Key::Char('3'), Key::Char('c')]);
    let [Request::Weigh(asked_for)] = weighed.as_slice() else { panic!("{weighed:?}") };
    model.apply(Update::Weighed { asked: asked_for.clone(), found: Ok(vec![explained()]) });
    let shown = asked(&model);
    for part in [
        "Not allowed: orders over HTTP are disabled; start recliner with --web.enable-admin-api",
        "sends   POST /_node/couchdb@node-1.example/",
        "frees   15 GiB",
        "writes  5 GiB",
        "needs   6 GiB more at its peak",
        "takes   1m 35s",
        r#"POST /api/v1/compact {"target":"#,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(press(&mut model, &[Key::Enter]), []);
    press(&mut model, &[Key::Tab]);
    assert!(asked(&model).contains(r#"POST /api/v1/compact {"force":true,"target":"#));
    press(&mut model, &[Key::Escape]);
    assert!(model.popup.is_none());
}

#[test]
fn only_what_is_suspended_can_be_resumed() {
    let mut model = model("enforce");
    press(&mut model, &[Key::Char('R')]);
    assert!(
        matches!(&model.popup, Some(Popup::Said { text, .. }) if text == "Nothing is suspended.")
    );
    press(&mut model, &[Key::Escape]);
    let line = crate::serve::report::SuspensionLine {
        scope: "node:couchdb@node-2.example".to_owned(),
        since: "2026-11-23T11:00:00Z".to_owned(),
        by: None,
        why: None,
        says: "starts on couchdb@node-2.example are suspended since 2026-11-23T11:00:00Z"
            .to_owned(),
    };
    let mut changed = answers("enforce");
    changed.status.suspensions.push(line);
    model.apply(Update::Answers(Box::new(changed)));
    press(&mut model, &[Key::Char('R'), Key::Tab]);
    let shown = asked(&model);
    let request = r#"POST /api/v1/resume {"scope":"node:couchdb@node-2.example"}"#;
    assert!(shown.contains(request), "{shown}");
    assert!(matches!(press(&mut model, &[Key::Enter])[..], [Request::Send(Order::Resume { .. })]));
}

#[test]
fn an_outage_lasts_from_the_first_failure_to_the_next_answer() {
    let mut model = model("enforce");
    model.apply(Update::Silent("it does not answer".to_owned()));
    model.now = now().plus(Duration::from_secs(7));
    model.apply(Update::Silent("it refuses connections".to_owned()));
    let outage = model.outage.clone().expect("it is silent");
    assert_eq!((outage.since, &*outage.why), (now(), "it refuses connections"));
    model.apply(Update::Answers(Box::new(answers("enforce"))));
    assert!(model.outage.is_none());
}

#[test]
fn events_are_shown_newest_first_and_a_new_journal_begins_anew() {
    let mut model = model("enforce");
    let seqs = |model: &Model| model.events.lines.iter().map(|it| it.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&model), [9, 8, 7]);
    model.apply(Update::NoEvents("this recliner keeps no journal".to_owned()));
    assert!(model.events.problem.is_some());
    model.apply(Update::EventsRestart);
    model.apply(Update::Events(events().split_off(2)));
    assert_eq!(seqs(&model), [9]);
    assert_eq!(model.events.problem, None);
}
