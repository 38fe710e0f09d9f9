//! The parts of a file, and their sums.

use crate::compacted::rounded;

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
    /// Anything else without a reference: old tree nodes, old headers, bodies of forgotten revisions.
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

    /// The part for a tree of `count` revisions.
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

/// The error of a sample that does not come from chance, as a share of the size after a compaction (measured on files
/// of 3.5.2).
const METHOD_ERROR: f64 = 0.01;

/// A part with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartBytes {
    /// The part.
    pub part: Part,
    /// Bytes in the file.
    pub bytes: u64,
    /// Number of the items that the part counts.
    pub count: u64,
    /// In a sample: with 95 % probability the bytes differ by no more than this.
    pub error: u64,
}

#[derive(Debug, Default)]
pub(super) struct Parts {
    sums: [(u64, u64); Part::ALL.len()],
    variances: [f64; Part::ALL.len()],
    /// Whether a tree was sampled.
    is_sampled: bool,
    /// The variance of the sum of all parts, and of the size after a compaction.
    variance: f64,
    copy_variance: f64,
    /// By how much the size after a compaction may be off beside that.
    pub(super) copy_bias: f64,
    /// Bytes that a compaction copies beside the rows: bodies and attachments of the tree of sequences.
    pub(super) beside_rows: u64,
    /// The end of the last referenced bytes.
    pub(super) end: u64,
}

impl Parts {
    pub(super) fn add(&mut self, part: Part, bytes: u64, count: u64) {
        if let Some((sum, number)) = self.sums.get_mut(part as usize) {
            *sum = sum.saturating_add(bytes);
            *number = number.saturating_add(count);
        }
    }

    /// Moves bytes and a count from one part to another.
    pub(super) fn shift(&mut self, from: Part, to: Part, bytes: u64, count: u64) {
        self.remove(from, bytes, count);
        self.add(to, bytes, count);
    }

    fn remove(&mut self, part: Part, bytes: u64, count: u64) {
        if let Some((sum, number)) = self.sums.get_mut(part as usize) {
            *sum = sum.saturating_sub(bytes);
            *number = number.saturating_sub(count);
        }
    }

    /// Records that these bytes are referenced.
    pub(super) fn reach(&mut self, at: u64, bytes: u64) {
        self.end = self.end.max(at.saturating_add(bytes));
    }

    /// Adds the estimate for a whole tree of `all` units from its samples.
    pub(super) fn add_samples(&mut self, samples: &Samples, all: &Mean) {
        let means = samples.bytes.iter().zip(&samples.counts);
        for ((part, (bytes, count)), variance) in
            Part::ALL.iter().zip(means).zip(&mut self.variances)
        {
            *variance += bytes.variance();
            if let Some((sum, number)) = self.sums.get_mut(*part as usize) {
                *sum = sum.saturating_add(rounded(bytes.mean()));
                *number = number.saturating_add(rounded(count.mean()));
            }
        }
        self.is_sampled = true;
        self.variance += samples.all.variance();
        self.copy_variance += samples.copied.variance_of(all);
        self.end = self.end.max(samples.end);
    }

    /// Adds the estimated rest of a tree to a part.
    pub(super) fn add_rest(&mut self, part: Part, bytes: f64, variance: f64) {
        self.add(part, rounded(bytes), 0);
        if let Some(sum) = self.variances.get_mut(part as usize) {
            *sum += variance;
        }
    }

    /// By how much the size `after` a compaction may be off, with a probability of 95 %; zero without samples.
    pub(super) fn copy_error(&self, after: u64) -> u64 {
        if !self.is_sampled {
            return 0;
        }
        let of_method = rounded(self.copy_bias + METHOD_ERROR * after as f64);
        deviation(self.copy_variance).saturating_add(of_method)
    }

    fn part(&self, part: Part) -> PartBytes {
        let (bytes, count) = self.get(part);
        let variance = self.variances.get(part as usize).copied().unwrap_or_default();
        PartBytes { part, bytes, count, error: deviation(variance) }
    }

    pub(super) fn get(&self, part: Part) -> (u64, u64) {
        self.sums.get(part as usize).copied().unwrap_or_default()
    }

