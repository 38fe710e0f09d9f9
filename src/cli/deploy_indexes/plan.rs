//! The files of a deployment's plan, and of what a command remembers while carrying it out.

use crate::{
    advice::preflight::{DesignDocument, INDEX_FIELDS, is_same_search},
    serve::report::{PreflightNode, Rehearsal},
};
use couchdb_names::Signature;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, value::RawValue};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

/// The version of both files.
const VERSION: u32 = 1;

/// Maximum size of a file; a deployment has at most 200 documents, most of them small.
const MAX_FILE: u64 = 64 << 20;

/// A rehearsed deployment, with everything needed to carry it out.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::cli) struct DeploymentPlan {
    version: u32,
    pub(super) db: String,
    /// The suffix of the database's files.
    pub(super) instance: String,
    pub(super) documents: Vec<PlannedDocument>,
    /// The indexes to build, in order.
    pub(super) steps: Vec<PlannedStep>,
}

/// A document of the deployment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PlannedDocument {
    pub(super) id: String,
    /// The revision of the live document at the rehearsal, if there was one.
    pub(super) rev: Option<String>,
    /// Its new search indexes, which CouchDB builds only once the document is live.
    pub(super) built_when_live: Vec<String>,
    /// What is lost when the document is saved, as a sentence.
    #[serde(default)]
    pub(super) losses: Option<String>,
    pub(super) body: Box<RawValue>,
}

/// An index to build.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PlannedStep {
    pub(super) design: String,
    /// Number of documents in the database at the rehearsal.
    pub(super) docs: Option<u64>,
    /// The space that building and compacting this index needs.
    pub(super) nodes: Vec<PreflightNode>,
}

impl PlannedStep {
    /// The id of the staging document, which makes CouchDB build the index.
    pub(super) fn staging(&self) -> String {
        format!("{}-next", self.design)
    }
}

/// The fields of a document as raw JSON, because the order of views may matter to the signature.
pub(super) type Fields = BTreeMap<String, Box<RawValue>>;

impl DeploymentPlan {
    /// The plan from a rehearsal of these documents.
    ///
    /// # Errors
    /// If the rehearsal could not determine something that the plan needs.
    pub(in crate::cli) fn of(found: &Rehearsal, designs: &[Box<RawValue>]) -> Result<Self, String> {
        let unread = "no plan was written: cannot read the live documents";
        if found.documents.iter().any(|it| it.change == "unknown") {
            return Err(unread.to_owned());
        }
        let mut documents = Vec::new();
        for (document, body) in found.documents.iter().zip(designs) {
            let id = document.cost.design.clone();
            documents.push(PlannedDocument {
                id,
                rev: document.present_rev.clone(),
                built_when_live: document.cost.search_indexes.clone(),
                losses: document.cost.losses(),
                body: body.clone(),
            });
        }
        let step = |design: &String| {
            let document = found.documents.iter().find(|it| it.cost.design == *design)?;
            let (docs, nodes) = (document.cost.docs, document.cost.nodes.clone());
            Some(PlannedStep { design: design.clone(), docs, nodes })
        };
        let steps = found.steps.iter().filter_map(|it| step(&it.design)).collect();
        let plan = Self {
            version: VERSION,
            db: found.db.clone(),
            instance: found.instance.clone(),
            documents,
            steps,
        };
        plan.check().map(|()| plan)
    }

    /// Reads and checks a plan.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let plan: Self = read_json(path)?;
        plan.check().map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(plan)
    }

    /// Writes the plan.
    ///
    /// # Errors
    /// Why it could not be written.
    pub(in crate::cli) fn write(&self, path: &Path) -> Result<(), String> {
        write_json(path, self)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            let version = self.version;
            return Err(format!(
                "is a plan of version {version}; this recliner reads version {VERSION}"
            ));
        }
        let ids: BTreeSet<&str> = self.documents.iter().map(|it| &*it.id).collect();
        if ids.len() != self.documents.len() {
            return Err("the plan contains a document twice".to_owned());
        }
        for document in &self.documents {
            let parsed = DesignDocument::parse(document.body.get(), None)
                .map_err(|why| format!("{} {why}", document.id))?;
            if parsed.id != document.id {
                return Err(format!("{} has another _id in the plan", document.id));
            }
        }
        for step in &self.steps {
            if !ids.contains(&*step.design) {
                return Err(format!(
                    "the plan has a step for {}, but no such document",
                    step.design
                ));
            }
            let document = self.document(&step.design).map(|it| index_of(it.body.get()));
            if document.flatten() != self.staging(step).and_then(|it| index_of(&it)) {
                return Err(format!(
                    "{} would not share its index with {}",
                    step.staging(),
                    step.design
                ));
            }
            if ids.contains(&*step.staging()) {
                return Err(format!(
                    "the plan contains {}, but needs this name to build {}",
                    step.staging(),
                    step.design
                ));
            }
        }
        Ok(())
    }

    fn text(&self) -> Option<Box<RawValue>> {
        serde_json::value::to_raw_value(self).ok()
    }

    /// What to know before the swap, as sentences.
    pub(in crate::cli) fn warnings(&self) -> Vec<String> {
        let losses = |it: &PlannedDocument| Some(format!("{}: {}", it.id, it.losses.as_ref()?));
        self.documents.iter().filter_map(losses).chain(self.built_when_live()).collect()
    }

    /// What CouchDB builds only once the documents are live, if anything.
    fn built_when_live(&self) -> Option<String> {
        let of = |it: &PlannedDocument| {
            (!it.built_when_live.is_empty())
                .then(|| format!("{} ({})", it.id, it.built_when_live.join(", ")))
        };
        let named: Vec<String> = self.documents.iter().filter_map(of).collect();
        (!named.is_empty()).then(|| {
            format!(
                "Only views are built beforehand. These search indexes are built once their documents are live, and searches wait until then: {}.",
                named.join("; ")
            )
        })
    }

    pub(super) fn document(&self, id: &str) -> Option<&PlannedDocument> {
        self.documents.iter().find(|it| it.id == id)
    }

    /// The staging document of a step: only the fields that determine the signature, so that no
    /// validation takes effect early.
    pub(super) fn staging(&self, step: &PlannedStep) -> Option<String> {
        let mut fields = fields(self.document(&step.design)?.body.get());
        fields.retain(|name, _| INDEX_FIELDS.contains(&&**name));
        Some(with_id(fields, &step.staging(), None))
    }
}

