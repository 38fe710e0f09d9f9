//! Estimates, before a design document is deployed, what its index will cost and whether it fits.
//!
//! A pure function of (plan, documents, now). It never reads the documents: the caller passes the
//! new one and the database's current one. All numbers are ranges, because nobody knows what a map
//! function emits before it runs; what cannot be estimated is unknown. Used by the HTTP interface
//! and the command `preflight`.

mod build_time;
mod design;
mod index_size;
mod measured;
mod node_space;
mod rehearsal;
mod spread;

pub use build_time::rebuild_seconds;
pub use design::{DesignDocument, DesignProblem, INDEX_FIELDS, ViewChange, is_same_search};
pub use index_size::{IndexSize, MeasuredIndex, SizeBasis};
pub use measured::{compile_problem, sample_error};
pub use node_space::{NodeNeed, SpaceVerdict};
pub use rehearsal::{
    Change, LeftDesign, LiveDesigns, Rehearsal, RehearsalStep, Rehearsed, rehearse,
};
pub use spread::Spread;

use super::{Remedy, Survey};
use crate::{
    model::settings::work::Warmer,
    plan::Plan,
    sources::doc_sample::DocSample,
    table::{DbIx, Snapshot, TargetRef},
    text::listed,
};
use couchdb_names::{Signature, design_name};
use design::Difference;
use index_size::KeptViews;
use measured::{MeasuredRows, NotMeasured};
use node_space::{Placement, placements};
use std::collections::BTreeSet;
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// The document that the database has now under the same id.
#[derive(Clone, Debug)]
pub enum PresentDesign {
    /// The database has none.
    Absent,
    /// The document that was read.
    Known(Box<DesignDocument>),
    /// It could not be read, for this reason.
    Unread(String),
}

impl PresentDesign {
    /// Converts the result of reading the document: its JSON text, `None` if it does not exist, or
    /// why it could not be read.
    pub fn of(read: Result<Option<String>, String>) -> Self {
        match read {
            Ok(None) => Self::Absent,
            Ok(Some(text)) => match DesignDocument::parse(&text, None) {
                Ok(document) => Self::Known(Box::new(document)),
                Err(why) => Self::Unread(format!("it {why}")),
            },
            Err(why) => Self::Unread(why),
        }
    }
}

/// The document to deploy, and the cluster as it is.
#[derive(Clone, Copy, Debug)]
pub struct PreflightInputs<'a> {
    /// The cluster as it is.
    pub plan: &'a Plan,
    /// The database.
    pub db: DbIx,
    /// The document that will be deployed.
    pub design: &'a DesignDocument,
    /// The document that it replaces.
    pub present: &'a PresentDesign,
    /// Other documents of the same deployment: first those deployed earlier, then those deployed
    /// later.
    pub beside: [&'a [DesignDocument]; 2],
    /// Documents of the database on which its map functions are run; none if none were read.
    pub sample: Option<&'a DocSample>,
    /// The present moment.
    pub now: Moment,
}

/// What deploying the document does to view indexes.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildKind {
    /// The document is new, and an index is built.
    New,
    /// The current index stays until a cleanup, and another one is built beside it.
    Rebuild,
    /// It is not known whether the database has the document; an index is built.
    Unknown,
    /// Nothing is built: the signature is the same.
    Unchanged,
    /// Nothing is built: another design document of the database has an index with this signature.
    Shared,
    /// Nothing is built: the document has no views.
    NoViews,
}

impl BuildKind {
    /// Whether an index is built.
    pub const fn builds(self) -> bool {
        match self {
            Self::New | Self::Rebuild | Self::Unknown => true,
            Self::Unchanged | Self::Shared | Self::NoViews => false,
        }
    }
}

