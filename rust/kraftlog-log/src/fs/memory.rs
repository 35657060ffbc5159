//! A file system in memory for crash tests and simulations: it loses what was not synced, tears writes, fails when
//! told to, and does so again for the same seed.
//!
//! The model, from weak to strong: a write survives a crash once its file was synced, a name once its directory was;
//! before that [`Crash`] decides. Contents are shared page by page until they are written, so that a copy of the whole
//! disk before every change ([`MemoryFileSystem::start_recording`]) and thousands of crashes a second are affordable.
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirectoryHandle, FileHandle, FileSystem, Metadata, OpenMode};

mod content;
mod crash;
mod faults;
mod inode;
mod names;

pub use crash::{Crash, DataLoss, NameLoss};
pub use faults::Operation;

use content::Content;
use crash::is_covered;
use faults::Faults;
use inode::Inode;
use names::{NameChange, Names};

#[derive(Clone, Debug, Default)]
struct State {
    inodes: BTreeMap<u64, Arc<Inode>>,
    next_inode: u64,
    /// Handles per file that are open.
    open: BTreeMap<u64, usize>,
    names: Arc<Names>,
    durable_names: Arc<Names>,
    /// From the durable names to the latest ones.
    name_changes: Arc<Vec<NameChange>>,
    now_ms: i64,
    changes: u64,
    crash_after_changes: Option<u64>,
    /// What is left until a crash, of changes of several disks together.
    changes_left: Option<Arc<AtomicU64>>,
    capacity_bytes: Option<u64>,
    faults: Faults,
    recording: Option<Vec<State>>,
}

impl State {
    /// Count an operation, and fail it when its time has come.
    fn check(&mut self, operation: Operation) -> io::Result<()> {
        self.begin(operation)?;
        match self.faults.due(operation) {
            Some(errno) => Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EIO))),
            None => Ok(()),
        }
    }

    fn begin(&mut self, operation: Operation) -> io::Result<()> {
        if matches!(operation, Operation::Read | Operation::Open) {
            return Ok(());
        }
        if self.crash_after_changes.is_some_and(|limit| self.changes >= limit) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if let Some(left) = &self.changes_left {
            let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            taken.map_err(|_| io::Error::from_raw_os_error(libc::EIO))?;
        }
        self.changes += 1;
        if let Some(mut recording) = self.recording.take() {
            recording.push(State { recording: None, open: BTreeMap::new(), ..self.clone() });
            self.recording = Some(recording);
        }
        Ok(())
    }

    fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&number).map(Arc::make_mut).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        self.names.files.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, change: NameChange) {
        change.apply(Arc::make_mut(&mut self.names));
        Arc::make_mut(&mut self.name_changes).push(change);
    }

    fn has_parent(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.names.directories.contains(parent))
    }

    /// Whether there is a file of this name, or a directory with something in it.
    fn is_occupied(&self, path: &Path) -> bool {
        let inside = |name: &Arc<Path>| name.parent() == Some(path);
        self.names.files.contains_key(path)
            || self.names.files.keys().any(inside)
            || self.names.directories.iter().any(inside)
    }

    fn used_bytes(&self) -> u64 {
        let inodes = self.names.files.values().filter_map(|number| self.inodes.get(number));
        inodes.map(|inode| inode.current.size() as u64).sum()
    }

    /// Forget files that nobody can reach any more, neither now nor after a crash.
    fn collect_garbage(&mut self) {
        if self.inodes.len() < 64 + 2 * self.names.files.len() {
            return;
        }
        let mut kept: std::collections::BTreeSet<u64> = self.open.keys().copied().collect();
        kept.extend(self.names.files.values().chain(self.durable_names.files.values()));
        kept.extend(self.name_changes.iter().filter_map(|change| match change {
            NameChange::Link(_, inode) => Some(*inode),
            _ => None,
        }));
        self.inodes.retain(|number, _| kept.contains(number));
    }
}

/// Files in memory. Clones share the files.
#[derive(Clone, Debug, Default)]
pub struct MemoryFileSystem {
    state: Arc<Mutex<State>>,
}

impl MemoryFileSystem {
    /// An empty file system; not even the root directory is there.
    pub fn new() -> Self {
        Self::default()
    }

    /// A file system with one directory and its parents, durable.
    pub fn with_directory(path: &Path) -> Self {
        let mut names = Names::default();
        names.directories.extend(path.ancestors().map(Arc::from));
        let names = Arc::new(names);
        Self::with_state(State { durable_names: Arc::clone(&names), names, ..State::default() })
    }

    fn with_state(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
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

    /// After `changes` further such operations on any of these disks, every further one fails on each of them.
    pub fn crash_together_after(disks: &[Self], changes: u64) {
        let left = Arc::new(AtomicU64::new(changes));
        for disk in disks {
            disk.lock().changes_left = Some(Arc::clone(&left));
        }
    }

    /// Undo [`Self::crash_after`] and [`Self::crash_together_after`].
    pub fn never_crash(&self) {
        let mut state = self.lock();
        state.crash_after_changes = None;
        state.changes_left = None;
    }

    /// Names of the directories in a directory, in order.
    pub fn directories(&self, directory: &Path) -> Vec<String> {
        let state = self.lock();
        let inside = state.names.directories.iter().filter(|path| path.parent() == Some(directory));
        inside.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect()
    }

    /// Modification time given to what is written from now on.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.lock().now_ms = now_ms;
    }
}

fn file_position(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

#[derive(Debug)]
struct MemoryFile {
    fs: MemoryFileSystem,
    inode: u64,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut state = self.fs.lock();
        if let Some(count) = state.open.get_mut(&self.inode) {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.inode);
            }
        }
    }
}

