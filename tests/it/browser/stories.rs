//! What people do on the pages: search, give an order, leave a page open, use only the keyboard, or disable
//! scripts.

use super::{
    Browser, PATIENCE, Served, Site, administrator, assert_quiet, encoded,
    webdriver::{ENTER, ESCAPE},
    written,
};
use crate::{
    command::{files::put, service::Running},
    monitoring::tools::http,
    seeded::random_numbers,
};
use couchdb_sim::{Config, Database, Orphan};
use serde_json::{Value, json};
use std::{env, fs, time::Duration};
use tokio::time::{self, Instant};

const NODES: [&str; 3] = crate::command::NODES;

const ADMIN: [&str; 1] = ["--web.enable-admin-api"];

/// A configuration that enforces, with one channel whose threshold no target reaches.
const ENFORCING: &str = "mode: enforce
poll: 1s
limits: {wait: 0s, duty: 100%}
headroom: {volumes: [{nodes: [node1@127.0.0.1, node2@127.0.0.1, node3@127.0.0.1], available: 1TB}]}
pressure: {probe_latency: {high: 1h, low: 30m}}
channels: [{name: ratio_dbs, kind: db, priority: ratio, min_priority: 100.0}]
";

/// Forty databases with three copies each: more targets than a page shows.
fn forty_databases() -> Config {
    let mut config = Config::new(&NODES);
    for at in 0..40_u32 {
        let name = format!("db{at:02}");
        let (docs, bloat) = (2_000 + u64::from(at) * 100, 2.0 + f64::from(at) / 10.0);
        config = config.with(Database { q: 1, n: 3, docs, bloat, ..Database::new(&name) });
    }
    config.orphans.push(Orphan {
        node: NODES[2].to_owned(),
        file: "shards/00000000-ffffffff/gone.1700000000".to_owned(),
        bytes: 3 << 20,
    });
    config.users = administrator();
    config
}

/// The texts of one column of the page's table.
async fn column(browser: &Browser, at: usize) -> Vec<String> {
    let script = format!(
        "return Array.from(document.querySelectorAll('tbody tr'), (row) => row.cells[{at}].textContent);"
    );
    let texts = browser.script(&script).await;
    let texts = texts.as_array().expect("rows are a list").iter();
    texts.map(|text| text.as_str().expect("cells are text").to_owned()).collect()
}

#[tokio::test]
async fn targets_are_searched_filtered_sorted_and_paged() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&site, dir.path(), "mode: advise\n", &[]).await;

    served.open(&browser, "targets?kind=db").await;
    assert_eq!(column(&browser, 0).await.len(), 100);
    browser.click_text("Next →").await;
    browser.until("location.search.includes('offset=100')").await;
    assert!(column(&browser, 0).await.len() >= 20);
    browser.click_text("← Previous").await;
    browser.until("!location.search.includes('offset=100')").await;

    // A click on a heading sorts by it; a second click reverses the order.
    browser.click_text("database").await;
    browser.until("document.querySelector('th[aria-sort=ascending]')").await;
    let up = column(&browser, 1).await;
    assert!(up.is_sorted() && up.len() == 100, "{up:?}");
    browser.click("th[aria-sort] a").await;
    browser.until("document.querySelector('th[aria-sort=descending]')").await;
    let down = column(&browser, 1).await;
    assert!(down.is_sorted_by(|one, other| one >= other), "{down:?}");

    browser.click("#page-search").await;
    browser.press("DB07").await;
    browser.press(ENTER).await;
    browser.until("location.search.includes('search=DB07')").await;
    let databases = column(&browser, 1).await;
    assert!(!databases.is_empty() && databases.iter().all(|db| db == "db07"), "{databases:?}");

    browser.script("document.querySelector('select[name=node]').value = 'node2@127.0.0.1';").await;
    browser.click("form.filter button").await;
    browser.until("location.search.includes('node=node2')").await;
    assert_eq!(column(&browser, 1).await, ["db07"]);
    browser.click("td a").await;
    browser.until("location.pathname === '/target'").await;
    assert_quiet(&browser, "target").await;
    browser.close().await;
}

/// The types of the newest events.
async fn event_types(served: &Served) -> Vec<Value> {
    let events = served.data("events?limit=1000").await;
    let events = events["events"].as_array().expect("events are a list");
    events.iter().map(|event| event["type"].clone()).collect()
}

