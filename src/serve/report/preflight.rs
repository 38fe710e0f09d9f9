//! The predicted cost of deploying a design document, and the question about it.

use super::{
    advice::AdviceRemedy,
    columns::{Cell, Table, rest},
    vocabulary::{self, Word},
};
use crate::{
    advice::preflight::{
        BuildKind, DesignDocument, DesignProblem, IndexSize, MeasuredIndex, NodeNeed,
        Preflight as Found, PreflightInputs, PresentDesign, SpaceVerdict, Spread, ViewChange,
        built_languages, database_called, preflight,
    },
    model::rounding::to_bytes,
    plan::Plan,
    sources::doc_sample::DocSample,
    table::DbIx,
    text::{Label, counted, duration, grouped, listed, size::format_size_short},
};
use couchdb_files::SampleSums;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// The design document to predict the cost of.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreflightQuestion {
    /// The database to deploy it to.
    pub db: String,
    /// The design document as it will be sent to CouchDB: the order of its keys is part of the signature.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub design: Box<RawValue>,
    /// The document's id, `_design/NAME`, if the document has no `_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// A question whose names have been resolved.
#[derive(Debug)]
pub struct ResolvedQuestion {
    /// The design document to deploy.
    pub design: DesignDocument,
    db: DbIx,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// The document cannot be deployed.
    #[error("the document {0}")]
    Design(#[from] DesignProblem),
    /// No database has this name; the sentence suggests a similar one.
    #[error("{0}")]
    NoDatabase(String),
}

impl PreflightQuestion {
    /// Resolves the database and the design document that it names.
    ///
    /// # Errors
    /// If there is no such database, or CouchDB would refuse the document.
    pub fn resolve(&self, plan: &Plan, now: Moment) -> Result<ResolvedQuestion, QuestionError> {
        let design = DesignDocument::parse(self.design.get(), self.id.as_deref())?;
        let no_database = || QuestionError::NoDatabase(super::no_database(plan, &self.db));
        let db = database_called(&plan.snapshot, &self.db, now).ok_or_else(no_database)?;
        design.check_language(&built_languages(&plan.snapshot))?;
        Ok(ResolvedQuestion { design, db })
    }
}

impl ResolvedQuestion {
    /// The answer, given the document that the database has at present.
    pub fn answer(
        &self,
        plan: &Plan,
        present: &PresentDesign,
        sample: Option<&DocSample>,
        now: Moment,
    ) -> Preflight {
        let (db, design) = (self.db, &self.design);
        let beside = [&[][..]; 2];
        Preflight::of(&preflight(&PreflightInputs {
            plan,
            db,
            design,
            present,
            beside,
            sample,
            now,
        }))
    }
}

/// The predicted cost of a design document. Bytes are those of all copies, unless a node is named; unknown is
/// null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preflight {
    /// A summary in one sentence.
    pub says: String,
    /// The database.
    pub db: String,
    /// The id of the design document.
    pub design: String,
    /// What has to be built.
    #[schemars(with = "vocabulary::PreflightBuild")]
    pub build: Word,
    /// The signature of the new index; null without views.
    pub signature: Option<String>,
    /// The signature of the document's current index.
    pub present_signature: Option<String>,
    /// Other design documents that already use the new index.
    pub shared_with: Vec<String>,
    /// Differences from the current document besides its views, as sentences.
    pub document_changes: Vec<String>,
    /// The views of the new and the current document.
    pub views: Vec<PreflightView>,
    /// Names of the search indexes that are built; their cost is not estimated.
    #[serde(default)]
    pub search_indexes: Vec<String>,
    /// Names of fields that the current document has and the new one does not, such as `filters`: saving it removes
    /// them.
    #[serde(default)]
    pub lost_fields: Vec<String>,
    /// Number of documents, counting one copy of each range.
    pub docs: Option<u64>,
    /// Size of the new index after its first compaction.
    pub live_bytes: Option<SpreadLine>,
    /// Size of the index files after a build in one go, before any compaction.
    pub built_bytes: Option<SpreadLine>,
    /// What the sizes are based on: other indexes of this database, or those of the whole cluster.
    #[schemars(with = "Option<vocabulary::PreflightBasis>")]
    pub basis: Option<Word>,
    /// What the map functions emitted for a sample of documents, if they were run.
    pub sample: Option<PreflightSample>,
    /// The indexes that the sizes are based on; if there are many, the closest.
    pub measured_indexes: Vec<MeasuredIndex>,
    /// Duration of the build, in seconds.
    pub seconds: Option<SpreadLine>,
    /// Number of measured builds that the duration is based on.
    pub measured_builds: u64,
    /// What each node with copies needs.
    pub nodes: Vec<PreflightNode>,
    /// Why the views do not work, as sentences.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Further remarks, as sentences.
    pub notes: Vec<String>,
    /// What to do, step by step.
    pub remedy: Vec<AdviceRemedy>,
}