impl FileHandle for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.fs.lock();
        let due = state.faults.due(Operation::Read);
        if let Some(Some(errno)) = due {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let wanted = state.faults.shorten(buffer.len())?;
        let buffer = buffer.get_mut(..wanted).unwrap_or_default();
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        let inode = state.inodes.get(&self.inode).ok_or(io::ErrorKind::NotFound)?;
        let count = inode.current.read(buffer, position);
        if due.is_some() {
            let bit = state.faults.random().index(count * 8);
            if let Some(byte) = buffer.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        Ok(count)
    }

    fn writev_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        let mut state = self.fs.lock();
        state.check(Operation::Write)?;
        let room = state.capacity_bytes.map(|capacity| capacity.saturating_sub(state.used_bytes()));
        let now_ms = state.now_ms;
        let mut data: Vec<u8> = Vec::with_capacity(buffers.iter().map(|buffer| buffer.len()).sum());
        buffers.iter().for_each(|buffer| data.extend_from_slice(buffer));
        let start = file_position(position)?;
        let mut count = state.faults.shorten(data.len())?;
        let inode = state.inode(self.inode)?;
        if let Some(room) = room {
            let growth = start.saturating_add(count).saturating_sub(inode.current.size()) as u64;
            count -= usize::try_from(growth.saturating_sub(room)).unwrap_or(usize::MAX).min(count);
            if count == 0 && !data.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
        }
        if count > 0 {
            inode.write(start, data.get(..count).unwrap_or_default());
        }
        inode.modified_ms = now_ms;
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.fs.lock();
        let checked = state.check(Operation::Sync);
        let mut random = state.faults.random().fork();
        let inode = state.inode(self.inode)?;
        match checked {
            Ok(()) => inode.sync(),
            Err(_) => inode.fail_sync(&mut random),
        }
        checked
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        let mut state = self.fs.lock();
        state.check(Operation::Change)?;
        let size = file_position(size_bytes)?;
        let now_ms = state.now_ms;
        let inode = state.inode(self.inode)?;
        inode.resize(size);
        inode.modified_ms = now_ms;
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        let state = self.fs.lock();
        let inode = state.inodes.get(&self.inode).ok_or(io::ErrorKind::NotFound)?;
        Ok(inode.current.size() as u64)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl FileSystem for MemoryFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn FileHandle>> {
        let mut state = self.lock();
        state.check(Operation::Open)?;
        let inode = match state.find(path) {
            Ok(inode) => {
                if mode == OpenMode::Truncate {
                    state.check(Operation::Change)?;
                    state.inode(inode)?.resize(0);
                }
                inode
            }
            Err(error) if matches!(mode, OpenMode::Read | OpenMode::ReadWrite) => return Err(error),
            Err(error) => {
                state.check(Operation::Change)?;
                if !state.has_parent(path) {
                    return Err(error);
                }
                let inode = state.next_inode;
                state.next_inode += 1;
                let modified_ms = state.now_ms;
                state.inodes.insert(inode, Arc::new(Inode::of(Content::default(), modified_ms)));
                state.rename(NameChange::Link(path.into(), inode));
                inode
            }
        };
        *state.open.entry(inode).or_default() += 1;
        Ok(Arc::new(MemoryFile { fs: self.clone(), inode }))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let state = self.lock();
        if state.names.directories.contains(path) {
            return Ok(Metadata { size_bytes: 0, modified_ms: 0, is_dir: true });
        }
        let inode = state.inodes.get(&state.find(path)?).ok_or(io::ErrorKind::NotFound)?;
        Ok(Metadata {
            size_bytes: inode.current.size() as u64,
            modified_ms: inode.modified_ms,
            is_dir: false,
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.check(Operation::Change)?;
        let is_directory = state.names.directories.contains(from);
        if !is_directory {
            state.find(from)?;
        }
        if !state.has_parent(to) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !is_directory {
            state.rename(NameChange::Rename(from.into(), to.into()));
            return Ok(());
        }
        if to.starts_with(from) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if state.is_occupied(to) {
            return Err(io::Error::from_raw_os_error(libc::ENOTEMPTY));
        }
        state.rename(NameChange::RenameDirectory(from.into(), to.into()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.check(Operation::Change)?;
        state.find(path)?;
        state.rename(NameChange::Unlink(path.into()));
        state.collect_garbage();
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.lock();
        if !state.names.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = state.names.files.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.check(Operation::Change)?;
        let missing: Vec<Arc<Path>> =
            path.ancestors().filter(|path| !state.names.directories.contains(*path)).map(Arc::from).collect();
        for path in missing.into_iter().rev() {
            state.rename(NameChange::MakeDirectory(path));
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.check(Operation::Change)?;
        if !state.names.directories.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.is_occupied(path) {
            return Err(io::Error::from_raw_os_error(libc::ENOTEMPTY));
        }
        state.rename(NameChange::RemoveDirectory(path.into()));
        Ok(())
    }

    fn open_dir(&self, directory: &Path) -> io::Result<Box<dyn DirectoryHandle>> {
        self.lock().check(Operation::Open)?;
        Ok(Box::new(MemoryDirectory { fs: self.clone(), path: directory.to_owned() }))
    }
}

#[derive(Debug)]
struct MemoryDirectory {
    fs: MemoryFileSystem,
    path: PathBuf,
}

impl DirectoryHandle for MemoryDirectory {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.fs.lock();
        state.check(Operation::Sync)?;
        if !state.names.directories.contains(self.path.as_path()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut durable = Names::clone(&state.durable_names);
        let mut rest = Vec::new();
        for change in state.name_changes.iter() {
            if is_covered(change, &self.path) {
                change.apply(&mut durable);
            } else {
                rest.push(change.clone());
            }
        }
        state.durable_names = Arc::new(durable);
        state.name_changes = Arc::new(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