#[tokio::test]
async fn orders_are_confirmed_executed_and_recorded() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&site, dir.path(), ENFORCING, &ADMIN).await;

    // The reason of a suspension is shown verbatim, and the open page shows it without a reload.
    let why = "<b>a backup</b> runs & \"more\"";
    served.open(&browser, "act?order=suspend&scope=all").await;
    assert!(browser.text("main").await.contains("POST /api/v1/suspend"));
    browser.write("input[name=why]", why).await;
    browser.click("button.do").await;
    browser.until("document.title.startsWith('Done')").await;
    served.open(&browser, "databases").await;
    let suspended = browser.text("#suspended").await;
    assert!(suspended.contains(why) && suspended.contains("since"), "{suspended}");
    browser.click_text("Resume").await;
    browser.until("document.title.startsWith('Resume starts?')").await;
    browser.click("button.do").await;
    browser.until("document.title.startsWith('Done')").await;

    // No channel takes a target whose ratio is below 100: an order has to force it, and the page shows
    // beforehand what the order would send, free and need.
    served.open(&browser, "targets?search=db39&node=node1%40127.0.0.1").await;
    browser.click("td a").await;
    browser.click_text("Compact now …").await;
    browser.until("document.title.startsWith('Compact now?')").await;
    let question = browser.text("main").await;
    for part in
        ["No channel takes it", "The request: POST /_node/node1@127.0.0.1/", "frees", "peak"]
    {
        assert!(question.contains(part), "{part} is not in {question}");
    }
    // The page proposes force because the order would be refused without it, and gives the reason.
    browser.click("input[name=force]").await;
    browser.click("button.do").await;
    browser.until("document.title.startsWith('Not done')").await;
    // The browser logs the status 409 as an error.
    assert_eq!(browser.console().await.len(), 1);
    browser.script("history.back()").await;
    browser.until("document.querySelector('input[name=force]')").await;
    browser.script("document.querySelector('input[name=force]').checked = true;").await;
    browser.click("button.do").await;
    browser.until("document.title.startsWith('Done')").await;

    served.open(&browser, "act?order=mute&code=orphan_shards").await;
    browser.write("input[name=for]", "2d").await;
    browser.write("input[name=why]", "archived").await;
    browser.click("button.do").await;
    browser.until("document.title.startsWith('Done')").await;

    let recorded = async {
        loop {
            let types = event_types(&served).await;
            let wanted = ["suspended", "resumed", "ordered", "started"];
            if wanted.iter().all(|wanted| types.iter().any(|it| it == wanted)) {
                return;
            }
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    if time::timeout(PATIENCE, recorded).await.is_err() {
        panic!("{:?}", event_types(&served).await);
    }
    served.open(&browser, "events?types=suspended").await;
    assert!(browser.text("main").await.contains(why));
    assert_quiet(&browser, "events").await;
    browser.close().await;
}

#[tokio::test]
async fn page_names_the_flag_when_orders_are_disabled() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&site, dir.path(), ENFORCING, &[]).await;
    served.open(&browser, "targets?search=db39").await;
    browser.click("td a").await;
    browser.until("location.pathname === '/target'").await;
    let shown = browser.text("main").await;
    assert!(shown.contains("--web.enable-admin-api"), "{shown}");
    assert!(shown.contains("The request: POST /_node/"), "{shown}");
    assert!(!shown.contains("Compact now"), "{shown}");
    let id = browser.script("return new URLSearchParams(location.search).get('id');").await;
    let id = id.as_str().expect("an id is text");
    served.open(&browser, &format!("act?order=compact&target={}", encoded(id))).await;
    browser.until("document.title.startsWith('Compact now?')").await;
    assert!(browser.text("main").await.contains("--web.enable-admin-api"));
    assert_eq!(browser.script("return document.querySelector('button.do');").await, Value::Null);
    browser.close().await;
}

