//! Putting new segments in the place of old ones, so that a crash at any point leaves the old or the new (Kafka's
//! `LocalLog.replaceSegments`). Compaction and the split of an overflowed segment end with it.
//!
//! New segments are written as `.cleaned` files. Each step is durable before the next begins:
//!
//! 1. the bytes of the new segments;
//! 2. `.cleaned` becomes `.swap`, the segment with the lowest base offset last: while one `.cleaned` is there, opening
//!    the log throws away that and every `.swap` at or after it;
//! 3. the old files become `.deleted`: from the first `.swap` alone on, opening the log completes the replacement;
//! 4. the suffix `.swap` goes.
use std::path::PathBuf;
use std::sync::Arc;

use super::{lock, Log, Segments};
use crate::fs::{with_suffix, FileSystem};
use crate::segment::{Segment, SegmentConfig, CLEANED_SUFFIX, SWAP_SUFFIX};
use crate::{Error, Result};

/// What a replacement leaves to be tidied up.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    /// Renamed files, to be removed once nobody reads them.
    pub(crate) files: Vec<PathBuf>,
    /// Base offsets that no segment has any more.
    pub(crate) gone: Vec<i64>,
}

/// See the module. `new` ascends and ends in `.cleaned`; of `old` only what is in `segments` counts.
///
/// # Errors
/// For want of a descriptor before anything was renamed; any other error leaves names that only the next opening of the
/// log puts in order.
pub(crate) fn replace(
    fs: &dyn FileSystem,
    directory: &std::path::Path,
    segments: &mut Segments,
    new: &[Arc<Segment>],
    old: &[i64],
) -> Result<Replaced> {
    for segment in new {
        segment.finish()?;
        segment.sync_log()?;
        segment.sync_indexes()?;
    }
    // The steps that follow open no file.
    let opened = fs.open_dir(directory).map_err(|error| Error::io("open", directory, error))?;
    let sync = || opened.sync().map_err(|error| Error::io("fsync directory", directory, error));
    let Some((lowest, later)) = new.split_first() else { return Ok(Replaced::default()) };
    if !later.is_empty() {
        for segment in later.iter().rev() {
            begin_swap(segment)?;
        }
        sync()?;
    }
    begin_swap(lowest)?;
    sync()?;
    let mut replaced = Replaced::default();
    for base_offset in old {
        if let Some(segment) = segments.remove(base_offset) {
            replaced.files.extend(segment.mark_deleted()?);
            if !new.iter().any(|one| one.base_offset() == *base_offset) {
                replaced.gone.push(*base_offset);
            }
        }
    }
    sync()?;
    for segment in new {
        segment.change_suffix("")?;
    }
    sync()?;
    for segment in new {
        segment.release()?;
        segments.insert(segment.base_offset(), Arc::clone(segment));
    }
    Ok(replaced)
}

/// From `.cleaned` to `.swap`. A caller that took the `.log` away must not cost the segments it was made of.
fn begin_swap(segment: &Segment) -> Result<()> {
    let renamed = segment.change_suffix(SWAP_SUFFIX)?;
    let name = with_suffix(segment.path(), SWAP_SUFFIX);
    if renamed.contains(&name) {
        return Ok(());
    }
    Err(Error::io("rename to", name, std::io::ErrorKind::NotFound.into()))
}

impl Log {
    /// A new, empty segment whose files end in `.cleaned`: it belongs to the log once [`Self::replace_segments`] took
    /// it. Left-overs of the same name are emptied.
    pub fn create_cleaned(&self, base_offset: i64, now_ms: i64) -> Result<Segment> {
        self.check()?;
        let path = self.path();
        let config =
            SegmentConfig { preallocate_bytes: 0, ..self.config().segment_config(&path, base_offset) };
        Segment::create_suffixed(&self.fs, &path, base_offset, config, now_ms, CLEANED_SUFFIX)
    }

    /// Remove the files of a segment made by [`Self::create_cleaned`] that will not be used.
    pub fn discard_cleaned(&self, segment: &Segment) -> Result<()> {
        let paths = segment.change_suffix(CLEANED_SUFFIX)?;
        self.remove_files(&paths)
    }

    /// Truncations of this log since it was opened.
    pub(super) fn truncations(&self) -> Result<u64> {
        Ok(self.lock_inner()?.truncations)
    }

    /// Put `new`, made by [`Self::create_cleaned`] and ascending, in the place of the segments with the base offsets
    /// `old`, durably; the active segment is never replaced. Readers of the old go on reading them; their files go with
    /// [`Self::remove_deleted`]. Nothing happens, and false is returned, when retention, a truncation or another
    /// replacement took one of `old` away meanwhile.
    ///
    /// # Errors
    /// An I/O error poisons the log; the next opening completes the replacement or undoes it. For want of a descriptor
    /// nothing happens but that `new` is discarded.
    pub fn replace_segments(&self, new: Vec<Segment>, old: &[Arc<Segment>], now_ms: i64) -> Result<bool> {
        self.replace_segments_since(new, old, now_ms, None)
    }

    /// As [`Self::replace_segments`]; nothing happens either when [`Self::truncations`] is not `truncations` any more:
    /// a truncation may have cut a segment of `old` and others have been begun after it.
    pub(super) fn replace_segments_since(
        &self,
        new: Vec<Segment>,
        old: &[Arc<Segment>],
        now_ms: i64,
        truncations: Option<u64>,
    ) -> Result<bool> {
        let _flushing = lock(&self.flushing);
        let mut inner = self.lock_inner()?;
        let active = inner.active()?.base_offset();
        let is_current = |segment: &Arc<Segment>| {
            let base_offset = segment.base_offset();
            base_offset != active
                && inner.segments.get(&base_offset).is_some_and(|one| Arc::ptr_eq(one, segment))
        };
        if !old.iter().all(is_current) || truncations.is_some_and(|count| count != inner.truncations) {
            for segment in &new {
                self.discard_cleaned(segment).map_err(|error| self.poison_with(error))?;
            }
            return Ok(false);
        }
        let bases: Vec<i64> = old.iter().map(|segment| segment.base_offset()).collect();
        let new: Vec<_> = new.into_iter().map(Arc::new).collect();
        let mut run = || {
            let replaced = replace(self.fs.as_ref(), &self.path(), &mut inner.segments, &new, &bases)?;
            let mut files = replaced.files;
            for base_offset in replaced.gone {
                files.extend(inner.producers.mark_snapshot_deleted(base_offset)?);
            }
            inner.deleted.push((now_ms.saturating_add(self.config().file_delete_delay_ms), files));
            Ok(true)
        };
        run().map_err(|error: Error| {
            if error.is_out_of_descriptors() {
                // What failed is worth more than what this may add; opening the log removes the files as well.
                new.iter().for_each(|segment| drop(self.discard_cleaned(segment)));
            }
            self.poison_unless_refused(error)
        })
    }
}

#[cfg(test)]
mod tests;
