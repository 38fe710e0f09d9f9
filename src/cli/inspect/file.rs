//! The content of one CouchDB file: its last header and last purge.

use crate::datadir::OpenFile;
use couchdb_files::{
    self, Bytes as _, CommittedIndex, DbHeader, Difference, FileHeader, Header, HeaderError,
    HeaderPosition, IndexForm, OpenAction, Role, TreeSize, ViewHeader,
};
use serde::Serialize;
use std::path::Path;

/// One file; unknown values are null.
#[derive(Debug, Default, Serialize)]
pub(in crate::cli) struct InspectedFile {
    pub(in crate::cli) path: String,
    /// The file's role, derived from its name.
    pub(in crate::cli) role: Option<&'static str>,
    /// `db` or `view`, from the header, otherwise from the name.
    pub(in crate::cli) kind: Option<&'static str>,
    pub(in crate::cli) file_bytes: Option<u64>,
    pub(in crate::cli) active_bytes: Option<u64>,
    pub(in crate::cli) external_bytes: Option<u64>,
    pub(in crate::cli) ratio: Option<f64>,
    pub(in crate::cli) update_seq: Option<u64>,
    pub(in crate::cli) compacted_seq: Option<u64>,
    pub(in crate::cli) purge_seq: Option<u64>,
    pub(in crate::cli) docs: Option<u64>,
    pub(in crate::cli) deleted_docs: Option<u64>,
    pub(in crate::cli) uuid: Option<String>,
    pub(in crate::cli) signature: Option<String>,
    pub(in crate::cli) collator_versions: Option<Vec<String>>,
    pub(in crate::cli) header: Option<HeaderInfo>,
    pub(in crate::cli) trees: Vec<NamedTree>,
    pub(in crate::cli) views: Option<Vec<ViewGroupInfo>>,
    pub(in crate::cli) epochs: Option<Vec<EpochInfo>>,
    pub(in crate::cli) purges: Option<u64>,
    pub(in crate::cli) purge_infos_limit: Option<u64>,
    pub(in crate::cli) revs_limit: Option<u64>,
    /// What CouchDB does when it opens the file.
    pub(in crate::cli) opening: Option<Explanation>,
    /// Values that CouchDB would report differently, and why.
    pub(in crate::cli) differences: Vec<DifferenceLine>,
    /// Why the file could not be read.
    pub(in crate::cli) error: Option<Explanation>,
}

/// Position and form of the header.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct HeaderInfo {
    pub(in crate::cli) form: Option<&'static str>,
    pub(in crate::cli) disk_version: Option<u64>,
    pub(in crate::cli) offset: u64,
    pub(in crate::cli) bytes: u32,
    pub(in crate::cli) checksum: &'static str,
    pub(in crate::cli) rejected: u32,
    pub(in crate::cli) tail: u64,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct NamedTree {
    pub(in crate::cli) name: &'static str,
    pub(in crate::cli) active_bytes: Option<u64>,
}

/// Views of one index that share the map function and the options.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct ViewGroupInfo {
    pub(in crate::cli) rows: Option<u64>,
    pub(in crate::cli) reduces: Option<usize>,
    pub(in crate::cli) active_bytes: Option<u64>,
    pub(in crate::cli) external_bytes: Option<u64>,
}

/// A node that owned the file, and since which update sequence.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct EpochInfo {
    pub(in crate::cli) node: String,
    pub(in crate::cli) since: u64,
}

/// A label for programs and a sentence for people.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Explanation {
    pub(in crate::cli) is: &'static str,
    pub(in crate::cli) says: String,
}

/// Values that CouchDB reports differently.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct DifferenceLine {
    pub(in crate::cli) facts: &'static [&'static str],
    pub(in crate::cli) why: &'static str,
}

impl InspectedFile {
    pub(super) fn of(path: &Path) -> Self {
        let mut inspected = Self { path: path.display().to_string(), ..Self::default() };
        let opened = match OpenFile::open_regular(path) {
            Ok(opened) => opened,
            Err(why) => {
                inspected.error = Some(Explanation { is: "read_failed", says: why });
                return inspected;
            }
        };
        let name = path.file_name().map(|name| name.to_string_lossy());
        let role = Role::of(name.as_deref().unwrap_or_default());
        let mut read = couchdb_files::read(&opened);
        if let Ok(FileHeader { header: Header::Db(db), .. }) = &mut read {
            db.purge_seq = couchdb_files::last_purge(&opened, db);
        }
        inspected.fill(role, opened.size(), read);
        inspected
    }

