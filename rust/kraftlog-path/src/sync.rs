//! Locks and atomics of the data path: those of `std`, or of a model checker that tries the orders of threads.
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{
    atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicU8, Ordering},
    Mutex, MutexGuard,
};

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{
    atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicU8, Ordering},
    Mutex, MutexGuard,
};

/// Lock; a thread that panicked in between leaves state that is as good as before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
