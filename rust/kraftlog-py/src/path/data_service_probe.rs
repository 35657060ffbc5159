//! A data service over logs of its own, for tests that hold it against the Python handlers.
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kraftlog_log::producer_state::Origin;
use kraftlog_path::exchange::Outcome;
use kraftlog_path::partition::{AppendError, Partition, PartitionKey};
use kraftlog_path::serve::probe::{self, answer_bytes};
use kraftlog_path::serve::ServiceSettings;
use kraftlog_path::session::SessionLimits;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::partition::Partitions;
use crate::errors::{KafkaError, PyLogError};
use crate::log::{clock_ms, LogConfig};
use crate::raw::ByteBuffer;

/// Answers frames, one after the other.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct DataServiceProbe {
    probe: Mutex<probe::DataServiceProbe>,
    /// What the clock stands at, or -1 while it goes.
    now_ms: Arc<AtomicI64>,
}

impl DataServiceProbe {
    fn lock(&self) -> MutexGuard<'_, probe::DataServiceProbe> {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partition(&self, topic: &str, index: i32) -> PyResult<Arc<Partition>> {
        let found = self.lock().partition(topic, index);
        found.ok_or_else(|| PyKeyError::new_err(format!("{topic}-{index}")))
    }
}

type Answer<'py> = (&'static str, Option<Bound<'py, PyBytes>>, Option<String>);

#[pymethods]
impl DataServiceProbe {
    #[new]
    #[pyo3(signature = (directory, *, flush_on_ack, fetch_max_bytes=57_671_680, session_slots=1000,
        session_eviction_ms=120_000, partitions=None))]
    fn new(
        directory: PathBuf,
        flush_on_ack: bool,
        fetch_max_bytes: i32,
        session_slots: usize,
        session_eviction_ms: i64,
        partitions: Option<&Partitions>,
    ) -> PyResult<Self> {
        let sessions = SessionLimits { max_slots: session_slots, eviction_ms: session_eviction_ms };
        let settings = ServiceSettings { fetch_max_bytes, sessions, selects_replicas: false };
        let now_ms = Arc::new(AtomicI64::new(-1));
        let fixed = Arc::clone(&now_ms);
        let clock = move || match fixed.load(Ordering::Relaxed) {
            -1 => clock_ms(None),
            now_ms => now_ms,
        };
        let partitions = partitions.map(|own| Arc::clone(&own.partitions)).unwrap_or_default();
        let probe =
            probe::DataServiceProbe::new(directory, flush_on_ack, settings, Box::new(clock), partitions)?;
        Ok(Self { probe: Mutex::new(probe), now_ms })
    }

    fn stop_clock(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }

    #[pyo3(signature = (topic, topic_id, index, *, leader_epoch, config))]
    fn add_partition(
        &self,
        py: Python<'_>,
        topic: &str,
        topic_id: [u8; 16],
        index: i32,
        leader_epoch: i32,
        config: &LogConfig,
    ) -> PyResult<()> {
        let config = config.0.clone();
        let key = PartitionKey { topic_id, index };
        py.detach(|| self.lock().add_partition(topic, key, leader_epoch, config)).map_err(PyLogError)?;
        Ok(())
    }

    /// What becomes of a frame: "answer" with bytes, "none", "hand over", or "close" with a reason.
    fn handle<'py>(&self, py: Python<'py>, frame: ByteBuffer) -> PyResult<Answer<'py>> {
        let outcome = py.detach(|| match self.lock().handle(frame.as_slice()) {
            Outcome::Answer(outputs) => answer_bytes(&outputs).map(Ok),
            other => Ok(Err(other)),
        });
        Ok(match outcome.map_err(PyLogError)? {
            Ok(bytes) => ("answer", Some(PyBytes::new(py, &bytes)), None),
            Err(Outcome::NoAnswer) => ("none", None, None),
            Err(Outcome::Close(reason)) => ("close", None, Some(reason)),
            Err(_) => ("hand over", None, None),
        })
    }

    /// Append past the service, as Python does, and wait for the commit; returns the first offset.
    #[pyo3(signature = (topic, index, records, *, is_coordinator=false))]
    fn append(
        &self,
        py: Python<'_>,
        topic: &str,
        index: i32,
        records: ByteBuffer,
        is_coordinator: bool,
    ) -> PyResult<i64> {
        let partition = self.partition(topic, index)?;
        let origin = if is_coordinator { Origin::Coordinator } else { Origin::Client };
        match py.detach(|| self.lock().append(&partition, records.as_slice(), origin)) {
            Ok(appended) => Ok(appended.info.first_offset),
            Err(AppendError::Refused(code)) => Err(KafkaError::new_err((code,))),
            Err(AppendError::Log(error)) => Err(PyLogError(error).into()),
        }
    }

    fn delete_records(&self, py: Python<'_>, topic: &str, index: i32, offset: i64) -> PyResult<()> {
        let partition = self.partition(topic, index)?;
        py.detach(|| partition.log().advance_log_start_offset(offset)).map_err(PyLogError)?;
        partition.log_start_moved();
        Ok(())
    }

    fn publish(&self, topic: &str, index: i32, is_published: bool) -> PyResult<()> {
        self.partition(topic, index)?.publish(is_published);
        Ok(())
    }

    fn log_end_offset(&self, topic: &str, index: i32) -> PyResult<i64> {
        Ok(self.partition(topic, index)?.log().log_end_offset())
    }

    fn high_watermark(&self, topic: &str, index: i32) -> PyResult<i64> {
        Ok(self.partition(topic, index)?.high_watermark())
    }

    #[getter]
    fn session_count(&self) -> usize {
        self.lock().shared().sessions().len()
    }
}
