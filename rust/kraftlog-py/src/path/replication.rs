//! What a follower fetched, appended for all its partitions in one call.
use std::sync::Arc;

use kraftlog_path::partition::{flush_all, Fetched, FollowError};
use pyo3::prelude::*;

use super::partition::Partition;
use crate::errors::PyLogError;
use crate::raw::ByteBuffer;

/// Partition, records, fetch offset, leader epoch, and the leader's high watermark and log start.
type FetchedPartition<'py> = (PyRef<'py, Partition>, ByteBuffer, i64, i32, i64, i64);

/// Outcome ("", "superseded", "moved" or "failed"), log end, log start, last epoch, high watermark, appended bytes, and
/// the error of a failure.
type Appended = (&'static str, i64, i64, i32, i64, usize, Option<Py<PyAny>>);

/// Append what was fetched for each partition, in order, and make what grew durable where `flush` says so: side by side,
/// before this returns. One partition's failure leaves the others alone.
#[pyfunction]
#[pyo3(signature = (fetched, *, now_ms, flush))]
pub(crate) fn append_fetched(
    py: Python<'_>,
    fetched: Vec<FetchedPartition<'_>>,
    now_ms: i64,
    flush: bool,
) -> Vec<Appended> {
    let parts: Vec<_> = fetched
        .iter()
        .map(|(partition, records, fetch_offset, leader_epoch, high_watermark, log_start_offset)| {
            let fetched = Fetched {
                records: records.as_slice(),
                fetch_offset: *fetch_offset,
                leader_epoch: *leader_epoch,
                high_watermark: *high_watermark,
                log_start_offset: *log_start_offset,
            };
            (Arc::clone(&partition.partition), fetched)
        })
        .collect();
    let outcomes = py.detach(|| {
        let outcomes: Vec<_> =
            parts.iter().map(|(partition, fetched)| partition.append_fetched(fetched, now_ms)).collect();
        if flush {
            let grown: Vec<_> = parts
                .iter()
                .zip(&outcomes)
                .filter(|(_, outcome)| matches!(outcome, Ok(replicated) if replicated.is_unflushed))
                .map(|((partition, _), _)| Arc::clone(partition))
                .collect();
            flush_all(&grown);
        }
        outcomes
    });
    let size_of = |position: usize| parts.get(position).map_or(0, |(_, fetched)| fetched.records.len());
    outcomes
        .into_iter()
        .enumerate()
        .map(|(position, outcome)| match outcome {
            Ok(replicated) => (
                "",
                replicated.log_end_offset,
                replicated.log_start_offset,
                replicated.last_epoch,
                replicated.high_watermark,
                size_of(position),
                None,
            ),
            Err(FollowError::Superseded) => ("superseded", -1, -1, -1, -1, 0, None),
            Err(FollowError::OffsetMoved { log_end_offset }) => {
                ("moved", log_end_offset, -1, -1, -1, 0, None)
            }
            Err(FollowError::Log(error)) => {
                let error = PyErr::from(PyLogError(error)).into_value(py).into_any();
                ("failed", -1, -1, -1, -1, 0, Some(error))
            }
        })
        .collect()
}