/// What map functions emitted for a sample of documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreflightSample {
    /// Number of documents.
    pub docs: u64,
    /// Number of these for which they emit something.
    pub emitting: u64,
    /// Number of rows.
    pub rows: u64,
    /// Half-width of the 95 % confidence interval of the bytes of all rows, as a share; 1 if there are no rows.
    pub error: f64,
    /// The error at which sampling should stop.
    pub error_wanted: f64,
    /// Why sampling stopped.
    #[schemars(with = "vocabulary::SampleEnd")]
    pub end: Word,
}

impl PreflightSample {
    fn of(size: &IndexSize) -> Option<Self> {
        let SampleSums { docs, emitting, rows, error } = size.sample?;
        let (error_wanted, end) = size.reading?;
        Some(Self { docs, emitting, rows, error, error_wanted, end: end.label().into() })
    }
}

/// A predicted range, in bytes or seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpreadLine {
    /// The lowest expected value.
    pub low: u64,
    /// The most likely value.
    pub likely: u64,
    /// The highest expected value.
    pub high: u64,
}

/// A view of the new or the current document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreflightView {
    /// The view's name.
    pub name: String,
    /// How the new document changes the view.
    #[schemars(with = "vocabulary::ViewChange")]
    pub change: Word,
    /// The parts of the view that changed: `map`, `reduce`, `options`.
    pub parts: Vec<String>,
}

/// What a new index needs on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreflightNode {
    /// The node.
    pub node: String,
    /// Number of index files that are built on the node.
    pub copies: u32,
    /// Size of the new index on the node after its first compaction.
    pub live_bytes: Option<SpreadLine>,
    /// The most bytes written besides existing files: the new index, and the file of its first compaction next to it.
    pub peak_bytes: Option<SpreadLine>,
    /// Size of the current index on the node, which stays until a cleanup.
    pub old_bytes: Option<u64>,
    /// The node's volume with the least free space.
    pub volume: Option<String>,
    /// Free bytes on that volume, minus `headroom.keep_free` and `reserved_bytes`.
    pub free_bytes: Option<u64>,
    /// Bytes that running compactions may still write there; in enforce mode also those that start now.
    pub reserved_bytes: u64,
    /// Whether the peak fits into the free bytes, together with the peaks of other nodes on the same volume.
    #[schemars(with = "vocabulary::SpaceVerdict")]
    pub verdict: Word,
    /// Bytes that are missing on that volume even for the lowest peak; null unless it does not fit.
    pub missing_bytes: Option<u64>,
}

impl From<Spread> for SpreadLine {
    fn from(spread: Spread) -> Self {
        Self {
            low: to_bytes(spread.low),
            likely: to_bytes(spread.likely),
            high: to_bytes(spread.high.ceil()),
        }
    }
}

impl SpreadLine {
    /// The range as bytes: `12 to 31 GiB`.
    pub fn says_bytes(&self) -> String {
        between(&format_size_short(self.low), &format_size_short(self.high))
    }

    /// The range as a time: `3h to 5h`.
    pub fn says_seconds(&self) -> String {
        let text = |seconds: u64| duration::format_rounded(Duration::from_secs(seconds.max(1)));
        between(&text(rounded(self.low)), &text(rounded(self.high)))
    }
}

