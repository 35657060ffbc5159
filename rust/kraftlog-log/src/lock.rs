//! The lock on a data directory: `.lock`, held the way Java's `FileChannel.tryLock` holds it, so that we and Kafka
//! keep each other out.
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{fcntl_lock, FlockOperation};
use rustix::process::{fcntl_getlk, Flock, FlockType};

use crate::{Error, Result};

/// File name inside a data directory.
pub const FILE_NAME: &str = ".lock";

/// Directories locked by this process: POSIX locks do not exclude their own process, and closing any descriptor of
/// the file would drop them, so the file is not even opened twice.
static HELD: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<HashSet<PathBuf>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True when a node, of this process or another, holds `directory`; false too when that cannot be told. Takes nothing.
pub fn is_held(directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return false };
    let guard = held();
    if guard.as_ref().is_some_and(|held| held.contains(&directory)) {
        return true;
    }
    let Ok(file) = File::open(directory.join(FILE_NAME)) else { return false };
    // An exclusive lock, as only that would meet every other; asking needs no write access to the file.
    let wanted = Flock::from(FlockType::WriteLock);
    matches!(fcntl_getlk(&file, &wanted), Ok(Some(_)))
}

/// A locked directory; dropping it unlocks.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: PathBuf,
    file: Mutex<Option<File>>,
}

impl DirectoryLock {
    /// Lock `directory`, which must exist.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the path when another process or this one holds it.
    pub fn acquire(directory: &Path) -> Result<Self> {
        let io = |operation, path: &Path, error| Error::io(operation, path, error);
        let directory = directory.canonicalize().map_err(|error| io("open", directory, error))?;
        let path = directory.join(FILE_NAME);
        let mut guard = held();
        let held = guard.get_or_insert_default();
        if held.contains(&directory) {
            return Err(Error::Invalid(format!("{}: already locked by this process", path.display())));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| io("open", &path, error))?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => {
                return Err(Error::Invalid(format!(
                    "{}: locked by another process; two nodes must not share a data directory",
                    path.display()
                )));
            }
            Err(error) => return Err(io("lock", &path, error.into())),
        }
        held.insert(directory.clone());
        Ok(Self { directory, file: Mutex::new(Some(file)) })
    }

    /// The locked directory, absolute.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Unlock; further calls do nothing.
    pub fn release(&self) {
        let mut guard = held();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.take().is_some() {
            if let Some(held) = guard.as_mut() {
                held.remove(&self.directory);
            }
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        self.release();
    }
}
