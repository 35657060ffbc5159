//! `leader-epoch-checkpoint`: where each leader epoch began, as Kafka's `LeaderEpochFileCache` keeps it.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::{self, FileSystem};
use crate::Result;

/// File name inside a partition directory.
pub const FILE_NAME: &str = "leader-epoch-checkpoint";

/// An epoch and the offset of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// Leader epoch, >= 0.
    pub epoch: i32,
    /// First offset written in that epoch.
    pub start_offset: i64,
}

/// The epochs of one log, ascending, written through to the checkpoint file on every change.
#[derive(Debug)]
pub struct EpochCheckpoint {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    entries: Vec<EpochEntry>,
    dirty: bool,
    is_unreadable: bool,
}

impl EpochCheckpoint {
    /// Read `<directory>/leader-epoch-checkpoint`. A file that is missing, empty or damaged gives no epochs: they are in
    /// the batches as well, see [`Self::is_unreadable`].
    pub fn open(fs: Arc<dyn FileSystem>, directory: &Path) -> Result<Self> {
        let path = directory.join(FILE_NAME);
        let read = fs::read_file(fs.as_ref(), &path)?.and_then(|bytes| parse(&bytes));
        let is_unreadable = read.is_none();
        Ok(Self { fs, path, entries: read.unwrap_or_default(), dirty: false, is_unreadable })
    }

    /// There was no file with epochs to read: the owner of the batches finds the epochs there.
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Forget all epochs and write the file at the next [`Self::flush`] in any case.
    pub fn restart(&mut self) {
        self.entries.clear();
        self.dirty = true;
        self.is_unreadable = false;
    }

    /// No epochs, whatever the file says; it stays as it is until [`Self::flush`].
    pub fn detached(fs: Arc<dyn FileSystem>, directory: &Path) -> Self {
        Self { fs, path: directory.join(FILE_NAME), entries: Vec::new(), dirty: false, is_unreadable: false }
    }

    /// All epochs, ascending.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest epoch.
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The epoch that `offset` belongs to.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        self.entries.iter().rev().find(|entry| entry.start_offset <= offset).map(|entry| entry.epoch)
    }

    /// Note that `epoch` begins at `start_offset`; later or contradicting entries go. In memory until [`Self::flush`].
    pub fn assign(&mut self, epoch: i32, start_offset: i64) {
        if epoch < 0 || start_offset < 0 {
            return;
        }
        let needed = self.latest().is_none_or(|last| last.epoch != epoch || start_offset < last.start_offset);
        if !needed {
            return;
        }
        while self.latest().is_some_and(|last| last.epoch >= epoch || last.start_offset >= start_offset) {
            self.entries.pop();
        }
        self.entries.push(EpochEntry { epoch, start_offset });
        self.dirty = true;
    }

    /// The largest epoch <= `epoch` and the exclusive end of it (`LeaderEpochFileCache.endOffsetFor`, KIP-320);
    /// `(-1, -1)` when unknown.
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> (i32, i64) {
        let Some(latest) = self.latest() else { return (-1, -1) };
        if epoch < 0 {
            return (-1, -1);
        }
        if latest.epoch == epoch {
            return (epoch, log_end_offset);
        }
        let Some(higher) = self.entries.iter().find(|entry| entry.epoch > epoch) else { return (-1, -1) };
        match self.entries.iter().rev().find(|entry| entry.epoch <= epoch) {
            Some(floor) => (floor.epoch, higher.start_offset),
            None => (epoch, higher.start_offset),
        }
    }

    /// Drop the epochs that begin at or after `end_offset`.
    pub fn truncate_from_end(&mut self, end_offset: i64) {
        while self.latest().is_some_and(|last| last.start_offset >= end_offset) {
            self.entries.pop();
            self.dirty = true;
        }
    }

    /// Let the first epoch kept begin at `start_offset`; those wholly before it go.
    pub fn truncate_from_start(&mut self, start_offset: i64) {
        let before = self.entries.iter().take_while(|entry| entry.start_offset <= start_offset).count();
        let Some(last_before) = before.checked_sub(1) else { return };
        self.dirty |= last_before > 0
            || self.entries.get(last_before).is_some_and(|entry| entry.start_offset != start_offset);
        self.entries.drain(..last_before);
        if let Some(first) = self.entries.first_mut() {
            first.start_offset = start_offset;
        }
    }

    /// Forget all epochs.
    pub fn clear(&mut self) {
        self.dirty |= !self.entries.is_empty();
        self.entries.clear();
    }

    /// Write the file when something changed since the last flush; durable on return.
    pub fn flush(&mut self) -> Result<()> {
        if self.dirty {
            fs::write_file_atomically(self.fs.as_ref(), &self.path, format(&self.entries).as_bytes())?;
            self.dirty = false;
        }
        Ok(())
    }
}

