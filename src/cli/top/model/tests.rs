use super::{
    super::fixture::{answers, events, explained, id, model, now},
    *,
};
use crate::serve::report::orders::OrderRequest;
use std::time::Duration;

/// Presses keys one after the other; returns the requests that they make.
fn press(model: &mut Model, keys: &[Key]) -> Vec<Request> {
    keys.iter().filter_map(|key| model.press(*key)).collect()
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

/// The keys of the rows in the list.
fn titles(model: &Model) -> Vec<String> {
    model.listed().rows.iter().map(super::super::list::Row::title).collect()
}

#[test]
fn keys_switch_screens() {
    use Screen::{Events, Jobs, Overview, Queue};
    for (keys, expected) in [
        (&[][..], Overview),
        (&[Key::Char('2')], Jobs),
        (&[Key::Char('3')], Queue),
        (&[Key::Char('4'), Key::Char('1')], Overview),
        (&[Key::Tab, Key::Tab], Queue),
        (&[Key::Left], Events),
        (&[Key::Left, Key::Right], Overview),
        // An open popup receives the key instead of the screen.
        (&[Key::Char('?'), Key::Char('2')], Overview),
        (&[Key::Char('?'), Key::Char('2'), Key::Char('2')], Jobs),
        // Enter on a channel opens its queue.
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
fn q_and_ctrl_c_quit_except_q_in_text() {
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
        let requests = press(&mut model("enforce"), keys);
        assert_eq!(requests.contains(&Request::Quit), quits, "{keys:?}");
    }
}

#[test]
fn filters_lists_while_typing_and_sorts_by_column() {
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
    // Each screen has its own filter.
    press(&mut model, &[Key::Char('2')]);
    assert_eq!(model.list().filter, "");
    assert_eq!(
        titles(&model),
        ["orders 80-ff", "carts/2026 80-ff", "build of carts/2026/_design/open 80-ff"]
    );
}

#[test]
fn enter_explains_target_and_late_answer_is_ignored() {
    let mut model = model("enforce");
    let requests = press(&mut model, &[Key::Char('3'), Key::Enter]);
    let sessions = id("couchdb@node-1.example", "sessions");
    assert_eq!(requests, [Request::Explain(sessions.clone())]);
    assert!(matches!(model.popup, Some(Popup::Waiting(_))));
    let answer = || Update::Explained { asked: sessions.clone(), found: Ok(vec![explained()]) };
    model.apply(answer());
    assert!(matches!(model.popup, Some(Popup::Explained { .. })));
    press(&mut model, &[Key::Down, Key::Down, Key::Up]);
    assert!(matches!(model.popup, Some(Popup::Explained { .. })) && model.scroll == 1);
    press(&mut model, &[Key::Escape]);
    assert!(model.popup.is_none());
    model.apply(answer());
    assert!(model.popup.is_none(), "a late answer opens no popup");
    press(&mut model, &[Key::Enter]);
    let gone = "no target has this id".to_owned();
    model.apply(Update::Explained { asked: sessions, found: Err(gone.clone()) });
    assert!(matches!(&model.popup, Some(Popup::Said { text, .. }) if *text == gone));
}

/// The text of the confirmation on the screen.
fn confirmation_text(model: &Model) -> String {
    match &model.popup {
        Some(Popup::Confirm(confirmation)) => confirmation.paragraphs().join("\n"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn order_is_sent_once_after_showing_its_request() {
    let mut model = model("enforce");
    press(&mut model, &[Key::Char('3'), Key::Char('S')]);
    assert!(confirmation_text(&model).contains(r#"POST /api/v1/suspend {"scope":"all"}"#));
    press(&mut model, &[vec![Key::Tab], typed("a \"move\"x"), vec![Key::Backspace]].concat());
    let shown = confirmation_text(&model);
    let request = r#"POST /api/v1/suspend {"scope":"channel:ratio_dbs","why":"a \"move\""}"#;
    assert!(shown.contains(request), "{shown}");
    assert!(shown.contains("No compaction of channel ratio_dbs starts"), "{shown}");
    let sent = press(&mut model, &[Key::Enter, Key::Enter, Key::Escape, Key::Char('x')]);
    let [Request::Send(order)] = sent.as_slice() else { panic!("{sent:?}") };
    assert!(order.request().http_request().ends_with(r#""why":"a \"move\""}"#));
    assert!(confirmation_text(&model).contains("waiting for the answer"));
    let answer = Ok("Channel ratio_dbs is suspended.".to_owned());
    model.apply(Update::Ordered { order: order.clone(), answer });
    assert!(matches!(&model.popup, Some(Popup::Said { title, .. }) if title == "Done: suspend"));
}

#[test]
fn forbidden_order_is_not_sent_and_explains_why() {
    let mut model = model("enforce");
    let weighed = press(&mut model, &[Key::Char('3'), Key::Char('c')]);
    let [Request::Weigh(asked_for)] = weighed.as_slice() else { panic!("{weighed:?}") };
    model.apply(Update::Weighed { asked: asked_for.clone(), found: Ok(vec![explained()]) });
    let shown = confirmation_text(&model);
    for part in [
        "Not allowed: this order is disabled; start recliner with --web.enable-admin-api",
        "sends   POST /_node/couchdb@node-1.example/",
        "frees   15.0 GiB",
        "writes  5.0 GiB",
        "needs   6.0 GiB more at its peak",
        "takes   1m 35s",
        r#"POST /api/v1/compact {"target":"#,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(press(&mut model, &[Key::Enter]), []);
    press(&mut model, &[Key::Tab]);
    assert!(confirmation_text(&model).contains(r#"POST /api/v1/compact {"force":true,"target":"#));
    press(&mut model, &[Key::Escape]);
    assert!(model.popup.is_none());
}

#[test]
fn offers_only_existing_suspensions_to_resume() {
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
    let shown = confirmation_text(&model);
    let request = r#"POST /api/v1/resume {"scope":"node:couchdb@node-2.example"}"#;
    assert!(shown.contains(request), "{shown}");
    let sent = press(&mut model, &[Key::Enter]);
    let [Request::Send(order)] = &sent[..] else { panic!("{sent:?}") };
    assert!(matches!(order.request(), OrderRequest::Resume(_)));
}

#[test]
fn outage_lasts_from_first_failure_to_next_answer() {
    let mut model = model("enforce");
    model.apply(Update::Silent("it does not answer".to_owned()));
    model.now = now().plus(Duration::from_secs(7));
    model.apply(Update::Silent("it refuses connections".to_owned()));
    let outage = model.outage.clone().expect("the service is silent");
    assert_eq!((outage.since, &*outage.why), (now(), "it refuses connections"));
    model.apply(Update::Answers(Box::new(answers("enforce"))));
    assert!(model.outage.is_none());
}

#[test]
fn shows_newest_events_first_and_restarts_with_a_new_journal() {
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
