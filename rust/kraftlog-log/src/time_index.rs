//! `.timeindex`: the largest timestamp seen so far and its offset, 12 bytes an entry, as Kafka's `TimeIndex`.
use std::path::PathBuf;
use std::sync::Arc;

use crate::fs::FileSystem;
use crate::index::{relative_offset, IndexFile};
use crate::{Error, Result};

/// A timestamp and the last offset of the batch that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// Milliseconds since the epoch, -1 for none.
    pub timestamp: i64,
    /// Offset of the batch's last record.
    pub offset: i64,
}

/// The `.timeindex` of one segment.
#[derive(Debug)]
pub struct TimeIndex {
    entries: IndexFile<12>,
    base_offset: i64,
}

impl TimeIndex {
    /// An existing file; nothing is read yet.
    pub fn open(fs: Arc<dyn FileSystem>, path: PathBuf, base_offset: i64) -> Self {
        Self { entries: IndexFile::open(fs, path), base_offset }
    }

    /// A new empty file.
    pub fn create(fs: Arc<dyn FileSystem>, path: PathBuf, base_offset: i64) -> Result<Self> {
        Self::create_named(fs, path.clone(), path, base_offset)
    }

    /// A new empty file called `name` until it is renamed to `path`.
    pub(crate) fn create_named(
        fs: Arc<dyn FileSystem>,
        path: PathBuf,
        name: PathBuf,
        base_offset: i64,
    ) -> Result<Self> {
        Ok(Self { entries: IndexFile::create(fs, path, name)?, base_offset })
    }

    pub(crate) fn file(&mut self) -> &mut IndexFile<12> {
        &mut self.entries
    }

    /// Write the entries that are held back; not durable yet.
    pub fn flush(&mut self) -> Result<()> {
        self.entries.write_pending()
    }

    /// Number of entries.
    pub fn count(&mut self) -> Result<usize> {
        self.entries.count()
    }

    /// Entry number `index`, which must be below [`Self::count`].
    pub fn entry(&mut self, index: usize) -> Result<TimestampOffset> {
        let entry = self.entries.entry(index)?;
        let [.., a, b, c, d] = entry;
        Ok(TimestampOffset {
            timestamp: timestamp_of(&entry),
            offset: self.base_offset.saturating_add(i64::from(u32::from_be_bytes([a, b, c, d]))),
        })
    }

    /// The last entry; `(-1, base_offset)` when there is none.
    pub fn last(&mut self) -> Result<TimestampOffset> {
        match self.count()?.checked_sub(1) {
            Some(index) => self.entry(index),
            None => Ok(TimestampOffset { timestamp: -1, offset: self.base_offset }),
        }
    }

    /// The entry with the largest timestamp <= `timestamp`; `(-1, base_offset)` when there is none.
    pub fn lookup(&mut self, timestamp: i64) -> Result<TimestampOffset> {
        let after = self.entries.partition_point(|entry| timestamp_of(entry) <= timestamp)?;
        match after.checked_sub(1) {
            Some(index) => self.entry(index),
            None => Ok(TimestampOffset { timestamp: -1, offset: self.base_offset }),
        }
    }

    /// Append when `timestamp` is larger than the last one (`TimeIndex.maybeAppend`).
    pub fn maybe_append(&mut self, entry: TimestampOffset) -> Result<()> {
        let last = self.last()?;
        if self.count()? > 0 && entry.offset < last.offset {
            return Err(Error::Invalid(format!(
                "{}: offset {} is less than the last indexed offset {}",
                self.entries.path().display(),
                entry.offset,
                last.offset
            )));
        }
        if entry.timestamp > last.timestamp {
            let mut bytes = [0; 12];
            let (timestamp, offset) = bytes.split_at_mut(8);
            timestamp.copy_from_slice(&entry.timestamp.to_be_bytes());
            offset.copy_from_slice(&relative_offset(self.base_offset, entry.offset)?.to_be_bytes());
            self.entries.push(bytes)?;
        }
        Ok(())
    }

    /// Drop the entries with offsets >= `offset`.
    pub fn truncate_to(&mut self, offset: i64) -> Result<()> {
        let base = self.base_offset;
        let keep = self.entries.partition_point(|[.., a, b, c, d]| {
            base.saturating_add(i64::from(u32::from_be_bytes([*a, *b, *c, *d]))) < offset
        })?;
        self.entries.truncate(keep)
    }
}

fn timestamp_of(entry: &[u8; 12]) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = *entry;
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemoryFileSystem;
    use std::path::Path;

    fn at(timestamp: i64, offset: i64) -> TimestampOffset {
        TimestampOffset { timestamp, offset }
    }

    #[test]
    fn only_larger_timestamps_are_kept() {
        let fs = MemoryFileSystem::new();
        fs.create_dir(Path::new("/log")).unwrap();
        let mut index = TimeIndex::create(Arc::new(fs), "/log/0.timeindex".into(), 50).unwrap();
        assert_eq!(index.last().unwrap(), at(-1, 50));
        for entry in [at(10, 55), at(10, 60), at(20, 65), at(20, 70)] {
            index.maybe_append(entry).unwrap();
        }
        assert!(index.maybe_append(at(30, 64)).is_err());
        assert_eq!(index.count().unwrap(), 2);
        assert_eq!(index.lookup(9).unwrap(), at(-1, 50));
        assert_eq!(index.lookup(19).unwrap(), at(10, 55));
        assert_eq!(index.lookup(2000).unwrap(), at(20, 65));
        index.truncate_to(65).unwrap();
        assert_eq!(index.last().unwrap(), at(10, 55));
    }
}
