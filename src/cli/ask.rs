//! Asking a running recliner.

use super::Failure;
use serde_json::Value;

/// What the service at `url` answers to one question of its API.
pub(super) async fn ask(
    url: &str,
    route: &str,
    parameters: &[(&str, &str)],
) -> Result<Value, Failure> {
    let base = url.trim_end_matches('/');
    let at = reqwest::Url::parse_with_params(&format!("{base}/api/v1/{route}"), parameters)
        .map_err(|why| Failure::usage(format!("--recliner.url {url:?} is not a URL: {why}")))?;
    let refused = |why: String| Failure::failed(format!("cannot ask recliner at {base}: {why}"));
    let answer = reqwest::get(at).await.map_err(|why| refused(why.to_string()))?;
    let body = answer.bytes().await.map_err(|why| refused(why.to_string()))?;
    let mut body: Value = serde_json::from_slice(&body).map_err(|why| refused(why.to_string()))?;
    match (body["data"].take(), body["error"].as_str()) {
        (data @ Value::Object(_), _) => Ok(data),
        (_, Some(why)) => Err(Failure::failed(why)),
        (_, None) => Err(refused("it answered no JSON of recliner's".to_owned())),
    }
}