#[tokio::test]
async fn open_page_shows_service_outage_and_recovers() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&site, dir.path(), "mode: advise\n", &[]).await;
    let (address, base) = (served.service.address.clone(), served.base.clone());
    served.open(&browser, "status").await;
    let says = |text: &str| {
        format!("document.getElementById('live-state').textContent.includes('{text}')")
    };
    browser.until(&says("live")).await;
    let shown = browser.text("#sweep").await;
    served.service.kill().await;
    browser.until(&says("no connection")).await;
    assert_eq!(browser.text("#sweep").await, shown, "the last known state stays");

    let config = written(dir.path(), "recliner.yml", "mode: advise\n");
    let flags = ["--config.file", &config, "--web.listen-address", &address];
    let flags = [&flags[..], &["--web.admin-socket", "none"]].concat();
    let service = Running::start(&site, dir.path(), &flags).await;
    let served = Served { service, base };
    served.is_ready().await;
    browser.until(&says("live")).await;
    browser.close().await;
}

/// The page's DOM nodes and the bytes of its scripts after a garbage collection.
async fn nodes_and_heap(browser: &Browser) -> [f64; 2] {
    browser.devtools("HeapProfiler.collectGarbage", json!({})).await;
    browser.devtools("Performance.enable", json!({})).await;
    let metrics = browser.devtools("Performance.getMetrics", json!({})).await;
    let metrics = metrics["metrics"].as_array().expect("there are metrics");
    ["Nodes", "JSHeapUsedSize"].map(|name| {
        let mut named = metrics.iter().filter(|metric| metric["name"] == name);
        named.next().and_then(|metric| metric["value"].as_f64()).expect("it has a value")
    })
}

/// Puts two rows and an open list into the page, focuses a link, scrolls, and then shows different rows.
const CHANGED_UNDER_A_READER: &str = r##"
    const part = document.createElement("section");
    part.style.width = "4rem";
    document.querySelector("main").append(part);
    const row = (name, text) => `<tr><td><a href="#${name}">${name}</a></td><td>${text}</td></tr>`;
    const all = (rows, lists) =>
        `<div class="wide"><table><tbody>${rows}</tbody></table></div>${lists}`;
    const list = (key) => `<details data-key="${key}"><summary>${key}</summary>text</details>`;
    const wide = "w".repeat(100);
    part.innerHTML = all(row("one", wide) + row("two", wide) + row("three", wide), list("x"));
    part.querySelector("details").open = true;
    part.querySelector(".wide").scrollLeft = 30;
    part.querySelector("[href='#two']").focus({ preventScroll: true });
    const fresh = part.cloneNode(false);
    fresh.innerHTML = all(row("zero", wide) + row("three", "3") + row("two", wide), list("y") + list("x"));
    waiting.clear();
    part.id = "changed";
    waiting.set("changed", fresh.innerHTML);
    show();
    return {
        rows: Array.from(part.querySelectorAll("tr"), (it) => it.cells[0].textContent).join(),
        changed: part.querySelectorAll("tr")[1].cells[1].textContent,
        focused: document.activeElement.getAttribute("href"),
        scrolled: part.querySelector(".wide").scrollLeft,
        opened: Array.from(part.querySelectorAll("details"), (it) => it.dataset.key + it.open).join(),
    };
"##;

#[tokio::test]
async fn updates_preserve_open_lists_focus_and_scroll() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&site, dir.path(), "mode: advise\n", &[]).await;
    served.open(&browser, "status").await;
    let after = browser.script(CHANGED_UNDER_A_READER).await;
    assert_eq!(
        after,
        json!({
            "rows": "zero,three,two",
            "changed": "3",
            "focused": "#two",
            "scrolled": 30,
            "opened": "yfalse,xtrue",
        })
    );
    browser.close().await;
}

/// The environment variable with the seconds for which a page is left open, such as 3600 for a
/// manual run.
const OPEN_FOR: &str = "RECLINER_TEST_OPEN_SECONDS";

#[tokio::test]
async fn a_page_that_stays_open_does_not_grow() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let yaml = "mode: advise\npoll: 1s\nscan: {interval: 2s}\n";
    let served = Served::start(&site, dir.path(), yaml, &[]).await;
    let seconds = env::var(OPEN_FOR).ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    served.open(&browser, "").await;
    browser.until("document.getElementById('live-state').textContent === 'live'").await;
    // Counts how often parts of the page are replaced.
    browser
        .script(
            "window.shown = 0;
             new MutationObserver(() => { shown++; })
                .observe(document.querySelector('main'), { childList: true, characterData: true, subtree: true });",
        )
        .await;
    time::sleep(Duration::from_secs(5)).await;
    let [nodes, heap] = nodes_and_heap(&browser).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        time::sleep(Duration::from_secs(seconds.div_ceil(60).max(5))).await;
        println!("{:?} after {:?}", nodes_and_heap(&browser).await, begun.elapsed());
    }
    let [nodes_after, heap_after] = nodes_and_heap(&browser).await;
    assert!(browser.script("return shown;").await.as_u64() >= Some(3), "the page was updated live");
    assert!(nodes_after < nodes * 1.2 + 100.0, "{nodes} nodes became {nodes_after}");
    assert!(heap_after < heap * 1.2 + 500e3, "{heap} bytes became {heap_after}");
    browser.close().await;
}

