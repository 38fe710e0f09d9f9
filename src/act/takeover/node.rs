//! One pass over one node: read, decide, change.
//!
//! Owns the order of the writes. The task calls it for each node; the command uses only the
//! restoring part.

use super::{
    CONCURRENCY_KEY, ConfigApi, ConfigKey, MARK_SECTION, NodeTakeover, STOPPED_CONCURRENCY,
    TakeoverMark, TakeoverRecord, TakeoverStore,
    channel_action::{ChannelAction, ChannelFacts, decide},
    channel_section, concurrency, mark, smoosh_channels,
};
use std::collections::{BTreeMap, BTreeSet};
use wall_clock::Moment;

#[derive(Clone, Copy, Debug)]
pub(super) struct NodePass<'a> {
    pub(super) node: &'a str,
    /// Channels to take over.
    pub(super) wanted: &'a BTreeSet<String>,
    /// Channels in which this program enforces, whatever smoosh does.
    pub(super) enforced: &'a BTreeSet<String>,
    /// The stored records of this node.
    pub(super) records: &'a BTreeMap<String, TakeoverRecord>,
    /// Channels that this process has taken over on this node.
    pub(super) held: &'a BTreeSet<String>,
    /// Channels that somebody changed by hand; they are left alone.
    pub(super) left_to_operator: &'a BTreeSet<String>,
    /// Whether this process may change anything other than what it took over itself.
    pub(super) may_change: bool,
    /// Channels this process ever tried to take over; it must restore them.
    pub(super) ever_tried: &'a BTreeSet<String>,
    pub(super) now: Moment,
    pub(super) api: &'a dyn ConfigApi,
    pub(super) store: &'a dyn TakeoverStore,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PassResult {
    pub(super) state: NodeTakeover,
    pub(super) held: BTreeSet<String>,
    pub(super) left_to_operator: BTreeSet<String>,
}

impl NodePass<'_> {
    /// Reads the node and handles each channel. A failure in one channel does not affect the
    /// others.
    pub(super) async fn run(&self) -> PassResult {
        let mut result =
            PassResult { left_to_operator: self.left_to_operator.clone(), ..PassResult::default() };
        let marks = match self.api.section(self.node, MARK_SECTION).await {
            Ok(section) => mark::parse_marks(&section),
            Err(why) => {
                // The node could not be read, so the previous state stays.
                result.held.clone_from(self.held);
                result.state.problem = Some(why);
                return result;
            }
        };
        let smoosh = if self.wanted.is_empty() && self.enforced.is_empty() {
            None
        } else {
            smoosh_channels(self.api, self.node).await.ok().flatten()
        };
        let channels: BTreeSet<&String> = self
            .wanted
            .iter()
            .chain(self.enforced)
            .chain(self.held)
            .chain(self.records.keys())
            .chain(marks.keys())
            .collect();
        for channel in channels {
            let exists = smoosh.as_ref().map(|smoosh| smoosh.contains(channel));
            let handled =
                self.handle_channel((channel, exists), marks.get(channel), &mut result).await;
            if let Some(smoosh) = smoosh.as_ref().filter(|_| exists == Some(false))
                && self.wanted.contains(channel)
            {
                result.add_absent(self.node, channel, smoosh);
            }
            if let Err(why) = handled {
                if self.held.contains(channel) {
                    result.held.insert(channel.clone());
                }
                if self.wanted.contains(channel) {
                    result.state.not_taken_over.insert(channel.clone(), why.clone());
                }
                result.state.problem = Some(why);
            }
        }
        result
    }

    /// Handles one channel; `exists` tells whether the node's smoosh has it, if known.
    async fn handle_channel(
        &self,
        (channel, exists): (&str, Option<bool>),
        mark: Option<&TakeoverMark>,
        passed: &mut PassResult,
    ) -> Result<(), String> {
        let section = channel_section(channel);
        let value = self.api.section(self.node, &section).await?.remove(CONCURRENCY_KEY);
        let is_left_alone = self.left_to_operator.contains(channel);
        let facts = ChannelFacts {
            value: value.as_deref(),
            mark,
            record: self.records.get(channel),
            held: self.held.contains(channel),
            wanted: self.wanted.contains(channel) && !is_left_alone && exists != Some(false),
            may: self.may_change || self.ever_tried.contains(channel),
        };
        let (node, value) = (self.node, value.as_deref().unwrap_or("unset"));
        match decide(&facts) {
            ChannelAction::KeepTakenOver => passed.add_taken_over(channel),
            ChannelAction::AddRecord { was } => {
                passed.add_taken_over(channel);
                self.store.insert(self.record(channel, was)).await?;
            }
            ChannelAction::TakeOver { was } => {
                self.take_over(channel, facts.record, was).await?;
                passed.add_taken_over(channel);
                if facts.held || facts.record.is_some() {
                    tracing::info!(node, channel, was = value, "smoosh channel stopped again");
                }
            }
            ChannelAction::LeaveToOperator => {
                self.remove_records(channel).await?;
                passed.left_to_operator.insert(channel.to_owned());
                passed.add_not_taken_over(node, channel, value);
                tracing::warn!(
                    node,
                    channel,
                    is = value,
                    "somebody changed the concurrency of this channel while it was taken over: recliner leaves it alone"
                );
            }
            ChannelAction::Restore { was } => {
                restore_channel(node, channel, was.as_deref(), self.api).await?;
                self.remove_records(channel).await?;
                let was = was.as_deref().unwrap_or("unset");
                tracing::info!(node, channel, was, "smoosh channel restored");
            }
            ChannelAction::RemoveRecords => self.remove_records(channel).await?,
            ChannelAction::Stranded => passed.add_stranded(node, channel),
            ChannelAction::Leave if is_left_alone => {
                passed.add_not_taken_over(node, channel, value);
            }
            ChannelAction::Leave if exists == Some(true) && self.enforced.contains(channel) => {
                passed.add_contested(node, channel);
            }
            ChannelAction::Leave | ChannelAction::StoppedByOthers => {}
        }
        Ok(())
    }

    fn record(&self, channel: &str, previous: Option<String>) -> TakeoverRecord {
        TakeoverRecord { node: self.node.to_owned(), channel: channel.to_owned(), previous }
    }

    /// Takes a channel over: record, mark, value, in this order.
    async fn take_over(
        &self,
        channel: &str,
        record: Option<&TakeoverRecord>,
        was: Option<String>,
    ) -> Result<(), String> {
        let node = self.node;
        // After a restart of the node the value may differ from the recorded one.
        if let Some(record) = record.filter(|record| record.previous != was) {
            self.store.remove(record.clone()).await?;
        }
        self.store.insert(self.record(channel, was.clone())).await?;
        let mark = TakeoverMark { was, at: self.now }.to_json();
        let key = &mark::mark_key(channel);
        self.api.set(ConfigKey { node, section: MARK_SECTION, key }, &mark).await?;
        let section = &channel_section(channel);
        self.api.set(concurrency(node, section), STOPPED_CONCURRENCY).await
    }

    /// Removes all records of a channel. The mark goes first, because without it nothing counts as
    /// set by this program.
    async fn remove_records(&self, channel: &str) -> Result<(), String> {
        let key = &mark::mark_key(channel);
        self.api.reset(ConfigKey { node: self.node, section: MARK_SECTION, key }).await?;
        match self.records.get(channel) {
            Some(record) => self.store.remove(record.clone()).await,
            None => Ok(()),
        }
    }
}

