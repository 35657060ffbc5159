//! `.txnindex`: the aborted transactions that end in a segment, 34 bytes each; no file while there are none.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fs::{self, FileSystem, OpenMode};
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
    /// Appended to or shortened since the last sync.
    is_dirty: bool,
}

impl TransactionIndex {
    /// The file may or may not exist.
    pub fn new(fs: Arc<dyn FileSystem>, path: PathBuf) -> Self {
        Self { fs, path, entries: None, is_dirty: false }
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
            None => self.read()?,
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

    /// Add one; markers come in order.
    pub fn append(&mut self, aborted: AbortedTransaction) -> Result<()> {
        let position = self.entries()?.len() * ENTRY_BYTES;
        let handle = self
            .fs
            .open(&self.path, OpenMode::Create)
            .map_err(|error| Error::io("open", self.path.as_path(), error))?;
        handle
            .write_all_at(&[&aborted.encode()], position as u64)
            .map_err(|error| Error::io("write", self.path.as_path(), error))?;
        self.entries()?.push(aborted);
        self.is_dirty = true;
        Ok(())
    }

    fn shorten(&mut self, keep: usize) -> Result<()> {
        self.entries()?.truncate(keep);
        self.is_dirty = true;
        let handle = self
            .fs
            .open(&self.path, OpenMode::ReadWrite)
            .map_err(|error| Error::io("open", self.path.as_path(), error))?;
        handle
            .truncate((keep * ENTRY_BYTES) as u64)
            .map_err(|error| Error::io("truncate", self.path.as_path(), error))
    }

    /// Drop the entries from the first whose marker is at or after `offset`.
    pub fn truncate_to(&mut self, offset: i64) -> Result<()> {
        let entries = self.entries()?;
        let keep = entries.iter().take_while(|aborted| aborted.last_offset < offset).count();
        if keep < entries.len() {
            self.shorten(keep)?;
        }
        Ok(())
    }

    /// Forget all, whatever the file holds.
    pub fn reset(&mut self) -> Result<()> {
        let had =
            self.fs.exists(&self.path).map_err(|error| Error::io("stat", self.path.as_path(), error))?;
        self.entries = Some(Vec::new());
        if had {
            self.shorten(0)?;
        }
        Ok(())
    }

    /// Make the file durable, if it was touched.
    pub fn sync(&mut self) -> Result<()> {
        if !self.is_dirty {
            return Ok(());
        }
        let handle = self
            .fs
            .open(&self.path, OpenMode::ReadWrite)
            .map_err(|error| Error::io("open", self.path.as_path(), error))?;
        handle.sync_data().map_err(|error| Error::io("fsync", self.path.as_path(), error))?;
        self.is_dirty = false;
        Ok(())
    }
}
