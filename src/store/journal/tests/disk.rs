//! A simulated disk that loses unsynced data, tears writes, gets full and fails.

use super::super::storage::{JournalOpenError, Storage, database_builder};
use redb::{Database, StorageBackend};
use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, PoisonError},
};

/// Smallest unit of a write that reaches the disk completely.
const SECTOR: usize = 512;

/// Smallest unit of allocation.
const BLOCK: u64 = 4096;

#[derive(Clone, Debug)]
enum Pending {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Debug, Default)]
struct DiskState {
    /// Content that survives a crash for certain.
    synced: Vec<u8>,
    /// Later changes, in order.
    pending: Vec<Pending>,
    /// Content that a reader sees.
    visible: Vec<u8>,
    blocks: BTreeSet<u64>,
    /// No further block can be allocated.
    full: bool,
    /// Every change fails with this error.
    broken: Option<io::ErrorKind>,
    /// Number of changes until the power fails.
    changes_until_power_loss: Option<u64>,
    /// Number of changes so far.
    done: u64,
    /// How often it was opened; older handles have no effect.
    opened: u64,
}

/// The disk; clones share one state.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<std::sync::Mutex<DiskState>>);

impl Disk {
    fn with<T>(&self, work: impl FnOnce(&mut DiskState) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A disk with an empty database.
    pub(super) fn formatted() -> Self {
        let disk = Self::default();
        drop(super::super::store::JournalStore::open(&disk, true).unwrap());
        disk
    }

    /// A disk with the same content and no faults.
    pub(super) fn copy(&self) -> Self {
        let (synced, visible, blocks) =
            self.with(|it| (it.synced.clone(), it.visible.clone(), it.blocks.clone()));
        let platter = DiskState { synced, visible, blocks, ..DiskState::default() };
        Self(Arc::new(platter.into()))
    }

    pub(super) fn fill(&self, full: bool) {
        self.with(|it| it.full = full);
    }

    pub(super) fn set_failure(&self, how: Option<io::ErrorKind>) {
        self.with(|it| it.broken = how);
    }

    /// Lets the power fail after the given number of changes.
    pub(super) fn set_power_loss_after(&self, changes: u64) {
        self.with(|it| it.changes_until_power_loss = Some(changes));
    }

    pub(super) fn has_power(&self) -> bool {
        self.with(|it| it.changes_until_power_loss != Some(0))
    }

    /// Number of changes so far.
    pub(super) fn done(&self) -> u64 {
        self.with(|it| it.done)
    }

    /// Cuts the power now and restores it. `reaches_disk` decides for each sector that was not
    /// synced.
    pub(super) fn reboot(&self, mut reaches_disk: impl FnMut() -> bool) {
        self.with(|it| {
            for change in std::mem::take(&mut it.pending) {
                match change {
                    Pending::Length(length) => {
                        if reaches_disk() {
                            it.synced.resize(usize::try_from(length).unwrap(), 0);
                        }
                    }
                    Pending::Write(at, data) => {
                        for (number, sector) in data.chunks(SECTOR).enumerate() {
                            let from = usize::try_from(at).unwrap() + number * SECTOR;
                            if reaches_disk() {
                                let end = from + sector.len();
                                let length = it.synced.len().max(end);
                                it.synced.resize(length, 0);
                                it.synced[from..end].copy_from_slice(sector);
                            }
                        }
                    }
                }
            }
            it.visible = it.synced.clone();
            it.changes_until_power_loss = None;
            it.opened += 1;
        });
    }
}

impl DiskState {
    /// Fails if a change is not possible.
    fn change(&mut self, opened: u64) -> io::Result<()> {
        if opened != self.opened || self.changes_until_power_loss == Some(0) {
            return Err(io::Error::other("the power is gone"));
        }
        if let Some(how) = self.broken {
            return Err(how.into());
        }
        self.done += 1;
        if let Some(left) = &mut self.changes_until_power_loss {
            *left -= 1;
        }
        Ok(())
    }
}

/// A handle of one opening of the disk.
#[derive(Debug)]
struct DiskHandle {
    disk: Disk,
    opened: u64,
}

impl StorageBackend for DiskHandle {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.disk.with(|it| it.visible.len()) as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let from = usize::try_from(offset).unwrap();
        self.disk.with(|it| {
            let part = it.visible.get(from..from + out.len());
            out.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn set_len(&self, length: u64) -> Result<(), io::Error> {
        self.disk.with(|it| {
            it.change(self.opened)?;
            it.visible.resize(usize::try_from(length).unwrap(), 0);
            it.blocks.retain(|block| block * BLOCK < length);
            it.pending.push(Pending::Length(length));
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.disk.with(|it| {
            it.change(self.opened)?;
            it.pending.clear();
            it.synced = it.visible.clone();
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.disk.with(|it| {
            it.change(self.opened)?;
            let blocks = offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK);
            if it.full && blocks.clone().any(|block| !it.blocks.contains(&block)) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            it.blocks.extend(blocks);
            let from = usize::try_from(offset).unwrap();
            let part = it.visible.get_mut(from..from + data.len());
            part.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
            it.pending.push(Pending::Write(offset, data.to_vec()));
            Ok(())
        })
    }
}

impl Storage for Disk {
    fn name(&self) -> String {
        "the test disk".to_owned()
    }

    fn open(&self, _create: bool) -> Result<Database, JournalOpenError> {
        let opened = self.with(|it| {
            it.opened += 1;
            it.opened
        });
        let handle = DiskHandle { disk: self.clone(), opened };
        let database = database_builder().create_with_backend(handle);
        database.map_err(|why| JournalOpenError::from_database_error(self.name(), why))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.with(|it| it.visible.len()) as u64)
    }
}
