//! The database file: performs the operations of the task, and reopens the file after a failure.
//!
//! Decides nothing about when to write or to retry; that is [`super::state`].

use super::{
    ClaimError, ClusterIdentity, FileId, JournalEvent, JournalOpenError, Storage,
    storage::remedy,
    store::{JournalStore, WriteBatch},
};
use crate::model::{
    records::{RecoveredState, StoreError},
    settings::work,
};
use redb::Error;
use std::io;
use wall_clock::Moment;

/// Why the file cannot be used as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileFailure {
    pub(super) why: StoreError,
    /// Whether stored entries can still be read.
    pub(super) is_readable: bool,
}

/// Results of one commit.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Committed {
    /// Whether more entries exceed their budgets.
    pub(super) has_more_to_trim: bool,
    /// The stored events with their numbers, if there are subscribers.
    pub(super) new_events: Vec<(u64, JournalEvent)>,
}

/// The file and the database in it.
#[derive(Debug)]
pub(super) struct JournalFile {
    storage: Box<dyn Storage>,
    /// `None` while the file cannot be opened.
    store: Option<JournalStore>,
    /// The file opened at start; another file with the same name is not accepted.
    opened_file: Option<FileId>,
}

impl JournalFile {
    /// Opens the file, or creates it if it does not exist. If the disk is too full for that,
    /// opening is retried later.
    pub(super) fn open(
        storage: Box<dyn Storage>,
    ) -> Result<(Self, Option<FileFailure>), JournalOpenError> {
        let mut file = Self { storage, store: None, opened_file: None };
        let failure = match JournalStore::open(&*file.storage, true) {
            Ok(store) => {
                file.store = Some(store);
                file.opened_file = file.storage.file_id().ok().flatten();
                None
            }
            Err(why) if why.is_full() => {
                tracing::error!(%why, "the journal cannot be used until there is space");
                Some(file.failure(StoreError(why.to_string())))
            }
            Err(why) => return Err(why),
        };
        Ok((file, failure))
    }

    /// Number of the newest stored entry; `None` while the file is not open.
    pub(super) fn last_seq(&self) -> Option<u64> {
        self.store.as_ref().map(JournalStore::last_seq)
    }

    /// When the last backup was made; `None` also while the file is not open.
    pub(super) fn last_backup(&self) -> Option<Moment> {
        self.store.as_ref().and_then(JournalStore::last_backup)
    }