/// The answer. Bytes are those of all copies, unless a node is named.
#[derive(Clone, Debug)]
pub struct Preflight {
    /// The database, without the suffix of its files.
    pub db: String,
    /// The document's id.
    pub design: String,
    /// What deploying it builds.
    pub kind: BuildKind,
    /// The signature of the new index; none without views.
    pub signature: Option<Signature>,
    /// The signature that the document has now, if it is known.
    pub present_signature: Option<Signature>,
    /// Other design documents that use the new index already.
    pub shared_with: Vec<String>,
    /// Differences from the present document other than its views, such as its language, as
    /// sentences.
    pub document_changes: Vec<String>,
    /// Each view of the old and the new document.
    pub views: Vec<(String, ViewChange)>,
    /// Names of the search indexes that are built. Their cost is not estimated.
    pub search_indexes: Vec<String>,
    /// Names of fields that the present document has and the new one does not, such as `filters`.
    pub lost_fields: Vec<String>,
    /// Number of documents, one copy of each range counted; none if unknown.
    pub docs: Option<u64>,
    /// The size of the new index; none if nothing is built or it cannot be estimated.
    pub size: Option<IndexSize>,
    /// Seconds that the build takes; `None` if no build was measured.
    pub seconds: Option<Spread>,
    /// Number of measured builds that `seconds` is based on.
    pub measured_builds: usize,
    /// The space needed on each node that has copies.
    pub nodes: Vec<NodeNeed>,
    /// Why its views do not work, as sentences: map functions that never end, or throw for every
    /// document of a sample.
    pub problems: Vec<String>,
    /// Further remarks for the reader, as sentences.
    pub notes: Vec<String>,
    /// What to do when deploying the document, and afterwards.
    pub remedy: Vec<Remedy>,
}

/// The database with this name that has files in the cluster's shard map; of several instances, the
/// one with the most files.
pub fn database_called(snapshot: &Snapshot, name: &str, now: Moment) -> Option<DbIx> {
    let survey = Survey::of(snapshot, now);
    let instances =
        survey.dbs().filter(|(db, _)| snapshot.db_name(*db).is_some_and(|it| it.db == name));
    instances
        .filter(|(_, sums)| sums.shards > 0)
        .max_by_key(|(_, sums)| sums.shards)
        .map(|(db, _)| db)
}

/// Languages that CouchDB supports out of the box, and those of indexes that this cluster has.
pub fn built_languages(snapshot: &Snapshot) -> BTreeSet<String> {
    let languages =
        snapshot.targets().filter_map(TargetRef::view).map(|view| view.language.to_string());
    let languages = languages.filter(|language| !language.is_empty());
    Warmer::default().languages.into_iter().chain(languages).collect()
}

/// The document to deploy, compared with the current one and the indexes of the database.
struct Comparison<'a> {
    design: &'a DesignDocument,
    present: &'a PresentDesign,
    beside: [&'a [DesignDocument]; 2],
    indexes: Vec<TargetRef<'a>>,
    /// The signature of the present document, if it is known.
    present_signature: Option<Signature>,
}

/// Estimates what deploying a design document costs.
pub fn preflight(inputs: &PreflightInputs<'_>) -> Preflight {
    let PreflightInputs { plan, db, design, present, beside, sample, now } = *inputs;
    let snapshot = &plan.snapshot;
    let survey = Survey::of(snapshot, now);
    let name = snapshot.db_name(db).map_or("", |name| name.db).to_owned();
    let indexes = survey.views_of(db).filter_map(|row| snapshot.target_at(row)).collect();
    let compared = Comparison::of(design, present, beside, indexes);
    let signature = (!design.views.is_empty()).then_some(design.signature);
    let shared_with = signature.map_or_else(Vec::new, |signature| compared.sharing(signature));
    let kind = compared.build_kind(signature, !shared_with.is_empty());
    let known = match present {
        PresentDesign::Known(present) => Some(&**present),
        PresentDesign::Absent | PresentDesign::Unread(_) => None,
    };
    let difference = match present {
        PresentDesign::Unread(_) => Difference::default(),
        PresentDesign::Absent | PresentDesign::Known(_) => design.difference(known),
    };
    let old = compared.old_index().filter(|_| kind != BuildKind::Unchanged);
    let placed = placements(&survey, snapshot, db);
    let kept = compared.kept_views();
    let (mut size, mut time, mut nodes) = (None, None, Vec::new());
    let (mut problems, mut sampled_notes) = (Vec::new(), Vec::new());
    if kind.builds() {
        let measured = match sample.map(|docs| MeasuredRows::of(design, docs)) {
            None => None,
            Some(Ok(rows)) => {
                [problems, sampled_notes] = rows.says_throws();
                Some(rows)
            }
            Some(Err(NotMeasured::Broken(says))) => {
                problems.push(says);
                None
            }
            Some(Err(NotMeasured::NotRun(why))) => {
                sampled_notes.push(format!("The sample of documents is not used: {why}."));
                None
            }
        };
        size = measured
            .and_then(|rows| IndexSize::sampled(&survey, snapshot, db, &rows))
            .or_else(|| IndexSize::of(&survey, snapshot, db, design, kept.as_ref()));
        time = build_time::seconds(plan, &name, design, &placed);
        nodes = node_space::needs(plan, &placed, size.as_ref(), old);
    }
    let mut answer = Preflight {
        design: design.id.clone(),
        kind,
        signature,
        present_signature: compared.present_signature,
        shared_with,
        document_changes: difference.document,
        views: difference.views,
        search_indexes: design.new_searches(known),
        lost_fields: design.lost_fields(known),
        docs: docs(&placed, snapshot, db),
        size,
        seconds: time.map(|(seconds, _)| seconds),
        measured_builds: time.map_or(0, |(_, builds)| builds),
        nodes,
        problems,
        notes: Vec::new(),
        remedy: Vec::new(),
        db: name,
    };
    answer.notes = notes(&answer, inputs);
    answer.notes.extend(sampled_notes);
    answer.notes.extend(answer.size.as_ref().and_then(IndexSize::says_error));
    answer.remedy = remedy(&answer, design, old);
    answer
}

