//! A stream of writes to a real CouchDB that depends only on its seed, not on how fast CouchDB
//! responds: if CouchDB falls behind, the same writes come later.

use crate::seeded::random_numbers;
use reqwest::Method;
use serde_json::{Value, json};
use std::{
    env,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::{self, Instant};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The prefix of the databases' names.
pub(crate) const PREFIX: &str = "recliner-churn-";
pub(crate) const DATABASES: usize = 12;
/// The average bytes of text in a document.
const BYTES: u64 = 4_000;
/// The documents of the smallest database, and the documents written per second to the slowest one;
/// the largest and the fastest database have a hundred times as many.
const FEWEST: f64 = 100.0;
const SLOWEST: f64 = 0.5;
const DECADES: f64 = 2.0;
/// The interval between two requests of a database.
const TICK: Duration = Duration::from_secs(2);
/// The maximum number of documents in one request.
const BATCH: usize = 500;
/// Of a hundred writes, this many add a document, and as many delete one.
const ADDED: u64 = 5;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A cluster, with a server admin's login.
pub(crate) struct Couch {
    http: reqwest::Client,
    urls: Vec<String>,
    user: String,
    password: String,
    next: AtomicUsize,
}

impl Couch {
    /// The cluster that the environment names; `None` if it names none.
    pub(crate) fn named() -> Result<Option<Self>, Failure> {
        let Ok(urls) = env::var("RECLINER_TEST_COUCHDB_URL") else { return Ok(None) };
        rustls::crypto::ring::default_provider()
            .install_default()
            .map_err(|_| "the TLS provider was installed twice")?;
        let of = |name: &str| env::var(name).map_err(|_| format!("{name} is not set"));
        Ok(Some(Self {
            http: reqwest::Client::builder().timeout(Duration::from_secs(120)).build()?,
            urls: urls.split(',').map(|url| url.trim_end_matches('/').to_owned()).collect(),
            user: of("RECLINER_TEST_COUCHDB_USER")?,
            password: of("RECLINER_TEST_COUCHDB_PASSWORD")?,
            next: AtomicUsize::new(0),
        }))
    }

    /// Sends a request, using the nodes in turn.
    async fn send(&self, method: Method, path: &str, body: Value) -> Result<Value, Failure> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.urls.len();
        let request = self.http.request(method.clone(), format!("{}/{path}", self.urls[at]));
        let request = request.basic_auth(&self.user, Some(&self.password));
        let request = request.header("Content-Type", "application/json").body(body.to_string());
        let answer = request.send().await?;
        let status = answer.status();
        let bytes = answer.bytes().await?;
        if status.is_success() {
            return Ok(serde_json::from_slice(&bytes)?);
        }
        Err(format!("{method} /{path}: {status} {}", String::from_utf8_lossy(&bytes)).into())
    }

    /// Compacts every copy of every shard of a database.
    pub(crate) async fn compact(&self, name: &str) -> Result<(), Failure> {
        self.send(Method::POST, &format!("{name}/_compact"), json!({})).await.map(drop)
    }

    pub(crate) async fn create(&self, name: &str) -> Result<(), Failure> {
        self.send(Method::PUT, &format!("{name}?q=2&n=3"), json!({})).await.map(drop)
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<(), Failure> {
        self.send(Method::DELETE, name, json!({})).await.map(drop)
    }
}

struct Document {
    id: String,
    revision: String,
    bytes: u64,
}

/// One database with its part of the stream.
pub(crate) struct Writer {
    couch: Arc<Couch>,
    pub(crate) name: String,
    random: Box<dyn FnMut() -> u64 + Send>,
    documents: Vec<Document>,
    /// The number of documents at first.
    at_first: usize,
    per_second: f64,
    /// Bytes of text of the existing documents.
    pub(crate) live: Arc<AtomicU64>,
    pub(crate) written: Written,
}

/// The outcome of the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) documents: u64,
    pub(crate) refused: u64,
    /// The maximum delay of a request after its time.
    pub(crate) late: Duration,
}

impl Written {
    pub(crate) fn add(&mut self, other: Self) {
        self.documents += other.documents;
        self.refused += other.refused;
        self.late = self.late.max(other.late);
    }
}

/// The value at this position of a hundredfold range, evenly spaced on a logarithmic axis.
fn spaced(least: f64, at: usize) -> f64 {
    least * 10_f64.powf(DECADES * at as f64 / (DATABASES - 1) as f64)
}