/// Rounds seconds to what a range can claim: minutes, ten minutes, or hours, depending on the
/// length.
const fn rounded(seconds: u64) -> u64 {
    match seconds {
        0..=119 => seconds,
        120..=5_399 => (seconds + 30) / 60 * 60,
        5_400..=86_399 => (seconds + 300) / 600 * 600,
        86_400.. => (seconds + 1_800) / 3_600 * 3_600,
    }
}

/// Joins both ends: `1.5 to 3 GiB`, or with both units if they differ.
fn between(low: &str, high: &str) -> String {
    if low == high {
        return low.to_owned();
    }
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

impl From<&NodeNeed> for PreflightNode {
    fn from(need: &NodeNeed) -> Self {
        Self {
            node: need.node.clone(),
            copies: need.copies,
            live_bytes: need.live.map(SpreadLine::from),
            peak_bytes: need.peak.map(SpreadLine::from),
            old_bytes: need.old_bytes,
            volume: need.volume.as_deref().map(ToOwned::to_owned),
            free_bytes: need.free_bytes,
            reserved_bytes: need.reserved_bytes,
            verdict: need.verdict.label().into(),
            missing_bytes: need.missing_bytes,
        }
    }
}

impl PreflightView {
    fn of((name, change): &(String, ViewChange)) -> Self {
        let parts = match change {
            ViewChange::Changed(parts) => parts.iter().map(|part| (*part).to_owned()).collect(),
            ViewChange::Added | ViewChange::Removed | ViewChange::Same => Vec::new(),
        };
        Self { name: name.clone(), change: change.label().into(), parts }
    }
}

impl PreflightNode {
    /// Adds the columns of what a node needs.
    pub(super) fn add_columns<'a, T: Copy>(
        table: Table<T>,
        node: impl Fn(T) -> &'a Self,
    ) -> Table<T> {
        let spread = |it: Option<SpreadLine>| it.map(|it| Cell::words(it.says_bytes()));
        table
            .number(rest("compacted"), |it| spread(node(it).live_bytes))
            .number("peak", |it| spread(node(it).peak_bytes))
            .number(rest("old index"), |it| {
                node(it).old_bytes.map_or_else(|| Cell::words("-"), Cell::bytes)
            })
            .number("free", |it| Cell::bytes(node(it).free_bytes))
            .text("verdict", |it| Cell::words(node(it).verdict.replace('_', " ")))
    }
}

impl Preflight {
    /// What each node needs, and whether it fits there.
    pub(crate) fn table(&self) -> Table<&PreflightNode> {
        let table = Table::of(&self.nodes)
            .text("node", |it| Cell::node(&it.node))
            .number(rest("files"), |it| Cell::count(it.copies));
        PreflightNode::add_columns(table, |it| it)
    }

    /// The answer as the API shows it.
    pub fn of(found: &Found) -> Self {
        let spread = |of: fn(&IndexSize) -> Spread| found.size.as_ref().map(|it| of(it).into());
        let measured = found.size.as_ref().map(|size| size.siblings.clone());
        let mut answer = Self {
            says: String::new(),
            db: found.db.clone(),
            design: found.design.clone(),
            build: found.kind.label().into(),
            signature: found.signature.map(|it| it.to_string()),
            present_signature: found.present_signature.map(|it| it.to_string()),
            shared_with: found.shared_with.clone(),
            document_changes: found.document_changes.clone(),
            views: found.views.iter().map(PreflightView::of).collect(),
            search_indexes: found.search_indexes.clone(),
            lost_fields: found.lost_fields.clone(),
            docs: found.docs,
            live_bytes: spread(|size| size.live),
            built_bytes: spread(|size| size.built),
            basis: found.size.as_ref().map(|size| size.basis.label().into()),
            sample: found.size.as_ref().and_then(PreflightSample::of),
            measured_indexes: measured.unwrap_or_default(),
            seconds: found.seconds.map(SpreadLine::from),
            measured_builds: found.measured_builds as u64,
            nodes: found.nodes.iter().map(PreflightNode::from).collect(),
            problems: found.problems.clone(),
            notes: found.notes.clone(),
            remedy: found.remedy.iter().map(AdviceRemedy::of).collect(),
        };
        answer.says = answer.summary(found.kind);
        for says in [answer.searches(), answer.losses()].into_iter().flatten() {
            answer.says.push_str(&format!(" {says}"));
        }
        answer
    }

