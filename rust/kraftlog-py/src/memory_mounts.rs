//! Several disks in memory of one machine: what lies where is decided by the path, as in a table of mounts.
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kraftlog_log::fs::{DirectoryHandle, FileHandle, FileSystem, MemoryFileSystem, Metadata, OpenMode};

/// The file systems of disks as they were when this was made: after a crash of a disk, those who hold it write to one
/// that does not exist any more.
#[derive(Debug)]
pub(crate) struct MemoryMounts {
    /// By their roots, of which one may lie below another.
    mounts: Vec<(PathBuf, MemoryFileSystem)>,
}

impl MemoryMounts {
    pub(crate) fn new(mounts: Vec<(PathBuf, MemoryFileSystem)>) -> Self {
        Self { mounts }
    }

    /// The innermost mount with this path.
    fn at(&self, path: &Path) -> io::Result<(&Path, &MemoryFileSystem)> {
        let with_path = self.mounts.iter().filter(|(root, _)| path.starts_with(root));
        let innermost = with_path.max_by_key(|(root, _)| root.components().count());
        innermost.map(|(root, fs)| (root.as_path(), fs)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl FileSystem for MemoryMounts {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn FileHandle>> {
        self.at(path)?.1.open(path, mode)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.at(path)?.1.metadata(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (source, fs) = self.at(from)?;
        if self.at(to)?.0 != source {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        fs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.at(path)?.1.remove(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.at(directory)?.1.list(directory)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.at(path)?.1.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.at(path)?.1.remove_dir(path)
    }

    fn open_dir(&self, directory: &Path) -> io::Result<Box<dyn DirectoryHandle>> {
        self.at(directory)?.1.open_dir(directory)
    }
}
