//! `recliner import smoosh --as rent`: channels by rent that leave as much waste as smoosh does.

use super::super::{
    CommandError, Exit,
    args::{Daemon, ImportArgs},
    print, print_note, printable,
    service_client::WORK,
    table,
    what_if::note_simulating,
};
use crate::{
    model::rounding::to_bytes,
    serve::report::{OutlookLine, RentProposal, WhatIf, WhatIfQuestion},
    text::{quote, size::format_size},
};

/// Line width of the comments.
const WIDTH: u16 = 96;

/// Default number of days over which waste is compared.
const DAYS: u32 = 7;

/// Maximum waste of the proposed channels, as a multiple of smoosh's, at which waste counts as unchanged.
const KEPT: f64 = 1.1;

/// Comment that replaces channels to paste if no horizon keeps the waste.
const NO_HORIZON: &str = "No horizon keeps waste as low as smoosh does, so the channels below are commented out: widen windows or limits first, or accept more waste and remove the leading # signs.";

pub(super) async fn run(args: &ImportArgs) -> Result<Exit, CommandError> {
    check(args)?;
    let question = WhatIfQuestion {
        days: Some(args.days.unwrap_or(DAYS)),
        channels: Some("smoosh-as-rent".to_owned()),
        config: None,
    };
    let client = args.service.client()?;
    note_simulating();
    let answer: Result<WhatIf, CommandError> =
        client.post_within("/api/v1/what-if", &question, WORK).await;
    let answer = answer.map_err(|failure| match failure.is_transient {
        true => CommandError {
            why: format!(
                "{}; only a running recliner knows how files grow: start recliner serve, let it watch for ten minutes, and name it with --recliner.url",
                failure.why
            ),
            ..failure
        },
        false => failure,
    })?;
    let (proposal, smoosh, proposed) = parts(&answer).ok_or_else(|| {
        CommandError::failed("this recliner sent no proposal; is it an older version?")
    })?;
    print(&text(&answer, proposal, smoosh, proposed))?;
    proposal.findings.iter().for_each(|finding| print_note(&format!("note: {finding}")));
    if &*answer.smoosh.settings == "defaults" || !answer.smoosh.other_nodes.is_empty() {
        print_note(&format!("warning: {}", answer.smoosh.says));
    }
    if keeps_waste(proposal, smoosh, proposed) {
        return Ok(Exit::Done);
    }
    print_note("warning: these channels waste more than smoosh does");
    Ok(Exit::Failed)
}

/// Refuses flags that contradict each other.
fn check(args: &ImportArgs) -> Result<(), CommandError> {
    if args.daemon != Daemon::Smoosh {
        return Err(CommandError::usage(
            "--as rent works only with import smoosh: the waste of CouchDB 2's compaction daemon is unknown",
        ));
    }
    let source = &args.source;
    let names_files = !args.ini.is_empty() || args.version.is_some();
    if source.names_a_cluster() || source.node.is_some() || names_files {
        return Err(CommandError::usage(
            "--as rent asks a running recliner, which reads smoosh's settings itself: name it with --recliner.url, and omit --config.file and flags that name CouchDB or its files",
        ));
    }
    Ok(())
}

/// The proposal, and the outlooks under smoosh's rules and under the proposed ones.
fn parts(answer: &WhatIf) -> Option<(&RentProposal, &OutlookLine, &OutlookLine)> {
    Some((answer.as_rent.as_ref()?, answer.outlook("smoosh")?, answer.outlook("proposed")?))
}

