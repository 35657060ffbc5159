//! `.txnindex`: the aborted transactions that end in a segment, 34 bytes each; no file while there are none.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::{self, FileHandle, FileSystem, OpenMode};
use crate::{Error, Result};

const ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;

/// An aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// First offset of its data.
    pub first_offset: i64,
    /// Offset of the abort marker.
    pub last_offset: i64,
    /// Last stable offset once the transaction was over.
    pub last_stable_offset: i64,
}

impl AbortedTransaction {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENTRY_BYTES);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        for field in [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset] {
            bytes.extend_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, fields) = bytes.split_first_chunk::<2>()?;
        if i16::from_be_bytes(*version) != VERSION {
            return None;
        }
        let mut fields =
            fields.chunks_exact(8).filter_map(|field| field.first_chunk()).map(|b| i64::from_be_bytes(*b));
        Some(Self {
            producer_id: fields.next()?,
            first_offset: fields.next()?,
            last_offset: fields.next()?,
            last_stable_offset: fields.next()?,
        })
    }
}

/// The `.txnindex` of one segment, read when it is first needed.
#[derive(Debug)]
pub struct TransactionIndex {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    entries: Option<Vec<AbortedTransaction>>,
    /// How many of them the file has: the others wait for a descriptor.
    written: usize,
    /// Appended to or shortened since the last sync.
    is_dirty: bool,
}

impl TransactionIndex {
    /// The file may or may not exist.
    pub fn new(fs: Arc<dyn FileSystem>, path: PathBuf) -> Self {
        Self { fs, path, entries: None, written: 0, is_dirty: false }
    }

    /// Give the file the name `to`. Returns false when there is no file.
    pub(crate) fn rename(&mut self, to: PathBuf) -> Result<bool> {
        match self.fs.rename(&self.path, &to) {
            Ok(()) => {
                self.path = to;
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.path = to;
                Ok(false)
            }
            Err(error) => Err(Error::io("rename", self.path.as_path(), error)),
        }
    }

    /// All entries in the order of their markers.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the file is not made of whole entries of version 0.
    pub fn entries(&mut self) -> Result<&mut Vec<AbortedTransaction>> {
        let entries = match self.entries.take() {
            Some(entries) => entries,
            None => {
                let entries = self.read()?;
                self.written = entries.len();
                entries
            }
        };
        Ok(self.entries.insert(entries))
    }

    fn read(&self) -> Result<Vec<AbortedTransaction>> {
        let bytes = fs::read_file(self.fs.as_ref(), &self.path)?.unwrap_or_default();
        Self::parse(&bytes, &self.path)
    }

    /// The entries in the bytes of a file, which is named in the error.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they are not whole entries of version 0.
    pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Vec<AbortedTransaction>> {
        let chunks = bytes.chunks_exact(ENTRY_BYTES);
        let is_whole = chunks.remainder().is_empty();
        let entries: Option<Vec<_>> = chunks.map(AbortedTransaction::decode).collect();
        entries
            .filter(|_| is_whole)
            .ok_or_else(|| Error::Invalid(format!("{}: not a transaction index", path.display())))
    }

    /// Add one; markers come in order. Without a descriptor to open the file it is written by the next
    /// [`Self::write_pending`]: its marker is in the log, and recovery finds it there.
    pub fn append(&mut self, aborted: AbortedTransaction) -> Result<()> {
        self.entries()?.push(aborted);
        match self.write_pending() {
            Err(error) if error.is_out_of_descriptors() => Ok(()),
            written => written,
        }
    }

    fn open_file(&self, mode: OpenMode) -> Result<Arc<dyn FileHandle>> {
        self.fs.open(&self.path, mode).map_err(|error| Error::io("open", self.path.as_path(), error))
    }

    /// Write the entries that the file does not have.
    pub(crate) fn write_pending(&mut self) -> Result<()> {
        let entries = self.entries.as_deref().unwrap_or_default();
        let Some(pending) = entries.get(self.written..).filter(|pending| !pending.is_empty()) else {
            return Ok(());
        };
        let bytes: Vec<u8> = pending.iter().flat_map(AbortedTransaction::encode).collect();
        self.open_file(OpenMode::Create)?
            .write_all_at(&[&bytes], (self.written * ENTRY_BYTES) as u64)
            .map_err(|error| Error::io("write", self.path.as_path(), error))?;
        self.written = entries.len();
        self.is_dirty = true;
        Ok(())
    }

    /// Cut the file to `keep` entries.
    fn shorten(&mut self, keep: usize) -> Result<()> {
        self.open_file(OpenMode::ReadWrite)?
            .truncate((keep * ENTRY_BYTES) as u64)
            .map_err(|error| Error::io("truncate", self.path.as_path(), error))?;
        self.written = keep;
        self.is_dirty = true;
        Ok(())
    }

    /// Drop the entries from the first whose marker is at or after `offset`.
    pub fn truncate_to(&mut self, offset: i64) -> Result<()> {
        let entries = self.entries()?;
        let keep = entries.iter().take_while(|aborted| aborted.last_offset < offset).count();
        if keep < self.written {
            self.shorten(keep)?;
        }
        self.entries()?.truncate(keep);
        Ok(())
    }

    /// Forget all, whatever the file holds.
    pub fn reset(&mut self) -> Result<()> {
        let had =
            self.fs.exists(&self.path).map_err(|error| Error::io("stat", self.path.as_path(), error))?;
        if had {
            self.shorten(0)?;
        }
        self.entries = Some(Vec::new());
        self.written = 0;
        Ok(())
    }

    /// Make the file durable, if it was touched.
    pub fn sync(&mut self) -> Result<()> {
        self.write_pending()?;
        if !self.is_dirty {
            return Ok(());
        }
        let handle = self.open_file(OpenMode::ReadWrite)?;
        handle.sync_data().map_err(|error| Error::io("fsync", self.path.as_path(), error))?;
        self.is_dirty = false;
        Ok(())
    }
}
