//! Estimates, before a design document is deployed, what its index will cost and whether it fits.
//!
//! A pure function of (plan, documents, now). It never reads the documents: the caller passes the
//! new one and the one that the database has now. All numbers are ranges, because nobody knows what
//! a map function emits before it runs; what cannot be estimated is unknown. Used by the HTTP
//! interface and the command `preflight`.

mod build_time;
mod design;
mod index_size;
mod node_space;
mod spread;

pub use design::{DesignDocument, DesignProblem, ViewChange};
pub use index_size::{IndexSize, MeasuredIndex, SizeBasis};
pub use node_space::{NodeNeed, SpaceVerdict};
pub use spread::Spread;

use super::{Remedy, Survey};
use crate::{
    model::settings::work::Warmer,
    plan::Plan,
    table::{DbIx, Snapshot, TargetRef},
    text::listed,
};
use couchdb_names::Signature;
use design::Difference;
use index_size::KeptViews;
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
    /// From the result of reading the document: its JSON text, `None` if there is none, or why it
    /// could not be read.
    #[must_use]
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
    /// The present index stays until a cleanup, and another one is built beside it.
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
    #[must_use]
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
    /// Each view of both documents.
    pub views: Vec<(String, ViewChange)>,
    /// Names of the search indexes that are built. What they cost is not estimated.
    pub search_indexes: Vec<String>,
    /// Number of documents, one copy of each range counted; none if unknown.
    pub docs: Option<u64>,
    /// The size of the new index; none if nothing is built or it cannot be estimated.
    pub size: Option<IndexSize>,
    /// How long the build takes, in seconds; none if no build was measured.
    pub seconds: Option<Spread>,
    /// Number of measured builds that `seconds` is based on.
    pub measured_builds: usize,
    /// What the index needs on each node that has copies.
    pub nodes: Vec<NodeNeed>,
    /// Further remarks for the reader, as sentences.
    pub notes: Vec<String>,
    /// What to do when deploying the document, and afterwards.
    pub remedy: Vec<Remedy>,
}

/// The database with this name that has files in the cluster's shard map; of several instances, the
/// one with the most files.
#[must_use]
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
#[must_use]
pub fn built_languages(snapshot: &Snapshot) -> BTreeSet<String> {
    let languages =
        snapshot.targets().filter_map(TargetRef::view).map(|view| view.language.to_string());
    let languages = languages.filter(|language| !language.is_empty());
    Warmer::default().languages.into_iter().chain(languages).collect()
}

/// Estimates what deploying a design document costs.
#[must_use]
pub fn preflight(inputs: &PreflightInputs<'_>) -> Preflight {
    let PreflightInputs { plan, db, design, present, now } = *inputs;
    let snapshot = &plan.snapshot;
    let survey = Survey::of(snapshot, now);
    let name = snapshot.db_name(db).map_or("", |name| name.db).to_owned();
    let indexes: Vec<TargetRef<'_>> =
        survey.views_of(db).filter_map(|row| snapshot.target_at(row)).collect();
    let present_signature = present_signature(present, design, &indexes);
    let signature = (!design.views.is_empty()).then_some(design.signature);
    let sharing = signature.map_or_else(Vec::new, |it| sharing(&indexes, it, &design.id));
    let kind = build_kind(signature, present, present_signature, !sharing.is_empty());
    let difference = match present {
        PresentDesign::Known(present) => design.difference(Some(present)),
        PresentDesign::Absent => design.difference(None),
        PresentDesign::Unread(_) => Difference::default(),
    };
    let old = old_index(&indexes, kind, present_signature, &design.id);
    let placed = placements(&survey, snapshot, db);
    let kept_index = kept_views(&indexes, present, design, present_signature);
    let size = kind
        .builds()
        .then(|| IndexSize::of(&survey, snapshot, db, design, kept_index.as_ref()))
        .flatten();
    let seconds =
        kind.builds().then(|| build_time::seconds(plan, &name, design, &placed)).flatten();
    let nodes = match kind.builds() {
        true => node_space::needs(plan, &placed, size.as_ref(), old),
        false => Vec::new(),
    };
    let (seconds, measured_builds) =
        seconds.map_or((None, 0), |(seconds, builds)| (Some(seconds), builds));
    let mut answer = Preflight {
        design: design.id.clone(),
        kind,
        signature,
        present_signature,
        shared_with: sharing,
        document_changes: difference.document,
        views: difference.views,
        search_indexes: design.new_searches(match present {
            PresentDesign::Known(present) => Some(&**present),
            PresentDesign::Absent | PresentDesign::Unread(_) => None,
        }),
        docs: docs(&placed, snapshot, db),
        size,
        seconds,
        measured_builds,
        nodes,
        notes: Vec::new(),
        remedy: Vec::new(),
        db: name,
    };
    answer.notes = notes(&answer, inputs);
    answer.remedy = remedy(&answer, old);
    answer
}

