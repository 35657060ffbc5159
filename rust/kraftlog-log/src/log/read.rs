//! Reading ranges of a log as slices of files, and finding offsets by time.
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{lock, Log};
use crate::fs::FileHandle;
use crate::segment::{AbortedTransaction, FoundTimestamp, Segment};
use crate::{Error, Result};

/// Whole batches in a file, not read yet. Keeps the file open, also when the segment is deleted meanwhile.
#[derive(Clone, Debug)]
pub struct FileSlice {
    file: Option<Arc<dyn FileHandle>>,
    path: PathBuf,
    position: u64,
    size_bytes: u64,
}

impl FileSlice {
    fn empty(path: PathBuf) -> Self {
        Self { file: None, path, position: 0, size_bytes: 0 }
    }

    /// Byte position in the file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the slice.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The segment's `.log`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes `[position, position + size_bytes)` of the file; `None` if they are not all in this slice.
    pub fn part(&self, position: u64, size_bytes: u64) -> Option<Self> {
        let skipped = position.checked_sub(self.position)?;
        let is_inside = skipped.checked_add(size_bytes).is_some_and(|end| end <= self.size_bytes);
        is_inside.then(|| Self { position, size_bytes, ..self.clone() })
    }

    /// Descriptor for sendfile; `None` for an empty slice or a file in memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref()?.descriptor()
    }

    /// The bytes.
    ///
    /// # Errors
    /// [`Error::Io`] with `UnexpectedEof` when the log was truncated meanwhile.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.size_bytes).unwrap_or(usize::MAX)];
        if let Some(file) = &self.file {
            file.read_exact_at(&mut bytes, self.position)
                .map_err(|error| Error::io("read", self.path.as_path(), error))?;
        }
        Ok(bytes)
    }
}

/// What a read may look at, taken under the lock at one moment.
struct View {
    segments: Vec<(Arc<Segment>, u64)>,
    end_offset: i64,
    is_to_log_end: bool,
}

impl View {
    fn read(&self, offset: i64, max_bytes: u64, min_one_batch: bool) -> Result<Option<FileSlice>> {
        for (index, (segment, size_bytes)) in self.segments.iter().enumerate() {
            let Some(first) = segment.find_batch(offset)? else {
                segment.check_hole(offset)?;
                continue;
            };
            if first.header().base_offset() > offset {
                segment.check_hole(offset)?;
            }
            if let Some((next, _)) = self.segments.get(index + 1) {
                segment.check_end(&first, next.base_offset())?;
            }
            let limit = if self.is_to_log_end {
                *size_bytes
            } else {
                let end = segment.find_batch(self.end_offset)?;
                end.map_or(*size_bytes, |batch| batch.position.min(*size_bytes))
            };
            if first.end_position() > limit || (first.size_bytes > max_bytes && !min_one_batch) {
                return Ok(None);
            }
            let end = if first.size_bytes > max_bytes {
                first.end_position()
            } else {
                let wanted = limit.min(first.position.saturating_add(max_bytes));
                segment.align_down(first.end_position(), wanted)?.min(limit)
            };
            return Ok(Some(FileSlice {
                file: Some(segment.file()?),
                path: segment.path().to_owned(),
                position: first.position,
                size_bytes: end - first.position,
            }));
        }
        Ok(None)
    }
}

