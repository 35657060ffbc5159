//! Making appends durable, and closing.
use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::{lock, Inner, Log};
use crate::segment::Segment;
use crate::{Error, Result};

/// What one flush covers.
struct Pending {
    end_offset: i64,
    segments: Vec<Arc<Segment>>,
    syncs_directory: bool,
    syncs_parent: bool,
}

impl Log {
    /// Make all appended so far survive a crash; returns the offset up to which (exclusive) that now holds. Appends
    /// go on meanwhile; callers that arrive while one flush runs share the next.
    pub fn flush(&self) -> Result<i64> {
        self.check()?;
        let wanted = self.log_end_offset.load(Ordering::Acquire);
        let _flushing = lock(&self.flushing);
        let pending = {
            let mut inner = self.lock_inner()?;
            if inner.recovery_point >= wanted && !inner.is_directory_dirty {
                return Ok(inner.recovery_point);
            }
            Self::take_pending(&mut inner)
        };
        self.sync(&pending).map_err(|error| {
            if error.is_out_of_descriptors() {
                // The next flush covers the same.
                let mut inner = lock(&self.inner);
                inner.is_directory_dirty |= pending.syncs_directory;
                inner.is_directory_new |= pending.syncs_parent;
            }
            self.poison_unless_refused(error)
        })?;
        let mut inner = self.lock_inner()?;
        inner.recovery_point = inner.recovery_point.max(pending.end_offset).min(inner.log_end_offset);
        Ok(inner.recovery_point)
    }

    fn take_pending(inner: &mut Inner) -> Pending {
        let first = inner
            .segments
            .range(..=inner.recovery_point)
            .next_back()
            .map_or(i64::MIN, |(base_offset, _)| *base_offset);
        Pending {
            end_offset: inner.log_end_offset,
            segments: inner.segments.range(first..).map(|(_, segment)| Arc::clone(segment)).collect(),
            syncs_directory: std::mem::take(&mut inner.is_directory_dirty),
            syncs_parent: std::mem::take(&mut inner.is_directory_new),
        }
    }

    fn sync(&self, pending: &Pending) -> Result<()> {
        let Some((active, closed)) = pending.segments.split_last() else { return Ok(()) };
        for segment in closed {
            segment.sync_log()?;
            // Recovery will begin after this segment from now on and trust its indexes.
            segment.sync_indexes()?;
            segment.release()?;
        }
        active.sync_log()?;
        active.write_pending_indexes()?;
        if pending.syncs_directory {
            self.sync_directory(&self.path())?;
        }
        if pending.syncs_parent {
            if let Some(parent) = self.path().parent() {
                self.sync_directory(parent)?;
            }
        }
        Ok(())
    }

    pub(super) fn sync_directory(&self, directory: &std::path::Path) -> Result<()> {
        self.fs.sync_dir(directory).map_err(|error| Error::io("fsync directory", directory, error))
    }

    /// Flush, write a producer snapshot, trim the indexes and let go of all files. Further calls fail; closing again
    /// does nothing. A poisoned log is only let go of.
    pub fn close(&self) -> Result<()> {
        if self.check().is_err() {
            lock(&self.inner).is_closed = true;
            return Ok(());
        }
        if lock(&self.inner).is_closed {
            return Ok(());
        }
        self.flush()?;
        let _flushing = lock(&self.flushing);
        let mut inner = self.lock_inner()?;
        let close = |inner: &mut Inner| {
            inner.producers.take_snapshot()?;
            inner.producers.sync_snapshot()?;
            inner.active()?.finish()?;
            if inner.recovery_point < inner.log_end_offset {
                inner.active()?.sync_log()?;
                inner.recovery_point = inner.log_end_offset;
            }
            inner.active()?.sync_indexes()?;
            for (_, paths) in std::mem::take(&mut inner.deleted) {
                self.remove_files(&paths)?;
            }
            // A clean start reads the snapshot and the transaction index instead of the log: their names have to last.
            self.sync_directory(&self.path())?;
            inner.is_directory_dirty = false;
            inner.segments.values().try_for_each(|segment| segment.release())
        };
        close(&mut inner).map_err(|error| self.poison_unless_refused(error))?;
        inner.is_closed = true;
        Ok(())
    }

    /// Let go of all files without flushing, for a log whose directory is about to be removed. Nothing is written any
    /// more; a holder of a slice keeps reading.
    pub fn discard(&self) {
        let _flushing = lock(&self.flushing);
        let mut inner = lock(&self.inner);
        inner.is_closed = true;
        inner.segments.clear();
    }

    /// Remove all files and the directory. The log is closed afterwards.
    pub fn delete(&self) -> Result<()> {
        let _flushing = lock(&self.flushing);
        let mut inner = lock(&self.inner);
        inner.is_closed = true;
        inner.segments.clear();
        let path = self.path();
        let io = |operation, error| Error::io(operation, path.as_path(), error);
        for name in self.fs.list(&path).map_err(|error| io("list", error))? {
            self.remove_files(&[path.join(name)])?;
        }
        self.fs.remove_dir(&path).map_err(|error| io("remove directory", error))
    }

    pub(super) fn remove_files(&self, paths: &[std::path::PathBuf]) -> Result<()> {
        for path in paths {
            match self.fs.remove(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", path.as_path(), error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