impl<'a> Comparison<'a> {
    fn of(
        design: &'a DesignDocument,
        present: &'a PresentDesign,
        beside: [&'a [DesignDocument]; 2],
        indexes: Vec<TargetRef<'a>>,
    ) -> Self {
        // If the current document could not be read, its signature is taken from its existing index.
        let present_signature = match present {
            PresentDesign::Absent => None,
            PresentDesign::Known(known) => (!known.views.is_empty()).then_some(known.signature),
            PresentDesign::Unread(_) => indexes.iter().find_map(|index| {
                let view = index.view()?;
                view.designs.iter().any(|id| **id == *design.id).then_some(view.signature)
            }),
        };
        Self { design, present, beside, indexes, present_signature }
    }

    /// Other documents that use an index with this signature, or that were deployed earlier and
    /// build it.
    fn sharing(&self, signature: Signature) -> Vec<String> {
        let views = self.indexes.iter().filter_map(|index| index.view());
        let same = views.filter(|view| view.signature == signature);
        let designs = same.flat_map(|view| view.designs.iter().map(ToString::to_string));
        let earlier = self.beside[0].iter().filter(|it| it.has_index(signature));
        let all: BTreeSet<String> = designs.chain(earlier.map(|it| it.id.clone())).collect();
        all.into_iter().filter(|design| *design != self.design.id).collect()
    }

    fn build_kind(&self, signature: Option<Signature>, is_shared: bool) -> BuildKind {
        let is_known = self.present_signature.is_some();
        match (signature, self.present) {
            (None, _) => BuildKind::NoViews,
            (Some(_), _) if signature == self.present_signature => BuildKind::Unchanged,
            (Some(_), _) if is_shared => BuildKind::Shared,
            (Some(_), PresentDesign::Unread(_)) if !is_known => BuildKind::Unknown,
            (Some(_), PresentDesign::Absent) => BuildKind::New,
            (Some(_), PresentDesign::Known(_)) if !is_known => BuildKind::New,
            (Some(_), PresentDesign::Known(_) | PresentDesign::Unread(_)) => BuildKind::Rebuild,
        }
    }

    fn present_index(&self) -> Option<TargetRef<'a>> {
        let has_signature =
            |it: &&TargetRef<'_>| it.view().map(|view| view.signature) == self.present_signature;
        self.indexes.iter().find(has_signature).copied()
    }

    /// The index of the present document, with those of its views that stay.
    fn kept_views(&self) -> Option<KeptViews<'a>> {
        let PresentDesign::Known(present) = self.present else { return None };
        let names = self.design.views_of(present);
        let index = self.present_index()?;
        (!names.is_empty()).then_some(KeptViews { index, names })
    }

    /// The index of the present document, if no other document uses it or will.
    fn old_index(&self) -> Option<TargetRef<'a>> {
        let signature = self.present_signature?;
        if self.beside.iter().copied().flatten().any(|it| it.has_index(signature)) {
            return None;
        }
        let old = self.present_index()?;
        let has_others = old.view()?.designs.iter().any(|design| **design != *self.design.id);
        (!has_others).then_some(old)
    }
}

