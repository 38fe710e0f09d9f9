//! A deployment of several design documents: what each one changes, in which order to build their
//! indexes, and the peak of each step.
//!
//! Adds up the results of [`preflight`] for each document, so both always agree.

use super::{
    DesignDocument, NodeNeed, Preflight, PreflightInputs, PresentDesign, Spread, node_space::judge,
    preflight,
};
use crate::{plan::Plan, sources::doc_sample::DocSample, table::DbIx};
use couchdb_names::Signature;
use std::{collections::BTreeMap, sync::Arc};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// The design documents that the database has now.
#[derive(Clone, Debug)]
pub enum LiveDesigns {
    /// All design documents among them that CouchDB can index.
    Known(Vec<DesignDocument>),
    /// They could not be read, for this reason.
    Unread(String),
}

impl LiveDesigns {
    /// Converts the result of reading them: their JSON texts, or why they could not be read.
    pub fn of(read: Result<Vec<String>, String>) -> Self {
        match read {
            Ok(texts) => Self::Known(
                texts.iter().filter_map(|text| DesignDocument::parse(text, None).ok()).collect(),
            ),
            Err(why) => Self::Unread(why),
        }
    }

    fn present(&self, id: &str) -> PresentDesign {
        match self {
            Self::Unread(why) => PresentDesign::Unread(why.clone()),
            Self::Known(live) => match live.iter().find(|it| it.id == id) {
                Some(design) => PresentDesign::Known(Box::new(design.clone())),
                None => PresentDesign::Absent,
            },
        }
    }
}

/// What the deployment does to one document.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The database has no document with this id, and an index is built.
    New,
    /// Another index is built than the document has now.
    Changed,
    /// Its views are those of a live document whose id the deployment no longer has: the index is
    /// reused, and nothing is built.
    Renamed,
    /// Another document has the same views: both share one index, and nothing is built.
    Shared,
    /// The index stays as it is.
    Unchanged,
    /// It has no views.
    NoViews,
    /// It is unknown what the database has.
    Unknown,
}

/// A document of the deployment.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    /// What the deployment does to it.
    pub change: Change,
    /// The revision in the database; `None` if it has none or that is unknown.
    pub present_rev: Option<String>,
    /// What it costs by itself.
    pub cost: Preflight,
}

/// A live document that the deployment does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftDesign {
    /// Its id.
    pub design: String,
    /// Whether a document of the deployment uses its index.
    pub is_renamed: bool,
    /// Bytes of the files of its index, in all copies; `None` if unknown, if it has none, or if
    /// another document uses it.
    pub bytes: Option<u64>,
}

/// One index that is built: the document is saved, the index is built and compacted, and the files
/// of the index that it replaces are deleted.
#[derive(Clone, Debug)]
pub struct RehearsalStep {
    /// The document.
    pub design: String,
    /// How long the build takes, in seconds.
    pub seconds: Option<Spread>,
    /// On each node: the peak in addition to everything that existed before the first step.
    pub nodes: Vec<NodeNeed>,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// The database.
    pub db: String,
    /// The suffix of its files, which distinguishes it from another one of the same name.
    pub instance: String,
    /// The documents, as they were given.
    pub documents: Vec<Rehearsed>,
    /// Live documents that the deployment lacks; they stay unless somebody deletes them.
    pub left: Vec<LeftDesign>,
    /// Whether the live documents could not be read, and why.
    pub unread: Option<String>,
    /// What is built, in the order that needs least space at its worst.
    pub steps: Vec<RehearsalStep>,
    /// On each node: the peak if everything is built and compacted at the same time and nothing is
    /// cleaned up before the end.
    pub together: Vec<NodeNeed>,
    /// On each node: the peak of `deploy-indexes`, which builds in this order and keeps the current
    /// indexes until the swap.
    pub staged: Vec<NodeNeed>,
    /// Whether the settings let recliner compact the indexes that it has built.
    pub compacts: bool,
}

/// How indexes are built one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Whether each is compacted before the next.
    pub(super) compacts: bool,
    /// Whether the files of the index that it replaces are deleted before the next.
    pub(super) cleans_up: bool,
}

impl Way {
    pub(super) const BY_HAND: Self = Self { compacts: true, cleans_up: true };
}

impl Rehearsal {
    /// Seconds of all builds, one after another; `None` if one is unknown or nothing is built.
    pub fn seconds(&self) -> Option<Spread> {
        let mut all = self.steps.iter().map(|step| step.seconds);
        let first = all.next()??;
        all.try_fold(first, |sum, one| Some(sum.plus(one?)))
    }
}

