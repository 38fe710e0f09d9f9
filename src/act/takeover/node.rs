//! One pass over one node: read, decide, change.
//!
//! Owns the order of the writes. The task calls it for each node; the command uses only the
//! restoring part.

use super::{
    Hands, KEY, Ledger, Mark, NodeState, STOPPED, TakenOver,
    mark::{self, SECTION},
    rule::{Seen, Step, step},
    section,
};
use std::collections::{BTreeMap, BTreeSet};
use wall_clock::Moment;

/// Inputs of one pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass<'a> {
    pub(super) node: &'a str,
    /// Channels to take over.
    pub(super) wanted: &'a BTreeSet<String>,
    /// Channels in which this program enforces, whatever smoosh does.
    pub(super) acting: &'a BTreeSet<String>,
    /// The stored records of this node.
    pub(super) records: &'a BTreeMap<String, TakenOver>,
    /// Channels that this process has taken over on this node.
    pub(super) held: &'a BTreeSet<String>,
    /// Channels that somebody changed by hand; they are left alone.
    pub(super) yielded: &'a BTreeSet<String>,
    /// Whether this process may change anything other than what it took over itself.
    pub(super) may: bool,
    /// Channels this process ever tried to take over; it must restore them.
    pub(super) tried: &'a BTreeSet<String>,
    pub(super) now: Moment,
}

/// Result of a pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    pub(super) state: NodeState,
    pub(super) held: BTreeSet<String>,
    pub(super) yielded: BTreeSet<String>,
}

impl Pass<'_> {
    /// Reads the node and handles each channel. A failure with one channel does not affect the
    /// others.
    pub(super) async fn run(&self, hands: &dyn Hands, ledger: &dyn Ledger) -> Passed {
        let mut passed = Passed { yielded: self.yielded.clone(), ..Passed::default() };
        let marks = match hands.section(self.node, SECTION).await {
            Ok(section) => mark::marks(&section),
            Err(why) => {
                // Without a reading, the previous state is kept.
                passed.held.clone_from(self.held);
                passed.state.problem = Some(why);
                return passed;
            }
        };
        let channels: BTreeSet<&String> = self
            .wanted
            .iter()
            .chain(self.acting)
            .chain(self.held)
            .chain(self.records.keys())
            .chain(marks.keys())
            .collect();
        for channel in channels {
            let done = self.channel(channel, marks.get(channel), hands, ledger, &mut passed).await;
            if let Err(why) = done {
                if self.held.contains(channel) {
                    passed.held.insert(channel.clone());
                }
                if self.wanted.contains(channel) {
                    passed.state.not_taken.insert(channel.clone(), why.clone());
                }
                passed.state.problem = Some(why);
            }
        }
        passed
    }

    async fn channel(
        &self,
        channel: &str,
        mark: Option<&Mark>,
        hands: &dyn Hands,
        ledger: &dyn Ledger,
        passed: &mut Passed,
    ) -> Result<(), String> {
        let value = hands.section(self.node, &section(channel)).await?.remove(KEY);
        let yielded = self.yielded.contains(channel);
        let seen = Seen {
            value: value.as_deref(),
            mark,
            record: self.records.get(channel),
            held: self.held.contains(channel),
            wanted: self.wanted.contains(channel) && !yielded,
            may: self.may || self.tried.contains(channel),
        };
        let taken = |was: Option<String>| TakenOver {
            node: self.node.to_owned(),
            channel: channel.to_owned(),
            was,
        };
        let (node, shown) = (self.node, value.as_deref().unwrap_or("unset"));
        match step(&seen) {
            Step::Keep => passed.own(channel),
            Step::Adopt { was } => {
                passed.own(channel);
                ledger.take(taken(was)).await?;
            }
            Step::Take { was } => {
                // After a restart of the node the value may differ from the recorded one.
                if let Some(record) = seen.record.filter(|record| record.was != was) {
                    ledger.give_back(record.clone()).await?;
                }
                ledger.take(taken(was.clone())).await?;
                let mark = Mark { was, at: self.now };
                hands.set(node, SECTION, &mark::key(channel), &mark.text()).await?;
                hands.set(node, &section(channel), KEY, STOPPED).await?;
                passed.own(channel);
                let again = seen.held || seen.record.is_some();
                if again {
                    tracing::info!(node, channel, was = shown, "smoosh channel stopped again");
                }
            }
            Step::Yield => {
                self.forget(channel, hands, ledger).await?;
                passed.yielded.insert(channel.to_owned());
                passed.not_taken(node, channel, shown);
                tracing::warn!(
                    node,
                    channel,
                    is = shown,
                    "the concurrency of this channel was changed while it was taken over: recliner leaves it alone"
                );
            }
            Step::Restore { was } => {
                give_back(node, channel, was.as_deref(), hands).await?;
                self.forget(channel, hands, ledger).await?;
                let was = was.as_deref().unwrap_or("unset");
                tracing::info!(node, channel, was, "smoosh channel restored");
            }
            Step::Forget => self.forget(channel, hands, ledger).await?,
            Step::Stranded => passed.stranded(node, channel),
            Step::Leave if yielded => passed.not_taken(node, channel, shown),
            Step::Leave if self.acting.contains(channel) => {
                passed.state.contested.insert(channel.to_owned());
                passed.state.findings.push(format!(
                    "both smoosh and recliner start compactions in channel {channel} on {node}: list it under smoosh.takeover with smoosh.mode takeover, or set its mode to advise"
                ));
            }
            Step::Leave | Step::StoppedAlready => {}
        }
        Ok(())
    }

    /// Removes all records of a channel. The mark goes first, because without it nothing counts as
    /// set by this program.
    async fn forget(
        &self,
        channel: &str,
        hands: &dyn Hands,
        ledger: &dyn Ledger,
    ) -> Result<(), String> {
        hands.reset(self.node, SECTION, &mark::key(channel)).await?;
        match self.records.get(channel) {
            Some(record) => ledger.give_back(record.clone()).await,
            None => Ok(()),
        }
    }
}

impl Passed {
    fn own(&mut self, channel: &str) {
        self.held.insert(channel.to_owned());
        self.state.taken.insert(channel.to_owned());
    }

    fn stranded(&mut self, node: &str, channel: &str) {
        self.state.stranded.insert(channel.to_owned());
        self.state.findings.push(format!(
            "smoosh.{channel} is stopped on {node} by a takeover that this process does not maintain: if no other recliner does, run `recliner restore-smoosh` to restore it"
        ));
    }

    fn not_taken(&mut self, node: &str, channel: &str, value: &str) {
        let why = format!(
            "the concurrency of smoosh.{channel} on {node} was changed to {value:?} while it was taken over: recliner leaves it alone until it restarts or its configuration changes"
        );
        self.state.findings.push(why.clone());
        self.state.not_taken.insert(channel.to_owned(), why);
    }
}

/// Restores a channel: resets it to the value in the node's files, and then sets the previous value
/// if it was different, i.e. set until the next restart.
pub(super) async fn give_back(
    node: &str,
    channel: &str,
    was: Option<&str>,
    hands: &dyn Hands,
) -> Result<(), String> {
    let section = section(channel);
    hands.reset(node, &section, KEY).await?;
    let now = hands.section(node, &section).await?.remove(KEY);
    match was {
        Some(was) if now.as_deref() != Some(was) => hands.set(node, &section, KEY, was).await,
        Some(_) | None => Ok(()),
    }
}