    /// Size in bytes, if known.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.storage.bytes()
    }

    /// Checks that the open file still has its name. Data written to it would otherwise be lost
    /// when this process ends.
    pub(super) fn check(&self) -> Result<(), FileFailure> {
        let Some(why) = self.replaced_error() else { return Ok(()) };
        tracing::error!(%why, "the journal cannot be used");
        Err(self.failure(why))
    }

    /// Reads; after an error the file is opened again.
    pub(super) fn read<T>(
        &mut self,
        read: impl FnOnce(&JournalStore) -> Result<T, Error>,
    ) -> Result<T, FileFailure> {
        let Some(store) = &self.store else { return Err(self.closed_error()) };
        read(store).map_err(|why| self.recover("read", &why))
    }

    /// Claims the journal for a cluster and loads its state.
    pub(super) fn claim(
        &mut self,
        cluster: &ClusterIdentity,
        now: Moment,
    ) -> Result<Result<RecoveredState, ClaimError>, FileFailure> {
        let stored = self.read(JournalStore::cluster)?;
        if let Some(stored) = &stored
            && !stored.is_same_cluster(cluster)
        {
            return Ok(Err(ClaimError::OtherCluster {
                storage: self.storage.name(),
                owner: Box::new(stored.clone()),
                found: Box::new(cluster.clone()),
            }));
        }
        let recovered = self.read(|store| store.load_state(now))?;
        let identity =
            stored.as_ref().map_or_else(|| cluster.clone(), |stored| stored.merged_with(cluster));
        if stored.as_ref() != Some(&identity) {
            self.read(|store| store.claim(&identity))?;
        }
        Ok(Ok(recovered))
    }

    /// Writes a batch; it is durable when this returns without an error.
    pub(super) fn write(
        &mut self,
        batch: &WriteBatch,
        budgets: &work::JournalRetention,
        now: Moment,
    ) -> Result<Committed, FileFailure> {
        self.check()?;
        let Some(store) = &mut self.store else { return Err(self.closed_error()) };
        match store.write(batch, budgets, now) {
            Ok(has_more_to_trim) => {
                Ok(Committed { has_more_to_trim, new_events: store.take_new_events() })
            }
            Err(why) => Err(self.recover("write", &why)),
        }
    }

    /// Writes in a transaction of its own.
    pub(super) fn write_alone(
        &mut self,
        write: impl FnOnce(&mut JournalStore) -> Result<(), Error>,
    ) -> Result<(), FileFailure> {
        self.check()?;
        let Some(store) = &mut self.store else { return Err(self.closed_error()) };
        write(store).map_err(|why| self.recover("write", &why))
    }

    /// Tries whether the file can be written again.
    pub(super) fn retry(&mut self) -> Result<(), FileFailure> {
        if let Some(why) = self.replaced_error() {
            return Err(self.failure(why));
        }
        if self.store.is_none() {
            self.reopen().map_err(|why| self.failure(why))?;
        }
        self.read(JournalStore::probe_write)?;
        tracing::info!(storage = self.storage.name(), "the journal is writable again");
        Ok(())
    }

    pub(super) fn close(self) {
        if let Some(Err(why)) = self.store.map(JournalStore::close) {
            tracing::warn!(%why, storage = self.storage.name(), "the journal was not closed cleanly");
        }
    }

    fn failure(&self, why: StoreError) -> FileFailure {
        FileFailure { why, is_readable: self.store.is_some() }
    }

    fn closed_error(&self) -> FileFailure {
        self.failure(StoreError(format!("{} is not open", self.storage.name())))
    }

    /// After a failure the library's state cannot be trusted: reopens the file at once for reading.
    fn recover(&mut self, tried: &str, why: &Error) -> FileFailure {
        let name = self.storage.name();
        let why = StoreError(if let Error::Io(why) = why {
            format!(
                "cannot {tried} {name}: {why}; {}: recliner then continues automatically",
                remedy(why)
            )
        } else if let Error::Corrupted(why) = why {
            format!("{name} is damaged: {why}; stop recliner and restore a backup")
        } else {
            format!("cannot {tried} {name}: {why}; reopening the file")
        });
        tracing::error!(%why, "the journal cannot be used");
        self.store = None;
        if let Some(why) = self.replaced_error() {
            return self.failure(why);
        }
        let why = self.reopen().err().unwrap_or(why);
        self.failure(why)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        match JournalStore::open(&*self.storage, self.opened_file.is_none()) {
            Ok(store) => {
                self.store = Some(store);
                self.opened_file = self.storage.file_id().ok().flatten().or(self.opened_file);
                Ok(())
            }
            Err(why) => {
                tracing::warn!(%why, "the journal cannot be reopened yet");
                Err(StoreError(why.to_string()))
            }
        }
    }

    /// Why the opened file is no longer the one with its name, if so.
    fn replaced_error(&self) -> Option<StoreError> {
        let opened = self.opened_file?;
        let (what, remedy) = match self.storage.file_id() {
            Ok(Some(found)) if found != opened => (
                "it was replaced by another file",
                "restart recliner to use the new file, or put the old one back",
            ),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                ("it was deleted or moved away", "put it back, or restart to create a new one")
            }
            // Any other error appears when the file is written.
            Ok(_) | Err(_) => return None,
        };
        let name = self.storage.name();
        Some(StoreError(format!("{name} is missing: {what} while it was open; {remedy}")))
    }
}
