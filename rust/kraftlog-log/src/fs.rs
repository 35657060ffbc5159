//! Files behind a trait: the real file system, and one in memory that forgets and fails on purpose.
//!
//! Durability as POSIX has it: bytes survive a crash after [`FileHandle::sync_data`], a name (created, renamed,
//! removed) after [`FileSystem::sync_dir`] of its directory.
use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Error, Result};

mod memory;
mod random;
mod real;

pub use memory::{Crash, DataLoss, MemoryFileSystem, NameLoss, Operation};
pub use random::Random;
pub use real::RealFileSystem;

/// How [`FileSystem::open`] treats the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist; reads only.
    Read,
    /// Must exist; reads and writes.
    ReadWrite,
    /// Created empty when absent; reads and writes.
    Create,
    /// Created, or emptied when it exists; reads and writes.
    Truncate,
}

/// What [`FileSystem::metadata`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last modification, milliseconds since the epoch.
    pub modified_ms: i64,
    /// A directory, not a file.
    pub is_dir: bool,
}

/// An open file. Positions are explicit: no seek state is shared, any thread may call.
pub trait FileHandle: Send + Sync + Debug {
    /// Read up to `buffer.len()` bytes at `position`; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Write the buffers back to back at `position` in one call; may write less than all.
    fn writev_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<usize>;
    /// Make all bytes written so far survive a crash (fdatasync).
    fn sync_data(&self) -> io::Result<()>;
    /// Set the length.
    fn truncate(&self, size_bytes: u64) -> io::Result<()>;
    /// Current length in bytes.
    fn size_bytes(&self) -> io::Result<u64>;
    /// The file descriptor for sendfile, if this is a file of the operating system.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Set the time of the last modification, milliseconds since the epoch; a hint, which may be lost.
    fn set_modified_ms(&self, modified_ms: i64) -> io::Result<()> {
        let _ = modified_ms;
        Ok(())
    }