/// Number of documents, counting one copy of each range.
fn docs(placed: &[Placement], snapshot: &Snapshot, db: DbIx) -> Option<u64> {
    let map = snapshot.shard_map(db);
    let all = placed.iter().try_fold(0.0, |sum, node| Some(sum + node.docs?))?;
    let copies: u32 = placed.iter().map(|node| node.copies).sum();
    let per_copy = all / f64::from(copies.max(1));
    Some(crate::model::rounding::to_bytes(per_copy * f64::from(map.ranges.max(1))))
}

/// Remarks for the reader besides the numbers.
fn notes(found: &Preflight, inputs: &PreflightInputs<'_>) -> Vec<String> {
    let PreflightInputs { design, present, .. } = inputs;
    let unread = match present {
        PresentDesign::Unread(why) => Some(format!(
            "The present document could not be read, so recliner cannot tell which views change: {why}."
        )),
        PresentDesign::Absent | PresentDesign::Known(_) => None,
    };
    if !found.kind.builds() {
        return unread.into_iter().collect();
    }
    let size = found.size.as_ref().map_or_else(|| UNKNOWN_SIZE.to_owned(), IndexSize::says);
    let others = [
        (found.seconds.is_none(), UNKNOWN_TIME),
        (design.language == "erlang", ERLANG),
        (!design.is_updated_automatically, BUILT_BY_QUERY),
    ];
    let others = others.into_iter().filter(|(is_so, _)| *is_so);
    unread.into_iter().chain([size]).chain(others.map(|(_, says)| says.to_owned())).collect()
}

const UNKNOWN_SIZE: &str = "The size of the index is unknown: this cluster has no built index to estimate it from. Build the index on a copy of part of the data, or in a test cluster that recliner reads, and run preflight there.";
const UNKNOWN_TIME: &str = "The time is unknown: recliner has seen no index build in this language that took ten seconds or longer. A running recliner measures and remembers every build, whoever started it.";
const ERLANG: &str = "CouchDB builds Erlang views only if [native_query_servers] enable_erlang_query_server is true.";
const BUILT_BY_QUERY: &str =
    "The document has autoupdate: false, so CouchDB builds the index at the first query.";

/// The commands to paste, one after the other.
fn remedy(found: &Preflight, document: &DesignDocument, old: Option<TargetRef<'_>>) -> Vec<Remedy> {
    let (db, design) = (found.db.as_str(), found.design.as_str());
    let name = design_name(design);
    let target = format!("{db}/{design}");
    let mut remedy = Vec::new();
    if found.kind.builds() {
        let stalled = found.nodes.iter().filter(|node| node.verdict == SpaceVerdict::DoesNotFit);
        let stalled: Vec<String> = stalled.map(|node| node.node.clone()).collect();
        if !stalled.is_empty() {
            remedy.push(Remedy::choice(format!(
                "Free space on {} first: recliner plan and recliner advise say what frees most there.",
                listed(&stalled)
            )));
        }
        let when = if document.is_updated_automatically { "at once" } else { "at the first query" };
        remedy.push(Remedy::choice(if found.kind == BuildKind::Rebuild {
            format!(
                "To keep queries working meanwhile, save the document as {design}-next first and wait until its index is built. Then save it as {design}, which has the same signature and uses the built index, and delete {design}-next."
            )
        } else {
            format!("Save the document as {design} in {db}; CouchDB builds its index {when}.")
        }));
        remedy.push(Remedy::get(
            "Check its progress until updates_pending.total is 0:",
            &[db, design, "_info"],
        ));
        remedy.push(Remedy::recliner(
            "When it is built, compact it, because a newly built index is several times as large as its data:",
            &["compact", &target],
        ));
        let at_once = if found.nodes.len() == 1 { "" } else { ", all copies at once" };
        remedy.push(Remedy::couchdb(
            format!("Or without a running recliner{at_once}:"),
            "POST",
            &[db, "_compact", name],
            None,
        ));
    }
    if old.is_some() || matches!(found.kind, BuildKind::Rebuild) {
        remedy.push(Remedy::view_cleanup(
            "When the new document is deployed and nobody needs the old one back, delete the files of the old index:",
            db,
        ));
    }
    remedy
}

#[cfg(test)]
mod tests;
