use super::*;
use crate::serve::report::{Advice, CandidatesLine};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn status(change: impl FnOnce(&mut Value)) -> Status {
    let mut value = json!({
        "version": "0.1.0", "revision": "unknown", "date": "unknown", "book": "/docs/",
        "simulated": false, "mode": "enforce", "ready": true, "generated_at": "",
        "couchdb": [], "suspensions": [], "errors": [], "missing_rights": [], "smoosh": [],
        "nodes": [{
            "node": "a", "up": true, "member": true, "served": true, "own_address": true,
            "findings": [], "smoosh": "up",
        }],
        "sweep": {"ended": 3, "shards": {"asked": 1, "spared": 0, "followed": 0}},
        "feeds": {"pending_events": 0, "list": []},
        "config": {"loaded_at": "", "last_reload_successful": true, "needs_restart": []},
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

fn space(unknown: &[&str], free: Option<u64>) -> Space {
    let volume = json!({"volume": "/srv", "nodes": ["a"], "available_bytes": free});
    let value = json!({
        "generated_at": "", "targets": 1, "waiting": 1, "volumes": [volume],
        "nodes_without_space": unknown,
    });
    serde_json::from_value(value).unwrap()
}

fn planned(held_by_space: u64) -> Planned {
    let value = json!({
        "generated_at": "", "made_at": "", "mode": "enforce", "starts": [], "orders": [],
        "candidates": [], "gates": [], "suspensions": [], "total": 0, "offset": 0, "limit": 0,
        "refused": [],
    });
    let mut planned: Planned = serde_json::from_value(value).unwrap();
    planned.candidates.push(CandidatesLine {
        node: "a".to_owned(),
        channel: "big".to_owned(),
        starts: 0,
        refused: BTreeMap::from([("unknown_disk".into(), held_by_space)]),
    });
    planned
}

fn advice(severities: &[&str]) -> Advice {
    let lines = severities.iter().map(|severity| {
        json!({
            "code": "orphan_shards", "severity": severity, "subject": {"kind": "node", "name": "a"},
            "says": format!("A {severity} thing."), "evidence": {},
            "gain": {"kind": "unknown", "value": null}, "remedy": [], "learn": "",
        })
    });
    let value = json!({
        "says": "", "gain_bytes": 0, "advice": lines.collect::<Vec<_>>(), "more": [],
    });
    serde_json::from_value(value).unwrap()
}

fn says(status: &Status, space: &Space, planned: &Planned, advice: &Advice) -> Vec<String> {
    let all = status.all_concerns(space, planned, advice).into_iter();
    all.map(|concern| format!("{} [{}]", concern.says, concern.page)).collect()
}

#[test]
fn all_clear_requires_no_findings_anywhere() {
    let fine = status(|_| {});
    assert!(fine.all_clear().is_some());
    let known = space(&[], Some(1));
    assert_eq!(says(&fine, &known, &planned(0), &advice(&["info"])), [""; 0]);

    let found = status(|value| {
        value["smoosh"] = json!([
            {"node": "a", "taken_over": [], "not_taken_over": [], "findings": ["One.", "Two."]},
            {"node": "b", "taken_over": [], "not_taken_over": [], "findings": [], "problem": "no"},
        ]);
        value["nodes"][0]["findings"] = json!(["no direct address"]);
        value["nodes"][0]["up"] = json!(null);
    });
    assert_eq!(found.all_clear(), None);
    assert_eq!(
        says(&found, &known, &planned(0), &advice(&["warning", "critical", "warning"])),
        [
            "A critical thing. [advice]",
            "3 findings about smoosh on 2 nodes, the first about a: One. [nodes]",
            "a: no direct address. [nodes]",
            "A warning thing. 1 more warning. [advice]",
        ]
    );
}

#[test]
fn warns_of_unknown_space_if_files_wait_or_some_is_known() {
    let fine = status(|_| {});
    let none = advice(&[]);
    let unknown = |free, waiting| says(&fine, &space(&["b", "c"], free), &planned(waiting), &none);
    assert_eq!(unknown(None, 0), [""; 0]);
    assert_eq!(
        unknown(Some(1), 0),
        ["Free space is unknown on b and c. Set headroom.volumes or --data-dir. [docs/files.html]"]
    );
    assert_eq!(
        unknown(None, 2),
        [
            "Free space is unknown on b and c, so 2 files larger than headroom.blind_limit do not start. Set headroom.volumes or --data-dir. [docs/files.html]"
        ]
    );
}
