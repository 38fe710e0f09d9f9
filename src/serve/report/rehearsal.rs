//! The predicted cost of deploying several design documents, and the question about them.

use super::{
    Preflight, PreflightNode, QuestionError,
    columns::{Cell, Table},
    preflight::SpreadLine,
    vocabulary::{self, Word},
};
use crate::{
    advice::preflight::{
        Change, DesignDocument, DesignProblem, LeftDesign, LiveDesigns, Rehearsal as Found,
        RehearsalStep as FoundStep, Rehearsed, SpaceVerdict, built_languages, database_called,
        rehearse,
    },
    plan::Plan,
    sources::doc_sample::DocSample,
    table::DbIx,
    text::{Label, counted, listed, size::format_size_short},
};
use couchdb_names::design_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use wall_clock::Moment;

/// Maximum number of documents of a deployment.
const MAX_DESIGNS: usize = 200;

/// What the summary says if no step or index is known to fit.
const UNKNOWN_FIT: &str = "it is unknown whether they fit";

/// The design documents of a deployment.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RehearsalQuestion {
    /// The database to deploy them to.
    pub db: String,
    /// The design documents, each as it will be sent to CouchDB and with its `_id`.
    #[schemars(with = "Vec<BTreeMap<String, serde_json::Value>>")]
    pub designs: Vec<Box<RawValue>>,
}

/// The documents in a text: one, a list, or `{"docs": […]}`, as `_bulk_docs` accepts them.
///
/// # Errors
/// If it is not JSON.
pub fn documents_in(text: &str) -> Result<Vec<Box<RawValue>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Bundle {
        docs: Option<Vec<Box<RawValue>>>,
    }
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text);
    }
    let bundle: Bundle = serde_json::from_str(text)?;
    match bundle.docs {
        Some(docs) => Ok(docs),
        None => Ok(vec![RawValue::from_string(text.trim().to_owned())?]),
    }
}

/// Deployed documents whose names have been resolved.
#[derive(Debug)]
pub struct ResolvedRehearsal {
    designs: Vec<DesignDocument>,
    db: DbIx,
}

impl RehearsalQuestion {
    /// Resolves the database and the design documents.
    ///
    /// # Errors
    /// If there is no such database, or CouchDB would refuse a document.
    pub fn resolve(&self, plan: &Plan, now: Moment) -> Result<ResolvedRehearsal, QuestionError> {
        let designs = self.parse()?;
        let no_database = || QuestionError::NoDatabase(super::no_database(plan, &self.db));
        let db = database_called(&plan.snapshot, &self.db, now).ok_or_else(no_database)?;
        let languages = built_languages(&plan.snapshot);
        for design in &designs {
            let named = |why: DesignProblem| why.of(&design.id);
            design.check_language(&languages).map_err(named)?;
        }
        Ok(ResolvedRehearsal { designs, db })
    }

    /// The documents, checked.
    ///
    /// # Errors
    /// If CouchDB would refuse one, or two have the same id.
    pub fn parse(&self) -> Result<Vec<DesignDocument>, DesignProblem> {
        if self.designs.is_empty() || self.designs.len() > MAX_DESIGNS {
            let count = counted(self.designs.len() as u64, "design document", "design documents");
            let why = format!("has {count}; it may have 1 to {MAX_DESIGNS}");
            return Err(DesignProblem::of_deployment(&why));
        }
        let mut ids = BTreeSet::new();
        let mut designs = Vec::new();
        for (at, text) in (1..).zip(&self.designs) {
            let place = format!("number {at}");
            let design = DesignDocument::parse(text.get(), None).map_err(|why| why.of(&place))?;
            if !ids.insert(design.id.clone()) {
                let why = format!("has {} twice", design.id);
                return Err(DesignProblem::of_deployment(&why));
            }
            designs.push(design);
        }
        Ok(designs)
    }
}

impl ResolvedRehearsal {
    /// The answer, given the documents that the database has at present.
    pub fn answer(
        &self,
        plan: &Plan,
        live: &LiveDesigns,
        sample: Option<&DocSample>,
        now: Moment,
    ) -> Rehearsal {
        Rehearsal::of(&rehearse(plan, self.db, &self.designs, live, sample, now))
    }

    /// The documents whose indexes are built.
    pub fn built(&self, answer: &Rehearsal) -> Vec<&DesignDocument> {
        let is_built = |id: &String| answer.steps.iter().any(|step| step.design == *id);
        self.designs.iter().filter(|design| is_built(&design.id)).collect()
    }
}

