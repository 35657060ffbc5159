//! A file system in memory for crash tests: it loses what was not synced, tears the tail, fails when told to.
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{FileHandle, FileSystem, Metadata, OpenMode};

/// Kinds of operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `read_at`.
    Read,
    /// `writev_at`.
    Write,
    /// `sync_data` and `sync_dir`.
    Sync,
    /// Creating, renaming and removing names, and `truncate`.
    Change,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    modified_ms: i64,
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    directories: BTreeSet<PathBuf>,
    now_ms: i64,
    changes: u64,
    crash_after_changes: Option<u64>,
    capacity_bytes: Option<u64>,
    failures: Vec<(Operation, u64, i32)>,
}

impl State {
    fn check(&mut self, operation: Operation) -> io::Result<()> {
        if operation != Operation::Read {
            if self.crash_after_changes.is_some_and(|limit| self.changes >= limit) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            self.changes += 1;
        }
        for index in 0..self.failures.len() {
            let Some((kind, countdown, errno)) = self.failures.get_mut(index) else { break };
            if *kind == operation {
                if *countdown == 0 {
                    let errno = *errno;
                    self.failures.remove(index);
                    return Err(io::Error::from_raw_os_error(errno));
                }
                *countdown -= 1;
            }
        }
        Ok(())
    }

    fn inode(&mut self, inode: usize) -> io::Result<&mut Inode> {
        self.inodes.get_mut(inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn used_bytes(&self) -> u64 {
        self.names
            .values()
            .filter_map(|inode| self.inodes.get(*inode))
            .map(|inode| inode.bytes.len() as u64)
            .sum()
    }
}

/// Files in memory. Clones share the files.
///
/// After [`Self::crash`] only synced bytes under synced names remain, plus as much of the unsynced tail of each file
/// as the caller lets through (`torn_bytes`), as a kernel that was half way through write-back leaves it.
#[derive(Clone, Debug, Default)]
pub struct MemoryFileSystem {
    state: Arc<Mutex<State>>,
}

impl MemoryFileSystem {
    /// An empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of operations so far that changed or synced something.
    pub fn change_count(&self) -> u64 {
        self.lock().changes
    }

    /// After `changes` such operations in total, every further one fails with EIO, as if the machine had stopped.
    pub fn crash_after(&self, changes: u64) {
        self.lock().crash_after_changes = Some(changes);
    }

    /// Let the operation number `countdown` (0 is the next) of this kind fail once with `errno`.
    pub fn fail(&self, operation: Operation, countdown: u64, errno: i32) {
        self.lock().failures.push((operation, countdown, errno));
    }

    /// Bytes in all files together beyond which writes end short and then fail with ENOSPC.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.lock().capacity_bytes = capacity_bytes;
    }

    /// Modification time given to what is written from now on.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.lock().now_ms = now_ms;
    }

    /// What a restart finds: synced bytes and the first `torn_bytes` of each unsynced tail, under the synced names, or
    /// with `keeps_names` under the latest names, as the kernel may have written the directory early.
    pub fn crash(&self, torn_bytes: usize, keeps_names: bool) -> Self {
        let old = self.lock();
        let mut new = State { directories: old.directories.clone(), now_ms: old.now_ms, ..State::default() };
        for (path, inode) in if keeps_names { &old.names } else { &old.durable_names } {
            let Some(inode) = old.inodes.get(*inode) else { continue };
            let mut bytes = inode.durable.clone();
            if inode.bytes.len() > bytes.len() && inode.bytes.starts_with(&bytes) {
                let end = inode.bytes.len().min(bytes.len().saturating_add(torn_bytes));
                bytes = inode.bytes.get(..end).unwrap_or_default().to_vec();
            }
            new.inodes.push(Inode { durable: bytes.clone(), bytes, modified_ms: inode.modified_ms });
            let number = new.inodes.len() - 1;
            new.names.insert(path.clone(), number);
            new.durable_names.insert(path.clone(), number);
        }
        Self { state: Arc::new(Mutex::new(new)) }
    }
}

#[derive(Debug)]
struct MemoryFile {
    fs: MemoryFileSystem,
    inode: usize,
}

impl FileHandle for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.fs.lock();
        state.check(Operation::Read)?;
        let bytes = &state.inode(self.inode)?.bytes;
        let rest = usize::try_from(position).ok().and_then(|start| bytes.get(start..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }

    fn writev_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        let mut state = self.fs.lock();
        state.check(Operation::Write)?;
        let room = state.capacity_bytes.map(|capacity| capacity.saturating_sub(state.used_bytes()));
        let now_ms = state.now_ms;
        let data: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        let start = usize::try_from(position).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        let inode = state.inode(self.inode)?;
        let mut count = data.len();
        if let Some(room) = room {
            let growth = (start + count).saturating_sub(inode.bytes.len()) as u64;
            count -= usize::try_from(growth.saturating_sub(room)).unwrap_or(usize::MAX).min(count);
            if count == 0 && !data.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
        }
        if inode.bytes.len() < start + count {
            inode.bytes.resize(start + count, 0);
        }
        if let (Some(to), Some(from)) = (inode.bytes.get_mut(start..start + count), data.get(..count)) {
            to.copy_from_slice(from);
        }
        inode.modified_ms = now_ms;
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.fs.lock();
        state.check(Operation::Sync)?;
        let inode = state.inode(self.inode)?;
        inode.durable.clone_from(&inode.bytes);
        Ok(())
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        let mut state = self.fs.lock();
        state.check(Operation::Change)?;
        let size = usize::try_from(size_bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        state.inode(self.inode)?.bytes.resize(size, 0);
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.fs.lock().inode(self.inode)?.bytes.len() as u64)
    }

    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

impl FileSystem for MemoryFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn FileHandle>> {
        let mut state = self.lock();
        let inode = match state.names.get(path).copied() {
            Some(inode) => {
                if mode == OpenMode::Truncate {
                    state.check(Operation::Change)?;
                    state.inode(inode)?.bytes.clear();
                }
                inode
            }
            None if matches!(mode, OpenMode::Read | OpenMode::ReadWrite) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            None => {
                state.check(Operation::Change)?;
                if !path.parent().is_some_and(|parent| state.directories.contains(parent)) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let modified_ms = state.now_ms;
                state.inodes.push(Inode { modified_ms, ..Inode::default() });
                let inode = state.inodes.len() - 1;
                state.names.insert(path.to_owned(), inode);
                inode
            }
        };
        Ok(Arc::new(MemoryFile { fs: self.clone(), inode }))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let mut state = self.lock();
        if state.directories.contains(path) {
            return Ok(Metadata { size_bytes: 0, modified_ms: 0, is_dir: true });
        }
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let inode = state.inode(inode)?;
        Ok(Metadata { size_bytes: inode.bytes.len() as u64, modified_ms: inode.modified_ms, is_dir: false })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.check(Operation::Change)?;
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.check(Operation::Change)?;
        state.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.lock();
        if !state.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = state.names.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.check(Operation::Change)?;
        state.directories.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.check(Operation::Change)?;
        if state.names.keys().any(|name| name.parent() == Some(path)) {
            return Err(io::Error::from_raw_os_error(libc::ENOTEMPTY));
        }
        state.directories.remove(path);
        Ok(())
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.check(Operation::Sync)?;
        let current: BTreeMap<PathBuf, usize> = state
            .names
            .iter()
            .filter(|(path, _)| path.parent() == Some(directory))
            .map(|(path, inode)| (path.clone(), *inode))
            .collect();
        state.durable_names.retain(|path, _| path.parent() != Some(directory));
        state.durable_names.extend(current);
        Ok(())
    }
}
