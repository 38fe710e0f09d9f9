//! Free space and size from Prometheus: one query with one sample for each.
//!
//! Owns the requests and the interpretation of their answers. The disk task's meter calls it, one
//! call at a time for each volume.
//!
//! An instant query's answer carries the time of evaluation and not of the sample, so a target
//! that is no longer scraped looks fresh for the whole lookback period. `timestamp()` over the
//! same query at the same time returns when it was scraped.

use crate::{model::rounding::to_bytes, sources::fetch, text::duration};
use couchdb_client::Address;
use serde::Deserialize;
use std::time::Duration;
use wall_clock::Moment;

/// Maximum size of an answer. One sample takes a few hundred bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The result of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BytesSample {
    pub(super) bytes: u64,
    /// When they were measured, by the local clock.
    pub(super) measured_at: Moment,
}

#[derive(Debug, Deserialize)]
struct Envelope {
    error: Option<String>,
    data: Option<QueryResult>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum QueryResult {
    Vector(Vec<Series>),
    Scalar(Point),
    Matrix(serde::de::IgnoredAny),
    String(serde::de::IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct Series {
    /// Absent for a native histogram.
    value: Option<Point>,
}

/// Unix time in seconds, and a number as text.
#[derive(Debug, Deserialize)]
struct Point(f64, String);

impl QueryResult {
    /// The only sample, or an error if there is not exactly one.
    fn only_point(self) -> Result<Point, String> {
        match self {
            Self::Scalar(point) => Ok(point),
            Self::Vector(series) if series.is_empty() => Err(
                "it returned no sample; check that the target is scraped and that the labels match"
                    .to_owned(),
            ),
            Self::Vector(series) => match <[Series; 1]>::try_from(series) {
                Ok([Series { value: Some(point) }]) => Ok(point),
                Ok([Series { value: None }]) => Err("its sample is not a number".to_owned()),
                Err(series) => {
                    let count = series.len();
                    Err(format!("it returned {count} samples; add labels until it returns one"))
                }
            },
            Self::Matrix(_) | Self::String(_) => {
                Err("it does not return an instant vector; remove the range from the query"
                    .to_owned())
            }
        }
    }
}

impl Point {
    fn finite_number(&self) -> Result<f64, String> {
        let number: f64 = self.1.parse().map_err(|_| format!("{:?} is not a number", self.1))?;
        if number.is_finite() { Ok(number) } else { Err(format!("its sample is {}", self.1)) }
    }
}

/// Seconds as a duration; zero for negative numbers.
fn to_duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// The time of a sample, from its `age` by Prometheus's clock or from its timestamp `stamp`,
/// whichever makes it older: overestimating the age is the safe side.
fn sample_time(stamp: f64, age: Duration, now: Moment) -> Moment {
    let by_theirs = now.unix().saturating_sub(age.as_secs());
    Moment::from_unix(by_theirs.min(to_duration(stamp).as_secs()))
}

/// Queries the only sample of `query`.
///
/// # Errors
///
/// The query, its address and the problem, as a sentence.
pub(super) async fn query_bytes(
    http: &reqwest::Client,
    url: &Address,
    query: &str,
    max_age: Duration,
    now: Moment,
) -> Result<BytesSample, String> {
    let refused = |why: String| format!("the query {query:?} to {url}: {why}");
    let point = send_query(http, url, query, None)
        .await
        .and_then(|data| data.only_point().map_err(QueryFailure::Other))
        .map_err(|failure| refused(failure.into_message()))?;
    let number = point.finite_number().map_err(refused)?;
    if number < 0.0 {
        return Err(refused(format!("its sample is {number}, which is negative")));
    }
    let evaluated = point.0;
    // The query goes on a line of its own, because it may end in a comment.
    let stamp = send_query(http, url, &format!("timestamp(\n{query}\n)"), Some(evaluated)).await;
    let stamp = match stamp {
        Ok(data) => data.only_point().and_then(|point| point.finite_number()).map_err(refused)?,
        // A scalar has no timestamp, so the time of evaluation is used.
        Err(QueryFailure::BadQuery(_)) => evaluated,
        Err(failure) => return Err(refused(failure.into_message())),
    };
    let at = sample_time(stamp, to_duration(evaluated - stamp), now);
    if at.age(now) > max_age {
        let age = duration::format_rounded(at.age(now));
        let most = duration::format_exact(max_age);
        return Err(refused(format!("its sample is {age} old, older than max_age ({most})")));
    }
    Ok(BytesSample { bytes: to_bytes(number), measured_at: at })
}

enum QueryFailure {
    /// Prometheus rejects the query itself.
    BadQuery(String),
    /// Any other failure.
    Other(String),
}

impl QueryFailure {
    fn into_message(self) -> String {
        match self {
            Self::BadQuery(why) | Self::Other(why) => why,
        }
    }
}

async fn send_query(
    http: &reqwest::Client,
    url: &Address,
    query: &str,
    time: Option<f64>,
) -> Result<QueryResult, QueryFailure> {
    let at = format!("{}/api/v1/query", url.as_str());
    let mut at = reqwest::Url::parse(&at).map_err(|why| QueryFailure::Other(why.to_string()))?;
    at.query_pairs_mut().append_pair("query", query);
    if let Some(time) = time {
        at.query_pairs_mut().append_pair("time", &time.to_string());
    }
    let response =
        http.get(at).send().await.map_err(|why| QueryFailure::Other(fetch::describe(why)))?;
    let status = response.status().as_u16();
    let body = fetch::read_body(response, MAX_ANSWER_BYTES).await.map_err(QueryFailure::Other)?;
    let envelope: Result<Envelope, _> = serde_json::from_slice(&body);
    match (status, envelope) {
        (200, Ok(Envelope { data: Some(data), .. })) => Ok(data),
        (200, Ok(_)) => Err(QueryFailure::Other(
            "the answer has no data; check that this is a Prometheus server".into(),
        )),
        (200, Err(why)) => Err(QueryFailure::Other(format!(
            "the answer is not valid, {why}; check that this is a Prometheus server"
        ))),
        (400, Ok(Envelope { error: Some(error), .. })) => {
            Err(QueryFailure::BadQuery(format!("HTTP 400, {error}")))
        }
        (status, Ok(Envelope { error: Some(error), .. })) => {
            Err(QueryFailure::Other(format!("HTTP {status}, {error}")))
        }
        (status, _) => Err(QueryFailure::Other(format!("HTTP {status}"))),
    }
}

#[cfg(test)]
mod tests;