impl PassResult {
    fn add_taken_over(&mut self, channel: &str) {
        self.held.insert(channel.to_owned());
        self.state.taken_over.insert(channel.to_owned());
    }

    fn add_stranded(&mut self, node: &str, channel: &str) {
        self.state.stranded.insert(channel.to_owned());
        self.state.findings.push(format!(
            "smoosh.{channel} is stopped on {node} by a takeover that this process does not maintain: if no other recliner does, run `recliner restore-smoosh` to restore it"
        ));
    }

    fn add_contested(&mut self, node: &str, channel: &str) {
        self.state.contested.insert(channel.to_owned());
        self.state.findings.push(format!(
            "smoosh and recliner may both start compactions in channel {channel} on {node}: list it under smoosh.takeover with smoosh.mode takeover, or set its mode to advise"
        ));
    }

    fn add_absent(&mut self, node: &str, channel: &str, smoosh: &BTreeSet<String>) {
        let why = format!(
            "smoosh on {node} has no channel {channel} that a takeover could stop; {}",
            its_channels(smoosh)
        );
        self.state.findings.push(why.clone());
        self.state.not_taken_over.insert(channel.to_owned(), why);
    }

    fn add_not_taken_over(&mut self, node: &str, channel: &str, value: &str) {
        let why = format!(
            "somebody changed the concurrency of smoosh.{channel} on {node} to {value:?} while it was taken over: recliner leaves it alone until recliner restarts or its configuration changes"
        );
        self.state.findings.push(why.clone());
        self.state.not_taken_over.insert(channel.to_owned(), why);
    }
}

/// A smoosh's channels in words, such as `it has ratio_dbs`.
pub fn its_channels(smoosh: &BTreeSet<String>) -> String {
    let names: Vec<&str> = smoosh.iter().map(String::as_str).collect();
    if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) }
}

/// Restores a channel: resets it to the value in the node's files, and then sets the previous value
/// if it was different, i.e. set until the next restart.
pub(super) async fn restore_channel(
    node: &str,
    channel: &str,
    was: Option<&str>,
    api: &dyn ConfigApi,
) -> Result<(), String> {
    let section = channel_section(channel);
    let key = concurrency(node, &section);
    api.reset(key).await?;
    let now = api.section(node, &section).await?.remove(CONCURRENCY_KEY);
    match was {
        Some(was) if now.as_deref() != Some(was) => api.set(key, was).await,
        Some(_) | None => Ok(()),
    }
}
