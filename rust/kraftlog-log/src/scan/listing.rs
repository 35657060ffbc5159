//! What a partition directory holds: its segments, and where its log ends.
use super::checked::{next_checked, Next};
use super::chunks::Chunks;
use super::position::position_near_end;
use super::remote::RemoteDirectory;
use super::segments::{parse_base_offset, SegmentFile, SWAP_SUFFIX};
use crate::offset_order::OffsetOrder;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// The offset after the last whole batch of a partition: 0 in a directory without segments.
///
/// # Errors
/// [`Error::Corrupt`] naming file and position, [`Error::Io`].
pub fn log_end_offset(segments: &[SegmentFile]) -> Result<i64> {
    let Some(last) = segments.last() else { return Ok(0) };
    // The batch before the last one bounds its base offset.
    let mut chunks = Chunks::of(last, position_near_end(last), Arc::default())?;
    let mut order = OffsetOrder::new(last.base_offset, i64::MAX);
    loop {
        match next_checked(&mut chunks, &mut order, true)? {
            Next::Batch(..) => {}
            Next::End => return Ok(order.floor()),
            Next::Damage(error, _) => return Err(error),
        }
    }
}