/// The predicted cost of a deployment. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rehearsal {
    /// A summary in one or two sentences.
    pub says: String,
    /// The database.
    pub db: String,
    /// The suffix of its files, which distinguishes it from another database of the same name.
    #[serde(default)]
    pub instance: String,
    /// The documents of the deployment.
    pub documents: Vec<RehearsedDocument>,
    /// Live documents that the deployment does not contain. They stay unless somebody deletes them.
    pub left: Vec<LeftDocument>,
    /// What is built, in the order with the lowest space peak. Each step ends with the compaction
    /// of its index and the deletion of the index files that it replaces.
    pub steps: Vec<RehearsalStep>,
    /// The same without waiting: everything is built and compacted at the same time, and no file is
    /// deleted before the end.
    pub together: Vec<PreflightNode>,
    /// The peak of `deploy-indexes`, which builds in this order and keeps the current indexes until the swap.
    #[serde(default)]
    pub staged: Vec<PreflightNode>,
    /// Whether `views.enforce` allows it to compact each index before the next; null from earlier versions.
    #[serde(default)]
    pub staged_compacted: Option<bool>,
    /// Duration of all builds one after the other, in seconds, without compactions.
    pub seconds: Option<SpreadLine>,
    /// Further remarks, as sentences.
    pub notes: Vec<String>,
}

/// A document of the deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RehearsedDocument {
    /// What the deployment does to it.
    #[schemars(with = "vocabulary::DeploymentChange")]
    pub change: Word,
    /// The revision that the database has; null if it has none, or if that is unknown.
    pub present_rev: Option<String>,
    /// Its own cost, as in `/api/v1/preflight`.
    pub cost: Preflight,
}

/// A live document that the deployment does not contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftDocument {
    /// Its id.
    pub design: String,
    /// Whether a document of the deployment uses its index, because the document was renamed.
    pub is_renamed: bool,
    /// Bytes of the files of its index in all copies, which a cleanup frees once the document is
    /// deleted; null if unknown, or if another document uses them.
    pub bytes: Option<u64>,
}

/// One index that is built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RehearsalStep {
    /// The design document.
    pub design: String,
    /// Duration of the build, in seconds.
    pub seconds: Option<SpreadLine>,
    /// What the step needs on each node; `peak_bytes` and `verdict` are relative to the state before the first step.
    pub nodes: Vec<PreflightNode>,
}

impl Rehearsal {
    /// Why views of its documents do not work, as sentences.
    pub fn problems(&self) -> Vec<String> {
        let of = |cost: &Preflight| {
            let named = cost.problems.iter().map(|says| format!("{}: {says}", cost.design));
            named.collect::<Vec<_>>()
        };
        self.documents.iter().flat_map(|document| of(&document.cost)).collect()
    }
}

/// Whether these peaks fit, as the end of a sentence.
fn together_fit(nodes: &[PreflightNode]) -> String {
    let with = |verdict: SpaceVerdict| {
        let nodes = nodes.iter().filter(|it| it.verdict == verdict.label());
        nodes.map(|it| it.node.clone()).collect::<Vec<_>>()
    };
    let [no, maybe, unknown] =
        [SpaceVerdict::DoesNotFit, SpaceVerdict::MayNotFit, SpaceVerdict::Unknown].map(with);
    if !no.is_empty() {
        format!("they do not fit on {}", listed(&no))
    } else if !maybe.is_empty() {
        format!("they may not fit on {}", listed(&maybe))
    } else if unknown.is_empty() {
        "they fit too".to_owned()
    } else {
        UNKNOWN_FIT.to_owned()
    }
}

/// Merges nodes with the same need and verdict into one entry, with the least free space among them.
fn alike(nodes: &[PreflightNode]) -> Vec<PreflightNode> {
    let said = |it: &PreflightNode| {
        let bytes = |range: Option<SpreadLine>| range.map(|it| it.says_bytes());
        (bytes(it.live_bytes), bytes(it.peak_bytes), it.old_bytes, it.verdict.clone())
    };
    let mut groups: Vec<Vec<&PreflightNode>> = Vec::new();
    for node in nodes {
        match groups.iter_mut().find(|it| it.first().is_some_and(|first| said(first) == said(node)))
        {
            Some(group) => group.push(node),
            None => groups.push(vec![node]),
        }
    }
    let merged = groups.iter().filter_map(|group| {
        let (first, names) = (*group.first()?, group.iter().map(|it| it.node.clone()));
        let node = match group.len() {
            1 => first.node.clone(),
            all if all == nodes.len() => "each".to_owned(),
            _ => names.collect::<Vec<_>>().join(", "),
        };
        let free_bytes = group.iter().map(|it| it.free_bytes).min().flatten();
        Some(PreflightNode { node, free_bytes, ..first.clone() })
    });
    merged.collect()
}