#[tokio::test]
async fn pages_can_be_used_by_keyboard_alone() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&site, dir.path(), "mode: advise\n", &[]).await;
    served.open(&browser, "status").await;
    browser.press("?").await;
    browser.until("document.getElementById('page-keys').open").await;
    browser.press(ESCAPE).await;
    browser.until("!document.getElementById('page-keys').open").await;
    browser.press("/").await;
    browser.until("document.activeElement.id === 'page-search'").await;
    // While a field has the focus, letters are text and not shortcuts.
    browser.press("go").await;
    assert_eq!(browser.script("return document.activeElement.value;").await, "go");
    for (letter, path) in [
        ('o', "/"),
        ('t', "/targets"),
        ('q', "/queue"),
        ('j', "/jobs"),
        ('e', "/events"),
        ('h', "/changes"),
        ('n', "/nodes"),
        ('a', "/advice"),
        ('w', "/what-if"),
        ('p', "/preflight"),
        ('c', "/configuration"),
        ('s', "/status"),
    ] {
        served.open(&browser, "docs/introduction.html").await;
        // Chromium may drop a key pressed before a page's first frame, so the test presses again, as a reader would.
        let arrived = format!("location.pathname === '{path}'");
        for _ in 0..5 {
            browser.press(&format!("g{letter}")).await;
            let arrives = browser.until(&arrived);
            if time::timeout(Duration::from_secs(1), arrives).await.is_ok() {
                break;
            }
        }
        browser.until(&arrived).await;
    }
    // The first tab stop skips the navigation.
    browser.press("\u{e004}").await;
    assert_eq!(browser.script("return document.activeElement.className;").await, "skip");
    assert_quiet(&browser, "the keyboard").await;
    browser.close().await;
}

#[tokio::test]
async fn pages_work_without_scripts() {
    let Some(browser) = Browser::with_scripts(false).await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&site, dir.path(), "mode: advise\n", &ADMIN).await;
    served.open(&browser, "").await;
    let loading = browser.text("#live-state").await;
    assert_eq!(loading, "not updating", "no script ran");
    browser.write("#page-search", "db07").await;
    browser.write("#page-search", ENTER).await;
    // Scripts that the test runs are not scripts of the page.
    browser.until("location.search.includes('search=db07')").await;
    assert!(browser.text("main").await.contains("db07"));
    served.open(&browser, "act?order=suspend&scope=all").await;
    browser.write("input[name=why]", "no scripts").await;
    browser.click("button.do").await;
    browser.until("document.title.startsWith('Done')").await;
    served.open(&browser, "").await;
    assert!(browser.text("#suspended").await.contains("no scripts"));
    served.open(&browser, "what-if").await;
    browser.write("textarea", "channels: no-such-list").await;
    browser.click("form.what-if button").await;
    browser.until("document.querySelector('.banner.worst')").await;
    let refused = browser.text(".banner.worst").await;
    assert!(refused.contains("no-such-list"), "{refused}");
    served.open(&browser, "database?name=db07").await;
    browser.click("a[href^=preflight]").await;
    browser.until("location.search === '?db=db07'").await;
    browser.write("input[name=id]", "_design/by_day").await;
    browser
        .write("textarea", r#"{"views": {"by_day": {"map": "function (doc) { emit(1); }"}}}"#)
        .await;
    browser.click("form.what-if button").await;
    browser.until("document.querySelector('#cost .note')").await;
    let cost = browser.text("#cost").await;
    assert!(cost.contains("Building db07/_design/by_day takes"), "{cost}");
    browser.close().await;
}