    fn fill(&mut self, role: Role, size: u64, read: Result<FileHeader, HeaderError>) {
        let opening = OpenAction::of(role, &read);
        self.role = Some(role.label());
        self.file_bytes = Some(size);
        self.opening = Some(Explanation { is: opening.label(), says: opening.to_string() });
        let differs = |it: Difference| DifferenceLine { facts: it.facts, why: it.why };
        self.differences = Difference::of(role, &read).into_iter().map(differs).collect();
        self.kind = match role {
            Role::Db | Role::CompactData | Role::CompactMeta | Role::Compacted => Some("db"),
            Role::View(_) | Role::CompactView(_) => Some("view"),
            Role::Unnamed => None,
        };
        let headed = match read {
            Ok(headed) => headed,
            Err(why) => {
                let mut version = None;
                if let HeaderError::UnknownDiskVersion { version: unknown, .. } = why {
                    version = Some(unknown);
                }
                self.header = why.position().map(|place| HeaderInfo::at(place, None, version));
                self.error = Some(Explanation { is: why.label(), says: why.to_string() });
                return;
            }
        };
        let place = headed.position;
        match headed.header {
            Header::Db(db) => self.fill_db(db, place, "db_header"),
            Header::Compaction(db) => self.fill_db(db, place, "comp_header"),
            Header::View(view) => self.fill_view(view, place),
        }
        if role == Role::CompactMeta {
            // The header names trees of another file.
            (self.active_bytes, self.external_bytes) = (None, None);
        }
        self.ratio = self
            .active_bytes
            .filter(|active| *active > 0)
            .map(|active| size as f64 / active as f64);
    }

    fn fill_db(&mut self, db: DbHeader, place: HeaderPosition, form: &'static str) {
        self.kind = Some("db");
        self.active_bytes = db.active;
        self.external_bytes = db.external;
        self.update_seq = Some(db.update_seq);
        self.compacted_seq = Some(db.compacted_seq);
        self.purge_seq = db.purge_seq;
        self.docs = db.docs;
        self.deleted_docs = db.deleted_docs;
        self.uuid = db.uuid;
        self.header = Some(HeaderInfo::at(place, Some(form), Some(db.disk_version.into())));
        let trees = db.trees;
        self.trees = [
            ("id", trees.id),
            ("seq", trees.seq),
            ("local", trees.local),
            ("purge", trees.purge),
            ("purge_seq", trees.purge_seq),
        ]
        .map(|(name, tree)| NamedTree::of(name, tree))
        .into();
        let epoch = |it: couchdb_files::Epoch| EpochInfo { node: it.node, since: it.since };
        self.epochs = Some(db.epochs.into_iter().map(epoch).collect());
        self.purges = db.purges;
        self.purge_infos_limit = Some(db.purge_infos_limit);
        self.revs_limit = Some(db.revs_limit);
    }

    fn fill_view(&mut self, view: ViewHeader, place: HeaderPosition) {
        self.kind = Some("view");
        self.signature = Some(view.signature.to_string());
        let Some(index) = view.committed else {
            // CouchDB also reports 0 for an index without a commit.
            (self.active_bytes, self.update_seq) = (Some(0), Some(0));
            self.header = Some(HeaderInfo::at(place, Some("nil"), None));
            return;
        };
        self.active_bytes = index.active;
        self.external_bytes = index.external;
        self.update_seq = Some(index.update_seq);
        self.purge_seq = Some(index.purge_seq);
        self.header = Some(HeaderInfo::at(place, Some(form_label(index.form)), None));
        self.trees = vec![NamedTree::of("id", index.id_tree)];
        self.views = Some(group_infos(&index));
        self.collator_versions = Some(index.collators);
    }
}

const fn form_label(form: IndexForm) -> &'static str {
    match form {
        IndexForm::V1_2 => "index_header of 1.2",
        IndexForm::Plain => "mrheader of 1.3 to 1.6 or 3.0 to 3.2",
        IndexForm::V2 => "mrheader of 2.x",
        IndexForm::Current => "mrheader",
    }
}

fn group_infos(index: &CommittedIndex) -> Vec<ViewGroupInfo> {
    let group = |it: &couchdb_files::ViewGroup| ViewGroupInfo {
        rows: it.rows,
        reduces: it.reduces,
        active_bytes: it.tree.bytes(),
        external_bytes: it.external,
    };
    index.views.iter().map(group).collect()
}

impl HeaderInfo {
    const fn at(
        place: HeaderPosition,
        form: Option<&'static str>,
        disk_version: Option<u64>,
    ) -> Self {
        Self {
            form,
            disk_version,
            offset: place.at,
            bytes: place.length,
            checksum: place.checksum.label(),
            rejected: place.false_headers,
            tail: place.bytes_after,
        }
    }
}

impl NamedTree {
    const fn of(name: &'static str, tree: TreeSize) -> Self {
        Self { name, active_bytes: tree.bytes() }
    }
}