    /// The parts that have bytes or a count. Bytes that no part claims become dead ones, so that all add up to `file`.
    /// `None` if the parts that were read exceed the file, unless they are estimates of a sample.
    pub(super) fn complete(mut self, file: u64) -> Option<Vec<PartBytes>> {
        // The sizes of unreadable and replaced data are only what references claim.
        let claimed = [Part::Unreadable, Part::DeadBodies, Part::DeadAttachments];
        let known = Part::ALL.iter().filter(|part| !claimed.contains(part));
        let known = known.fold(0_u64, |sum, part| sum.saturating_add(self.get(*part).0));
        let mut left = match file.checked_sub(known) {
            Some(left) => left,
            // Estimates may exceed the file.
            None if self.is_sampled => 0,
            None => return None,
        };
        for part in claimed {
            let (bytes, _) = self.get(part);
            let excess = bytes.saturating_sub(left);
            left -= bytes - excess;
            self.remove(part, excess, 0);
        }
        let mut all: Vec<PartBytes> = Part::ALL.map(|part| self.part(part)).into();
        let rest = all.last_mut()?;
        (rest.bytes, rest.error) = (left, deviation(self.variance));
        let sum: u64 = all.iter().map(|it| it.bytes).sum();
        if let Some(largest) = all.iter_mut().max_by_key(|it| it.bytes) {
            largest.bytes = largest.bytes.saturating_sub(sum.saturating_sub(file));
        }
        all.retain(|it| it.bytes > 0 || it.count > 0);
        Some(all)
    }
}

/// The estimate for a tree from some of its leaves.
#[derive(Debug, Default)]
pub(super) struct Samples {
    bytes: [Mean; Part::ALL.len()],
    counts: [Mean; Part::ALL.len()],
    /// Bytes that are not dead.
    all: Mean,
    /// What a compaction writes for the leaves that the simulated one copies.
    pub(super) copied: Ratio,
    end: u64,
}

impl Samples {
    /// Adds the parts of a leaf that stands for `weight` leaves.
    pub(super) fn add(&mut self, parts: &Parts, weight: f64) {
        let means = self.bytes.iter_mut().zip(&mut self.counts);
        for ((bytes, count), (own, number)) in means.zip(parts.sums) {
            bytes.add(own as f64 * weight);
            count.add(number as f64 * weight);
        }
        let live = Part::ALL.iter().filter(|part| !part.is_dead());
        let live: f64 = live.map(|part| parts.get(*part).0 as f64).sum();
        self.all.add(live * weight);
        self.end = self.end.max(parts.end);
    }
}

/// Bytes per unit, such as a row, of a number of leaves.
#[derive(Debug, Default)]
pub(super) struct Ratio {
    leaves: f64,
    bytes: f64,
    pub(super) units: f64,
    /// Sums of the squares of both, and of their products.
    squares: (f64, f64),
    products: f64,
}

impl Ratio {
    pub(super) fn add(&mut self, bytes: f64, units: f64) {
        self.leaves += 1.0;
        self.bytes += bytes;
        self.units += units;
        self.squares = (self.squares.0 + bytes * bytes, self.squares.1 + units * units);
        self.products += bytes * units;
    }

    /// The variance of the bytes of `all` units, estimated from these leaves.
    fn variance_of(&self, all: &Mean) -> f64 {
        if self.leaves < 2.0 {
            return 0.0;
        }
        let each = self.bytes / self.units.max(1.0);
        let rest = self.squares.0 - 2.0 * each * self.products + each * each * self.squares.1;
        let spread = rest.max(0.0) * self.leaves / (self.leaves - 1.0);
        spread * (all.mean() / self.units.max(1.0)).powi(2) + each * each * all.variance()
    }
}

/// Mean and variance of a number of values.
#[derive(Debug, Default)]
pub(super) struct Mean {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Mean {
    /// A number that is known.
    pub(super) const fn of(value: f64) -> Self {
        Self { count: 1.0, sum: value, squares: value * value }
    }

    pub(super) fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    /// The variance of the mean.
    pub(super) fn variance(&self) -> f64 {
        let spread = (self.squares - self.sum * self.mean()).max(0.0);
        spread / (self.count - 1.0).max(1.0) / self.count.max(1.0)
    }
}

/// Half the width of the 95 % interval of a normal distribution.
fn deviation(variance: f64) -> u64 {
    rounded((1.96 * variance.sqrt()).ceil())
}