    /// Whether an index is built.
    pub fn builds(&self) -> bool {
        BuildKind::from_label(&self.build).is_some_and(BuildKind::builds)
    }

    fn summary(&self, kind: BuildKind) -> String {
        let name = format!("{}/{}", self.db, self.design);
        match kind {
            BuildKind::NoViews if !self.search_indexes.is_empty() => {
                format!("{name} has no views.")
            }
            BuildKind::NoViews => format!("{name} has no views, so no index is built."),
            BuildKind::Unchanged => format!(
                "Nothing is built: the signature of {name} stays the same, so its index stays in use."
            ),
            BuildKind::Shared => format!(
                "Nothing is built: {name} has the same views as {}, and shares its index.",
                listed(&self.shared_with)
            ),
            BuildKind::New | BuildKind::Rebuild | BuildKind::Unknown => {
                let verb = if kind == BuildKind::Rebuild { "Rebuilding" } else { "Building" };
                format!("{verb} {name} takes {}; {}.", self.cost(), self.fit())
            }
        }
    }

    /// A sentence about the search indexes that are built.
    pub(super) fn searches(&self) -> Option<String> {
        let count = self.search_indexes.len();
        let noun = if count == 1 { "index" } else { "indexes" };
        let also = if self.build == BuildKind::NoViews.label() { "" } else { "also " };
        (count > 0).then(|| {
            let names = listed(&self.search_indexes);
            format!("It {also}builds the search {noun} {names}, whose cost is not estimated.")
        })
    }

    /// A sentence about the fields that the document loses.
    pub(crate) fn losses(&self) -> Option<String> {
        (!self.lost_fields.is_empty()).then(|| {
            let names = listed(&self.lost_fields);
            format!("Saving it removes {names}, which the current document has.")
        })
    }

    /// The time and space of a build, as far as they are known.
    fn cost(&self) -> String {
        let most = |node: &&PreflightNode| node.peak_bytes.map(|peak| peak.likely);
        let space = match self.nodes.iter().max_by_key(most) {
            Some(PreflightNode { peak_bytes: Some(peak), node, .. }) => {
                let place = match self.nodes.len() {
                    1 => format!("on {node}"),
                    count if self.is_even() => format!("on each of {count} nodes"),
                    _ => format!("on {node}, the node that needs most"),
                };
                format!("{} {place}", peak.says_bytes())
            }
            _ => "unknown space".to_owned(),
        };
        match self.seconds {
            Some(seconds) => format!("{} and {space}", seconds.says_seconds()),
            None => format!("an unknown time and {space}"),
        }
    }

    /// Whether all nodes need about the same space.
    fn is_even(&self) -> bool {
        let likely = || self.nodes.iter().filter_map(|node| node.peak_bytes).map(|it| it.likely);
        let (least, most) = (likely().min().unwrap_or(0), likely().max().unwrap_or(0));
        most - least <= most / 8
    }