/// The configuration, preceded by comments on the numbers behind it.
fn text(
    answer: &WhatIf,
    proposal: &RentProposal,
    smoosh: &OutlookLine,
    proposed: &OutlookLine,
) -> String {
    let days = answer.seconds / 86_400;
    let days = if days == 1 { "day".to_owned() } else { format!("{days} days") };
    let written = |outlook: &OutlookLine| format_size(to_bytes(outlook.rewritten_bytes_per_day));
    let mut says = vec![
        format!(
            "Channels by rent that keep the mean waste expected under smoosh for the next {days} from {}.",
            answer.from
        ),
        format!(
            "Mean waste: {} under smoosh, {} with these channels.",
            format_size(smoosh.mean_waste_bytes),
            format_size(proposed.mean_waste_bytes)
        ),
        format!(
            "Rewritten per day: {} under smoosh, {} with these channels.",
            written(smoosh),
            written(proposed)
        ),
    ];
    says.extend(proposal.horizons.iter().map(|it| format!("{}: {}.", it.channel, it.says)));
    says.push(answer.trust());
    says.push(format!("{}.", answer.smoosh.says));
    says.push(format!("{}.", WhatIf::SMOOSH_AT_ITS_BEST));
    let config = match keeps_waste(proposal, smoosh, proposed) {
        true => proposal.config.clone(),
        false => {
            says.push(NO_HORIZON.to_owned());
            proposal.config.lines().map(quote::comment).collect()
        }
    };
    let comments = says.iter().map(|line| comment(&printable(line)));
    comments.chain([config]).collect()
}

/// Whether the proposed channels leave about as much waste as smoosh, or less: each horizon by
/// itself, or all channels together where a horizon fits only roughly.
fn keeps_waste(proposal: &RentProposal, smoosh: &OutlookLine, proposed: &OutlookLine) -> bool {
    let fits = |fits: &[&str]| proposal.horizons.iter().all(|it| fits.contains(&&*it.fit));
    let together = smoosh.mean_waste_bytes as f64 * KEPT >= proposed.mean_waste_bytes as f64;
    fits(&["near", "longer", "little"])
        || (together && fits(&["near", "rough", "longer", "little"]))
}

fn comment(text: &str) -> String {
    table::paragraph(text, WIDTH).lines().map(quote::comment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn outlook(name: &str, waste: u64) -> Value {
        json!({
            "name": name, "mean_waste_bytes": waste, "peak_waste_bytes": waste,
            "rewritten_bytes_per_day": 1.0, "freed_bytes": 1, "compactions_per_day": 1.0,
            "longest_wait_seconds": null, "undone_targets": 0, "undone_bytes": 0, "undone": [],
            "coarse": false, "waste_bytes": [], "file_bytes": [], "volumes": [],
        })
    }

    /// The output for one horizon with this `fit`, when smoosh leaves 100 bytes and the channels
    /// leave `waste`.
    fn printed(fit: &str, waste: u64) -> String {
        let horizon = json!({
            "channel": "rent_dbs", "kind": "db", "horizon_seconds": 60, "smoosh_waste_bytes": 100,
            "waste_bytes": waste, "fit": fit, "says": "it is so",
        });
        let answer = json!({
            "from": "2026-11-23T10:00:00Z", "seconds": 604_800, "step_seconds": 1.0,
            "watched_bytes": 1, "file_bytes": 1, "watched_seconds": 604_800,
            "smoosh": {"settings": "cluster", "nodes": [], "other_nodes": [], "says": "as set"},
            "outlooks": [outlook("smoosh", 100), outlook("proposed", waste)],
            "as_rent": {"horizons": [horizon], "findings": [], "config": "channels:\n  - name: rent_dbs\n"},
        });
        let answer: WhatIf = serde_json::from_value(answer).unwrap();
        let (proposal, smoosh, proposed) = parts(&answer).unwrap();
        text(&answer, proposal, smoosh, proposed)
    }

    #[test]
    fn channels_that_leave_more_waste_are_commented_out() {
        for (fit, waste, keeps) in [
            ("near", 105, true),
            ("longer", 100, true),
            ("rough", 108, true),
            ("rough", 140, false),
            ("more", 140, false),
            ("more", 100, false),
        ] {
            let text = printed(fit, waste);
            assert_eq!(text.contains("\nchannels:\n"), keeps, "{fit}, {waste}: {text}");
            let all_comments = text.lines().all(|line| line.starts_with("# "));
            assert_eq!(all_comments, !keeps, "{text}");
            assert_eq!(text.contains("No horizon keeps waste"), !keeps, "{text}");
        }
    }
}
