//! `.index`: a sparse map from offset to file position, 8 bytes an entry, as Kafka's `OffsetIndex` writes it.
//!
//! Kafka preallocates the files of the active segment with zeros; those of kraftlog grow. Both are read: entries end where the
//! zeros begin.
use std::path::PathBuf;
use std::sync::Arc;

use crate::fs::{FileSystem, LazyFile};
use crate::{Error, Result};

/// Entries kept back in memory before they are written: a crash rebuilds the index of the active segment anyway.
const PENDING_ENTRIES_MAX: usize = 128;

/// Fixed-size entries in a file. Writable ones are held in memory as well; the rest is searched by pread.
#[derive(Debug)]
pub(crate) struct IndexFile<const N: usize> {
    file: LazyFile,
    count: Option<usize>,
    memory: Vec<u8>,
    in_memory: bool,
    written: usize,
}

impl<const N: usize> IndexFile<N> {
    pub(crate) fn open(fs: Arc<dyn FileSystem>, path: PathBuf) -> Self {
        Self { file: LazyFile::new(fs, path), count: None, memory: Vec::new(), in_memory: false, written: 0 }
    }

    pub(crate) fn create(fs: Arc<dyn FileSystem>, path: PathBuf, name: PathBuf) -> Result<Self> {
        let file = LazyFile::create_named(fs, path, name)?;
        Ok(Self { file, count: Some(0), memory: Vec::new(), in_memory: true, written: 0 })
    }

    fn read_entry(&self, index: usize) -> Result<[u8; N]> {
        let mut entry = [0; N];
        let start = index * N;
        if self.in_memory {
            if let Some(bytes) = self.memory.get(start..start + N) {
                entry.copy_from_slice(bytes);
            }
        } else {
            self.file.read_exact_at(&mut entry, start as u64)?;
        }
        Ok(entry)
    }

