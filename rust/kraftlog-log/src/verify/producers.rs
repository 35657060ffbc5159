//! The state of producers as the log alone gives it, without touching any file.
use crate::batch::BatchView;
use crate::fs::{FileSystem, MemoryFileSystem, OpenMode};
use crate::producer_state::{ProducerEntry, ProducerState};
use crate::segment::{end_marker, note_producer, AbortedTransaction};
use crate::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// Producers while a log is read from a known or an unknown state on.
#[derive(Debug)]
pub(crate) struct Producers {
    state: ProducerState,
    /// False when batches before the first may have said more.
    pub(crate) is_complete: bool,
}

impl Producers {
    /// No producers: right at offset 0, else incomplete.
    pub(crate) fn empty(is_complete: bool) -> Result<Self> {
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        fs.create_dir(Path::new("/")).map_err(|error| Error::io("create", "/", error))?;
        Ok(Self { state: ProducerState::open(fs, Path::new("/"), i64::MAX)?, is_complete })
    }

    /// Those of a snapshot file, at the offset of its name, which is above 0.
    pub(crate) fn of_snapshot(bytes: &[u8], offset: i64) -> Result<Self> {
        let directory = Path::new("/");
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        let io = |error| Error::io("write", "snapshot", error);
        fs.create_dir(directory).map_err(io)?;
        let path = directory.join(format!("{offset:020}.snapshot"));
        fs.open(&path, OpenMode::Truncate).and_then(|file| file.write_all_at(&[bytes], 0)).map_err(io)?;
        let mut state = ProducerState::open(fs, directory, i64::MAX)?;
        state.truncate_and_reload(i64::MIN, offset, 0)?;
        Ok(Self { state, is_complete: true })
    }

    /// Takes a batch into account; tells the aborted transaction that it ends.
    pub(crate) fn note(&mut self, batch: &BatchView<'_>) -> Result<Option<AbortedTransaction>> {
        note_producer(&mut self.state, batch, || end_marker(batch))
    }

    /// What is known now.
    pub(crate) fn entries(&self) -> Vec<ProducerEntry> {
        let mut entries: Vec<ProducerEntry> = self.state.entries().copied().collect();
        entries.sort_by_key(|entry| entry.producer_id);
        entries
    }
}