/// The signature of a document's views, which names their index; `None` if it has no views.
pub(super) fn index_of(text: &str) -> Option<Signature> {
    let document = DesignDocument::parse(text, None).ok()?;
    (!document.views.is_empty()).then_some(document.signature)
}

/// The fields of a document; empty if the text is not a JSON object.
pub(super) fn fields(text: &str) -> Fields {
    serde_json::from_str(text).unwrap_or_default()
}

/// The text of a document with this id and, if given, this revision.
pub(super) fn with_id(mut fields: Fields, id: &str, rev: Option<&str>) -> String {
    let text = |value: &str| serde_json::value::to_raw_value(value).ok();
    fields.extend(text(id).map(|id| ("_id".to_owned(), id)));
    fields.remove("_rev");
    fields.extend(rev.and_then(text).map(|rev| ("_rev".to_owned(), rev)));
    serde_json::to_string(&fields).unwrap_or_default()
}

/// Whether two documents have the same content and the same index, apart from id, revision and attachments and from
/// what CouchDB adds to search indexes.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let content = |text: &str| {
        let mut fields: Map<String, Value> = serde_json::from_str(text).ok()?;
        fields.retain(|name, _| !name.starts_with('_'));
        let searches = fields.remove("nouveau").unwrap_or_default();
        Some((fields, searches))
    };
    let (Some((fields, searches)), Some((other_fields, other_searches))) =
        (content(one), content(other))
    else {
        return false;
    };
    let are_same_searches = match (searches.as_object(), other_searches.as_object()) {
        (Some(one), Some(other)) => {
            let is_in_other = |(name, search): (&String, &Value)| {
                other.get(name).is_some_and(|it| is_same_search(search, it))
            };
            one.len() == other.len() && one.iter().all(is_in_other)
        }
        _ => searches == other_searches,
    };
    fields == other_fields && are_same_searches && index_of(one) == index_of(other)
}

/// What a command remembers besides what the cluster shows. It is a file next to the plan, not in the
/// service's journal, because a back-out must remain possible after the service's storage is lost.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Memory {
    version: u32,
    /// The plan being carried out: its file may be overwritten before the deployment ends.
    plan: Option<Box<RawValue>>,
    /// The documents before the first change, with their revisions; `None` where none existed.
    pub(super) before: BTreeMap<String, Option<Box<RawValue>>>,
    /// The request that was sent last.
    pub(super) intent: Option<String>,
    /// The staging documents whose compaction was ordered, and when.
    pub(super) ordered: BTreeMap<String, String>,
    /// The staging documents whose indexes are compacted, or why they are not.
    pub(super) compacted: BTreeMap<String, Option<String>>,
}

/// The path of a plan's memory file.
pub(super) fn memory_path(plan: &Path) -> PathBuf {
    let mut name = plan.as_os_str().to_owned();
    name.push(".state");
    name.into()
}

impl Memory {
    pub(super) fn of(plan: &DeploymentPlan) -> Self {
        Self { version: VERSION, plan: plan.text(), ..Self::default() }
    }

    /// What an earlier command remembered, if anything.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, String> {
        if !path.try_exists().map_err(|why| format!("{}: {why}", path.display()))? {
            return Ok(None);
        }
        let memory: Self = read_json(path)?;
        let is_known = memory.version == VERSION;
        is_known.then_some(Some(memory)).ok_or_else(|| {
            format!(
                "{} was written by another version of recliner; use that version",
                path.display()
            )
        })
    }

    pub(super) fn is_of(&self, plan: &DeploymentPlan) -> bool {
        let (own, other) = (self.plan.as_ref(), plan.text());
        own.is_some() && own.map(|it| it.get()) == other.as_ref().map(|it| it.get())
    }

    /// The plan that this memory belongs to.
    ///
    /// # Errors
    /// If it is not a valid plan.
    pub(super) fn plan(&self) -> Result<DeploymentPlan, String> {
        let text = self.plan.as_ref().map_or("null", |it| it.get());
        let plan: DeploymentPlan = serde_json::from_str(text).map_err(|why| why.to_string())?;
        plan.check().map(|()| plan)
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        write_json(path, self)
    }

    /// Forgets what was done for a staging document, because it is saved again.
    pub(super) fn begin(&mut self, staging: &str) {
        self.ordered.remove(staging);
        self.compacted.remove(staging);
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let name = path.display();
    let bytes = named_file::read_at_most(path, MAX_FILE)
        .map_err(|why| format!("{name} cannot be read: {why}"))?;
    serde_json::from_slice(&bytes).map_err(|why| {
        format!("{name} was not written by preflight --write-plan or deploy-indexes: {why}")
    })
}

/// Replaces a file atomically, and syncs it to disk before returning.
fn write_json(path: &Path, value: &impl Serialize) -> Result<(), String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot write {}: {why}", path.display());
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let bytes = serde_json::to_vec(value).map_err(|why| failed(&why))?;
    let written = fs::File::create(&new).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        fs::File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
    });
    written.map_err(|why| failed(&why))
}
