//! A log that moves to another directory: a copy that was made there takes its place (KIP-113).
//!
//! The names change in two steps, each durable before the next: the old directory gets its new name, then the copy's
//! directory the old one's. After a crash between them the copy alone is left, and it has everything.
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::{lock, Inner, Log, OpenOptions};
use crate::{Error, Result};

impl Log {
    /// Go on with the files of `copy`, a log of the same partition in another data directory. Its directory gets the
    /// name of this log's, which is renamed to `retired`; its callers notice nothing. All of the copy is
    /// durable afterwards, and the copy is closed. Returns false, and changes nothing, unless both logs end at the same
    /// offset.
    ///
    /// Appends and all else that changes this log wait meanwhile.
    ///
    /// # Errors
    /// The copy cannot take the place: this log goes on as it was, the copy is closed. Only if the old names cannot be
    /// brought back, this log is poisoned.
    pub fn relocate(&self, copy: &Self, retired: &Path, high_watermark: i64, now_ms: i64) -> Result<bool> {
        // Most of the copy becomes durable while this log still takes appends.
        copy.flush()?;
        let _flushing = lock(&self.flushing);
        let mut inner = self.lock_inner()?;
        if copy.log_end_offset() != inner.log_end_offset {
            return Ok(false);
        }
        copy.close()?;
        copy.check()?;
        let own = self.path();
        let (source, found) = (own.as_path(), copy.path());
        let (Some(name), Some(parent)) = (source.file_name(), found.parent()) else {
            return Err(Error::Invalid(format!("{} has no directory", found.display())));
        };
        let target = parent.join(name);
        self.rename_directory(source, retired)?;
        let renamed = self.rename_directory(&found, &target);
        let opened = renamed.and_then(|()| {
            self.open_copy(&target, &mut inner, now_ms).map_err(|error| {
                match self.rename_directory(&target, &found) {
                    Ok(()) => error,
                    Err(lost) => self.poison_with(lost),
                }
            })
        });
        let mut opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.rename_directory(retired, source).map_err(|lost| self.poison_with(lost))?;
                return Err(error);
            }
        };
        opened.producers.take_over(&mut inner.producers);
        opened.producers.on_high_watermark(high_watermark);
        opened.truncations = inner.truncations + 1;
        *self.path.write().unwrap_or_else(PoisonError::into_inner) = target;
        *inner = opened;
        self.publish(&inner);
        Ok(true)
    }

    /// What the copy has under its new name, with the epochs of this log that have no record.
    fn open_copy(&self, path: &Path, inner: &mut Inner, now_ms: i64) -> Result<Inner> {
        let options = OpenOptions {
            recovery_point: inner.log_end_offset,
            log_start_offset: inner.log_start_offset,
            clean_shutdown: true,
            now_ms,
        };
        let opened = Self::open(Arc::clone(&self.fs), path, self.config().as_ref().clone(), options)?;
        let mut opened = opened.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        if opened.log_end_offset != inner.log_end_offset {
            return Err(Error::Invalid(format!(
                "{} ends at offset {}, not at {}",
                path.display(),
                opened.log_end_offset,
                inner.log_end_offset
            )));
        }
        let known = opened.epochs.latest().map_or(-1, |entry| entry.epoch);
        for entry in inner.epochs.entries().iter().filter(|entry| entry.epoch > known) {
            opened.epochs.assign(entry.epoch, entry.start_offset);
        }
        opened.epochs.flush()?;
        if opened.topic_id.is_none() {
            opened.topic_id = inner.topic_id;
        }
        Ok(opened)
    }

    /// Rename a partition directory, durably; undone where it cannot be made durable.
    fn rename_directory(&self, from: &Path, to: &Path) -> Result<()> {
        self.fs.rename(from, to).map_err(|error| Error::io("rename", from, error))?;
        let Some(parent) = to.parent() else { return Ok(()) };
        self.sync_directory(parent).map_err(|error| match self.fs.rename(to, from) {
            Ok(()) => error,
            Err(lost) => self.poison_with(Error::io("rename", to, lost)),
        })
    }
}

#[cfg(test)]
mod tests;
