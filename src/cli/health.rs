//! `recliner health`: whether a running recliner responds, as an exit status.
//!
//! Owns the check for a container or a monitor without an HTTP client. Checks only `/-/healthy`.

use super::{
    CommandError, Exit,
    service_client::{DEFAULT_URL, ServiceArgs, url_in_environment},
};
use std::time::Duration;
use tokio::time;

/// The maximum wait: a process that takes longer counts as not responding.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints nothing on success, because monitors run this every few seconds.
pub(super) async fn run(args: ServiceArgs) -> Result<Exit, CommandError> {
    let url = args.url.or_else(url_in_environment).unwrap_or_else(|| DEFAULT_URL.to_owned());
    let client = args.login.client(&url)?;
    let probe = time::timeout(PATIENCE, client.probe("/-/healthy")).await;
    probe.unwrap_or_else(|_| {
        let patience = PATIENCE.as_secs();
        Err(CommandError::failed(format!("recliner at {url} did not respond within {patience} s")))
    })?;
    Ok(Exit::Done)
}
