//! The console: every page, forms, and open pages.

use super::{super::orders::Action, *};
use crate::serve::{
    console::link,
    report::orders::{OrderAnswer, Suspended},
};

/// HTML elements without an end tag.
const VOID: [&str; 7] = ["meta", "!DOCTYPE", "br", "img", "hr", "input", "link"];

/// Fails if tags do not nest properly; understands as much HTML as the pages use.
pub(super) fn assert_nested(html: &str) {
    let mut open = Vec::new();
    for part in html.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a < begins no tag");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "in {html}");
        } else if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
}

/// Every page of the console, each with answers in it.
const PAGES: [&str; 21] = [
    "/",
    "/fleet",
    "/databases",
    "/databases?search=ORD&sort=last_compaction&order=asc&offset=1",
    "/targets",
    "/targets?search=ORD&kind=db&node=&sort=db&order=desc&min_size=1MiB",
    "/target?id=db%3Acouchdb%40a%2Fshards%252F00000000-ffffffff%252Forders.17",
    "/database?name=orders",
    "/database?name=app%2F_design%2Fx%2By%281%29%24",
    "/queue",
    "/jobs",
    "/jobs?target=orders&result=&since=7d",
    "/events",
    "/changes?since=6h&by=cause",
    "/nodes",
    "/advice",
    "/what-if",
    "/preflight?db=orders&design=%7B%7D",
    "/configuration",
    "/status",
    "/act?order=suspend&scope=all",
];

/// The visible text of a page, without tags. Form values inside tags are left out, because a form
/// returns them unchanged.
pub(super) fn outside_tags(html: &str) -> String {
    html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect()
}

fn assert_harmless(path: &str, page: &Answer) {
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{path}");
    assert_eq!(page.header("cache-control"), "no-store", "{path}");
    let policy = page.header("content-security-policy");
    assert!(!policy.contains("unsafe") && policy.contains("script-src 'self'"), "{path}: {policy}");
    let text = page.text();
    assert!(text.starts_with("<!DOCTYPE html><html lang=\"en\">"), "{path}");
    assert_nested(text);
    assert_eq!(text.matches("<script").count(), 1, "{path}: {text}");
    for refused in [" style=", "<style", "<img"] {
        assert!(!text.contains(refused), "{path}: {refused} in {text}");
    }
}

#[tokio::test]
async fn every_page_is_valid_and_loads_only_own_files() {
    let surface = Surface::new();
    for path in PAGES {
        let page = surface.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}: {}", page.text());
        assert_harmless(path, &page);
        assert!(page.text().len() < 100_000, "{path}");
    }
    for (path, wanted) in [
        ("/", "couchdb@b does not answer"),
        ("/queue", "ratio_dbs"),
        ("/nodes", "3.5.0"),
        ("/targets?search=ORD&kind=db", "shards"),
        ("/database?name=orders", "_design/clients"),
        ("/database?name=orders", "preflight?db=orders"),
        ("/advice", "2 shard files of old belong to no database."),
        ("/status", "connect"),
        ("/jobs", "keeps no journal"),
        ("/what-if", "smoosh-as-rent"),
    ] {
        let page = surface.get(path).await;
        assert!(page.text().contains(wanted), "{path} lacks {wanted}: {}", page.text());
    }
    for asset in ["/assets/console.css", "/assets/console.js"] {
        let answer = surface.get(asset).await;
        assert_eq!(answer.status, StatusCode::OK, "{asset}");
        let again =
            surface.ask(Method::GET, asset, &[("if-none-match", answer.header("etag"))]).await;
        assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0), "{asset}");
    }
    assert_eq!(surface.get("/assets/other.js").await.status, StatusCode::NOT_FOUND);
}

