//! Checks and salvage of log files: paths in, a report as JSON out.
use kraftlog_log::salvage::{salvage, SalvageOptions};
use kraftlog_log::verify::{self as engine, VerifyOptions, VerifyProgress};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::errors::PyLogError;

/// How often the caller's progress function is called, and signals are looked for.
const TICK: Duration = Duration::from_millis(100);

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(verify_files, m)?)?;
    m.add_function(wrap_pyfunction!(salvage_files, m)?)
}

/// Runs `work` on a thread of its own and calls `progress(done, total)` until it ends. An exception of `progress`, or a
/// signal, cancels the work and is raised once it has ended.
fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&VerifyProgress) -> T + Send,
) -> PyResult<T> {
    let state = VerifyProgress::default();
    let mut failure = None;
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&state));
        let mut tick = Duration::from_millis(1);
        while !worker.is_finished() {
            py.detach(|| std::thread::sleep(tick));
            tick = (tick * 2).min(TICK);
            let done = state.done_bytes.load(Ordering::Relaxed);
            let total = state.total_bytes.load(Ordering::Relaxed);
            let told = match progress {
                Some(progress) if failure.is_none() => progress.call1((done, total)).map(drop),
                _ => Ok(()),
            };
            if let Err(error) = told.and_then(|()| py.check_signals()) {
                state.is_cancelled.store(true, Ordering::Relaxed);
                failure.get_or_insert(error);
            }
        }
        worker.join()
    });
    if let Some(error) = failure {
        return Err(error);
    }
    result.map_err(|_| pyo3::exceptions::PyRuntimeError::new_err("the worker thread ended early"))
}

#[pyfunction]
#[pyo3(signature = (paths, *, deep = true, threads = 0, progress = None))]
fn verify_files(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    deep: bool,
    threads: usize,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options = VerifyOptions { deep, threads };
    let report = watched(py, progress, |state| engine::verify(&paths, options, state))?;
    Ok(report.map_err(PyLogError)?.to_json())
}

#[pyfunction]
#[pyo3(signature = (source, output, *, partial_batches = false, threads = 0, progress = None))]
fn salvage_files(
    py: Python<'_>,
    source: PathBuf,
    output: PathBuf,
    partial_batches: bool,
    threads: usize,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options = SalvageOptions { partial_batches, threads };
    let report = watched(py, progress, |state| salvage(&source, &output, options, state))?;
    Ok(report.map_err(PyLogError)?.to_json())
}