impl Log {
    /// Whole batches from the one that holds `offset` on: at most `max_bytes`, but the first batch always when
    /// `min_one_batch`; none that reaches `end_offset` (exclusive; the log end offset or the high watermark). All
    /// from one segment; empty when there is nothing to read.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] outside `[log_start_offset, log_end_offset]`.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: u64,
        end_offset: i64,
        min_one_batch: bool,
    ) -> Result<FileSlice> {
        self.retry_if_deleted(|| {
            let view = self.view(offset, end_offset)?;
            Ok(view.read(offset, max_bytes, min_one_batch)?.unwrap_or_else(|| FileSlice::empty(self.path())))
        })
    }

    /// Files are opened when they are first needed; a segment may be deleted just before that. The second look then
    /// finds it gone from the log.
    fn retry_if_deleted<T>(&self, look: impl Fn() -> Result<T>) -> Result<T> {
        match look() {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => look(),
            other => other,
        }
    }

    fn view(&self, offset: i64, end_offset: i64) -> Result<View> {
        let inner = self.lock_inner()?;
        if offset < inner.log_start_offset || offset > inner.log_end_offset {
            return Err(Error::OffsetOutOfRange {
                origin: self.origin(),
                offset,
                log_start_offset: inner.log_start_offset,
                log_end_offset: inner.log_end_offset,
            });
        }
        let end_offset = end_offset.min(inner.log_end_offset);
        if offset >= end_offset {
            return Ok(View { segments: Vec::new(), end_offset, is_to_log_end: false });
        }
        let first =
            inner.segments.range(..=offset).next_back().map_or(offset, |(base_offset, _)| *base_offset);
        let segments = inner
            .segments
            .range(first..end_offset)
            .take(2)
            .map(|(_, segment)| (Arc::clone(segment), segment.size_bytes()))
            .collect::<Vec<_>>();
        // Only a segment emptied by compaction needs a look at more than the next one.
        let segments = if segments.iter().skip(1).any(|(_, size)| *size == 0) {
            inner.segments.range(first..end_offset).map(|(_, s)| (Arc::clone(s), s.size_bytes())).collect()
        } else {
            segments
        };
        Ok(View { segments, end_offset, is_to_log_end: end_offset == inner.log_end_offset })
    }

    fn all_segments(&self) -> Result<(Vec<Arc<Segment>>, i64)> {
        let inner = self.lock_inner()?;
        Ok((inner.segments.values().cloned().collect(), inner.log_start_offset))
    }

    /// The first record whose timestamp is at least `timestamp`.
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<FoundTimestamp>> {
        self.retry_if_deleted(|| {
            let (segments, log_start_offset) = self.all_segments()?;
            for segment in segments {
                if segment.largest_timestamp()? < timestamp {
                    continue;
                }
                // Kafka ends here even when all such records of this segment lie before the log start offset.
                if let Some(found) = segment.find_timestamp(timestamp, log_start_offset)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        })
    }

    /// The first record with the largest timestamp of the log (KIP-734).
    pub fn max_timestamp(&self) -> Result<Option<FoundTimestamp>> {
        self.retry_if_deleted(|| {
            let (segments, _) = self.all_segments()?;
            let mut best: Option<(i64, Arc<Segment>)> = None;
            for segment in segments {
                let timestamp = segment.max_timestamp()?.timestamp;
                if best.as_ref().is_none_or(|(largest, _)| timestamp > *largest) {
                    best = Some((timestamp, segment));
                }
            }
            best.map_or(Ok(None), |(_, segment)| segment.find_max_timestamp())
        })
    }

    /// Aborted transactions whose data lies in `[start_offset, end_offset)`, for a read_committed fetch.
    pub fn aborted_transactions(
        &self,
        start_offset: i64,
        end_offset: i64,
    ) -> Result<Vec<AbortedTransaction>> {
        let segments: Vec<_> = {
            let inner = lock(&self.inner);
            let first =
                inner.segments.range(..=start_offset).next_back().map_or(start_offset, |(base, _)| *base);
            inner.segments.range(first..).map(|(_, segment)| Arc::clone(segment)).collect()
        };
        let mut found = Vec::new();
        for segment in segments {
            let mut state = segment.state();
            for aborted in state.transactions.entries()?.iter() {
                if aborted.last_offset >= start_offset && aborted.first_offset < end_offset {
                    found.push(*aborted);
                }
                if aborted.last_stable_offset >= end_offset {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }
}