impl Rehearsal {
    /// The answer as the API shows it.
    pub fn of(found: &Found) -> Self {
        let document = |it: &Rehearsed| RehearsedDocument {
            change: it.change.label().into(),
            present_rev: it.present_rev.clone(),
            cost: Preflight::of(&it.cost),
        };
        let step = |it: &FoundStep| RehearsalStep {
            design: it.design.clone(),
            seconds: it.seconds.map(SpreadLine::from),
            nodes: it.nodes.iter().map(PreflightNode::from).collect(),
        };
        let left = |it: &LeftDesign| LeftDocument {
            design: it.design.clone(),
            is_renamed: it.is_renamed,
            bytes: it.bytes,
        };
        let mut answer = Self {
            says: String::new(),
            db: found.db.clone(),
            instance: found.instance.clone(),
            documents: found.documents.iter().map(document).collect(),
            left: found.left.iter().map(left).collect(),
            steps: found.steps.iter().map(step).collect(),
            together: found.together.iter().map(PreflightNode::from).collect(),
            staged: found.staged.iter().map(PreflightNode::from).collect(),
            staged_compacted: Some(found.compacts),
            seconds: found.seconds().map(SpreadLine::from),
            notes: Vec::new(),
        };
        answer.notes = answer.notes(found.unread.as_deref());
        answer.says = answer.summary();
        answer
    }

    /// What happens to the documents, and whether the indexes fit one after the other and together.
    fn summary(&self) -> String {
        let count = counted(self.documents.len() as u64, "design document", "design documents");
        if self.steps.is_empty() {
            let has_searches = self.documents.iter().any(|it| it.cost.searches().is_some());
            let index = if has_searches { "index of views" } else { "index" };
            return format!("Deploying {count} to {} builds no {index}.", self.db);
        }
        let indexes = counted(self.steps.len() as u64, "index", "indexes");
        let time = match self.seconds {
            Some(seconds) => format!("in {}", seconds.says_seconds()),
            None => "in an unknown time".to_owned(),
        };
        let fit = match self.worst_step() {
            Some((_, SpaceVerdict::Fits, _)) => "each fits".to_owned(),
            Some((at, SpaceVerdict::DoesNotFit, node)) => format!(
                "it does not fit: it needs {} more on {} at step {at}",
                node.missing_bytes.map_or_else(|| "?".to_owned(), format_size_short),
                node.node
            ),
            Some((at, SpaceVerdict::MayNotFit, node)) => {
                format!("it may not fit on {} at step {at}", node.node)
            }
            Some((_, SpaceVerdict::Unknown, _)) | None => UNKNOWN_FIT.to_owned(),
        };
        let first = format!(
            "Deploying {count} to {} builds {indexes} {time}. One after the other, each compacted and cleaned up before the next, {fit}.",
            self.db
        );
        let is_free_space_known =
            self.steps.iter().flat_map(|it| &it.nodes).any(|it| it.free_bytes.is_some());
        let staged = match (self.differs_staged(), self.staged_compacted == Some(false)) {
            (false, _) => String::new(),
            (true, false) => format!(
                " Built by deploy-indexes, which keeps the present indexes until the swap, {}.",
                together_fit(&self.staged)
            ),
            (true, true) => format!(
                " Built by deploy-indexes, which keeps the present indexes until the swap and may not compact the new ones (views.enforce), {}.",
                together_fit(&self.staged)
            ),
        };
        match self.steps.len() {
            _ if !is_free_space_known => {
                format!("{first} The free space of the nodes is unknown (headroom.volumes).")
            }
            1 => format!("{first}{staged}"),
            _ => format!("{first}{staged} All at once, {}.", together_fit(&self.together)),
        }
    }

    /// Whether `deploy-indexes` needs a different amount of space than the steps.
    fn differs_staged(&self) -> bool {
        let replaces =
            || self.steps.iter().flat_map(|it| &it.nodes).any(|it| it.old_bytes.is_some());
        self.staged_compacted == Some(false) || (self.steps.len() > 1 && replaces())
    }

    /// The first step with the worst verdict; steps count from one.
    fn worst_step(&self) -> Option<(usize, SpaceVerdict, &PreflightNode)> {
        const WORST_FIRST: [SpaceVerdict; 4] = [
            SpaceVerdict::DoesNotFit,
            SpaceVerdict::Unknown,
            SpaceVerdict::MayNotFit,
            SpaceVerdict::Fits,
        ];
        WORST_FIRST.into_iter().find_map(|verdict| {
            (1..).zip(&self.steps).find_map(|(at, step)| {
                let node = step.nodes.iter().find(|it| it.verdict == verdict.label())?;
                Some((at, verdict, node))
            })
        })
    }

