//! What a crash leaves on the simulated disk.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::inode::Inode;
use super::names::{NameChange, Names};
use super::{MemoryFileSystem, State};
use crate::fs::Random;

/// What is lost of the bytes that were written after the last sync of a file. Chosen for each file anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLoss {
    /// All writes arrived; with [`NameLoss::Nothing`] this is a killed process on a machine that goes on.
    Nothing,
    /// No write since the last sync arrived.
    Everything,
    /// The writes up to some moment arrived.
    Suffix,
    /// As [`Self::Suffix`], and a part of the write after that: its first bytes when `sector_bytes` is 1, else some of
    /// its sectors.
    Torn {
        /// What the disk writes as a whole: 512, 4096, or 1 for any byte.
        sector_bytes: usize,
    },
    /// Pages of 4 KiB are written back in any order, and the length apart from them: pages that did not arrive have
    /// their old bytes, or zeros where there were none.
    Pages,
    /// The lengths arrived, the bytes did not: files end in zeros.
    Contents,
    /// The file grew by at most so many bytes.
    Tail {
        /// Most bytes beyond the synced length.
        bytes: usize,
    },
}

/// What is lost of the names that were created, renamed and removed after the last sync of their directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameLoss {
    /// All changes arrived.
    Nothing,
    /// No change since the last sync arrived.
    Everything,
    /// The changes up to some moment arrived, as a journaling file system has it.
    Suffix,
    /// Any change may be missing, whatever came after it: file systems without a journal.
    AnySubset,
}

/// A crash. The same crash of the same disk leaves the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// What is lost of file contents.
    pub data: DataLoss,
    /// What is lost of directories.
    pub names: NameLoss,
    /// Chooses where several outcomes are possible.
    pub seed: u64,
}

impl MemoryFileSystem {
    /// What a restart finds after a crash now. This file system stays as it is. Faults, capacity and recordings are
    /// not taken over.
    pub fn crash_with(&self, crash: &Crash) -> Self {
        self.restart(crash, false)
    }

    /// What a restart finds: synced bytes and the first `torn_bytes` of each unsynced tail, under the synced names, or
    /// with `keeps_names` under the latest names. Directories are kept.
    pub fn crash(&self, torn_bytes: usize, keeps_names: bool) -> Self {
        let names = if keeps_names { NameLoss::Nothing } else { NameLoss::Everything };
        self.restart(&Crash { data: DataLoss::Tail { bytes: torn_bytes }, names, seed: 0 }, true)
    }

    fn restart(&self, crash: &Crash, keeps_directories: bool) -> Self {
        let old = self.lock();
        let mut random = Random::new(crash.seed);
        let mut names = Names::clone(&old.durable_names);
        let kept = match crash.names {
            NameLoss::Nothing => old.name_changes.len(),
            NameLoss::Everything => 0,
            NameLoss::Suffix => random.index(old.name_changes.len() + 1),
            NameLoss::AnySubset => old.name_changes.len(),
        };
        for change in old.name_changes.iter().take(kept) {
            if crash.names != NameLoss::AnySubset || random.one_in(2) {
                change.apply(&mut names);
            }
        }
        if keeps_directories {
            names.directories.clone_from(&old.names.directories);
        }
        names.drop_unreachable();
        let mut new = State { now_ms: old.now_ms, ..State::default() };
        let inodes: BTreeSet<u64> = names.files.values().copied().collect();
        for number in inodes {
            let Some(inode) = old.inodes.get(&number) else { continue };
            let content = inode.after_crash(crash.data, &mut random);
            new.inodes.insert(number, Arc::new(Inode::of(content, inode.modified_ms)));
            new.next_inode = number + 1;
        }
        new.durable_names = Arc::new(names);
        new.names = Arc::clone(&new.durable_names);
        Self::with_state(new)
    }

    /// Invert one bit of a file, on the disk and in the cache; false when there is no such file or bit.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> bool {
        let mut state = self.lock();
        let Some(number) = state.names.files.get(path).copied() else { return false };
        let Some(inode) = state.inodes.get_mut(&number) else { return false };
        let inode = Arc::make_mut(inode);
        let exists = bit / 8 < inode.current.size() as u64;
        inode.flip_bit(bit);
        exists
    }

    /// All files in name order, as readers see them.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.lock().names.files.keys().map(|path| path.to_path_buf()).collect()
    }

    /// From now on keep the state before each change, for [`Self::take_recording`].
    pub fn start_recording(&self) {
        self.lock().recording = Some(Vec::new());
    }

    /// The file system as it was before each change since [`Self::start_recording`], in order. Recording stops.
    pub fn take_recording(&self) -> Vec<Self> {
        let recording = self.lock().recording.take().unwrap_or_default();
        recording.into_iter().map(Self::with_state).collect()
    }
}

/// Changes of names that a sync of `directory` makes durable.
pub(super) fn is_covered(change: &NameChange, directory: &Path) -> bool {
    change.paths().iter().flatten().any(|path| path.parent() == Some(directory))
}
