//! Batches that a producer sends.
use crate::arrow_import::import_array;
use crate::raw;
use crate::rows::{codec, invalid};
use arrow_array::cast::AsArray;
use kraftlog_log::byte_pool::PooledBytes;
use kraftlog_log::partitioner;
use kraftlog_log::rows::{self, BatchProducer, ColumnNames, ProducedOptions};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ffi::c_int;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Checksums of fewer bytes take less than what giving up the lock may cost.
const DETACH_BYTES_MIN: usize = 256 * 1024;

/// An encoded batch that gets its producer when it is sent; from then on its bytes can be read and never change.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct EncodedBatch {
    open: Mutex<Option<PooledBytes>>,
    sealed: OnceLock<PooledBytes>,
    size: usize,
}

impl EncodedBatch {
    fn of(bytes: Vec<u8>) -> Self {
        let size = bytes.len();
        let bytes = PooledBytes::new(bytes);
        Self { open: Mutex::new(Some(bytes)), sealed: OnceLock::new(), size }
    }
}

#[pymethods]
impl EncodedBatch {
    #[new]
    #[pyo3(signature = (data, /))]
    fn new(data: raw::ByteBuffer) -> Self {
        Self::of(data.as_slice().to_vec())
    }

    fn __len__(&self) -> usize {
        self.size
    }

    #[pyo3(signature = (producer_id=-1, producer_epoch=-1, base_sequence=-1, *, is_transactional=false))]
    fn seal(
        &self,
        py: Python<'_>,
        producer_id: i64,
        producer_epoch: i16,
        base_sequence: i32,
        is_transactional: bool,
    ) -> PyResult<()> {
        let taken = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut bytes = taken.ok_or_else(|| PyValueError::new_err("the batch is sealed already"))?;
        let producer = (producer_id >= 0).then_some(BatchProducer {
            id: producer_id,
            epoch: producer_epoch,
            base_sequence,
            is_transactional,
        });
        let outcome = if self.size < DETACH_BYTES_MIN {
            rows::seal(bytes.as_mut_slice(), producer)
        } else {
            py.detach(|| rows::seal(bytes.as_mut_slice(), producer))
        };
        outcome.map_err(invalid)?;
        // Nobody else can have set it: only one call finds the bytes in `open`.
        self.sealed.get_or_init(|| bytes);
        Ok(())
    }

    /// What Python 3.12 and later make of `__getbuffer__` themselves (PEP 688).
    fn __buffer__<'py>(slf: &Bound<'py, Self>, _flags: c_int) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    // PyO3 asks for the keyword; what it is about happens in `raw`.
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get().sealed.get();
        let bytes = bytes.ok_or_else(|| PyBufferError::new_err("the batch is not sealed yet"))?;
        raw::export_bytes(slf.as_any(), bytes.as_slice(), view, flags)
    }
}

#[pyfunction]
#[pyo3(signature = (rows, *, partition_count, now_ms, sticky_partition=0, compression="none", compression_level=None,
    batch_bytes=1_048_576, key=None, value=None, partition_by=None))]
#[allow(clippy::too_many_arguments)]
fn produced_batches(
    py: Python<'_>,
    rows: &Bound<'_, PyAny>,
    partition_count: i32,
    now_ms: i64,
    sticky_partition: i32,
    compression: &str,
    compression_level: Option<i32>,
    batch_bytes: usize,
    key: Option<&str>,
    value: Option<&str>,
    partition_by: Option<&str>,
) -> PyResult<Vec<(i32, i32, EncodedBatch)>> {
    let rows = import_array(rows)?;
    let rows = rows
        .as_struct_opt()
        .ok_or_else(|| PyValueError::new_err("rows are an Arrow record batch or a struct array"))?;
    let options = ProducedOptions {
        partition_count,
        sticky_partition,
        codec: codec(compression)?,
        level: compression_level,
        batch_bytes,
        now_ms,
    };
    let names = ColumnNames { key, value, partition_by };
    let encode = || rows::produced_batches(&rows::named_columns(rows, &names, partition_count)?, &options);
    let batches = py.detach(encode).map_err(invalid)?;
    let of =
        |batch: rows::ProducedBatch| (batch.partition, batch.record_count, EncodedBatch::of(batch.bytes));
    Ok(batches.into_iter().map(of).collect())
}

/// The hash that Kafka's producers take of a key, as a signed number.
#[pyfunction]
fn murmur2(py: Python<'_>, data: raw::ByteBuffer) -> i32 {
    let bytes = data.as_slice();
    let hash = if bytes.len() < DETACH_BYTES_MIN {
        partitioner::murmur2(bytes)
    } else {
        py.detach(|| partitioner::murmur2(bytes))
    };
    hash as i32
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<EncodedBatch>()?;
    m.add_function(wrap_pyfunction!(murmur2, m)?)?;
    m.add_function(wrap_pyfunction!(produced_batches, m)?)
}
