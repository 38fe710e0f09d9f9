//! From when on recliner advises something.

/// The thresholds of advice that are a judgement. All others follow from what CouchDB does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceSettings {
    /// Advice that would free fewer bytes is not given.
    pub min_bytes: u64,
    /// Share of all files from which on waste that no channel takes is worth other channels, in percent.
    pub untaken_waste_percent: f64,
    /// Share of deleted documents from which on they are worth a purge or a new database, in percent.
    pub deleted_documents_percent: f64,
    /// Times a shard's file that the files of its compaction may reach. They were measured at up to 2.15 times
    /// the live bytes; what is written meanwhile comes on top.
    pub compaction_file_factor: f64,
}

impl Default for AdviceSettings {
    fn default() -> Self {
        Self {
            min_bytes: 64 << 20,
            untaken_waste_percent: 20.0,
            deleted_documents_percent: 50.0,
            compaction_file_factor: 3.0,
        }
    }
}
