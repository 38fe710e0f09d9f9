//! Checks that names with control or invisible characters are escaped in every JSON response.

use super::*;
use crate::text::escape::is_hidden;

/// A colour sequence, the C1 control that begins one, a deletion, a right-to-left override,
/// invisible spaces, and an invisible character beyond the first plane.
const HOSTILE: &str = "x\u{1b}[31m\u{9b}2J\u{7f}\u{202e}\u{200b}\u{feff}\u{e0041}";

fn hostile() -> Surface {
    let surface = Surface::new();
    let mut draft = Draft::new(3);
    let node = draft.get_or_add_node(&format!("couchdb@{HOSTILE}"));
    draft.update_node(node, |node| {
        node.is_up = Some(true);
        node.is_member = true;
        node.build = Some(Version::new(3, 5, 0).into());
        node.own_address = OwnAddress::Found("http://couch-a:5984/db".parse().unwrap());
    });
    let db = draft.get_or_add_db(DbName { db: HOSTILE, suffix: ".17" });
    let shard = draft.get_or_add_shard(node, db, Some(RANGE));
    draft.set_facts(shard, facts(100 * MIB, 10 * MIB));
    let view = View {
        signature: Signature([1; 16]),
        designs: [format!("_design/{HOSTILE}").as_str().into()].into(),
        language: HOSTILE.into(),
        collators: [HOSTILE.into()].into(),
        exact_range: true,
        ..View::default()
    };
    let view = draft.add_view(db, view);
    draft.set_shard_map(db, ShardMapEntry { copies: 3, ranges: 1 }, &[view]);
    draft.set_facts(view, facts(60 * MIB, 20 * MIB));
    draft.get_or_add_cleanup(db);
    surface.plan.send(Arc::new(planned(&draft.publish(NOW)))).unwrap();
    let set_hostile_texts = |status: &mut Arc<ScanStatus>| {
        let status = Arc::make_mut(status);
        status.last_error = Some(format!("could not ask {HOSTILE}"));
        status.missing_rights = [HOSTILE.to_owned()].into();
    };
    surface.status.send_modify(set_hostile_texts);
    surface.config.send_modify(|config| {
        Arc::make_mut(config).shown = json!({ HOSTILE: HOSTILE });
    });
    surface
}

#[tokio::test]
async fn json_responses_escape_hidden_characters_without_loss() {
    let surface = hostile();
    let name = percent_encoding::utf8_percent_encode(HOSTILE, percent_encoding::NON_ALPHANUMERIC);
    let mut naming = 0;
    for path in [
        "/api/v1/status".to_owned(),
        "/api/v1/targets".to_owned(),
        "/api/v1/facts".to_owned(),
        "/api/v1/queue".to_owned(),
        "/api/v1/plan".to_owned(),
        "/api/v1/jobs".to_owned(),
        format!("/api/v1/explain?target={name}"),
        format!("/api/v1/explain?target=no-{name}"),
        format!("/api/v1/targets?state={name}"),
        format!("/api/v1/{name}"),
        "/api/v1/config".to_owned(),
        "/sd".to_owned(),
        format!("/_db_updates?feed={name}"),
    ] {
        let answer = surface.get(&path).await;
        assert_eq!(answer.header("content-type"), "application/json", "{path}");
        let text = answer.text();
        let raw = text.chars().find(|letter| is_hidden(*letter));
        assert_eq!(raw, None, "{path}: {text:?}");
        let value: Value = serde_json::from_str(text).unwrap();
        naming += usize::from(names(&value));
    }
    assert!(naming >= 7, "only {naming} responses contain the hostile name");
}

/// Whether a text or key in a value contains the complete hostile name.
fn names(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(HOSTILE),
        Value::Array(list) => list.iter().any(names),
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| key.contains(HOSTILE) || names(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