/// One writer for each database. Size and rate are independent: sizes rise with the number, rates
/// take the same steps in strides of five.
pub(crate) fn writers(couch: &Arc<Couch>, seed: u64) -> Vec<Writer> {
    let writer = |at: usize| Writer {
        couch: Arc::clone(couch),
        name: format!("{PREFIX}{at:02}"),
        random: Box::new(random_numbers(seed.wrapping_mul(1_000) + at as u64)),
        documents: Vec::new(),
        at_first: whole(spaced(FEWEST, at)),
        per_second: spaced(SLOWEST, at * 5 % DATABASES),
        live: Arc::default(),
        written: Written::default(),
    };
    (0..DATABASES).map(writer).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive numbers"
)]
fn whole(number: f64) -> usize {
    number as usize
}

impl Writer {
    fn below(&mut self, end: u64) -> u64 {
        (self.random)() % end.max(1)
    }

    /// Removes one of the existing documents from the list.
    fn take(&mut self) -> Document {
        let at = self.below(self.documents.len() as u64);
        let document = self.documents.swap_remove(usize::try_from(at).unwrap_or_default());
        self.live.fetch_sub(document.bytes, Ordering::Relaxed);
        document
    }

    /// Text that compresses little.
    fn text(&mut self) -> String {
        let bytes = usize::try_from(BYTES / 2 + self.below(BYTES)).unwrap_or_default();
        let mut text = String::with_capacity(bytes + 10);
        while text.len() < bytes {
            let random = (self.random)();
            let letter = |at: u32| LETTERS[usize::from((random >> (6 * at)).to_le_bytes()[0] % 64)];
            text.extend((0..10).map(|at| char::from(letter(at))));
        }
        text
    }

    fn added(&mut self) -> Value {
        let id = format!("{:016x}", (self.random)());
        json!({"_id": id, "text": self.text()})
    }

    /// The next write of the stream.
    fn next(&mut self) -> Value {
        let kind = self.below(100);
        if kind < ADDED || self.documents.is_empty() {
            return self.added();
        }
        let Document { id, revision, .. } = self.take();
        if kind < 2 * ADDED {
            json!({"_id": id, "_rev": revision, "_deleted": true})
        } else {
            json!({"_id": id, "_rev": revision, "text": self.text()})
        }
    }

    /// Creates the database and its first documents.
    pub(crate) async fn fill(&mut self) -> Result<(), Failure> {
        self.couch.create(&self.name).await?;
        while self.documents.len() < self.at_first {
            let missing = self.at_first - self.documents.len();
            let batch = (0..missing.min(BATCH)).map(|_| self.added()).collect();
            self.send(batch).await?;
        }
        self.written = Written::default();
        Ok(())
    }

    async fn send(&mut self, batch: Vec<Value>) -> Result<(), Failure> {
        let bytes: Vec<Option<u64>> =
            batch.iter().map(|doc| Some(doc["text"].as_str()?.len() as u64)).collect();
        let path = format!("{}/_bulk_docs", self.name);
        let rows = self.couch.send(Method::POST, &path, json!({ "docs": batch })).await?;
        let rows = rows.as_array().ok_or("_bulk_docs answered without a list")?;
        for (row, bytes) in rows.iter().zip(bytes) {
            self.written.documents += 1;
            let text = |key: &str| row[key].as_str().map(str::to_owned);
            let (Some(id), Some(revision)) = (text("id"), text("rev")) else {
                self.written.refused += 1;
                continue;
            };
            if let Some(bytes) = bytes {
                self.live.fetch_add(bytes, Ordering::Relaxed);
                self.documents.push(Document { id, revision, bytes });
            }
        }
        Ok(())
    }

    /// Writes for this many seconds.
    pub(crate) async fn write(mut self, seconds: u64) -> Result<Written, Failure> {
        let (start, mut owed) = (Instant::now(), 0.0);
        for tick in 0..seconds / TICK.as_secs() {
            let due = start + TICK * u32::try_from(tick)?;
            time::sleep_until(due).await;
            self.written.late = self.written.late.max(due.elapsed());
            owed += self.per_second * TICK.as_secs_f64();
            let mut batch = Vec::new();
            while owed >= 1.0 {
                owed -= 1.0;
                batch.push(self.next());
            }
            if !batch.is_empty() {
                self.send(batch).await?;
            }
        }
        Ok(self.written)
    }
}
