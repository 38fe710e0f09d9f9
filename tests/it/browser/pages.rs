//! Every page at the sizes of a phone and of a desktop, light and dark: nothing overflows, the console stays
//! empty, and axe finds no accessibility problem.

use super::{Browser, Served, Site, assert_quiet, encoded, hostile, webdriver::ENTER};
use crate::skipped::skipped;
use serde_json::{Value, json};
use std::{env, fs, path::PathBuf};

/// The rules of WCAG 2.2, levels A and AA.
const RULES: [&str; 5] = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/// The environment variable with the path of axe-core's script.
const AXE: &str = "RECLINER_TEST_AXE";

/// The environment variable with the directory for pictures of all pages.
const PICTURES: &str = "RECLINER_TEST_PICTURES";

/// Every page with a name for its picture; most of them have content.
async fn pages(served: &Served) -> Vec<(&'static str, String)> {
    let targets = served.data("targets?limit=1000").await;
    let targets = targets["targets"].as_array().expect("there are targets");
    let find = |kind: &str| {
        let mut of_kind = targets.iter().filter(|it| it["kind"] == kind);
        let found = of_kind.next().unwrap_or_else(|| panic!("there is no {kind}"));
        found["id"].as_str().expect("an id is text").to_owned()
    };
    let longest = targets.iter().filter_map(|it| it["db"].as_str());
    let longest = longest.max_by_key(|db| db.len()).expect("databases have names");
    let shard = encoded(&find("db"));
    let of = |path: &str| path.to_owned();
    vec![
        ("overview", of("")),
        ("targets", of("targets")),
        ("targets-filtered", of("targets?search=orders&kind=view&sort=ratio&order=asc")),
        ("shard", format!("target?id={shard}")),
        ("view", format!("target?id={}", encoded(&find("view")))),
        ("cleanup", format!("target?id={}", encoded(&find("cleanup")))),
        ("database", of("database?name=orders%2F2024%2Bx")),
        ("database-long", format!("database?name={}", encoded(longest))),
        ("indexes", of("indexes")),
        ("queue", of("queue")),
        ("jobs", of("jobs")),
        ("events", of("events")),
        ("fleet", of("fleet")),
        ("nodes", of("nodes")),
        ("advice", of("advice")),
        ("what-if", of("what-if")),
        ("preflight", of("preflight")),
        ("configuration", of("configuration")),
        ("status", of("status")),
        ("suspend", of("act?order=suspend&scope=all")),
        ("compact", format!("act?order=compact&target={shard}")),
        ("book", of("docs/introduction.html")),
    ]
}

/// A service on a hostile cluster, with the admin API enabled.
async fn hostile_service(site: &Site, dir: &std::path::Path) -> Served {
    let fleet = "fleet: {urls: ['http://127.0.0.1:1', 'http://a-name-that-is-long.example:10984/and/a/path']}\n";
    let yaml = ["mode: advise\n", fleet].concat();
    Served::start(site, dir, &yaml, &["--web.enable-admin-api"]).await
}

/// Waits until the page is complete: a live page has received its first parts.
async fn wait_until_complete(browser: &Browser) {
    browser
        .until(
            "!('live' in document.body.dataset)
             || document.getElementById('live-state').textContent === 'live'",
        )
        .await;
}

async fn suspend_for_a_hostile_reason(browser: &Browser, served: &Served) {
    served.open(browser, "act?order=suspend&scope=all").await;
    let why = super::MARKUP.replace(['\n', '\u{7}'], " ");
    browser.write("input[name=why]", &(why + &"long ".repeat(60))).await;
    browser.press(ENTER).await;
    browser.until("document.title.startsWith('Done')").await;
}

