//! Arrow rows to partition directories, and keys to partitions.
use crate::arrow::ArrowArray;
use crate::arrow_import::import_array;
use crate::errors::PyLogError;
use crate::log::LogConfig;
use arrow_array::cast::AsArray;
use arrow_array::Int32Array;
use kraftlog_log::batch::TimestampType;
use kraftlog_log::builder::Column;
use kraftlog_log::compression::{check_level, Codec};
use kraftlog_log::fs::RealFileSystem;
use kraftlog_log::rows::{RowOptions, RowWriter as Writer, Start, Target, WrittenPartition};
use kraftlog_log::{partitioner, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<RowWriter>()?;
    m.add_class::<WrittenRows>()?;
    m.add_function(wrap_pyfunction!(key_partitions, m)?)?;
    m.add_function(wrap_pyfunction!(check_compression, m)?)
}

/// Rows that cannot be written are a ValueError, not a fault of a log.
pub(crate) fn invalid(error: Error) -> PyErr {
    match error {
        Error::Invalid(reason) => PyValueError::new_err(reason),
        other => PyLogError(other).into(),
    }
}

pub(crate) fn codec(name: &str) -> PyResult<Codec> {
    Codec::from_name(name).ok_or_else(|| PyValueError::new_err(format!("no codec is called {name:?}")))
}

#[pyfunction]
#[pyo3(signature = (compression, level=None))]
fn check_compression(compression: &str, level: Option<i32>) -> PyResult<()> {
    check_level(codec(compression)?, level).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(())
}

#[pyfunction]
fn key_partitions(
    py: Python<'_>,
    keys: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    partition_count: i32,
) -> PyResult<ArrowArray> {
    let (keys, values) = (import_array(keys)?, import_array(values)?);
    let partitions = py
        .detach(|| {
            partitioner::key_partitions(&Column::new(&*keys)?, &Column::new(&*values)?, partition_count)
        })
        .map_err(invalid)?;
    Ok(ArrowArray { array: Arc::new(Int32Array::from(partitions)) })
}

/// What a writer made of one partition.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct WrittenRows {
    topic: String,
    partition: i32,
    first_offset: i64,
    end_offset: i64,
    rows: u64,
    size_bytes: u64,
    leader_epochs: Vec<(i32, i64)>,
}

impl From<WrittenPartition> for WrittenRows {
    fn from(written: WrittenPartition) -> Self {
        Self {
            topic: written.topic,
            partition: written.partition,
            first_offset: written.first_offset,
            end_offset: written.end_offset,
            rows: written.rows,
            size_bytes: written.size_bytes,
            leader_epochs: written.epochs.iter().map(|entry| (entry.epoch, entry.start_offset)).collect(),
        }
    }
}

/// Writes rows into partition directories.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct RowWriter(Mutex<Option<Writer>>);

impl RowWriter {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Option<Writer>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        py.detach(|| run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))).map_err(invalid)
    }
}

type StartTuple = (String, i32, i64, i32);

fn is_finished() -> Error {
    Error::Invalid("the writer is finished".to_owned())
}

#[pymethods]
impl RowWriter {
    #[new]
    #[pyo3(signature = (directory, *, config, topic=None, partition=None, starts=Vec::new(), leader_epoch=0,
        compression="none", compression_level=None, timestamp_type=None, batch_bytes=131_072,
        batch_rows=2_147_483_647))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        directory: PathBuf,
        config: &LogConfig,
        topic: Option<String>,
        partition: Option<i32>,
        starts: Vec<StartTuple>,
        leader_epoch: i32,
        compression: &str,
        compression_level: Option<i32>,
        timestamp_type: Option<&str>,
        batch_bytes: usize,
        batch_rows: i32,
    ) -> PyResult<Self> {
        let timestamp_type = match timestamp_type {
            None => None,
            Some(name) => Some(
                TimestampType::from_name(name)
                    .ok_or_else(|| PyValueError::new_err(format!("no timestamp type is called {name:?}")))?,
            ),
        };
        let options = RowOptions {
            codec: codec(compression)?,
            level: compression_level,
            batch_bytes,
            batch_rows,
            timestamp_type,
            log: config.0.clone(),
        };
        let starts = starts
            .into_iter()
            .map(|(topic, partition, offset, leader_epoch)| {
                ((topic, partition), Start { offset, leader_epoch })
            })
            .collect();
        let target = Target { topic, partition, starts, leader_epoch };
        let writer = Writer::new(Arc::new(RealFileSystem), directory, options, target).map_err(invalid)?;
        Ok(Self(Mutex::new(Some(writer))))
    }

    fn write(&self, py: Python<'_>, rows: &Bound<'_, PyAny>, now_ms: i64) -> PyResult<()> {
        let rows = import_array(rows)?;
        let rows = rows
            .as_struct_opt()
            .ok_or_else(|| PyValueError::new_err("rows are an Arrow record batch or a struct array"))?;
        self.with(py, |writer| {
            let open = writer.as_mut().ok_or_else(is_finished)?;
            let result = open.write(rows, now_ms);
            if result.is_err() {
                *writer = None;
            }
            result
        })
    }

    fn finish(&self, py: Python<'_>) -> PyResult<Vec<WrittenRows>> {
        let written = self.with(py, |writer| writer.take().ok_or_else(is_finished)?.finish())?;
        Ok(written.into_iter().map(WrittenRows::from).collect())
    }
}