    /// Fill `buffer` from `position`, or fail with `UnexpectedEof`.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut position: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, position) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = buffer.get_mut(count..).unwrap_or_default();
                    position += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Write all of `parts` back to back at `position`; a short write is continued. One call for the usual case.
    fn write_all_at(&self, parts: &[&[u8]], mut position: u64) -> io::Result<()> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut written = 0;
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest: &mut [IoSlice<'_>] = &mut slices;
        while written < total {
            match self.writev_at(rest, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    written += count;
                    position += count as u64;
                    if written < total {
                        IoSlice::advance_slices(&mut rest, count);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// An open directory.
pub trait DirectoryHandle: Send + Sync + Debug {
    /// Make creations, renames and removals in the directory survive a crash.
    fn sync(&self) -> io::Result<()>;
}

/// Directories and names.
pub trait FileSystem: Send + Sync + Debug {
    /// Open a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn FileHandle>>;
    /// Length and modification time; `NotFound` when there is none.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;
    /// Replace `to` by `from`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Remove a file; `NotFound` when there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Names of the plain files in a directory, unsorted.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Create a directory and its parents; nothing happens when it exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Remove an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Open a directory, for steps that must not fail for want of a descriptor once they have begun.
    fn open_dir(&self, directory: &Path) -> io::Result<Box<dyn DirectoryHandle>>;

    /// Make creations, renames and removals in `directory` survive a crash.
    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.open_dir(directory)?.sync()
    }

    /// True when the path exists.
    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Read a whole file; `None` when it does not exist.
pub fn read_file(fs: &dyn FileSystem, path: &Path) -> Result<Option<Vec<u8>>> {
    let handle = match fs.open(path, OpenMode::Read) {
        Ok(handle) => handle,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", path, error)),
    };
    let size = handle.size_bytes().map_err(|error| Error::io("stat", path, error))?;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    handle.read_exact_at(&mut bytes, 0).map_err(|error| Error::io("read", path, error))?;
    Ok(Some(bytes))
}

/// Replace a small file so that a crash leaves the old or the new content: temporary file, fsync, rename, fsync of
/// the directory (Kafka's `CheckpointFile` and `Utils.atomicMoveWithFallback`).
pub fn write_file_atomically(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = with_suffix(path, ".tmp");
    let handle = fs
        .open(&temporary, OpenMode::Truncate)
        .map_err(|error| Error::io("create", temporary.as_path(), error))?;
    handle.write_all_at(&[bytes], 0).map_err(|error| Error::io("write", temporary.as_path(), error))?;
    handle.sync_data().map_err(|error| Error::io("fsync", temporary.as_path(), error))?;
    fs.rename(&temporary, path).map_err(|error| Error::io("rename", path, error))?;
    if let Some(directory) = path.parent() {
        fs.sync_dir(directory).map_err(|error| Error::io("fsync directory", directory, error))?;
    }
    Ok(())
}

/// `path` with `suffix` after its last character.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A file that is opened when it is first needed, so that an idle log holds no descriptors. It can be renamed: a
/// holder goes on reading the same file, never another that took its name.
#[derive(Debug)]
pub(crate) struct LazyFile {
    fs: Arc<dyn FileSystem>,
    /// The name it was made for, for messages.
    path: PathBuf,
    state: Mutex<LazyState>,
}

#[derive(Debug)]
struct LazyState {
    handle: Option<Arc<dyn FileHandle>>,
    /// The name it has now, when that is another than the one it was made for.
    renamed: Option<PathBuf>,
}

impl LazyFile {
    /// A file that exists under `name` and is known as `path`; never creates it.
    pub(crate) fn named(fs: Arc<dyn FileSystem>, path: PathBuf, name: PathBuf) -> Self {
        let renamed = (name != path).then_some(name);
        Self { fs, path, state: Mutex::new(LazyState { handle: None, renamed }) }
    }

    /// A file that exists; never creates it.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, path: PathBuf) -> Self {
        Self::named(fs, path.clone(), path)
    }

    /// A new, empty file called `name` and known as `path`, open.
    pub(crate) fn create_named(fs: Arc<dyn FileSystem>, path: PathBuf, name: PathBuf) -> Result<Self> {
        let file = Self::named(fs, path, name);
        {
            let mut state = file.lock();
            let name = state.renamed.as_deref().unwrap_or(&file.path);
            let handle =
                file.fs.open(name, OpenMode::Truncate).map_err(|error| Error::io("create", name, error))?;
            state.handle = Some(handle);
        }
        Ok(file)
    }

    fn lock(&self) -> MutexGuard<'_, LazyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The handle, opening the file on the first call.
    pub(crate) fn get(&self) -> Result<Arc<dyn FileHandle>> {
        let mut state = self.lock();
        if let Some(handle) = state.handle.as_ref() {
            return Ok(Arc::clone(handle));
        }
        let name = state.renamed.as_deref().unwrap_or(&self.path);
        let opened =
            self.fs.open(name, OpenMode::ReadWrite).map_err(|error| Error::io("open", name, error))?;
        state.handle = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Give the file the name `to`; open handles stay valid. Returns false when there was no such file.
    pub(crate) fn rename(&self, to: PathBuf) -> Result<bool> {
        let mut state = self.lock();
        let name = state.renamed.as_deref().unwrap_or(&self.path);
        match self.fs.rename(name, &to) {
            Ok(()) => {
                state.renamed = (to != self.path).then_some(to);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("rename", name, error)),
        }
    }

    /// Drop the handle; the next use opens again.
    pub(crate) fn close(&self) {
        self.lock().handle.take();
    }

    pub(crate) fn size_bytes(&self) -> Result<u64> {
        self.get()?.size_bytes().map_err(|error| Error::io("stat", self.path.as_path(), error))
    }

    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> Result<()> {
        self.get()?
            .read_exact_at(buffer, position)
            .map_err(|error| Error::io("read", self.path.as_path(), error))
    }

    pub(crate) fn write_all_at(&self, parts: &[&[u8]], position: u64) -> Result<()> {
        self.get()?
            .write_all_at(parts, position)
            .map_err(|error| Error::io("write", self.path.as_path(), error))
    }

    pub(crate) fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.get()?.truncate(size_bytes).map_err(|error| Error::io("truncate", self.path.as_path(), error))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.get()?.sync_data().map_err(|error| Error::io("fsync", self.path.as_path(), error))
    }
}
