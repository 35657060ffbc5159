//! The segment files of a partition directory.
use super::partition::log_end_offset;
use super::remote::{ObjectKind, RemoteDirectory};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Digits of the base offset in the name of a segment file.
const NAME_DIGITS: usize = 20;
/// Marks the whole files of a clean that are about to get their names.
const SWAP_SUFFIX: &str = ".swap";
/// Most listings of a directory whose files are being renamed.
const LISTINGS_MAX: usize = 8;

/// Where the files of a partition are.
#[derive(Debug, Clone)]
pub enum Directory {
    /// In a directory of this machine.
    Local(PathBuf),
    /// Elsewhere.
    Remote(Arc<RemoteDirectory>),
}

impl Directory {
    /// The segments by rising base offset, as [`list_segments`] gives them.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be read.
    pub fn segments(&self) -> Result<Vec<SegmentFile>> {
        match self {
            Self::Local(path) => list_segments(path),
            Self::Remote(remote) => Ok(remote.segments()),
        }
    }

    /// Its path or URL, for people.
    pub fn path(&self) -> &Path {
        match self {
            Self::Local(path) => path,
            Self::Remote(remote) => remote.url(),
        }
    }
}

impl<T: Into<PathBuf>> From<T> for Directory {
    fn from(path: T) -> Self {
        Self::Local(path.into())
    }
}

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

    fn is_swap(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "swap")
    }
}

fn parse_base_offset(digits: &str) -> Option<i64> {
    if digits.len() != NAME_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The segments of a partition directory by rising base offset. Files that Kafka has marked as `.deleted` or
/// `.cleaned` are none; a `.swap` file, which is whole, is one while the segment that it replaces is gone.
///
/// # Errors
/// [`Error::Io`] when the directory cannot be read.
pub fn list_segments(directory: &Path) -> Result<Vec<SegmentFile>> {
    let (mut segments, mut is_changing) = list_once(directory)?;
    // While files are renamed, one listing may miss a file under both of its names.
    for _ in 0..LISTINGS_MAX {
        if !is_changing {
            break;
        }
        let (again, changing) = list_once(directory)?;
        is_changing = changing && again != segments;
        segments = again;
    }
    let swapped: Vec<SegmentFile> = segments.iter().filter(|segment| segment.is_swap()).cloned().collect();
    for swap in swapped {
        // As in Kafka's recovery: what begins within its offsets is what it replaces.
        let Ok(end_offset) = log_end_offset(std::slice::from_ref(&swap)) else { continue };
        segments.retain(|other| {
            other.base_offset <= swap.base_offset || other.base_offset >= end_offset || other.is_swap()
        });
    }
    Ok(segments)
}

fn list_once(directory: &Path) -> Result<(Vec<SegmentFile>, bool)> {
    let entries = fs::read_dir(directory).map_err(|source| Error::io("open", directory, source))?;
    let mut segments: BTreeMap<i64, SegmentFile> = BTreeMap::new();
    let mut is_changing = false;
    for entry in entries {
        let entry = entry.map_err(|source| Error::io("list", directory, source))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        is_changing |= [SWAP_SUFFIX, ".deleted", ".cleaned"].iter().any(|suffix| name.ends_with(suffix));
        let plain = name.strip_suffix(SWAP_SUFFIX).unwrap_or(name);
        let Some(base_offset) = plain.strip_suffix(".log").and_then(parse_base_offset) else { continue };
        match entry.metadata() {
            Ok(metadata) => {
                let found =
                    SegmentFile { base_offset, path: entry.path(), size_bytes: metadata.len(), remote: None };
                if plain == name || !segments.contains_key(&base_offset) {
                    segments.insert(base_offset, found);
                }
            }
            // Deleted since it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::io("stat", entry.path(), source)),
        }
    }
    Ok((segments.into_values().collect(), is_changing))
}

/// Topic and partition in the name of a partition directory: `orders-0`. Directories that Kafka is deleting
/// (`-delete`), moving (`-future`) or has found astray (`-stray`) are none.
pub fn partition_of(directory_name: &str) -> Option<(&str, i32)> {
    let (topic, partition) = directory_name.rsplit_once('-')?;
    if topic.is_empty() || partition.is_empty() || !partition.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((topic, partition.parse().ok()?))
}