/// Fifteen megabytes of waste on a single node.
fn one_node() -> Arc<Snapshot> {
    let mut draft = Draft::new(1);
    let node = draft.get_or_add_node("nonode@nohost");
    draft.update_node(node, |node| {
        (node.is_up, node.is_member) = (Some(true), true);
        node.own_address = OwnAddress::Found("http://127.0.0.1:5984/".parse().unwrap());
    });
    let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".17" });
    let shard = draft.get_or_add_shard(node, db, Some(RANGE));
    draft.set_facts(shard, facts(10 * MIB, MIB));
    let designs = ["_design/clients".into()].into();
    let view = View { signature: Signature([1; 16]), designs, ..View::default() };
    let view = draft.add_view(db, view);
    draft.set_shard_map(db, ShardMapEntry { copies: 1, ranges: 1 }, &[view]);
    draft.set_facts(view, facts(6 * MIB, MIB));
    draft.get_or_add_cleanup(db);
    draft.publish(NOW)
}

#[tokio::test]
async fn pages_about_a_single_node_mention_no_cluster_or_copies() {
    let mut tasks = tokio::task::JoinSet::new();
    let mut surface = journal::surface(&mut tasks).await;
    surface.plan.send_replace(Arc::new(planned(&one_node())));
    surface.state.advice = watch::channel(Arc::default()).1;
    let view = "/target?id=view%3A_cluster%2Forders.17%2F01010101010101010101010101010101";
    for path in [
        "/",
        "/databases",
        "/database?name=orders",
        "/targets",
        view,
        "/queue",
        "/nodes",
        "/events",
        "/jobs",
        "/advice",
        "/status",
        "/what-if",
        "/preflight?db=orders",
    ] {
        let page = surface.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}: {}", page.text());
        let text = outside_tags(page.text()).replace("view:_cluster", "");
        for word in ["_cluster", "copies", "copy ", "all nodes", "each node", "direct address"] {
            assert!(!text.contains(word), "{path} has {word}: {text}");
        }
    }
    let databases = surface.get("/targets").await;
    let of_node = databases.text().matches("nonode@nohost").count();
    assert!(of_node >= 3, "{}", databases.text());
}

#[tokio::test]
async fn page_errors_have_a_status_and_name_the_problem() {
    let surface = Surface::new();
    for (path, status, says) in [
        ("/database?name=ordres", StatusCode::NOT_FOUND, "ordres"),
        ("/database", StatusCode::BAD_REQUEST, "The address needs ?name=…"),
        ("/target?id=db%3Ano", StatusCode::NOT_FOUND, "no"),
        ("/targets?kind=table", StatusCode::BAD_REQUEST, "is not one of db"),
        ("/targets?colour=red", StatusCode::BAD_REQUEST, "unknown field"),
        ("/targets?sort=mood", StatusCode::BAD_REQUEST, "is not one of reclaimable_bytes"),
        ("/targets?order=up", StatusCode::BAD_REQUEST, "is not one of asc, desc"),
        ("/targets?min_size=big", StatusCode::BAD_REQUEST, "is not a size"),
        ("/jobs?since=yesterday", StatusCode::BAD_REQUEST, "is not a valid time"),
        ("/act?order=explode", StatusCode::BAD_REQUEST, "is not an order"),
    ] {
        let page = surface.get(path).await;
        assert_eq!(page.status, status, "{path}: {}", page.text());
        assert_harmless(path, &page);
        assert!(page.text().contains(says), "{path} lacks {says}: {}", page.text());
    }
}

#[tokio::test]
async fn unknown_path_returns_a_page_to_browsers() {
    let surface = Surface::new();
    let page = surface.ask(Method::GET, "/nope", &[("accept", "text/html,*/*")]).await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    assert_harmless("/nope", &page);
    assert!(page.text().contains("There is no page at /nope."), "{}", page.text());
    let deep = surface.ask(Method::GET, "/no/pe", &[("accept", "text/html,*/*")]).await;
    assert_eq!(deep.text(), "no such page; / lists the pages\n");
}

#[tokio::test]
async fn every_page_escapes_hostile_names() {
    let hostile = "<script>alert(\"1\")</script>&<img src=x onerror='x'>\u{202e}";
    let mut surface = Surface::new();
    let mut draft = Draft::new(1);
    let node = draft.get_or_add_node(hostile);
    draft.update_node(node, |node| node.is_member = true);
    let db = draft.get_or_add_db(DbName { db: hostile, suffix: "" });
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
    let one = [
        link("/database", &[("name", hostile)]),
        link("/act", &[("order", "suspend"), ("scope", hostile)]),
    ];
    for path in PAGES.into_iter().map(str::to_owned).chain(one) {
        let page = surface.get(&path).await;
        assert_harmless(&path, &page);
        assert!(page.text().contains("A simulated cluster: "), "{path}");
        assert!(!outside_tags(page.text()).contains('\u{202e}'), "{path}");
    }
}

