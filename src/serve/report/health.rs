//! The problems of the cluster and of recliner in sentences, which the console and the terminal
//! share.

use super::{Advice, Planned, Space, Status, TakeoverLine};
use crate::{
    plan::RefusalReason,
    text::{Label, counted, grouped, listed},
};

/// A problem, with the page that shows more about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concern {
    /// Whether it prevents recliner or CouchDB from working.
    pub is_critical: bool,
    /// The problem in a sentence.
    pub says: String,
    /// The console's page that shows it, as a relative link.
    pub page: &'static str,
}

impl Concern {
    fn warning(says: String, page: &'static str) -> Self {
        Self { is_critical: false, says, page }
    }
}

impl Status {
    /// The problems that prevent recliner from working.
    pub fn problems(&self) -> Vec<String> {
        self.of_severity(true)
    }

    /// The problems that an operator should look at soon.
    pub fn warnings(&self) -> Vec<String> {
        self.of_severity(false)
    }

    fn of_severity(&self, is_critical: bool) -> Vec<String> {
        let concerns = self.concerns().into_iter();
        concerns.filter(|it| it.is_critical == is_critical).map(|it| it.says).collect()
    }

    /// Every problem that the status shows, worst first.
    fn concerns(&self) -> Vec<Concern> {
        let mut out = self.critical_concerns();
        out.extend(self.scan_warnings());
        out.extend(self.config_warnings());
        out.extend(self.smoosh_warning());
        out.extend(self.node_warning());
        out
    }

    fn critical_concerns(&self) -> Vec<Concern> {
        let mut out = Vec::new();
        let mut push = |says, page| out.push(Concern { is_critical: true, says, page });
        if let Some(problem) = &self.problem {
            push(format!("recliner cannot read anything: {problem}"), "status");
        }
        if let Some(unread) = &self.unread_shards {
            push(format!("{unread}."), "status");
        }
        if let Some(problem) = &self.journal_problem {
            push(
                format!(
                    "The journal cannot be used, so nothing is recorded and nothing starts: {problem}"
                ),
                "status",
            );
        }
        let down: Vec<&str> = self.down_nodes().collect();
        match down.as_slice() {
            [] => {}
            [one] => push(format!("{one} does not answer."), "nodes"),
            many => {
                push(format!("{} nodes do not answer: {}.", many.len(), many.join(", ")), "nodes")
            }
        }
        out
    }

    fn down_nodes(&self) -> impl Iterator<Item = &str> {
        let down = self.nodes.iter().filter(|node| node.up == Some(false));
        down.map(|node| &*node.node)
    }

    /// The URLs that do not answer although every node does.
    fn silent_urls(&self) -> Vec<String> {
        if self.problem.is_some() || self.down_nodes().next().is_some() {
            return Vec::new();
        }
        let silent = self.couchdb.iter().filter(|entry| entry.up == Some(false));
        silent.map(|entry| entry.url.clone()).collect()
    }

    fn scan_warnings(&self) -> Vec<Concern> {
        let mut out = Vec::new();
        let mut push = |says| out.push(Concern::warning(says, "status"));
        match &*self.silent_urls() {
            [] => {}
            [one] => push(format!("The URL {one} under couchdb.urls does not answer.")),
            some => push(format!("These URLs under couchdb.urls do not answer: {}.", listed(some))),
        }
        let share = self.shared_limits.as_ref().and_then(|it| it.share.as_ref());
        if let Some(why) = share.and_then(|share| share.problem.as_ref()) {
            push(format!("Limits that clusters share: {}.", why.trim_end_matches('.')));
        }
        if !self.missing_rights.is_empty() {
            push(format!("The login lacks rights: {}", self.missing_rights.join("; ")));
        }
        if let Some(absent) = &self.absent_shards {
            push(format!("{absent}."));
        }
        if !self.ready && self.problem.is_none() {
            let progress = match (self.sweep.done, self.sweep.total) {
                (Some(done), Some(total)) => {
                    let [done, total] = [done, total].map(|files| grouped(files as u64));
                    format!(": {done} of {total} files are read")
                }
                _ => String::new(),
            };
            push(format!(
                "The first sweep has not ended yet{progress}. The numbers below cover what was read so far."
            ));
        }
        let failed = self.sweep.last_success != self.sweep.last_end && self.unread_shards.is_none();
        if let (true, Some(last)) = (failed, &self.last_error) {
            let of =
                self.last_error_at.as_ref().map_or_else(String::new, |at| format!(", of {at}"));
            push(format!("The last sweep was incomplete. The last error{of}: {last}"));
        }
        out
    }

