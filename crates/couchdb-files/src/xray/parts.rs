//! The parts of a file, and their sums.

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bodies of winning revisions; counts documents.
    WinningBodies,
    /// Bodies of other revisions that are not deleted; counts revisions.
    ConflictBodies,
    /// Bodies of deleted revisions that lost against another; counts revisions.
    DeletedConflicts,
    /// Bodies of deleted documents that have fields; counts documents.
    TombstonesWithBody,
    /// Bodies of deleted documents without fields; counts documents.
    TombstonesWithoutBody,
    /// Rows of deleted documents in the trees of ids and sequences; counts documents.
    TombstoneRows,
    /// Attachments that one revision has; counts attachments.
    Attachments,
    /// Attachments that several revisions share, each counted once. A compaction copies them.
    SharedAttachments,
    /// Trees of revisions of documents with one revision; counts documents.
    Revisions1,
    /// The same with 2 to 10 revisions.
    Revisions2To10,
    /// The same with 11 to 100 revisions.
    Revisions11To100,
    /// The same with 101 to 1000 revisions.
    Revisions101To1000,
    /// The same with more than 1000 revisions.
    RevisionsOver1000,
    /// Rows of `_local` documents with their bodies; counts documents.
    LocalDocuments,
    /// Remembered purges, in both of their trees; counts purges.
    PurgeInfos,
    /// Rows of the tree of documents in a view index; counts documents.
    ViewIdRows,
    /// Rows of views; counts rows.
    ViewRows,
    /// The rest of trees: keys, sequences, reductions, references; counts nodes.
    TreeNodes,
    /// Security object and properties; counts terms.
    SecurityAndProperties,
    /// The last header and the padding before it.
    Header,
    /// Bytes after the last header: not committed, or lost in a crash.
    Uncommitted,
    /// Bytes that the header refers to and that cannot be read; counts places.
    Unreadable,
    /// Bodies of revisions that were replaced; counts revisions.
    DeadBodies,
    /// Attachments that only replaced revisions have; counts attachments.
    DeadAttachments,
    /// What else nothing refers to: old tree nodes, old headers, bodies of forgotten revisions.
    DeadOther,
}

impl Part {
    /// Every part, in the order of a table.
    pub const ALL: [Self; 25] = [
        Self::WinningBodies,
        Self::ConflictBodies,
        Self::DeletedConflicts,
        Self::TombstonesWithBody,
        Self::TombstonesWithoutBody,
        Self::TombstoneRows,
        Self::Attachments,
        Self::SharedAttachments,
        Self::Revisions1,
        Self::Revisions2To10,
        Self::Revisions11To100,
        Self::Revisions101To1000,
        Self::RevisionsOver1000,
        Self::LocalDocuments,
        Self::PurgeInfos,
        Self::ViewIdRows,
        Self::ViewRows,
        Self::TreeNodes,
        Self::SecurityAndProperties,
        Self::Header,
        Self::Uncommitted,
        Self::Unreadable,
        Self::DeadBodies,
        Self::DeadAttachments,
        Self::DeadOther,
    ];

    /// The name in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::WinningBodies => "winning_bodies",
            Self::ConflictBodies => "conflict_bodies",
            Self::DeletedConflicts => "deleted_conflict_bodies",
            Self::TombstonesWithBody => "tombstones_with_body",
            Self::TombstonesWithoutBody => "tombstones_without_body",
            Self::TombstoneRows => "tombstone_rows",
            Self::Attachments => "attachments",
            Self::SharedAttachments => "attachments_shared",
            Self::Revisions1 => "revision_trees_1",
            Self::Revisions2To10 => "revision_trees_2_to_10",
            Self::Revisions11To100 => "revision_trees_11_to_100",
            Self::Revisions101To1000 => "revision_trees_101_to_1000",
            Self::RevisionsOver1000 => "revision_trees_over_1000",
            Self::LocalDocuments => "local_documents",
            Self::PurgeInfos => "purge_infos",
            Self::ViewIdRows => "view_id_rows",
            Self::ViewRows => "view_rows",
            Self::TreeNodes => "tree_nodes",
            Self::SecurityAndProperties => "security_and_properties",
            Self::Header => "header",
            Self::Uncommitted => "uncommitted",
            Self::Unreadable => "unreadable",
            Self::DeadBodies => "dead_bodies",
            Self::DeadAttachments => "dead_attachments",
            Self::DeadOther => "dead_other",
        }
    }

    /// Whether nothing refers to it, so that a compaction drops it.
    #[must_use]
    pub const fn is_dead(self) -> bool {
        matches!(self, Self::DeadBodies | Self::DeadAttachments | Self::DeadOther)
    }

    /// The part of a tree with so many revisions.
    pub(super) const fn of_revisions(count: usize) -> Self {
        match count {
            0..=1 => Self::Revisions1,
            2..=10 => Self::Revisions2To10,
            11..=100 => Self::Revisions11To100,
            101..=1000 => Self::Revisions101To1000,
            _ => Self::RevisionsOver1000,
        }
    }
}