fn format(entries: &[EpochEntry]) -> String {
    let mut text = format!("0\n{}\n", entries.len());
    for entry in entries {
        text.push_str(&format!("{} {}\n", entry.epoch, entry.start_offset));
    }
    text
}

fn parse(bytes: &[u8]) -> Option<Vec<EpochEntry>> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()?.trim() != "0" {
        return None;
    }
    let count: usize = lines.next()?.trim().parse().ok()?;
    let mut entries: Vec<EpochEntry> = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (epoch, start_offset) = line.split_once(char::is_whitespace)?;
        entries.push(EpochEntry {
            epoch: epoch.trim().parse().ok()?,
            start_offset: start_offset.trim().parse().ok()?,
        });
    }
    // As LeaderEpochFileCache keeps them, whatever order the file has: both rise.
    let rises = |pair: &[EpochEntry]| match pair {
        [a, b] => a.epoch < b.epoch && a.start_offset < b.start_offset,
        _ => true,
    };
    let is_sound = entries.windows(2).all(rises)
        && entries.first().is_none_or(|first| first.epoch >= 0 && first.start_offset >= 0);
    (entries.len() == count && is_sound).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemoryFileSystem;

    fn checkpoint() -> (MemoryFileSystem, EpochCheckpoint) {
        let fs = MemoryFileSystem::new();
        fs.create_dir(Path::new("/log")).unwrap();
        let checkpoint = EpochCheckpoint::open(Arc::new(fs.clone()), Path::new("/log")).unwrap();
        (fs, checkpoint)
    }

    #[test]
    fn end_offset_for_follows_kafka() {
        let (_, mut cache) = checkpoint();
        assert_eq!(cache.end_offset_for(3, 10), (-1, -1));
        for (epoch, start) in [(2, 6), (3, 8), (7, 20)] {
            cache.assign(epoch, start);
        }
        assert_eq!(cache.end_offset_for(7, 31), (7, 31));
        assert_eq!(cache.end_offset_for(5, 31), (3, 20));
        assert_eq!(cache.end_offset_for(2, 31), (2, 8));
        assert_eq!(cache.end_offset_for(1, 31), (1, 6));
        assert_eq!(cache.end_offset_for(8, 31), (-1, -1));
        assert_eq!(cache.end_offset_for(-1, 31), (-1, -1));
    }

    #[test]
    fn assign_drops_contradicting_entries() {
        let (_, mut cache) = checkpoint();
        for (epoch, start) in [(1, 0), (2, 6), (3, 8), (2, 9), (2, 7), (4, 7)] {
            cache.assign(epoch, start);
        }
        let kept: Vec<_> = cache.entries().iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
        assert_eq!(kept, [(1, 0), (4, 7)]);
    }

    #[test]
    fn truncations_and_file_round_trip() {
        let (fs, mut cache) = checkpoint();
        for (epoch, start) in [(0, 0), (1, 53), (2, 87), (3, 257)] {
            cache.assign(epoch, start);
        }
        cache.truncate_from_start(60);
        cache.truncate_from_end(257);
        cache.flush().unwrap();
        let bytes = fs::read_file(&fs, Path::new("/log/leader-epoch-checkpoint")).unwrap().unwrap();
        assert_eq!(bytes, b"0\n2\n1 60\n2 87\n");
        let again = EpochCheckpoint::open(Arc::new(fs.crash(0, false)), Path::new("/log")).unwrap();
        assert_eq!(again.entries(), cache.entries());
        assert_eq!(again.epoch_for_offset(86), Some(1));
        assert_eq!(again.epoch_for_offset(59), None);
    }
}