/// The signature of the present document: computed from it or, if it could not be read, from the
/// cluster's indexes.
fn present_signature(
    present: &PresentDesign,
    design: &DesignDocument,
    indexes: &[TargetRef<'_>],
) -> Option<Signature> {
    match present {
        PresentDesign::Absent => None,
        PresentDesign::Known(present) => (!present.views.is_empty()).then_some(present.signature),
        PresentDesign::Unread(_) => indexes.iter().find_map(|index| {
            let view = index.view()?;
            view.designs.iter().any(|id| **id == *design.id).then_some(view.signature)
        }),
    }
}

/// The other documents that use an index with this signature.
fn sharing(indexes: &[TargetRef<'_>], signature: Signature, id: &str) -> Vec<String> {
    let views = indexes.iter().filter_map(|index| index.view());
    let same = views.filter(|view| view.signature == signature);
    let designs = same.flat_map(|view| view.designs.iter().map(ToString::to_string));
    designs.filter(|design| design != id).collect()
}

fn build_kind(
    signature: Option<Signature>,
    present: &PresentDesign,
    present_signature: Option<Signature>,
    is_shared: bool,
) -> BuildKind {
    match (signature, present) {
        (None, _) => BuildKind::NoViews,
        (Some(_), _) if signature == present_signature => BuildKind::Unchanged,
        (Some(_), _) if is_shared => BuildKind::Shared,
        (Some(_), PresentDesign::Unread(_)) if present_signature.is_none() => BuildKind::Unknown,
        (Some(_), PresentDesign::Absent) => BuildKind::New,
        (Some(_), PresentDesign::Known(_)) if present_signature.is_none() => BuildKind::New,
        (Some(_), PresentDesign::Known(_) | PresentDesign::Unread(_)) => BuildKind::Rebuild,
    }
}

/// The index of the present document, with those of its views that stay.
fn kept_views<'a>(
    indexes: &[TargetRef<'a>],
    present: &PresentDesign,
    design: &DesignDocument,
    signature: Option<Signature>,
) -> Option<KeptViews<'a>> {
    let PresentDesign::Known(present) = present else { return None };
    let names = design.views_of(present);
    let index = indexes.iter().find(|it| it.view().map(|view| view.signature) == signature)?;
    (!names.is_empty()).then_some(KeptViews { index: *index, names })
}

/// The index that nothing uses after the change.
fn old_index<'a>(
    indexes: &[TargetRef<'a>],
    kind: BuildKind,
    present: Option<Signature>,
    id: &str,
) -> Option<TargetRef<'a>> {
    if kind == BuildKind::Unchanged {
        return None;
    }
    let old = indexes.iter().find(|index| index.view().map(|view| view.signature) == present)?;
    let others = old.view()?.designs.iter().any(|design| **design != *id);
    (present.is_some() && !others).then_some(*old)
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
    let mut notes = Vec::new();
    let PreflightInputs { design, present, .. } = inputs;
    if let PresentDesign::Unread(why) = present {
        notes.push(format!(
            "The present document could not be read, so it is not known which views change: {why}."
        ));
    }
    if !found.kind.builds() {
        return notes;
    }
    match &found.size {
        None => notes.push(
            "How large the index becomes is unknown: no built index in this cluster tells what a document costs. Build the document in a copy of a part of the data, or in a test cluster that recliner reads, and ask there."
                .to_owned(),
        ),
        Some(size) => notes.push(size.says()),
    }
    if found.seconds.is_none() {
        notes.push(
            "How long it takes is unknown: recliner has seen no build of an index in this language for ten seconds or longer. It measures every build that it sees, whoever started it; a running recliner remembers them."
                .to_owned(),
        );
    }
    if design.language == "erlang" {
        notes.push(
            "CouchDB builds Erlang views only if [native_query_servers] enable_erlang_query_server is true."
                .to_owned(),
        );
    }
    if !design.is_updated_automatically {
        notes.push(
            "The document has autoupdate false, so CouchDB builds the index at the first query."
                .to_owned(),
        );
    }
    notes
}

/// The commands to paste, one after the other.
fn remedy(found: &Preflight, old: Option<TargetRef<'_>>) -> Vec<Remedy> {
    let (db, design) = (found.db.as_str(), found.design.as_str());
    let name = design.strip_prefix("_design/").unwrap_or(design);
    let target = format!("{db}/{design}");
    let mut remedy = Vec::new();
    if found.kind == BuildKind::Rebuild {
        remedy.push(Remedy::choice(format!(
            "Keep queries answered meanwhile: save the document as {design}-next first and wait until that is built. Then save it as {design}, which has the same signature and finds the index ready, and delete {design}-next."
        )));
    }
    if found.kind.builds() {
        let stalled = found.nodes.iter().filter(|node| node.verdict == SpaceVerdict::DoesNotFit);
        let stalled: Vec<String> = stalled.map(|node| node.node.clone()).collect();
        if !stalled.is_empty() {
            remedy.push(Remedy::choice(format!(
                "Make room on {} first: recliner plan and recliner advise say what frees most there.",
                listed(&stalled)
            )));
        }
        remedy.push(Remedy::get(
            "See how far it is, until updates_pending.total is 0:",
            &[db, design, "_info"],
        ));
        remedy.push(Remedy::recliner(
            "When it is built, compact it: an index that was built in one go is several times as large as its data:",
            &["compact", &target],
        ));
        remedy.push(Remedy::couchdb(
            "Or without a running recliner, all copies at once:",
            "POST",
            &[db, "_compact", name],
            None,
        ));
    }
    if old.is_some() || matches!(found.kind, BuildKind::Rebuild) {
        remedy.push(Remedy::view_cleanup(
            "When the new document is deployed and nobody needs the old one back, delete the files of its index:",
            db,
        ));
    }
    remedy
}

#[cfg(test)]
mod tests;
