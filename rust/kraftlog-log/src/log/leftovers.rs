//! Files that an interrupted deletion or compaction left behind, handled as Kafka's `LogLoader` does.
use std::path::Path;
use std::sync::Arc;

use crate::fs::{FileSystem, OpenMode};
use crate::segment::HeaderScan;
use crate::{Error, Result};

const SNAPSHOT_DELETED_SUFFIX: &str = ".checkpoint.deleted";

/// The base offset a file is named after.
pub(super) fn base_offset_of(name: &str) -> Option<i64> {
    let stem = name.split('.').next()?;
    (!stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit())).then(|| stem.parse().ok())?
}

fn remove(fs: &dyn FileSystem, directory: &Path, name: &str) -> Result<()> {
    let path = directory.join(name);
    match fs.remove(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// Remove deleted and half-written files; put segments whose replacement was complete in their place. What one step
/// removes is gone for good before the next step, as its order is what tells a finished replacement from another.
pub(super) fn clean_up(fs: &Arc<dyn FileSystem>, directory: &Path) -> Result<()> {
    let list = || fs.list(directory).map_err(|error| Error::io("list", directory, error));
    let sync = || fs.sync_dir(directory).map_err(|error| Error::io("fsync directory", directory, error));
    let remove_all =
        |names: &[&String]| names.iter().try_for_each(|name| remove(fs.as_ref(), directory, name));
    let names = list()?;
    let mut first_cleaned = i64::MAX;
    for name in &names {
        if name.ends_with(".deleted") && !name.ends_with(SNAPSHOT_DELETED_SUFFIX) {
            remove(fs.as_ref(), directory, name)?;
        } else if name.ends_with(".cleaned") {
            first_cleaned = first_cleaned.min(base_offset_of(name).unwrap_or(i64::MAX));
        }
    }
    // A swap file at or after a `.cleaned` one is part of a replacement that did not begin.
    let (valid, invalid): (Vec<_>, Vec<_>) = names
        .iter()
        .filter(|name| name.ends_with(".swap"))
        .partition(|name| base_offset_of(name).is_some_and(|base| base < first_cleaned));
    if !invalid.is_empty() {
        remove_all(&invalid)?;
        sync()?;
    }
    remove_all(&names.iter().filter(|name| name.ends_with(".cleaned")).collect::<Vec<_>>())?;
    let mut range: Option<(i64, i64)> = None;
    for name in &valid {
        if let (true, Some(base)) = (name.ends_with(".log.swap"), base_offset_of(name)) {
            let next = next_offset(fs, &directory.join(name), base)?;
            range = Some(range.map_or((base, next), |(low, high)| (low.min(base), high.max(next))));
        }
    }
    if let Some((low, high)) = range {
        for name in list()? {
            let inside = base_offset_of(&name).is_some_and(|base| base >= low && base < high);
            if inside && !name.ends_with(".swap") {
                remove(fs.as_ref(), directory, &name)?;
            }
        }
    }
    if valid.is_empty() {
        return Ok(());
    }
    sync()?;
    for name in valid {
        let from = directory.join(name);
        let to = directory.join(name.trim_end_matches(".swap"));
        fs.rename(&from, &to).map_err(|error| Error::io("rename", from, error))?;
    }
    sync()
}

fn next_offset(fs: &Arc<dyn FileSystem>, path: &Path, base_offset: i64) -> Result<i64> {
    let file = fs.open(path, OpenMode::Read).map_err(|error| Error::io("open", path, error))?;
    let size = file.size_bytes().map_err(|error| Error::io("stat", path, error))?;
    let mut scan = HeaderScan::new(file, path, 0, size);
    let mut next = base_offset;
    while let Some(batch) = scan.next_batch()? {
        next = batch.header().next_offset();
    }
    Ok(next)
}