#[tokio::test]
async fn pages_without_data_are_valid() {
    let surface = Surface::new();
    surface.plan.send_replace(Arc::default());
    surface.status.send_replace(Arc::default());
    for path in PAGES {
        let page = surface.get(path).await;
        assert_harmless(path, &page);
    }
    assert!(surface.get("/").await.text().contains("The first sweep has not ended yet"));
}

#[tokio::test]
async fn pages_show_journal_and_hide_updates_by_default() {
    let mut tasks = tokio::task::JoinSet::new();
    let surface = journal::surface(&mut tasks).await;
    let journal = surface.state.journal.as_ref().unwrap();
    let written = crate::store::journal::EventDetails::Updated { db: "written-to".into() };
    let mut stored = journal.subscribe();
    journal.record(written);
    stored.recv().await.unwrap();
    for (path, wanted, not_wanted) in [
        ("/jobs", "freed", "keeps no journal"),
        ("/jobs?result=failed", "failed", "one good"),
        ("/events", "suspended", "written-to"),
        ("/events?types=updated", "written-to", "backup"),
        ("/", "Last night", "No compaction is recorded"),
    ] {
        let page = surface.get(path).await;
        assert_harmless(path, &page);
        let shown = page.text();
        assert!(shown.contains(wanted), "{path} lacks {wanted}: {shown}");
        assert!(!shown.contains(not_wanted), "{path} has {not_wanted}: {shown}");
    }
}

/// Sends a form with an order.
async fn form(surface: &Surface, body: &str, headers: &[(&str, &str)]) -> Answer {
    form_to(surface, "/act", body, headers).await
}

/// Sends a form of the console.
async fn form_to(surface: &Surface, to: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::post(to)
        .header("host", "127.0.0.1:10984")
        .header("content-type", "application/x-www-form-urlencoded")
        .extension(HERE);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let answer = surface.router().oneshot(request).await.unwrap();
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Answer { status: parts.status, headers: parts.headers, body }
}

