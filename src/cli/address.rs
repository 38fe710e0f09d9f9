//! Adds `--recliner.url` to commands that people paste, so that they reach the recliner that answered.

use super::service_client::DEFAULT_URL;
use crate::{serve::report::AdviceRemedy, text::quote::shell_word};

/// The address in pasted commands after the cluster was read directly: the command cannot know
/// which recliner watches it.
pub(super) const UNKNOWN_URL: &str = "$RECLINER_URL";

/// Commands that query a running recliner or give it an order.
const ASKING: [&str; 4] =
    ["recliner compact", "recliner explain", "recliner plan", "recliner what-if"];

/// Adds the address to the commands that lack it, unless it is the default.
pub(super) fn address(remedy: &mut [AdviceRemedy], url: &str) {
    if url == DEFAULT_URL {
        return;
    }
    let word =
        if url.starts_with('$') { format!("\"{url}\"") } else { shell_word(url).into_owned() };
    for text in remedy.iter_mut().filter_map(|step| step.text.as_mut()) {
        let asks = ASKING.iter().find(|verb| text.strip_prefix(**verb).is_some_and(is_end_of_word));
        if let Some(verb) = asks {
            text.insert_str(verb.len(), &format!(" --recliner.url {word}"));
        }
    }
}

fn is_end_of_word(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(' ')
}
