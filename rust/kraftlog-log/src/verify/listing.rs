//! The names in a directory.
use crate::{Error, Result};
use std::fs;
use std::path::Path;

/// Names of everything in a directory, sorted.
pub(crate) fn list(path: &Path) -> Result<Vec<String>> {
    let io = |source| Error::io("list", path, source);
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(io)? {
        names.push(entry.map_err(io)?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}
