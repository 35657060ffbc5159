//! Disks in memory for simulations: a path below one of them is opened there and not in the operating system.
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kraftlog_log::fs::{
    Crash, DataLoss, FileHandle, FileSystem, MemoryFileSystem, NameLoss, OpenMode, Operation, RealFileSystem,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::memory_mounts::MemoryMounts;

/// The disks that exist, by their root.
static DISKS: Mutex<BTreeMap<PathBuf, Arc<Disk>>> = Mutex::new(BTreeMap::new());
/// Their number: without one, opening a log costs one load more.
static DISK_COUNT: AtomicUsize = AtomicUsize::new(0);

const SECTOR_BYTES: usize = 512;

#[derive(Debug)]
struct Disk {
    state: Mutex<DiskState>,
}

#[derive(Debug)]
struct DiskState {
    fs: MemoryFileSystem,
    locked: BTreeSet<PathBuf>,
    /// Crashes so far: a lock of before holds nothing any more.
    crashes: u64,
}

impl Disk {
    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fs(&self) -> MemoryFileSystem {
        self.lock().fs.clone()
    }
}

fn disks() -> MutexGuard<'static, BTreeMap<PathBuf, Arc<Disk>>> {
    DISKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn disk_of(path: &Path) -> Option<Arc<Disk>> {
    if DISK_COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let disks = disks();
    path.ancestors().find_map(|root| disks.get(root)).map(Arc::clone)
}

/// The file system that has this path: with all disks below the outermost one, as these belong to one machine.
pub(crate) fn file_system(path: &Path) -> Arc<dyn FileSystem> {
    if DISK_COUNT.load(Ordering::Acquire) == 0 {
        return Arc::new(RealFileSystem);
    }
    let disks = disks();
    let Some(outermost) = path.ancestors().filter(|root| disks.contains_key(*root)).last() else {
        return Arc::new(RealFileSystem);
    };
    let below = disks.range(outermost.to_path_buf()..).take_while(|(root, _)| root.starts_with(outermost));
    let mut mounts: Vec<_> = below.map(|(root, disk)| (root.clone(), disk.fs())).collect();
    if mounts.len() > 1 {
        return Arc::new(MemoryMounts::new(mounts));
    }
    mounts.pop().map_or_else(|| Arc::new(RealFileSystem) as _, |(_, fs)| Arc::new(fs) as _)
}

/// The lock on a data directory of a disk in memory. It ends with the crash of its holder.
#[derive(Debug)]
pub(crate) struct MemoryLock {
    disk: Arc<Disk>,
    path: PathBuf,
    crashes: u64,
}

impl MemoryLock {
    /// Lock a directory; `None` when it is not on a disk in memory.
    ///
    /// # Errors
    /// [`kraftlog_log::Error::Invalid`] when it is locked.
    pub(crate) fn acquire(path: &Path) -> Option<Result<Self, kraftlog_log::Error>> {
        let disk = disk_of(path)?;
        let crashes = {
            let mut state = disk.lock();
            if !state.locked.insert(path.to_owned()) {
                let text = format!("{}: already locked by this process", path.display());
                return Some(Err(kraftlog_log::Error::Invalid(text)));
            }
            state.crashes
        };
        Some(Ok(Self { disk, path: path.to_owned(), crashes }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn release(&self) {
        let mut state = self.disk.lock();
        if state.crashes == self.crashes {
            state.locked.remove(&self.path);
        }
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.release();
    }
}

fn os_error(error: &io::Error, path: &Path) -> PyErr {
    let errno = error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        _ => libc::EIO,
    });
    PyOSError::new_err((errno, error.to_string(), path.to_path_buf()))
}

/// A disk in memory.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct MemoryDisk {
    root: PathBuf,
    disk: Arc<Disk>,
}

impl MemoryDisk {
    fn at<T>(&self, path: &Path, work: impl FnOnce(&MemoryFileSystem) -> io::Result<T>) -> PyResult<T> {
        work(&self.disk.fs()).map_err(|error| os_error(&error, path))
    }
}

#[pymethods]
impl MemoryDisk {
    #[new]
    fn new(root: PathBuf) -> PyResult<Self> {
        if !root.is_absolute() || root.parent().is_none() {
            return Err(PyValueError::new_err(format!(
                "{}: not a path below the root directory",
                root.display()
            )));
        }
        let fs = MemoryFileSystem::with_directory(&root);
        let disk =
            Arc::new(Disk { state: Mutex::new(DiskState { fs, locked: BTreeSet::new(), crashes: 0 }) });
        let mut disks = disks();
        if disks.contains_key(&root) {
            return Err(PyValueError::new_err(format!("{}: there is a disk already", root.display())));
        }
        disks.insert(root.clone(), Arc::clone(&disk));
        DISK_COUNT.store(disks.len(), Ordering::Release);
        drop(disks);
        Ok(Self { root, disk })
    }

    #[getter]
    fn root(&self) -> PathBuf {
        self.root.clone()
    }

    #[getter]
    fn change_count(&self) -> u64 {
        self.disk.fs().change_count()
    }

    fn close(&self) {
        let mut disks = disks();
        disks.remove(&self.root);
        DISK_COUNT.store(disks.len(), Ordering::Release);
    }

    fn open(&self, path: PathBuf, mode: &str) -> PyResult<MemoryFile> {
        let mode = match mode {
            "read" => OpenMode::Read,
            "write" => OpenMode::ReadWrite,
            "create" => OpenMode::Create,
            "truncate" => OpenMode::Truncate,
            _ => return Err(PyValueError::new_err(format!("no mode of opening: {mode:?}"))),
        };
        let file = self.at(&path, |fs| fs.open(&path, mode))?;
        Ok(MemoryFile { path, file: Mutex::new(Some(file)) })
    }

    /// (size in bytes, modification time in ms, whether it is a directory), or None.
    fn metadata(&self, path: PathBuf) -> PyResult<Option<(u64, i64, bool)>> {
        match self.disk.fs().metadata(&path) {
            Ok(found) => Ok(Some((found.size_bytes, found.modified_ms, found.is_dir))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(os_error(&error, &path)),
        }
    }

    fn rename(&self, source: PathBuf, target: PathBuf) -> PyResult<()> {
        self.at(&source, |fs| fs.rename(&source, &target))
    }

    fn remove(&self, path: PathBuf) -> PyResult<()> {
        self.at(&path, |fs| fs.remove(&path))
    }

    fn files(&self, path: PathBuf) -> PyResult<Vec<String>> {
        self.at(&path, |fs| fs.list(&path))
    }

    fn directories(&self, path: PathBuf) -> Vec<String> {
        self.disk.fs().directories(&path)
    }

    fn create_directory(&self, path: PathBuf) -> PyResult<()> {
        self.at(&path, |fs| fs.create_dir(&path))
    }

    fn remove_directory(&self, path: PathBuf) -> PyResult<()> {
        self.at(&path, |fs| fs.remove_dir(&path))
    }

    fn sync_directory(&self, path: PathBuf) -> PyResult<()> {
        self.at(&path, |fs| fs.sync_dir(&path))
    }

    fn set_now_ms(&self, now_ms: i64) {
        self.disk.fs().set_now_ms(now_ms);
    }

    #[pyo3(signature = (data, names, *, seed))]
    fn crash(&self, data: &str, names: &str, seed: u64) -> PyResult<()> {
        let data = match data {
            "nothing" => DataLoss::Nothing,
            "everything" => DataLoss::Everything,
            "suffix" => DataLoss::Suffix,
            "torn" => DataLoss::Torn { sector_bytes: SECTOR_BYTES },
            "pages" => DataLoss::Pages,
            "contents" => DataLoss::Contents,
            _ => return Err(PyValueError::new_err(format!("no loss of data: {data:?}"))),
        };
        let names = match names {
            "nothing" => NameLoss::Nothing,
            "everything" => NameLoss::Everything,
            "suffix" => NameLoss::Suffix,
            "any" => NameLoss::AnySubset,
            _ => return Err(PyValueError::new_err(format!("no loss of names: {names:?}"))),
        };
        let mut state = self.disk.lock();
        let next = state.fs.crash_with(&Crash { data, names, seed });
        // What still runs of the process that crashed writes to a disk that does not exist any more.
        state.fs.crash_after(0);
        state.fs = next;
        state.locked.clear();
        state.crashes += 1;
        Ok(())
    }

    fn fail(&self, operation: &str, countdown: u64, errno: i32) -> PyResult<()> {
        let operation = match operation {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "sync" => Operation::Sync,
            "change" => Operation::Change,
            "open" => Operation::Open,
            _ => return Err(PyValueError::new_err(format!("no operation of a disk: {operation:?}"))),
        };
        self.disk.fs().fail(operation, countdown, errno);
        Ok(())
    }

    #[pyo3(signature = (changes, *others))]
    fn stop_after(&self, changes: Option<u64>, others: Vec<PyRef<'_, Self>>) {
        let mut disks = vec![self.disk.fs()];
        disks.extend(others.iter().map(|other| other.disk.fs()));
        match changes {
            Some(changes) => MemoryFileSystem::crash_together_after(&disks, changes),
            None => disks.iter().for_each(MemoryFileSystem::never_crash),
        }
    }

    fn flip_on_read(&self, countdown: u64) {
        self.disk.fs().flip_on_read(countdown);
    }

    fn flip_bit(&self, path: PathBuf, bit: u64) -> bool {
        self.disk.fs().flip_bit(&path, bit)
    }

    #[pyo3(signature = (seed))]
    fn set_short_io(&self, seed: Option<u64>) {
        self.disk.fs().set_short_io(seed);
    }

    fn set_fault_seed(&self, seed: u64) {
        self.disk.fs().set_fault_seed(seed);
    }

    #[pyo3(signature = (capacity_bytes))]
    fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.disk.fs().set_capacity(capacity_bytes);
    }

    fn clear_faults(&self) {
        self.disk.fs().clear_faults();
    }

    #[getter]
    fn has_pending_faults(&self) -> bool {
        self.disk.fs().has_pending_faults()
    }
}

/// An open file of a disk in memory.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct MemoryFile {
    path: PathBuf,
    file: Mutex<Option<Arc<dyn FileHandle>>>,
}

