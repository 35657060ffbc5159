//! The segment files of a partition directory.
use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Digits of the base offset in the name of a segment file.
const NAME_DIGITS: usize = 20;

/// One `.log` file of a partition directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    /// Offset in the file's name: no record in it is before.
    pub base_offset: i64,
    /// The `.log` file.
    pub path: PathBuf,
    /// Bytes of the file when it was listed.
    pub size_bytes: u64,
}

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
        Ok(Self { base_offset, path: path.to_owned(), size_bytes: metadata.len() })
    }
}

fn parse_base_offset(digits: &str) -> Option<i64> {
    if digits.len() != NAME_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The segments of a partition directory by rising base offset. Files that Kafka has marked as `.deleted`,
/// `.cleaned` or `.swap` are none.
///
/// # Errors
/// [`Error::Io`] when the directory cannot be read.
pub fn list_segments(directory: &Path) -> Result<Vec<SegmentFile>> {
    let entries = fs::read_dir(directory).map_err(|source| Error::io("open", directory, source))?;
    let mut segments = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| Error::io("list", directory, source))?;
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(".log"));
        let Some(base_offset) = digits.and_then(parse_base_offset) else { continue };
        match entry.metadata() {
            Ok(metadata) => {
                segments.push(SegmentFile { base_offset, path: entry.path(), size_bytes: metadata.len() });
            }
            // Deleted since it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::io("stat", entry.path(), source)),
        }
    }
    segments.sort_by_key(|segment| segment.base_offset);
    Ok(segments)
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