    /// Whether the index fits on the nodes, as a clause.
    fn fit(&self) -> String {
        let nodes_with = |verdict: SpaceVerdict| {
            let nodes = self.nodes.iter().filter(|node| node.verdict == verdict.label());
            nodes.map(|node| node.node.clone()).collect::<Vec<_>>()
        };
        let where_if_not_all = |nodes: &[String]| match nodes.len() == self.nodes.len() {
            true if nodes.len() > 1 => " on any of them".to_owned(),
            true => String::new(),
            false => format!(" on {}", listed(nodes)),
        };
        let [no, maybe, unknown] =
            [SpaceVerdict::DoesNotFit, SpaceVerdict::MayNotFit, SpaceVerdict::Unknown]
                .map(nodes_with);
        if self.nodes.is_empty() || unknown.len() == self.nodes.len() {
            return "it is unknown whether it fits, because no volume is known (headroom.volumes)"
                .to_owned();
        }
        let mut parts = Vec::new();
        if !no.is_empty() {
            parts.push(format!("it does not fit{}", where_if_not_all(&no)));
        }
        if !maybe.is_empty() {
            let all = maybe.len() == self.nodes.len();
            let place = if all { String::new() } else { format!(" on {}", listed(&maybe)) };
            parts.push(format!("it may not fit{place}"));
        }
        if !unknown.is_empty() {
            parts.push(format!("it is unknown whether it fits on {}", listed(&unknown)));
        }
        if parts.is_empty() { "it fits".to_owned() } else { listed(&parts) }
    }

    /// The meaning of two columns of the table of nodes.
    pub const COLUMNS: &str = "peak: the new index and the new file of its first compaction, in addition to today's files. free: without headroom.keep_free and what compactions may still write.";

    /// The cluster-wide numbers behind the prediction, and further remarks, as sentences.
    #[must_use]
    pub fn rests_on(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if let (Some(docs), Some(live), Some(built)) =
            (self.docs, self.live_bytes, self.built_bytes)
        {
            let copies = if self.nodes.len() == 1 { "" } else { "in all copies " };
            facts.push(format!(
                "{} documents; {copies}{} when it is built, {} after its compaction.",
                grouped(docs),
                built.says_bytes(),
                live.says_bytes()
            ));
        }
        if self.seconds.is_some() {
            facts.push(format!(
                "The time is extrapolated from {}, one for each index and node.",
                counted(self.measured_builds, "measured build", "measured builds")
            ));
        }
        facts.extend(self.notes.iter().cloned());
        facts
    }

