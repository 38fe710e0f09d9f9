//! What an operator wants to know or to do in the morning, from the first page in few clicks.

use super::{Browser, assert_quiet};
use crate::monitoring::demo::Demo;

/// An operator before the console of a demo, whose clicks are counted.
struct Operator {
    browser: Browser,
    demo: Demo,
    clicks: usize,
}

impl Operator {
    async fn start() -> Option<Self> {
        let browser = Browser::start().await?;
        let demo = Demo::start_with(&["--faults", "--web.enable-admin-api"]).await;
        Some(Self { browser, demo, clicks: 0 })
    }

    /// Begins a task on the first page.
    async fn begin(&mut self) {
        self.clicks = 0;
        self.browser.open(&format!("http://{}/", self.demo.address)).await;
    }

    /// Clicks a link or a button with this text, and waits for a page at this path.
    async fn click(&mut self, text: &str, path: &str) {
        self.browser.click_text(text).await;
        self.arrived(path).await;
    }

    /// Clicks the first element that a selector finds, and waits for a page at this path.
    async fn click_first(&mut self, css: &str, path: &str) {
        self.browser.click(css).await;
        self.arrived(path).await;
    }

    async fn arrived(&mut self, path: &str) {
        self.clicks += 1;
        self.browser.until(&format!("location.pathname === '{path}'")).await;
        self.browser.until("document.readyState === 'complete'").await;
    }

    /// Gives the order that the page asks about.
    async fn confirm(&mut self) {
        self.browser.click("button.do").await;
        self.clicks += 1;
        self.browser.until("document.title.startsWith('Done')").await;
    }

    /// Waits until a part of the page says this.
    async fn sees(&self, css: &str, text: &str) {
        let part = format!("document.querySelector(\"{css}\").textContent");
        self.browser.until(&format!("{part}.includes(\"{text}\")")).await;
    }

    /// Asserts that the task took at most this many clicks.
    async fn within(&self, clicks: usize, task: &str) {
        assert!(self.clicks <= clicks, "{task} took {} clicks", self.clicks);
        assert_quiet(&self.browser, task).await;
    }
}

#[tokio::test]
async fn every_routine_task_takes_few_clicks() {
    let Some(mut operator) = Operator::start().await else { return };
    finds_the_most_wasteful_database_and_why(&mut operator).await;
    compacts_a_database(&mut operator).await;
    sees_when_disks_are_full(&mut operator).await;
    sees_who_compacts(&mut operator).await;
    sees_last_night(&mut operator).await;
    suspends_and_resumes(&mut operator).await;
    learns_what_a_design_document_costs(&mut operator).await;
    operator.browser.close().await;
}

async fn finds_the_most_wasteful_database_and_why(operator: &mut Operator) {
    operator.begin().await;
    operator.click_first("header a[href='databases']", "/databases").await;
    let heading = operator.browser.text("th[aria-sort=descending]").await;
    assert!(heading.starts_with("reclaimable"), "{heading}");
    let worst = operator.browser.text("tbody td a").await;
    operator.click_first("tbody td a", "/database").await;
    assert_eq!(operator.browser.text("h1").await, worst);
    operator.sees("main", "reclaimable").await;
    // The reason, with a link to its explanation.
    operator.browser.until("document.querySelector(\"tbody a[href*='docs/why.html#']\")").await;
    operator.within(2, "the most wasteful database").await;
}

async fn compacts_a_database(operator: &mut Operator) {
    operator.begin().await;
    operator.click_first("header a[href='databases']", "/databases").await;
    let worst = operator.browser.text("tbody td a").await;
    operator.click_first("tbody td a", "/database").await;
    operator.click("Compact database …", "/act").await;
    operator.sees("main", "targets to compact").await;
    operator.confirm().await;
    operator.within(4, "compacting a database").await;
    // Its progress is listed with other activity.
    operator.begin().await;
    operator.click_first("header a[href='jobs']", "/jobs").await;
    operator.sees("main", &worst).await;
    operator.within(1, "how far it is").await;
}

async fn sees_when_disks_are_full(operator: &mut Operator) {
    operator.begin().await;
    let script =
        "return Array.from(document.querySelectorAll('#volumes p'), (it) => it.textContent);";
    let says = operator.browser.script(script).await;
    let says: Vec<&str> =
        says.as_array().into_iter().flatten().filter_map(|it| it.as_str()).collect();
    let full = ["Full on ", "Not full within", "When it will be full is not known"];
    let told = says.iter().filter(|text| full.iter().any(|start| text.starts_with(start))).count();
    assert_eq!(told, 3, "each volume has a date, or says why not: {says:?}");
    operator.within(0, "when the disk is full").await;
}

async fn sees_who_compacts(operator: &mut Operator) {
    operator.begin().await;
    operator.sees("#running", "recliner starts compactions").await;
    operator.sees("#running", "it has stopped smoosh's channels on all nodes").await;
    operator.click("What smoosh does", "/nodes").await;
    operator.sees("#smoosh", "taken over").await;
    operator.within(1, "whether smoosh or recliner works").await;
}

async fn sees_last_night(operator: &mut Operator) {
    operator.begin().await;
    operator.sees("#hours", " by recliner freed ").await;
    operator.click("Which", "/jobs").await;
    let rows =
        operator.browser.script("return document.querySelectorAll('tbody tr').length;").await;
    assert!(rows.as_u64() > Some(0), "its jobs are listed");
    operator.within(1, "last night").await;
}

async fn suspends_and_resumes(operator: &mut Operator) {
    let why = "the backup runs";
    operator.begin().await;
    operator.click("Suspend all starts …", "/act").await;
    operator.browser.write("input[name=why]", why).await;
    operator.confirm().await;
    operator.within(2, "suspending").await;
    operator.begin().await;
    operator.sees("#suspended", why).await;
    operator.click("Resume", "/act").await;
    operator.confirm().await;
    operator.within(2, "resuming").await;
    operator.begin().await;
    assert_eq!(operator.browser.text("#suspended").await, "");
}

async fn learns_what_a_design_document_costs(operator: &mut Operator) {
    let design = r#"{"_id": "_design/by_day", "views": {"by_day": {"map": "function (doc) { emit(doc.day); }"}}}"#;
    operator.begin().await;
    operator.click_first("header a[href='databases']", "/databases").await;
    let worst = operator.browser.text("tbody td a").await;
    operator.click_first("tbody td a", "/database").await;
    operator.click("what would a new index cost?", "/preflight").await;
    let db = operator.browser.script("return document.querySelector('[name=db]').value;").await;
    assert_eq!(db, *worst, "the form knows the database");
    operator.browser.write("textarea[name=design]", design).await;
    operator.browser.click_text("Predict the cost").await;
    operator.clicks += 1;
    operator.sees("#cost", &format!("Building {worst}/_design/by_day takes ")).await;
    operator.within(4, "what a design document costs").await;
}
