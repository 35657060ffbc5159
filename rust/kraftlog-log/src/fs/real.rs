//! The operating system's files.
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::{DirectoryHandle, FileHandle, FileSystem, Metadata, OpenMode};

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFileSystem;

impl FileHandle for File {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, position)
    }

    fn writev_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        rustix::io::pwritev(self, buffers, position).map_err(io::Error::from)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        self.set_len(size_bytes)
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn set_modified_ms(&self, modified_ms: i64) -> io::Result<()> {
        let since = Duration::from_millis(u64::try_from(modified_ms).unwrap_or(0));
        self.set_modified(UNIX_EPOCH + since)
    }
}

#[derive(Debug)]
struct Directory(File);

impl DirectoryHandle for Directory {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

impl FileSystem for RealFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn FileHandle>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::Create => {
                options.write(true).create(true).truncate(false);
            }
            OpenMode::Truncate => {
                options.write(true).create(true).truncate(true);
            }
        }
        Ok(Arc::new(options.open(path)?))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let metadata = std::fs::metadata(path)?;
        let modified_ms = metadata
            .modified()?
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        Ok(Metadata { size_bytes: metadata.len(), modified_ms, is_dir: metadata.is_dir() })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                continue;
            }
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn open_dir(&self, directory: &Path) -> io::Result<Box<dyn DirectoryHandle>> {
        Ok(Box::new(Directory(File::open(directory)?)))
    }
}