    /// The changes to views and document, as sentences.
    pub fn changes(&self) -> Vec<String> {
        let named = |label: &str| {
            let views = self.views.iter().filter(|view| view.change == label);
            views.map(|view| view.name.clone()).collect::<Vec<_>>()
        };
        let mut lines = Vec::new();
        for view in self.views.iter().filter(|view| view.change == "changed") {
            lines.push(format!("{}: its {} changes", view.name, listed(&view.parts)));
        }
        for (label, says) in [("added", "new"), ("removed", "removed"), ("same", "the same")] {
            let views = named(label);
            if !views.is_empty() {
                let count = counted(views.len() as u64, "view", "views");
                lines.push(format!("{count} {says}: {}", listed(&views)));
            }
        }
        if self.build == BuildKind::Rebuild.label() && lines.len() > 1 {
            lines.push(
                "All views of a design document are in one index with one signature, so all of them are rebuilt."
                    .to_owned(),
            );
        }
        lines.extend(self.document_changes.iter().cloned());
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bytes_and_times_are_abbreviated() {
        let line = |low, high| SpreadLine { low, likely: low, high };
        for (low, high, says) in [
            (12 << 30, 31 << 30, "12 to 31 GiB"),
            (900 << 20, 2 << 30, "900 MiB to 2 GiB"),
            (5, 5, "5 B"),
        ] {
            assert_eq!(line(low, high).says_bytes(), says);
        }
        for (low, high, says) in [
            (10_900, 18_100, "3h to 5h"),
            (0, 31, "1s to 31s"),
            (61, 4_000, "1m 1s to 1h 7m"),
            (200_000, 900_000, "2d 8h to 10d"),
        ] {
            assert_eq!(line(low, high).says_seconds(), says);
        }
    }

    fn need(node: &str, bytes: Option<f64>, verdict: SpaceVerdict) -> NodeNeed {
        let peak = bytes.map(|bytes| Spread { low: bytes / 2.0, likely: bytes, high: bytes * 2.0 });
        NodeNeed {
            node: node.to_owned(),
            copies: 2,
            live: peak,
            built: peak,
            peak,
            old_bytes: None,
            volume: None,
            free_bytes: None,
            reserved_bytes: 0,
            verdict,
            missing_bytes: None,
        }
    }

    fn says(kind: BuildKind, seconds: Option<Spread>, nodes: Vec<NodeNeed>) -> String {
        Preflight::of(&found(kind, seconds, nodes)).says
    }

    fn found(kind: BuildKind, seconds: Option<Spread>, nodes: Vec<NodeNeed>) -> Found {
        Found {
            db: "orders".to_owned(),
            design: "_design/x".to_owned(),
            kind,
            signature: None,
            present_signature: None,
            shared_with: vec!["_design/y".to_owned()],
            document_changes: Vec::new(),
            views: Vec::new(),
            search_indexes: Vec::new(),
            lost_fields: Vec::new(),
            docs: None,
            size: None,
            seconds,
            measured_builds: 0,
            nodes,
            problems: Vec::new(),
            notes: Vec::new(),
            remedy: Vec::new(),
        }
    }

    #[test]
    fn first_sentence_states_cost_and_fit() {
        use SpaceVerdict::{DoesNotFit, Fits, MayNotFit, Unknown};
        const GIB: f64 = 1_073_741_824.0;
        let hours = Some(Spread { low: 10_800.0, likely: 14_400.0, high: 18_000.0 });
        let nodes = |a: (f64, SpaceVerdict), b: (f64, SpaceVerdict)| {
            vec![need("a", Some(a.0 * GIB), a.1), need("b", Some(b.0 * GIB), b.1)]
        };
        for (kind, seconds, nodes, expected) in [
            (
                BuildKind::New,
                hours,
                nodes((8.0, Fits), (8.1, Fits)),
                "Building orders/_design/x takes 3h to 5h and 4 to 16.2 GiB on each of 2 nodes; it fits.",
            ),
            (
                BuildKind::Rebuild,
                hours,
                nodes((8.0, Fits), (2.0, DoesNotFit)),
                "Rebuilding orders/_design/x takes 3h to 5h and 4 to 16 GiB on a, the node that needs most; it does not fit on b.",
            ),
            (
                BuildKind::New,
                None,
                nodes((8.0, MayNotFit), (8.0, MayNotFit)),
                "Building orders/_design/x takes an unknown time and 4 to 16 GiB on each of 2 nodes; it may not fit.",
            ),
            (
                BuildKind::Unknown,
                None,
                vec![need("a", None, Unknown)],
                "Building orders/_design/x takes an unknown time and unknown space; it is unknown whether it fits, because no volume is known (headroom.volumes).",
            ),
            (
                BuildKind::New,
                hours,
                nodes((8.0, DoesNotFit), (8.0, Unknown)),
                "Building orders/_design/x takes 3h to 5h and 4 to 16 GiB on each of 2 nodes; it does not fit on a and it is unknown whether it fits on b.",
            ),
            (
                BuildKind::Shared,
                None,
                Vec::new(),
                "Nothing is built: orders/_design/x has the same views as _design/y, and shares its index.",
            ),
            (
                BuildKind::NoViews,
                None,
                Vec::new(),
                "orders/_design/x has no views, so no index is built.",
            ),
            (
                BuildKind::Unchanged,
                None,
                Vec::new(),
                "Nothing is built: the signature of orders/_design/x stays the same, so its index stays in use.",
            ),
        ] {
            assert_eq!(says(kind, seconds, nodes), expected);
        }
    }

    #[test]
    fn names_search_indexes_without_estimating_them() {
        let found = |kind, searches: &[&str]| Found {
            search_indexes: searches.iter().map(|name| (*name).to_owned()).collect(),
            ..found(kind, None, Vec::new())
        };
        assert_eq!(
            Preflight::of(&found(BuildKind::NoViews, &["by_text"])).says,
            "orders/_design/x has no views. It builds the search index by_text, whose cost is not estimated."
        );
        let both = Preflight::of(&found(BuildKind::Unchanged, &["a", "b"])).says;
        let ending = " It also builds the search indexes a and b, whose cost is not estimated.";
        assert!(both.ends_with(ending), "{both}");
    }
}