    /// Number of entries; a preallocated tail of zeros does not count.
    pub(crate) fn count(&mut self) -> Result<usize> {
        if let Some(count) = self.count {
            return Ok(count);
        }
        let slots = usize::try_from(self.file.size_bytes()?).unwrap_or(usize::MAX) / N;
        // Entry 0 may be all zeros by right (timestamp 0 at the base offset), but then no zero entry follows it.
        let mut low = 1.min(slots);
        let mut high = slots;
        while low < high {
            let middle = low.midpoint(high);
            if self.read_entry(middle)? == [0; N] {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        if low == 1 && slots > 1 && self.read_entry(0)? == [0; N] {
            low = 0;
        }
        self.count = Some(low);
        self.written = low;
        Ok(low)
    }

    pub(crate) fn entry(&mut self, index: usize) -> Result<[u8; N]> {
        self.count()?;
        self.read_entry(index)
    }

    /// Number of leading entries for which `before` holds (it holds for a prefix).
    pub(crate) fn partition_point(&mut self, before: impl Fn(&[u8; N]) -> bool) -> Result<usize> {
        let mut low = 0;
        let mut high = self.count()?;
        while low < high {
            let middle = low.midpoint(high);
            if before(&self.read_entry(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn load(&mut self) -> Result<()> {
        if !self.in_memory {
            let mut bytes = vec![0; self.count()? * N];
            self.file.read_exact_at(&mut bytes, 0)?;
            self.memory = bytes;
            self.in_memory = true;
        }
        Ok(())
    }

    pub(crate) fn push(&mut self, entry: [u8; N]) -> Result<()> {
        self.load()?;
        self.memory.extend_from_slice(&entry);
        let count = self.memory.len() / N;
        self.count = Some(count);
        if count - self.written >= PENDING_ENTRIES_MAX {
            self.write_pending()?;
        }
        Ok(())
    }

    pub(crate) fn write_pending(&mut self) -> Result<()> {
        if self.in_memory {
            let start = self.written * N;
            if let Some(pending) = self.memory.get(start..).filter(|pending| !pending.is_empty()) {
                self.file.write_all_at(&[pending], start as u64)?;
            }
            self.written = self.memory.len() / N;
        }
        Ok(())
    }

    pub(crate) fn truncate(&mut self, count: usize) -> Result<()> {
        if count < self.count()? {
            self.memory.truncate(count * N);
            self.count = Some(count);
            if count < self.written {
                self.written = count;
                self.file.truncate((count * N) as u64)?;
            }
        }
        Ok(())
    }

    /// Throw everything away, whatever the file holds.
    pub(crate) fn reset(&mut self) -> Result<()> {
        self.file.truncate(0)?;
        self.memory.clear();
        self.in_memory = true;
        self.count = Some(0);
        self.written = 0;
        Ok(())
    }

    /// Write what is pending and cut the file to its entries.
    pub(crate) fn trim(&mut self) -> Result<()> {
        let count = self.count()?;
        self.write_pending()?;
        if self.file.size_bytes()? != (count * N) as u64 {
            self.file.truncate((count * N) as u64)?;
        }
        Ok(())
    }

    /// Let go of memory and descriptor after the last write; lookups still work.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.write_pending()?;
        self.memory = Vec::new();
        self.in_memory = false;
        self.file.close();
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        self.write_pending()?;
        self.file.sync()
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.file.path()
    }

    /// See [`LazyFile::rename`].
    pub(crate) fn rename(&self, to: PathBuf) -> Result<bool> {
        self.file.rename(to)
    }
}

/// A batch's last offset and the position where the batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetPosition {
    /// Last offset of the batch, inclusive.
    pub offset: i64,
    /// Byte position of the batch in the segment.
    pub position: u64,
}

/// The `.index` of one segment.
#[derive(Debug)]
pub struct OffsetIndex {
    entries: IndexFile<8>,
    base_offset: i64,
}

impl OffsetIndex {
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

    pub(crate) fn file(&mut self) -> &mut IndexFile<8> {
        &mut self.entries
    }

    fn decode(&self, entry: [u8; 8]) -> OffsetPosition {
        let [a, b, c, d, e, f, g, h] = entry;
        OffsetPosition {
            offset: self.base_offset.saturating_add(i64::from(u32::from_be_bytes([a, b, c, d]))),
            position: u64::from(u32::from_be_bytes([e, f, g, h])),
        }
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
    pub fn entry(&mut self, index: usize) -> Result<OffsetPosition> {
        let entry = self.entries.entry(index)?;
        Ok(self.decode(entry))
    }

    /// The last entry.
    pub fn last(&mut self) -> Result<Option<OffsetPosition>> {
        match self.count()?.checked_sub(1) {
            Some(index) => self.entry(index).map(Some),
            None => Ok(None),
        }
    }

    /// The entry with the largest offset <= `offset`; the beginning of the segment when there is none.
    pub fn lookup(&mut self, offset: i64) -> Result<OffsetPosition> {
        let base = self.base_offset;
        let after = self.entries.partition_point(|[a, b, c, d, ..]| {
            base.saturating_add(i64::from(u32::from_be_bytes([*a, *b, *c, *d]))) <= offset
        })?;
        self.at_or_start(after)
    }

    /// The entry with the largest position <= `position`; the beginning of the segment when there is none.
    pub fn lookup_position(&mut self, position: u64) -> Result<OffsetPosition> {
        let after = self.entries.partition_point(|[.., e, f, g, h]| {
            u64::from(u32::from_be_bytes([*e, *f, *g, *h])) <= position
        })?;
        self.at_or_start(after)
    }

    fn at_or_start(&mut self, after: usize) -> Result<OffsetPosition> {
        match after.checked_sub(1) {
            Some(index) => self.entry(index),
            None => Ok(OffsetPosition { offset: self.base_offset, position: 0 }),
        }
    }

    /// Append an entry; offsets must rise.
    pub fn append(&mut self, offset: i64, position: u64) -> Result<()> {
        if let Some(last) = self.last()? {
            if offset <= last.offset {
                return Err(Error::Invalid(format!(
                    "{}: offset {offset} is not larger than the last indexed offset {}",
                    self.entries.path().display(),
                    last.offset
                )));
            }
        }
        let relative = relative_offset(self.base_offset, offset)?;
        let position = u32::try_from(position)
            .ok()
            .filter(|position| i32::try_from(*position).is_ok())
            .ok_or_else(|| Error::Invalid(format!("position {position} does not fit an index")))?;
        let mut entry = [0; 8];
        let (first, second) = entry.split_at_mut(4);
        first.copy_from_slice(&relative.to_be_bytes());
        second.copy_from_slice(&position.to_be_bytes());
        self.entries.push(entry)
    }

    /// Drop the entries with offsets >= `offset`.
    pub fn truncate_to(&mut self, offset: i64) -> Result<()> {
        let base = self.base_offset;
        let keep = self.entries.partition_point(|[a, b, c, d, ..]| {
            base.saturating_add(i64::from(u32::from_be_bytes([*a, *b, *c, *d]))) < offset
        })?;
        self.entries.truncate(keep)
    }
}

/// `offset` relative to the segment, as the int32 that indexes store.
pub(crate) fn relative_offset(base_offset: i64, offset: i64) -> Result<u32> {
    offset
        .checked_sub(base_offset)
        .and_then(|relative| i32::try_from(relative).ok())
        .and_then(|relative| u32::try_from(relative).ok())
        .ok_or_else(|| {
            Error::Invalid(format!("offset {offset} does not fit the segment with base {base_offset}"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{MemoryFileSystem, OpenMode};
    use std::path::Path;

    fn fs() -> Arc<MemoryFileSystem> {
        let fs = MemoryFileSystem::new();
        fs.create_dir(Path::new("/log")).unwrap();
        Arc::new(fs)
    }

    #[test]
    fn lookup_truncate_and_reopen() {
        let fs = fs();
        let path = Path::new("/log/0.index");
        let mut index = OffsetIndex::create(fs.clone(), path.into(), 100).unwrap();
        for step in 1..=300_i64 {
            index.append(100 + step * 10, step as u64 * 5000).unwrap();
        }
        assert!(index.append(3100, 1).is_err());
        assert_eq!(index.lookup(105).unwrap(), OffsetPosition { offset: 100, position: 0 });
        assert_eq!(index.lookup(119).unwrap().position, 5000);
        assert_eq!(index.lookup_position(5001).unwrap().offset, 110);
        index.truncate_to(3000).unwrap();
        assert_eq!(index.last().unwrap().unwrap().offset, 2990);
        index.file().trim().unwrap();
        index.file().release().unwrap();
        assert_eq!(index.lookup(1_000_000).unwrap().offset, 2990);
        let mut again = OffsetIndex::open(fs, path.into(), 100);
        assert_eq!(again.count().unwrap(), 289);
        assert_eq!(again.lookup(2000).unwrap(), OffsetPosition { offset: 2000, position: 190 * 5000 });
    }

    #[test]
    fn preallocated_zeros_do_not_count() {
        let fs = fs();
        for entries in [0_usize, 1, 2, 7] {
            let path = Path::new("/log/zeros.index");
            let mut bytes = vec![0; 8192];
            for entry in 0..entries {
                bytes[entry * 8 + 3] = entry as u8 + 1;
                bytes[entry * 8 + 6] = entry as u8 + 1;
            }
            let handle = fs.open(path, OpenMode::Truncate).unwrap();
            handle.write_all_at(&[&bytes], 0).unwrap();
            let mut index = OffsetIndex::open(fs.clone(), path.into(), 0);
            assert_eq!(index.count().unwrap(), entries);
            index.append(100, 5000).unwrap();
            index.file().trim().unwrap();
            assert_eq!(handle.size_bytes().unwrap(), (entries as u64 + 1) * 8);
        }
    }
}
