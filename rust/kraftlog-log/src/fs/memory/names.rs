//! Directories and the names in them.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) files: BTreeMap<Arc<Path>, u64>,
    pub(super) directories: BTreeSet<Arc<Path>>,
}

impl Names {
    /// Drop what lies in directories that are not there.
    pub(super) fn drop_unreachable(&mut self) {
        let directories = std::mem::take(&mut self.directories);
        // Parents sort before their children.
        for path in directories {
            if path.parent().is_none_or(|parent| self.directories.contains(parent)) {
                self.directories.insert(path);
            }
        }
        let directories = &self.directories;
        self.files.retain(|path, _| path.parent().is_some_and(|parent| directories.contains(parent)));
    }
}

/// A change of a directory.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Link(Arc<Path>, u64),
    Unlink(Arc<Path>),
    Rename(Arc<Path>, Arc<Path>),
    RenameDirectory(Arc<Path>, Arc<Path>),
    MakeDirectory(Arc<Path>),
    RemoveDirectory(Arc<Path>),
}

/// Where a path lies after `from` was renamed to `to`; `None` when it does not lie in `from`.
fn moved(path: &Path, from: &Path, to: &Path) -> Option<Arc<Path>> {
    let rest = path.strip_prefix(from).ok()?;
    Some(if rest.as_os_str().is_empty() { to.into() } else { to.join(rest).into() })
}

impl NameChange {
    /// What it does where its predecessors are there; else nothing.
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Link(path, inode) => {
                names.files.insert(Arc::clone(path), *inode);
            }
            Self::Unlink(path) => {
                names.files.remove(path);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.files.remove(from) {
                    names.files.insert(Arc::clone(to), inode);
                }
            }
            Self::RenameDirectory(from, to) => {
                if !names.directories.contains(from) {
                    return;
                }
                let files = std::mem::take(&mut names.files);
                names.files = files
                    .into_iter()
                    .map(|(path, inode)| (moved(&path, from, to).unwrap_or(path), inode))
                    .collect();
                let directories = std::mem::take(&mut names.directories);
                names.directories =
                    directories.into_iter().map(|path| moved(&path, from, to).unwrap_or(path)).collect();
            }
            Self::MakeDirectory(path) => {
                names.directories.insert(Arc::clone(path));
            }
            Self::RemoveDirectory(path) => {
                names.directories.remove(path);
            }
        }
    }

    /// The one or two names it is about.
    pub(super) fn paths(&self) -> [Option<&Path>; 2] {
        match self {
            Self::Rename(from, to) | Self::RenameDirectory(from, to) => [Some(from), Some(to)],
            Self::Link(path, _)
            | Self::Unlink(path)
            | Self::MakeDirectory(path)
            | Self::RemoveDirectory(path) => [Some(path), None],
        }
    }
}