/// Rehearses a deployment of these documents.
pub fn rehearse(
    plan: &Plan,
    db: DbIx,
    designs: &[DesignDocument],
    live: &LiveDesigns,
    sample: Option<&DocSample>,
    now: Moment,
) -> Rehearsal {
    let rehearsed = |(at, design): (usize, &DesignDocument)| {
        let (earlier, rest) = designs.split_at(at);
        let later = rest.get(1..).unwrap_or_default();
        let present = live.present(&design.id);
        let beside = [earlier, later];
        let inputs = PreflightInputs { plan, db, design, present: &present, beside, sample, now };
        let cost = preflight(&inputs);
        let present_rev = match present {
            PresentDesign::Known(present) => present.rev,
            PresentDesign::Absent | PresentDesign::Unread(_) => None,
        };
        Rehearsed { change: change(&cost, designs), present_rev, cost }
    };
    let documents: Vec<Rehearsed> = designs.iter().enumerate().map(rehearsed).collect();
    let name = plan.snapshot.db_name(db);
    let instance = name.map_or("", |name| name.suffix).trim_start_matches('.').to_owned();
    let name = name.map_or("", |name| name.db).to_owned();
    let (left, unread) = match live {
        LiveDesigns::Known(live) => (left(plan, db, designs, live, now), None),
        LiveDesigns::Unread(why) => (Vec::new(), Some(why.clone())),
    };
    let built: Vec<&Preflight> =
        documents.iter().map(|it| &it.cost).filter(|cost| cost.kind.builds()).collect();
    let (ordered, together) = (best_order(&built), together(&built));
    let compacts = plan.rules.views.permits(plan.snapshot.shard_map(db).ranges > 1);
    let staged = staged(&ordered, &together, Way { compacts, cleans_up: false });
    let steps = steps(&ordered, Way::BY_HAND);
    Rehearsal { db: name, instance, left, unread, steps, together, staged, compacts, documents }
}

fn change(cost: &Preflight, designs: &[DesignDocument]) -> Change {
    use super::BuildKind;
    match cost.kind {
        BuildKind::New => Change::New,
        BuildKind::Rebuild => Change::Changed,
        BuildKind::Unchanged => Change::Unchanged,
        BuildKind::NoViews => Change::NoViews,
        BuildKind::Unknown => Change::Unknown,
        BuildKind::Shared => {
            let stays = |id: &String| {
                let same =
                    |it: &DesignDocument| cost.signature.is_some_and(|sig| it.has_index(sig));
                designs.iter().any(|it| it.id == *id && same(it))
            };
            if cost.shared_with.iter().any(stays) { Change::Shared } else { Change::Renamed }
        }
    }
}

/// The live documents that the deployment does not have.
fn left(
    plan: &Plan,
    db: DbIx,
    designs: &[DesignDocument],
    live: &[DesignDocument],
    now: Moment,
) -> Vec<LeftDesign> {
    let survey = super::Survey::of(&plan.snapshot, now);
    let bytes = |signature: Signature| {
        let rows = survey.views_of(db).filter_map(|row| plan.snapshot.target_at(row));
        let mut own = rows.filter(|row| row.view().is_some_and(|it| it.signature == signature));
        own.next().and_then(|row| row.file_bytes())
    };
    let gone = |it: &&DesignDocument| designs.iter().all(|design| design.id != it.id);
    let left = live.iter().filter(gone).map(|design| {
        let uses = |it: &DesignDocument| it.has_index(design.signature);
        let is_renamed = designs.iter().any(uses);
        let has_others = live.iter().any(|it| it.id != design.id && uses(it));
        let is_alone = !is_renamed && !has_others && !design.views.is_empty();
        LeftDesign {
            design: design.id.clone(),
            is_renamed,
            bytes: is_alone.then(|| bytes(design.signature)).flatten(),
        }
    });
    left.collect()
}

/// Everything at once: all peaks add up, and no old file has been deleted.
fn together(built: &[&Preflight]) -> Vec<NodeNeed> {
    let Some((first, rest)) = built.split_first() else { return Vec::new() };
    let mut nodes = first.nodes.clone();
    for node in &mut nodes {
        for cost in rest {
            let other = cost.nodes.iter().find(|it| it.node == node.node);
            let sum = |one: Option<Spread>, of: fn(&NodeNeed) -> Option<Spread>| {
                Some(one?.plus(other.and_then(of)?))
            };
            node.live = sum(node.live, |it| it.live);
            node.built = sum(node.built, |it| it.built);
            node.peak = sum(node.peak, |it| it.peak);
            let old = other.and_then(|it| it.old_bytes);
            node.old_bytes = match (node.old_bytes, old) {
                (None, None) => None,
                (one, other) => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
            };
            node.copies = node.copies.saturating_add(other.map_or(0, |it| it.copies));
        }
    }
    judge(&mut nodes);
    nodes
}