    fn config_warnings(&self) -> Vec<Concern> {
        let mut out = Vec::new();
        let mut push = |says| out.push(Concern::warning(says, "configuration"));
        if !self.config.last_reload_successful {
            push("The changed configuration is not valid, so the previous one still applies; run recliner check-config to see why.".to_owned());
        }
        if !self.config.needs_restart.is_empty() {
            push(format!(
                "A restart is needed for the new value of {}.",
                self.config.needs_restart.join(", ")
            ));
        }
        out
    }

    /// The findings about the nodes' smoosh, in one line.
    fn smoosh_warning(&self) -> Option<Concern> {
        let of = |line: &'_ TakeoverLine| {
            let problem = line.problem.clone().into_iter();
            let found = problem.chain(line.findings.iter().cloned());
            found.map(|says| (line.node.clone(), says)).collect::<Vec<_>>()
        };
        about_nodes(" about smoosh", self.smoosh.iter().flat_map(of).collect())
    }

    /// The findings about the nodes themselves, in one line.
    fn node_warning(&self) -> Option<Concern> {
        let served = self.nodes.iter().filter(|node| node.served && node.up != Some(false));
        let found = served.flat_map(|node| {
            node.findings.iter().map(|says| (node.node.clone(), says.to_string()))
        });
        about_nodes("", found.collect())
    }

    /// The sentence that nothing is wrong; `None` if something is.
    pub fn all_clear(&self) -> Option<&'static str> {
        let is_fine = self.ready && self.suspensions.is_empty() && self.concerns().is_empty();
        is_fine.then_some(match *self.nodes {
            [_] => "No problems: the node answers, and the last sweep was complete.",
            _ => "No problems: all nodes answer, and the last sweep was complete.",
        })
    }

    /// Every problem, worst first. Suspensions are not problems: see
    /// [`suspensions`](Self::suspensions).
    pub fn all_concerns(&self, space: &Space, planned: &Planned, advice: &Advice) -> Vec<Concern> {
        let mut out = self.concerns();
        out.extend(advice_concerns(advice));
        out.extend(unknown_space(space, planned));
        // The sort is stable, so concerns of one severity keep their order.
        out.sort_by_key(|concern| !concern.is_critical);
        out
    }
}

/// Merges findings about nodes into one warning: the only finding, or their number and the first
/// one.
fn about_nodes(about: &str, found: Vec<(String, String)>) -> Option<Concern> {
    let (node, first) = found.first()?;
    let first = format!("{node}: {}", first.trim_end_matches('.'));
    let says = match found.len() {
        1 => format!("{first}."),
        many => {
            let mut nodes: Vec<&str> = found.iter().map(|(node, _)| &**node).collect();
            nodes.dedup();
            format!(
                "{many} findings{about} on {}, the first about {first}.",
                counted(nodes.len() as u64, "node", "nodes")
            )
        }
    };
    Some(Concern::warning(says, "nodes"))
}

/// One concern for each piece of critical advice, and one for all warnings together.
fn advice_concerns(advice: &Advice) -> Vec<Concern> {
    let of = |severity: &'static str| advice.open().filter(move |line| line.severity == severity);
    let critical = of("critical").map(|line| Concern {
        is_critical: true,
        says: line.says.clone(),
        page: "advice",
    });
    let mut out: Vec<Concern> = critical.collect();
    let mut warnings = of("warning");
    if let Some(first) = warnings.next() {
        let more = warnings.count() as u64;
        let says = match more {
            0 => first.says.clone(),
            more => format!("{} {}.", first.says, counted(more, "more warning", "more warnings")),
        };
        out.push(Concern::warning(says, "advice"));
    }
    out
}

/// The concern about volumes whose free space recliner needs but does not know.
fn unknown_space(space: &Space, planned: &Planned) -> Option<Concern> {
    let reason = RefusalReason::UnknownDisk.label();
    let waiting: u64 = planned.candidates.iter().filter_map(|line| line.refused.get(reason)).sum();
    let is_known_elsewhere = space.volumes.iter().any(|volume| volume.available_bytes.is_some());
    if space.nodes_without_space.is_empty() || (waiting == 0 && !is_known_elsewhere) {
        return None;
    }
    let consequence = match waiting {
        0 => String::new(),
        some => format!(
            ", so {} larger than headroom.blind_limit {}",
            counted(some, "file", "files"),
            if some == 1 { "does not start" } else { "do not start" }
        ),
    };
    let nodes = listed(&space.nodes_without_space);
    let says = format!(
        "Free space is unknown on {nodes}{consequence}. Set headroom.volumes or --data-dir."
    );
    Some(Concern::warning(says, "docs/files.html"))
}

#[cfg(test)]
mod tests;
