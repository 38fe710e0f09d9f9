//! The requests to CouchDB.

use crate::{shapes::Shape, tally::File};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    env,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The number of concurrent requests while sizes are read.
const AT_ONCE: usize = 6;

/// The size of one file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub(crate) file: u64,
    pub(crate) active: u64,
    /// The sequence of the last compaction, for a shard copy.
    pub(crate) compacted: Option<u64>,
}

/// A cluster, with a login.
pub(crate) struct Couch {
    http: reqwest::Client,
    urls: Vec<String>,
    user: String,
    password: String,
    turn: AtomicUsize,
}

fn part(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Couch {
    /// The cluster that the environment names.
    pub(crate) fn named() -> Result<Self, Failure> {
        rustls::crypto::ring::default_provider()
            .install_default()
            .map_err(|_| "the TLS provider was installed twice")?;
        let of = |name: &str| env::var(name).map_err(|_| format!("{name} is not set"));
        let urls = of("RECLINER_TEST_COUCHDB_URL")?;
        let urls = urls.split(',').map(|url| url.trim_end_matches('/').to_owned()).collect();
        Ok(Self {
            http: reqwest::Client::builder().timeout(Duration::from_secs(120)).build()?,
            urls,
            user: of("RECLINER_TEST_COUCHDB_USER")?,
            password: of("RECLINER_TEST_COUCHDB_PASSWORD")?,
            turn: AtomicUsize::new(0),
        })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), Failure> {
        let at = self.turn.fetch_add(1, Ordering::Relaxed) % self.urls.len();
        let url = format!("{}{path}", self.urls[at]);
        let request = self.http.request(method, &url).basic_auth(&self.user, Some(&self.password));
        let request = match body {
            Some(body) => request.header("Content-Type", "application/json").body(body.to_string()),
            None => request,
        };
        let answer = request.send().await?;
        let status = answer.status();
        let body = answer.bytes().await?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    async fn must(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let (status, answer) = self.ask(method.clone(), path, body).await?;
        if status.is_success() {
            return Ok(answer);
        }
        Err(format!("{method} {path}: {status} {answer}").into())
    }

    pub(crate) async fn nodes(&self) -> Result<Vec<String>, Failure> {
        let members = self.must(Method::GET, "/_membership", None).await?;
        Ok(serde_json::from_value(members["cluster_nodes"].clone())?)
    }

    /// Creates a database and its view.
    pub(crate) async fn create(&self, shape: &Shape) -> Result<(), Failure> {
        let path = format!("/{}", part(&shape.name));
        self.must(Method::PUT, &format!("{path}?q={}", shape.q), None).await?;
        if shape.view {
            let map = "function (doc) { emit([doc.kind, doc.at], doc.text.length); }";
            let design = json!({"views": {"by_kind": {"map": map, "reduce": "_sum"}}});
            self.must(Method::PUT, &format!("{path}/_design/v"), Some(&design)).await?;
        }
        Ok(())
    }

    pub(crate) async fn delete(&self, shape: &Shape) -> Result<(), Failure> {
        self.must(Method::DELETE, &format!("/{}", part(&shape.name)), None).await.map(|_| ())
    }

    /// Every file of these databases: shard copies and copies of views.
    pub(crate) async fn files(&self, prefix: &str, shapes: &[Shape]) -> Result<Vec<File>, Failure> {
        let viewed = |shard: &str| {
            let mut with_view = shapes.iter().filter(|shape| shape.view);
            with_view.any(|shape| shard.contains(&format!("/{}.", shape.name)))
        };
        let mut files = Vec::new();
        for node in self.nodes().await? {
            let all = self.must(Method::GET, &format!("/_node/{node}/_all_dbs"), None).await?;
            let all: Vec<String> = serde_json::from_value(all)?;
            for shard in all.into_iter().filter(|name| name.contains(&format!("/{prefix}"))) {
                let path = format!("/_node/{node}/{}", part(&shard));
                if viewed(&shard) {
                    let path = format!("{path}/_design/v/_info");
                    files.push(File { path, view: true });
                }
                files.push(File { path, view: false });
            }
        }
        Ok(files)
    }

    /// The sizes of these files; files without a response are left out.
    pub(crate) async fn sizes(&self, files: &[File]) -> Result<BTreeMap<usize, Size>, Failure> {
        let asked: Vec<_> =
            files.iter().enumerate().map(|(at, file)| self.size(at, file).boxed()).collect();
        let seen: Vec<_> = stream::iter(asked).buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(seen.into_iter().flatten().collect())
    }

    async fn size(&self, at: usize, file: &File) -> Result<Option<(usize, Size)>, Failure> {
        let (status, answer) = self.ask(Method::GET, &file.path, None).await?;
        let info = if file.view { &answer["view_index"] } else { &answer };
        let bytes = |name: &str| info["sizes"][name].as_u64();
        match (bytes("file"), bytes("active")) {
            (Some(file), Some(active)) => {
                Ok(Some((at, Size { file, active, compacted: info["compacted_seq"].as_u64() })))
            }
            _ if status.is_success() || status == StatusCode::NOT_FOUND => Ok(None),
            _ => Err(format!("{}: {status} {answer}", file.path).into()),
        }
    }

    /// Writes documents; returns for each its id and new revision, or nothing if it was refused.
    pub(crate) async fn write(
        &self,
        shape: &Shape,
        docs: Vec<Value>,
    ) -> Result<Vec<Option<(String, String)>>, Failure> {
        let path = format!("/{}/_bulk_docs", part(&shape.name));
        let rows = self.must(Method::POST, &path, Some(&json!({ "docs": docs }))).await?;
        let rows = rows.as_array().ok_or("_bulk_docs answered no list")?.iter();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(rows.map(|row| Some((text(&row["id"])?, text(&row["rev"])?))).collect())
    }

    /// Requests an update of the view on all copies, without waiting for it.
    pub(crate) async fn touch_view(&self, shape: &Shape) -> Result<(), Failure> {
        let name = part(&shape.name);
        let path = format!("/{name}/_design/v/_view/by_kind?limit=0&update=lazy");
        self.must(Method::GET, &path, None).await.map(|_| ())
    }
}