    fn notes(&self, unread: Option<&str>) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(why) = unread {
            notes.push(format!(
                "The live documents could not be read, so recliner cannot tell what changes: {why}."
            ));
        }
        let left: Vec<&LeftDocument> = self.left.iter().filter(|it| !it.is_renamed).collect();
        if !left.is_empty() {
            let names: Vec<String> = left.iter().map(|it| it.design.clone()).collect();
            let (verb, it) = match left.len() {
                1 => ("is live and stays", "it"),
                _ => ("are live and stay", "them"),
            };
            let bytes: Vec<u64> = left.iter().filter_map(|it| it.bytes).collect();
            let freed = match bytes.len() {
                0 => String::new(),
                _ => format!(
                    " Once nobody queries {it}, deleting {it} and a cleanup free {}.",
                    format_size_short(bytes.iter().sum())
                ),
            };
            notes.push(format!("Not in the deployment: {} {verb}.{freed}", listed(&names)));
        }
        if self.steps.len() > 1 {
            notes.push(
                "For each step: save the document (a changed one as _design/NAME-next first), wait until it is built, compact it, save it under its own name, and clean up. recliner preflight DB FILE prints the commands for one document."
                    .to_owned(),
            );
        }
        notes
    }

    /// What happens to each document, as sentences.
    pub fn changes(&self) -> Vec<String> {
        let says = |it: &RehearsedDocument| {
            let cost = &it.cost;
            let shared = listed(&cost.shared_with);
            let what = match Change::from_label(&it.change) {
                Some(Change::New) => "new, its index is built".to_owned(),
                Some(Change::Changed) => {
                    format!("changed, its index is rebuilt: {}", in_one_line(cost.changes()))
                }
                Some(Change::Renamed) => {
                    format!("was {shared}: the index is reused, nothing is built")
                }
                Some(Change::Shared) => format!("has the index of {shared}, nothing is built"),
                Some(Change::Unchanged) => "unchanged, nothing is built".to_owned(),
                Some(Change::NoViews) => "has no views".to_owned(),
                Some(Change::Unknown) | None => {
                    "the live document is unknown; an index is built".to_owned()
                }
            };
            let mut line = format!("{}: {what}", cost.design);
            for says in [cost.searches(), cost.losses()].into_iter().flatten() {
                line = format!("{}. {says}", line.trim_end_matches('.'));
            }
            line
        };
        self.documents.iter().map(says).collect()
    }

    /// What the numbers are based on, after the names of the documents to which it applies, unless it applies to all.
    pub fn rests_on(&self) -> Vec<String> {
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        for step in &self.steps {
            let cost = self.documents.iter().find(|it| it.cost.design == step.design);
            for line in cost.into_iter().flat_map(|it| it.cost.rests_on()) {
                let name = design_name(&step.design).to_owned();
                match lines.iter_mut().find(|(other, _)| *other == line) {
                    Some((_, names)) => names.push(name),
                    None => lines.push((line, vec![name])),
                }
            }
        }
        let lines = lines.into_iter().map(|(line, names)| match names.len() {
            all if all == self.steps.len() => line,
            _ => format!("{}: {line}", listed(&names)),
        });
        lines.collect()
    }

    /// Each step on each node, with the step's number, for a table; nodes with the same need share a line.
    pub fn lines(&self) -> Vec<(String, String, PreflightNode)> {
        let several = self.steps.len() > 1;
        let steps = (1..).zip(&self.steps);
        let steps = steps.map(|(at, it)| (at.to_string(), it.design.clone(), &it.nodes));
        let all =
            [("staged", &self.staged, self.differs_staged()), ("at once", &self.together, several)];
        let all = all.into_iter().filter(|(.., is_shown)| *is_shown);
        let all = all.map(|(name, nodes, _)| ("all".to_owned(), name.to_owned(), nodes));
        let line = |(at, name, nodes): (String, String, &Vec<PreflightNode>)| {
            alike(nodes)
                .into_iter()
                .map(move |node| (at.clone(), name.clone(), node))
                .collect::<Vec<_>>()
        };
        steps.chain(all).flat_map(line).collect()
    }

    pub(crate) fn table(
        lines: &[(String, String, PreflightNode)],
    ) -> Table<&(String, String, PreflightNode)> {
        let table = Table::of(lines)
            .text("step", |(step, ..)| Cell::words(step))
            .text("document", |(_, design, _)| design_name(design))
            .text("node", |(.., node)| Cell::node(&node.node));
        PreflightNode::add_columns(table, |(.., node)| node)
    }

    /// The meaning of the columns of that table.
    pub const COLUMNS: &str = "peak: the most space needed beyond that used before the first step, while the index is built and compacted. old index: deleted at the end of the step. free: the least of these nodes. staged: by deploy-indexes, which keeps the old indexes until the swap. at once: everything, without waiting.";
}

/// Joins the phrases with semicolons, and puts them before whole sentences.
fn in_one_line(changes: Vec<String>) -> String {
    let (sentences, phrases): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|change| change.ends_with('.'));
    let phrases = phrases.join("; ");
    let end = if phrases.is_empty() || sentences.is_empty() { "" } else { "." };
    [phrases + end].into_iter().chain(sentences).collect::<Vec<_>>().join(" ").trim().to_owned()
}
