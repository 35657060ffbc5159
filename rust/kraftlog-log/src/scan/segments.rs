//! A segment file of a partition directory.
use super::remote::{ObjectKind, RemoteDirectory};
use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Digits of the base offset in the name of a segment file.
const NAME_DIGITS: usize = 20;
/// Marks the whole files of a clean that are about to get their names.
pub(super) const SWAP_SUFFIX: &str = ".swap";

/// One `.log` file of a partition directory.
#[derive(Debug, Clone)]
pub struct SegmentFile {
    /// Offset in the file's name: no record in it is before.
    pub base_offset: i64,
    /// The `.log` file.
    pub path: PathBuf,
    /// Bytes of the file when it was listed.
    pub size_bytes: u64,
    /// The directory that it is in when that is not one of this machine.
    pub(crate) remote: Option<Arc<RemoteDirectory>>,
}

impl PartialEq for SegmentFile {
    fn eq(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.base_offset, one.size_bytes);
        key(self) == key(other) && self.path == other.path
    }
}

impl Eq for SegmentFile {}

impl SegmentFile {
    /// The segment that the `.log` file at `path` is, by its name and size.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the name is not 20 digits and `.log`; [`Error::Io`] when there is no such file.
    pub fn open(path: &Path) -> Result<Self> {
        let base_offset = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".log"))
            .and_then(parse_base_offset)
            .ok_or_else(|| {
                Error::Invalid(format!("{} is not named as a segment: 20 digits and .log", path.display()))
            })?;
        let metadata = fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
        Ok(Self { base_offset, path: path.to_owned(), size_bytes: metadata.len(), remote: None })
    }

    /// The file beside it with another extension, such as `index`.
    pub fn sidecar(&self, extension: &str) -> PathBuf {
        if self.is_swap() {
            return self.path.with_extension("").with_extension(format!("{extension}{SWAP_SUFFIX}"));
        }
        self.path.with_extension(extension)
    }

    /// Whether there is a file of this kind beside it.
    pub(super) fn has(&self, kind: ObjectKind) -> bool {
        match &self.remote {
            Some(remote) => remote.has(kind, self.base_offset),
            None => self.sidecar(kind.extension()).exists(),
        }
    }

    /// Exclusive end of the offsets that are read from it.
    pub(super) fn end_offset(&self) -> i64 {
        self.remote.as_ref().map_or(i64::MAX, |remote| remote.end_offset(self.base_offset))
    }

    pub(super) fn is_swap(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "swap")
    }
}

pub(super) fn parse_base_offset(digits: &str) -> Option<i64> {
    if digits.len() != NAME_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}