/// A part with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartBytes {
    /// The part.
    pub part: Part,
    /// Bytes in the file.
    pub bytes: u64,
    /// Number of what it counts.
    pub count: u64,
}

/// Sums of parts.
#[derive(Debug, Default)]
pub(super) struct Parts {
    sums: [(u64, u64); Part::ALL.len()],
    /// The end of the last bytes that something refers to.
    pub(super) end: u64,
}

impl Parts {
    /// Adds bytes and a count.
    pub(super) fn add(&mut self, part: Part, bytes: u64, count: u64) {
        if let Some((sum, number)) = self.sums.get_mut(part as usize) {
            *sum = sum.saturating_add(bytes);
            *number = number.saturating_add(count);
        }
    }

    /// Moves bytes and a count from one part to another.
    pub(super) fn shift(&mut self, from: Part, to: Part, bytes: u64, count: u64) {
        if let Some((sum, number)) = self.sums.get_mut(from as usize) {
            *sum = sum.saturating_sub(bytes);
            *number = number.saturating_sub(count);
        }
        self.add(to, bytes, count);
    }

    /// Notes that something refers to these bytes.
    pub(super) fn reach(&mut self, at: u64, bytes: u64) {
        self.end = self.end.max(at.saturating_add(bytes));
    }

    pub(super) fn get(&self, part: Part) -> (u64, u64) {
        self.sums.get(part as usize).copied().unwrap_or_default()
    }

    /// The parts that have bytes or a count, so that all are `file` bytes: dead bytes are what is
    /// left. `None` if the others exceed the file.
    pub(super) fn complete(mut self, file: u64) -> Option<Vec<PartBytes>> {
        let bytes = |parts: &Self, part: Part| parts.get(part).0;
        let known = |parts: &Self, dead: bool, but: Part| {
            let others = Part::ALL.iter().filter(|it| it.is_dead() == dead && **it != but);
            others.fold(0_u64, |sum, part| sum.saturating_add(bytes(parts, *part)))
        };
        let live = known(&self, false, Part::Unreadable);
        let rest = file.checked_sub(live)?;
        // What cannot be read is as large as its reference says, which may be wrong.
        let unreadable = bytes(&self, Part::Unreadable);
        let excess = unreadable.saturating_sub(rest);
        self.shift(Part::Unreadable, Part::DeadOther, excess, 0);
        let rest = rest - (unreadable - excess);
        // So may be what refers to replaced revisions.
        let (mut dead, mut left) = (Vec::new(), rest);
        for part in [Part::DeadBodies, Part::DeadAttachments] {
            let (bytes, count) = self.get(part);
            let bytes = bytes.min(left);
            left -= bytes;
            dead.push(PartBytes { part, bytes, count });
        }
        dead.push(PartBytes { part: Part::DeadOther, bytes: left, count: 0 });
        let whole = |part: &Part| {
            let (bytes, count) = self.get(*part);
            PartBytes { part: *part, bytes, count }
        };
        let live = Part::ALL.iter().filter(|part| !part.is_dead()).map(whole);
        Some(live.chain(dead).filter(|it| it.bytes > 0 || it.count > 0).collect())
    }
}