#[tokio::test]
async fn accepts_order_forms_only_from_own_pages() {
    let mut surface = Surface::new();
    let order = "order=rescan";
    for headers in [
        &[][..],
        &[("origin", "null")],
        &[("origin", "http://evil.example")],
        &[("origin", "http://127.0.0.1:10985")],
        &[("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:10984")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-site", "same-origin"), ("origin", "http://evil.example")],
    ] {
        let answer = form(&surface, order, headers).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{headers:?}: {}", answer.text());
        assert!(answer.text().contains("another origin"), "{headers:?}: {}", answer.text());
        assert_harmless("/act", &answer);
    }
    assert!(surface.orders.try_recv().is_err());
}

#[tokio::test]
async fn carries_out_order_of_a_form_and_shows_the_answer() {
    let own = [("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:10984")];
    let mut surface = Surface::new();
    let orders = std::mem::replace(&mut surface.orders, mpsc::channel(1).1);
    let carried_out = async move {
        let mut orders = orders;
        let Some(Command::Order(order)) = orders.recv().await else { panic!("no order") };
        let Action::Suspend { scope, why } = order.action else { panic!("another order") };
        let (since, by) = (NOW.rfc3339(), Some(order.by));
        let suspended = Suspended { since, by, why: why.clone(), already: false, running: Some(2) };
        order.reply.send(Ok(OrderAnswer::Suspended(suspended))).unwrap();
        (scope.to_string(), why)
    };
    let body = "order=suspend&scope=node%3Acouchdb%40a&why=a+backup+runs";
    let (answer, (scope, why)) = tokio::join!(form(&surface, body, &own), carried_out);
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_harmless("/act", &answer);
    assert!(answer.text().contains("a backup runs"), "{}", answer.text());
    assert_eq!((&*scope, why.as_deref()), ("node:couchdb@a", Some("a backup runs")));
}

#[tokio::test]
async fn what_if_form_is_accepted_only_from_own_page_and_keeps_input() {
    let surface = Surface::new();
    let config = "config=channels%3A+%5B%7Bname%3A+%3Cb%3E%7D%5D%0D%0A&days=3";
    let answer = form_to(&surface, "/what-if", config, &[("origin", "http://evil.example")]).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", answer.text());
    let own = [("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:10984")];
    let answer = form_to(&surface, "/what-if", config, &own).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text());
    assert_harmless("/what-if", &answer);
    assert!(answer.text().contains("channels: [{name: &lt;b&gt;}]"), "{}", answer.text());
    assert!(answer.text().contains("config:1:"), "{}", answer.text());
    for (form, status, says) in [
        ("days=0", StatusCode::BAD_REQUEST, "it must be 1 to 366"),
        ("channels=best", StatusCode::BAD_REQUEST, "it must be smoosh"),
        ("channels=rent&days=3", StatusCode::CONFLICT, "ten minutes"),
    ] {
        let answer = form_to(&surface, "/what-if", form, &own).await;
        assert_eq!(answer.status, status, "{form}: {}", answer.text());
        assert!(answer.text().contains(says), "{form} lacks {says}: {}", answer.text());
        // A link only fills in the form, and computes nothing.
        let link = surface.get(&format!("/what-if?{form}")).await;
        assert_eq!(link.status, StatusCode::OK, "{form}: {}", link.text());
        assert!(!link.text().contains(says), "{form}: {}", link.text());
    }
    let link = surface.get("/what-if?channels=rent&days=3").await;
    assert!(link.text().contains("value=\"rent\" selected") && link.text().contains("value=\"3\""));
}

#[tokio::test]
async fn preflight_form_answers_only_own_pages_and_explains_errors() {
    let mut surface = Surface::new();
    surface.state.designs = Arc::new(Designs(Ok(None)));
    let own = [("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:10984")];
    let of = |db: &str, id: &str, design: &str| {
        link("", &[("db", db), ("id", id), ("design", design)]).split_off(1)
    };
    let design = r#"{"views": {"by_day": {"map": "function (doc) { emit(doc.day + '<b>'); }"}}}"#;
    let good = of("orders", "_design/by_day", design);
    let elsewhere =
        form_to(&surface, "/preflight", &good, &[("origin", "http://evil.example")]).await;
    assert_eq!(elsewhere.status, StatusCode::FORBIDDEN, "{}", elsewhere.text());
    let long = ["function (doc) { emit(1); }", &" ".repeat(100_000)].concat();
    let long = design.replace("function (doc) { emit(doc.day + '<b>'); }", &long);
    for (form, status, says) in [
        (good.clone(), StatusCode::OK, "Building orders/_design/by_day takes"),
        // A design document is longer than an address may be.
        (of("orders", "_design/x", &long), StatusCode::OK, "Building orders/_design/x takes"),
        (of("ordrs", "_design/x", design), StatusCode::NOT_FOUND, "did you mean"),
        (of("orders", "", design), StatusCode::BAD_REQUEST, "the document has no _id"),
        (of("orders", "", "{"), StatusCode::BAD_REQUEST, "the document is not JSON"),
        ("db=%ff&design=1".to_owned(), StatusCode::BAD_REQUEST, "utf-8"),
    ] {
        let answer = form_to(&surface, "/preflight", &form, &own).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_harmless("/preflight", &answer);
        assert!(answer.text().contains(says), "{says} is not in {}", answer.text());
        // A link only fills in the form: nothing is read.
        if form.len() < 1_000 && !form.contains("%ff") {
            let link = surface.get(&format!("/preflight?{form}")).await;
            assert!(!link.text().contains(says), "{}", link.text());
        }
    }
    let answer = form_to(&surface, "/preflight", &good, &own).await;
    assert!(answer.text().contains("emit(doc.day + '&lt;b&gt;')"), "{}", answer.text());
}

