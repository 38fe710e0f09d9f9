//! The page for people.

use super::*;

/// Start tags without an end, as HTML has them.
const VOID: [&str; 6] = ["meta", "!DOCTYPE", "br", "img", "hr", "input"];

/// Fails where tags do not nest: enough of HTML for a page without scripts.
pub(super) fn assert_nested(html: &str) {
    let mut open = Vec::new();
    for part in html.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("every < begins a tag");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "in {html}");
        } else if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
}

#[tokio::test]
async fn the_page_shows_nodes_and_queues() {
    let surface = Surface::new();
    let page = surface.get("/").await;
    assert_eq!(page.status, StatusCode::OK);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    let text = page.text();
    assert!(text.starts_with("<!DOCTYPE html><html lang=\"en\">"));
    assert_nested(text);
    for wanted in ["couchdb@a", "couchdb@b", "ratio_dbs", "ratio_views", "3.5.0", "0.1.0"] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert!(!text.contains("simulat"), "{text}");
    assert!(!text.contains("<script"), "{text}");
}

#[tokio::test]
async fn whatever_others_named_is_text_on_the_page() {
    let hostile = "<script>alert(\"1\")</script>&<img src=x onerror='x'>";
    let mut surface = Surface::new();
    let mut draft = Draft::new(1);
    let node = draft.get_or_add_node(hostile);
    draft.update_node(node, |node| node.is_member = true);
    let db = draft.get_or_add_db(DbName { db: "orders", suffix: "" });
    let ix: TargetIx = draft.get_or_add_shard(node, db, None);
    draft.set_facts(ix, facts(100 * MIB, MIB));
    surface.plan.send_replace(Arc::new(planned(&draft.publish(NOW))));
    surface.status.send_replace(Arc::new(ScanStatus {
        problem: Some(hostile.to_owned()),
        last_error: Some(hostile.to_owned()),
        missing_rights: [hostile.to_owned()].into(),
        progress: Some(Progress { since: NOW, done: 3, total: Some(10) }),
        ..ScanStatus::default()
    }));
    let about = ProcessInfo { simulated: true, ..(*surface.state.about).clone() };
    surface.state.about = Arc::new(about);
    let page = surface.get("/").await;
    let text = page.text();
    assert!(!text.contains("<script") && !text.contains("<img"), "{text}");
    assert!(text.contains("&lt;script&gt;"), "{text}");
    assert!(text.contains("simulation"), "{text}");
    assert_nested(text);
}

#[tokio::test]
async fn an_empty_page_is_a_page() {
    let surface = Surface::new();
    surface.plan.send_replace(Arc::default());
    surface.status.send_replace(Arc::default());
    let page = surface.get("/").await;
    assert_nested(page.text());
    assert!(page.text().contains("No sweep has ended yet."));
}