#[tokio::test]
async fn login_is_asked_once_and_reused() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let password = format!("p{}", random_numbers(7)());
    let hash = bcrypt::hash(&password, 5).unwrap();
    let web = written(dir.path(), "web.yml", &format!("basic_auth_users: {{ann: {hash}}}\n"));
    let config = written(dir.path(), "recliner.yml", "mode: advise\n");
    let flags = ["--config.file", &config, "--web.config.file", &web];
    let flags = [&flags[..], &["--web.enable-admin-api", "--web.admin-socket", "none"]].concat();
    let service = Running::start(&site, dir.path(), &flags).await;
    let base = format!("http://{}/", service.address);
    let served = Served { service, base };
    served.is_ready().await;

    // A browser asks for the login because the first page demands it.
    let refused = http().get(&served.base).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 401);
    let challenge = &refused.headers()["www-authenticate"];
    assert_eq!(challenge, "Basic realm=\"recliner\", charset=\"UTF-8\"");
    // The request that a browser sends once the user has filled in the login dialogue.
    let address = served.service.address.clone();
    browser.open(&format!("http://ann:{password}@{address}/")).await;
    for path in ["", "targets", "jobs", "events", "nodes", "status", "docs/introduction.html"] {
        // The address no longer contains the login.
        if !path.is_empty() {
            served.open(&browser, path).await;
        }
        browser
            .until(
                "!('live' in document.body.dataset)
                 || document.getElementById('live-state').textContent === 'live'",
            )
            .await;
        let styled = "return getComputedStyle(document.querySelector('.bar')).display;";
        assert_eq!(browser.script(styled).await, "flex", "{path}");
        assert_quiet(&browser, path).await;
    }
    // The order is recorded under that user's name.
    served.open(&browser, "act?order=suspend&scope=all").await;
    browser.click("button.do").await;
    browser.until("document.title.startsWith('Done')").await;
    assert!(browser.text("main").await.contains("ann from 127.0.0.1"));
    browser.close().await;
}

#[tokio::test]
async fn commands_of_a_remedy_are_copied_by_a_click() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(forty_databases()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&site, dir.path(), "mode: advise\n", &[]).await;
    served.open(&browser, "advice").await;
    browser.until("document.querySelector('.to-copy pre')").await;
    browser
        .script(
            "document.querySelectorAll('details').forEach((it) => { it.open = true; });
             navigator.clipboard.writeText = (text) => {
                 window.copied = text;
                 return Promise.resolve();
             };",
        )
        .await;
    browser.click("[data-copy]").await;
    browser.until("document.querySelector('[data-copy]').textContent === 'Copied'").await;
    let same = "return window.copied === document.querySelector('.to-copy pre').textContent;";
    assert_eq!(browser.script(same).await, json!(true));
    browser.close().await;
}

#[tokio::test]
async fn clicking_shows_the_parts_of_a_databases_files() {
    let Some(browser) = Browser::start().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = "shards/00000000-ffffffff/orders.1795222434.couch";
    put(dir.path(), file, "updates.couch");
    let data = dir.path().display().to_string();
    let words = ["serve", "--data-dir", &data, "--web.listen-address", "127.0.0.1:0"];
    let words = [&words[..], &["--web.admin-socket", "none"]].concat();
    let service = Running::start_with(dir.path(), &words, &[]).await;
    let served = Served { base: format!("http://{}/", service.address), service };
    served.is_ready().await;

    served.open(&browser, "databases").await;
    browser.click_text("orders").await;
    browser.until("location.pathname === '/database'").await;
    browser.click_text("What uses the space?").await;
    // The open page shows it as soon as the files are read.
    browser.until("document.querySelector(\"[aria-label='Parts of its files']\")").await;
    let parts = "return Array.from(
        document.querySelectorAll(\"[aria-label='Parts of its files'] tbody tr\"),
        (row) => Number(row.cells[1].querySelector('[title]').title.replace(/[^0-9]/g, '')));";
    let parts = browser.script(parts).await;
    let parts = parts.as_array().expect("rows are a list").iter();
    let parts: Vec<u64> = parts.map(|it| it.as_u64().expect("a size is a number")).collect();
    assert!(parts.len() > 3 && parts.is_sorted_by(|one, other| one >= other), "{parts:?}");
    let bytes = fs::metadata(dir.path().join(file)).unwrap().len();
    assert_eq!(parts.iter().sum::<u64>(), bytes);
    let says = browser.text("#inside").await;
    assert!(says.contains("a compaction would leave") && says.contains("Look again"), "{says}");
    assert_quiet(&browser, "database").await;
    browser.close().await;
}