#[tokio::test]
async fn confirmation_of_compaction_shows_request_and_refusal() {
    let surface = Surface::new();
    let of = async |target: &str| {
        let path = link("/act", &[("order", "compact"), ("target", target)]);
        let page = surface.ask(Method::GET, &path, &[("host", "127.0.0.1:10984")]).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text());
        assert_harmless("/act", &page);
        page.text().to_owned()
    };
    let orders = "db:couchdb@a/shards%2F00000000-ffffffff%2Forders.17";
    let advised = of(orders).await;
    assert!(
        advised.contains("You cannot start it in advise mode") && !advised.contains("class=\"do\"")
    );
    // A channel takes the target, and a limit holds it back.
    let mut plan = Plan::clone(&surface.plan.borrow());
    Arc::make_mut(&mut plan.rules).mode = Mode::Enforce;
    surface.plan.send_replace(Arc::new(plan));
    let waits = of(orders).await;
    let request = "POST /_node/couchdb@a/shards%2F00000000-ffffffff%2Forders.17/_compact";
    for part in [request, "limits.wait", "frees", "more at its peak", "class=\"do\""] {
        assert!(waits.contains(part), "{part} is not in {waits}");
    }
    // A name that matches several targets starts nothing.
    let several = of("orders").await;
    assert!(several.contains("give one target") && !several.contains("class=\"do\""), "{several}");
}

#[tokio::test]
async fn forbidden_order_page_names_the_flag_to_set() {
    let mut surface = Surface::new();
    surface.state.allow.admin = false;
    for order in ["suspend&scope=all", "compact&target=orders", "rescan", "flush", "mute&code=x"] {
        let page = surface.get(&format!("/act?order={order}")).await;
        assert_eq!(page.status, StatusCode::OK, "{order}");
        assert!(page.text().contains("--web.enable-admin-api"), "{order}: {}", page.text());
        assert!(!page.text().contains("class=\"do\""), "{order}: {}", page.text());
    }
}

/// The next event of an open page that contains changed parts.
async fn parts(stream: &mut Body) -> Value {
    loop {
        let frame = stream.frame().await.expect("the stream has ended").unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        if let Some(data) = text.strip_prefix("event: parts\ndata: ") {
            return serde_json::from_str(data.trim()).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn open_page_receives_only_changed_parts() {
    let surface = Surface::new();
    let request = |page: &str| {
        let uri = format!("/live?page={page}");
        Request::get(uri).extension(HERE).body(Body::empty()).unwrap()
    };
    let router = surface.router();
    let open = async |page: &str| router.clone().oneshot(request(page)).await.unwrap();
    let answer = open("status").await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut stream = answer.into_body();
    let first = parts(&mut stream).await;
    assert_eq!(first.as_object().unwrap().len(), 4, "{first}");
    let status = ScanStatus { sweeps: 7, ..(**surface.status.borrow()).clone() };
    surface.status.send_replace(Arc::new(status));
    let next = parts(&mut stream).await;
    let changed: Vec<&String> = next.as_object().unwrap().keys().collect();
    assert_eq!(changed, ["errors", "sweep"], "the age of the last error changes too: {next}");
    assert!(next["sweep"].as_str().unwrap().contains('7'), "{next}");
    // A second reader of the same page gets all parts at once.
    let mut second = open("status").await.into_body();
    assert_eq!(parts(&mut second).await.as_object().unwrap().len(), 4);
    // At the end of its lifetime, the stream tells the page to open another one.
    let mut last = String::new();
    while let Some(frame) = second.frame().await {
        last = String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap();
    }
    assert_eq!(last, "event: again\ndata:\n\n");
    // The stream of a page that does not exist reports that, and stays open in case the page
    // appears.
    let refused = open("%2Fno%2Fsuch").await;
    assert_eq!(refused.status(), StatusCode::OK);
    let mut refused = refused.into_body();
    loop {
        let frame = refused.frame().await.expect("the stream has ended").unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        if text.starts_with("event: problem\ndata: not updating: ") {
            break;
        }
    }
    surface.state.stop.cancel();
    while let Some(rest) = stream.frame().await {
        rest.unwrap();
    }
}