impl MemoryFile {
    fn handle(&self) -> PyResult<Arc<dyn FileHandle>> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.clone().ok_or_else(|| PyValueError::new_err(format!("{}: closed", self.path.display())))
    }
}

#[pymethods]
impl MemoryFile {
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        position: u64,
        size_bytes: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.handle()?;
        let fail = |error: io::Error| os_error(&error, &self.path);
        let rest = file.size_bytes().map_err(fail)?.saturating_sub(position);
        let mut buffer = vec![0; size_bytes.min(usize::try_from(rest).unwrap_or(usize::MAX))];
        let count = file.read_at(&mut buffer, position).map_err(fail)?;
        buffer.truncate(count);
        Ok(PyBytes::new(py, &buffer))
    }

    fn write_at(&self, position: u64, data: &[u8]) -> PyResult<usize> {
        self.handle()?
            .writev_at(&[io::IoSlice::new(data)], position)
            .map_err(|error| os_error(&error, &self.path))
    }

    fn truncate(&self, size_bytes: u64) -> PyResult<()> {
        self.handle()?.truncate(size_bytes).map_err(|error| os_error(&error, &self.path))
    }

    fn sync(&self) -> PyResult<()> {
        self.handle()?.sync_data().map_err(|error| os_error(&error, &self.path))
    }

    fn close(&self) {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<MemoryDisk>()?;
    m.add_class::<MemoryFile>()
}