/// On each node, the highest peak of all steps.
fn staged(ordered: &[&Preflight], together: &[NodeNeed], way: Way) -> Vec<NodeNeed> {
    let steps = steps(ordered, way);
    let mut nodes = together.to_vec();
    for need in &mut nodes {
        let here = steps.iter().flat_map(|step| &step.nodes).filter(|it| it.node == need.node);
        let peaks: Option<Vec<Spread>> = here.map(|it| it.peak).collect();
        need.peak = peaks.and_then(|peaks| peaks.into_iter().reduce(Spread::max));
    }
    judge(&mut nodes);
    nodes
}

/// The builds one after the other.
pub(super) fn steps(built: &[&Preflight], way: Way) -> Vec<RehearsalStep> {
    // Space on each node in addition to what existed before; unknown from the first unknown size
    // on.
    let mut more: BTreeMap<String, Option<Spread>> = BTreeMap::new();
    let step = |cost: &&Preflight| {
        let mut nodes = cost.nodes.clone();
        for node in &mut nodes {
            let before = more.entry(node.node.clone()).or_insert(Some(Spread::ZERO));
            let (most, stays) =
                if way.compacts { (node.peak, node.live) } else { (node.built, node.built) };
            let gone = node.old_bytes.filter(|_| way.cleans_up).unwrap_or(0);
            let peak = before.zip(most).map(|(before, most)| before.plus(most));
            let after = before.zip(stays).map(|(before, stays)| before.plus(stays));
            node.peak = peak.map(|peak| peak.max(Spread::ZERO));
            *before = after.map(|after| after.less(gone as f64));
        }
        judge(&mut nodes);
        RehearsalStep { design: cost.design.clone(), seconds: cost.seconds, nodes }
    };
    built.iter().map(step).collect()
}

/// The order whose worst step needs the least space.
///
/// On one volume the best order is known. First come indexes that leave less than existed before,
/// smallest peak first. Then come those that leave more, largest difference between peak and
/// remainder first. Volumes may need different orders, so the order of each is tried on all.
fn best_order<'a>(built: &[&'a Preflight]) -> Vec<&'a Preflight> {
    let mut places: Vec<Option<&str>> = vec![None];
    places.extend(built.iter().take(1).flat_map(|it| &it.nodes).map(|node| Some(&*node.node)));
    let orders = places.iter().map(|place| ordered(built, *place));
    let worst = |order: &Vec<&Preflight>| worst(&steps(order, Way::BY_HAND));
    // At equal peaks, the order for the sum of all nodes.
    let best = orders.min_by(|one, other| worst(one).total_cmp(&worst(other)));
    best.unwrap_or_default()
}

/// The best order for one node, or for the sum of all.
fn ordered<'a>(built: &[&'a Preflight], place: Option<&str>) -> Vec<&'a Preflight> {
    let key = |cost: &Preflight| {
        let here = || cost.nodes.iter().filter(|it| place.is_none_or(|place| it.node == place));
        let peak: f64 = here().filter_map(|it| it.peak).map(|it| it.likely).sum();
        let live: f64 = here().filter_map(|it| it.live).map(|it| it.likely).sum();
        let old: f64 = here().filter_map(|it| it.old_bytes).map(|it| it as f64).sum();
        let leaves = live - old;
        if leaves < 0.0 { (0, peak) } else { (1, leaves - peak) }
    };
    let mut all = built.to_vec();
    all.sort_by(|one, other| {
        let (one, other) = (key(one), key(other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    all
}

/// The largest value over all volumes of how far the worst step exceeds the free space, or, where
/// the free space is unknown, of the peak.
fn worst(steps: &[RehearsalStep]) -> f64 {
    let of_step = |step: &RehearsalStep| {
        let mut volumes: BTreeMap<Option<Arc<str>>, (f64, f64)> = BTreeMap::new();
        for node in &step.nodes {
            let place = volumes.entry(node.volume.clone()).or_default();
            place.0 += node.peak.map_or(0.0, |peak| peak.likely);
            place.1 = node.free_bytes.unwrap_or(0) as f64;
        }
        volumes.into_values().map(|(peak, free)| peak - free).fold(f64::MIN, f64::max)
    };
    steps.iter().map(of_step).fold(f64::MIN, f64::max)
}