#[tokio::test]
async fn every_page_fits_its_window_without_console_errors() {
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(hostile()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = hostile_service(&site, dir.path()).await;
    suspend_for_a_hostile_reason(&browser, &served).await;
    let pictures = env::var_os(PICTURES).map(PathBuf::from);
    for (name, path) in pages(&served).await {
        served.open(&browser, &path).await;
        wait_until_complete(&browser).await;
        for (width, height) in [(360, 740), (390, 844), (1440, 900), (3840, 2160)] {
            for dark in [false, true] {
                browser.looks(width, height, dark).await;
                let sticks_out = browser.script(WIDER).await;
                assert_eq!(sticks_out, json!([]), "{name} at {width}");
                let hidden = browser.script(HIDDEN_NAMES).await;
                assert_eq!(hidden, json!([]), "{name} at {width}");
                let above = browser.script(ABOVE_TITLE).await;
                let is_low = above.as_f64().is_some_and(|above| above >= 150.0);
                assert!(!is_low || name == "book", "{above} above the title of {name} at {width}");
                if let Some(dir) = &pictures {
                    let scheme = if dark { "dark" } else { "light" };
                    let picture = browser.picture().await;
                    fs::create_dir_all(dir).unwrap();
                    fs::write(dir.join(format!("{name}-{width}-{scheme}.png")), picture).unwrap();
                }
            }
        }
        assert_quiet(&browser, name).await;
    }
    browser.close().await;
}

/// A script that returns the pixels between the top of the page and its title.
const ABOVE_TITLE: &str =
    "return document.querySelector('h1').getBoundingClientRect().top + window.scrollY;";

/// A script that returns the elements that make the page wider than its window.
const WIDER: &str = "
    const whole = document.documentElement;
    if (whole.scrollWidth <= whole.clientWidth) return [];
    return Array.from(document.querySelectorAll('body *'))
        .filter((it) => it.getBoundingClientRect().right > whole.clientWidth + 1)
        .slice(0, 5)
        .map((it) => it.tagName + '.' + it.className + ': ' + it.textContent.slice(0, 60));";

/// A script that returns names that rows do not show: each is linked in a column hidden at this window size and appears
/// nowhere else in its row.
const HIDDEN_NAMES: &str = "
    return Array.from(document.querySelectorAll(
            'tbody tr a[href^=\"database?\"], tbody tr a[href^=\"target?\"]'))
        .filter((it) => it.getClientRects().length === 0 && !it.closest('details'))
        .filter((it) => !it.closest('tr').innerText.includes(it.innerText.trim()))
        .slice(0, 5)
        .map((it) => it.textContent.slice(0, 60));";

/// A table of the console in a page of its own: its class, its head and a row.
fn alone(class: &str, head: &str, row: &str) -> String {
    let style = include_str!("../../../src/serve/console/assets/console.css");
    format!(
        "<!DOCTYPE html><html><head><style>{style}</style></head><body class='{class}'><main>
         <div class='wide'><table><thead><tr>{head}</tr></thead><tbody><tr>{row}</tr></tbody></table></div></main></body></html>"
    )
}

/// As on the page of jobs and in a report.
#[tokio::test]
async fn tables_fit_without_scrolling_sideways() {
    let Some(browser) = Browser::start().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let jobs = alone(
        "",
        "<th>target</th><th>ended</th><th>result</th><th class='n'>freed</th>",
        "<td class='named'><a href=''><bdi>carts 80-ff</bdi></a><span class='narrow quiet'><bdi>node1@couch-production-17.eu-west-1.compute.internal.example</bdi></span></td>
         <td><time class='one'>13h 40m ago</time></td><td><span class='one good'>freed</span></td><td class='n'>290.3 MiB</td>",
    );
    let report = alone(
        "report",
        "<th>database</th><th class='n'>on disk</th><th class='n'>reclaimable</th><th class='n'>growth in 7 days without compaction</th><th>last compaction</th><th>why not now</th>",
        "<td><bdi>archive-2019</bdi></td><td class='n'><bdi>192.9 GiB</bdi></td><td class='n'><bdi>757.2 MiB</bdi></td><td class='n'><bdi>115.1 GiB</bdi></td><td><bdi>2026-11-26 11:19</bdi></td><td><bdi>not before: window</bdi></td>",
    );
    for (name, page, width) in [("jobs", jobs, 390), ("report", report, 1_000)] {
        let file = dir.path().join(format!("{name}.html"));
        fs::write(&file, page).unwrap();
        browser.open(&format!("file://{}", file.display())).await;
        browser.looks(width, 900, false).await;
        let wider =
            "const it = document.querySelector('.wide'); return it.scrollWidth - it.clientWidth;";
        assert_eq!(browser.script(wider).await, json!(0), "{name}");
    }
    browser.close().await;
}

#[tokio::test]
async fn every_page_satisfies_wcag() {
    let Some(axe) = env::var_os(AXE) else {
        skipped(&format!("axe-core; npm has it, and {AXE} is to name its axe.min.js"));
        return;
    };
    let axe = fs::read_to_string(axe).expect("axe-core can be read");
    let Some(browser) = Browser::start().await else { return };
    let site = Site::open(hostile()).await;
    let dir = tempfile::tempdir().unwrap();
    let served = hostile_service(&site, dir.path()).await;
    suspend_for_a_hostile_reason(&browser, &served).await;
    let mut broken = Vec::new();
    for (name, path) in pages(&served).await {
        served.open(&browser, &path).await;
        wait_until_complete(&browser).await;
        browser.script(&axe).await;
        for (width, height, dark) in
            [(1440, 900, false), (1440, 900, true), (390, 844, false), (390, 844, true)]
        {
            browser.looks(width, height, dark).await;
            let run = format!(
                "const done = arguments[arguments.length - 1];
                 axe.run(document, {{ runOnly: {}, resultTypes: ['violations'] }})
                    .then((found) => done(found.violations), (why) => done(String(why)));",
                json!(RULES)
            );
            let violations = browser.script_async(&run).await;
            let violations = violations.as_array().unwrap_or_else(|| panic!("{violations}"));
            broken.extend(violations.iter().map(|it| {
                let at: Vec<&Value> = it["nodes"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .take(3)
                    .map(|node| &node["html"])
                    .collect();
                format!("{name} at {width}, dark {dark}: {}: {at:?}", it["help"])
            }));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    browser.close().await;
}
