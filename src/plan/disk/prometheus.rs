//! Free space from a Prometheus: one query, one sample.
//!
//! Owns the two requests and what their answers mean. The task's instruments ask here, one
//! volume at a time once.
//!
//! The time in the answer of an instant query is that of its evaluation, not of the sample,
//! so that a target that is no longer scraped looks fresh for as long as Prometheus looks
//! back. `timestamp()` over the same query, at the same time, tells when it was scraped.

use crate::{sources::fetch, text::duration};
use couchdb_client::Address;
use serde::Deserialize;
use std::time::Duration;
use wall_clock::Moment;

/// The largest answer that is read. One sample is some hundred bytes.
const LONGEST: usize = 1 << 20;

/// What a query came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Free bytes.
    pub(super) available: u64,
    /// When they were measured, by this machine's clock.
    pub(super) at: Moment,
}

/// Prometheus's envelope.
#[derive(Debug, Deserialize)]
struct Envelope {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    data: Option<Data>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Vector(Vec<Series>),
    Scalar(Point),
    Matrix(serde::de::IgnoredAny),
    String(serde::de::IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct Series {
    /// Absent in a native histogram.
    #[serde(default)]
    value: Option<Point>,
}

/// Seconds since 1970, and a number as text.
#[derive(Debug, Deserialize)]
struct Point(f64, String);

impl Data {
    /// The one number.
    fn one(self) -> Result<Point, String> {
        match self {
            Self::Scalar(point) => Ok(point),
            Self::Vector(series) if series.is_empty() => {
                Err("it has no sample: is the target scraped, and are its labels right?".to_owned())
            }
            Self::Vector(series) => match <[Series; 1]>::try_from(series) {
                Ok([Series { value: Some(point) }]) => Ok(point),
                Ok([Series { value: None }]) => Err("its sample is no number".to_owned()),
                Err(series) => {
                    let count = series.len();
                    Err(format!("it has {count} samples: add labels until one is left"))
                }
            },
            Self::Matrix(_) | Self::String(_) => {
                Err("it gives no instant vector: leave out the range".to_owned())
            }
        }
    }
}

impl Point {
    fn number(&self) -> Result<f64, String> {
        let number: f64 = self.1.parse().map_err(|_| format!("{:?} is no number", self.1))?;
        if number.is_finite() { Ok(number) } else { Err(format!("its sample is {}", self.1)) }
    }
}

/// Seconds as a duration; zero where they are negative.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// The moment of a sample that is `age` old by Prometheus's clock and carries `stamp`: by
/// whichever clock it is older, because too old is the safe side.
fn taken_at(stamp: f64, age: Duration, now: Moment) -> Moment {
    let by_theirs = now.unix().saturating_sub(age.as_secs());
    Moment::from_unix(by_theirs.min(seconds(stamp).as_secs()))
}

/// Asks for the one sample of `query`.
///
/// # Errors
/// What was asked and what came back, in words.
pub(super) async fn ask(
    http: &reqwest::Client,
    url: &Address,
    query: &str,
    max_age: Duration,
    now: Moment,
) -> Result<Answer, String> {
    let refused = |why: String| format!("the query {query:?} to {url}: {why}");
    let point = get(http, url, query, None)
        .await
        .and_then(|data| data.one().map_err(Failure::Final))
        .map_err(|failure| refused(failure.into_words()))?;
    let number = point.number().map_err(refused)?;
    if number < 0.0 {
        return Err(refused(format!("its sample is {number}, less than nothing")));
    }
    let evaluated = point.0;
    // A line's end, because the query may end in a comment.
    let stamp = get(http, url, &format!("timestamp(\n{query}\n)"), Some(evaluated)).await;
    let stamp = match stamp {
        Ok(data) => data.one().and_then(|point| point.number()).map_err(refused)?,
        // Of a scalar there is none: then it is as old as the evaluation.
        Err(Failure::BadQuery(_)) => evaluated,
        Err(failure) => return Err(refused(failure.into_words())),
    };
    let at = taken_at(stamp, seconds(evaluated - stamp), now);
    if at.age(now) > max_age {
        let age = duration::shown(at.age(now));
        let most = duration::exact(max_age);
        return Err(refused(format!("its sample is {age} old, more than max_age, {most}")));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and `as` clamps at the largest"
    )]
    let available = number as u64;
    Ok(Answer { available, at })
}

/// Why there is no result.
enum Failure {
    /// Prometheus refuses the query as such.
    BadQuery(String),
    /// All else.
    Final(String),
}

impl Failure {
    fn into_words(self) -> String {
        match self {
            Self::BadQuery(why) | Self::Final(why) => why,
        }
    }
}

async fn get(
    http: &reqwest::Client,
    url: &Address,
    query: &str,
    time: Option<f64>,
) -> Result<Data, Failure> {
    let at = format!("{}/api/v1/query", url.as_str());
    let mut at = reqwest::Url::parse(&at).map_err(|why| Failure::Final(why.to_string()))?;
    at.query_pairs_mut().append_pair("query", query);
    if let Some(time) = time {
        at.query_pairs_mut().append_pair("time", &time.to_string());
    }
    let response = http.get(at).send().await.map_err(|why| Failure::Final(fetch::words(why)))?;
    let status = response.status().as_u16();
    let body = fetch::body(response, LONGEST).await.map_err(Failure::Final)?;
    let envelope: Result<Envelope, _> = serde_json::from_slice(&body);
    match (status, envelope) {
        (200, Ok(Envelope { data: Some(data), .. })) => Ok(data),
        (200, Ok(_)) => Err(Failure::Final("the answer has no data: is this Prometheus?".into())),
        (200, Err(why)) => {
            Err(Failure::Final(format!("the answer makes no sense, {why}: is this Prometheus?")))
        }
        (400, Ok(Envelope { error: Some(error), .. })) => {
            Err(Failure::BadQuery(format!("HTTP 400, {error}")))
        }
        (status, Ok(Envelope { error: Some(error), .. })) => {
            Err(Failure::Final(format!("HTTP {status}, {error}")))
        }
        (status, _) => Err(Failure::Final(format!("HTTP {status}"))),
    }
}

#[cfg(test)]
mod tests;
