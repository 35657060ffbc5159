//! Records of Fetch responses: Arrow batches, and record objects that look into them.
use crate::arrow::ArrowBatch;
use crate::errors::PyLogError;
use crate::raw::arrow_buffer;
use crate::scan::column_options;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, BinaryViewArray, ListArray, RecordBatch};
use arrow_buffer::Buffer;
use kraftlog_log::columns::{BinaryType, Column, ColumnOptions, TimestampUnit};
use kraftlog_log::fetched::{Aborted, FetchedRecords};
use kraftlog_log::Error;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What record objects show.
const RECORD_COLUMNS: [Column; 6] =
    [Column::Key, Column::Value, Column::Offset, Column::Timestamp, Column::TimestampType, Column::Headers];

/// The records of one partition in a Fetch response.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct FetchedPartition {
    records: Mutex<FetchedRecords>,
    topic: Py<PyString>,
    partition: i32,
}

fn aborted_of(aborted: Option<Vec<(i64, i64)>>) -> Option<Vec<Aborted>> {
    let of = |(producer_id, first_offset)| Aborted { producer_id, first_offset };
    aborted.map(|aborted| aborted.into_iter().map(of).collect())
}

impl FetchedPartition {
    fn records(&self) -> MutexGuard<'_, FetchedRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_rows(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let rows = py.detach(|| self.records().next_rows());
        let origin = |error: Error| error.located(format!("fetched {}-{}", self.topic, self.partition), 0);
        rows.map_err(|error| PyLogError(origin(error)).into())
    }
}

#[pymethods]
impl FetchedPartition {
    #[new]
    #[pyo3(
        signature = (data, topic, partition, fetch_offset, aborted=None, *, as_records=false, **options),
        text_signature = "(data, topic, partition, fetch_offset, aborted=None, *, as_records=False, columns=None, \
                          binary_type='binary', timestamp_unit='ms', topic_dictionary=False, \
                          empty_headers_null=False, batch_rows=16384, batch_bytes=8388608, check_crc=True, \
                          end_offset=None)"
    )]
    fn new(
        data: &Bound<'_, PyAny>,
        topic: Bound<'_, PyString>,
        partition: i32,
        fetch_offset: i64,
        aborted: Option<Vec<(i64, i64)>>,
        as_records: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut options = column_options(options)?;
        options.topic = Some(Arc::from(&*topic.to_cow()?));
        options.partition = Some(partition);
        if as_records {
            options.columns =
                RECORD_COLUMNS.iter().map(|column| (*column, column.name().to_owned())).collect();
            options.binary_type = BinaryType::BinaryView;
            options.timestamp_unit = TimestampUnit::Millisecond;
            options.empty_headers_null = false;
        }
        let records = FetchedRecords::new(arrow_buffer(data)?, fetch_offset, aborted_of(aborted), options);
        Ok(Self { records: Mutex::new(records), topic: topic.unbind(), partition })
    }

    #[pyo3(signature = (data, fetch_offset, aborted=None))]
    fn restart(
        &self,
        data: &Bound<'_, PyAny>,
        fetch_offset: i64,
        aborted: Option<Vec<(i64, i64)>>,
    ) -> PyResult<()> {
        let data = arrow_buffer(data)?;
        self.records().restart(data, fetch_offset, aborted_of(aborted));
        Ok(())
    }

    fn clear(&self) {
        let mut records = self.records();
        let offset = records.next_offset();
        records.restart(Buffer::from_vec(Vec::<u8>::new()), offset, None);
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.records().next_offset()
    }

    #[getter]
    fn last_epoch(&self) -> i32 {
        self.records().last_epoch()
    }

    #[getter]
    fn is_finished(&self) -> bool {
        self.records().is_finished()
    }

    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        Ok(self.next_rows(py)?.map(ArrowBatch))
    }

    fn next_records<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(rows) = self.next_rows(py)? else { return Ok(None) };
        let count = rows.num_rows();
        let shared = Arc::new(RecordRows::new(&rows, self.topic.clone_ref(py), self.partition)?);
        let records = (0..count).map(|row| Py::new(py, ConsumerRecord { rows: Arc::clone(&shared), row }));
        PyList::new(py, records.collect::<PyResult<Vec<_>>>()?).map(Some)
    }
}

/// The columns that the records of one call share.
struct RecordRows {
    topic: Py<PyString>,
    partition: i32,
    keys: BinaryViewArray,
    values: BinaryViewArray,
    offsets: arrow_array::Int64Array,
    timestamps: arrow_array::TimestampMillisecondArray,
    timestamp_types: arrow_array::Int32Array,
    headers: ListArray,
}

impl RecordRows {
    fn new(rows: &RecordBatch, topic: Py<PyString>, partition: i32) -> PyResult<Self> {
        let column = |column: Column| {
            rows.column_by_name(column.name())
                .ok_or_else(|| PyLogError(Error::Invalid(format!("no column {}", column.name()))))
        };
        Ok(Self {
            topic,
            partition,
            keys: column(Column::Key)?.as_binary_view().clone(),
            values: column(Column::Value)?.as_binary_view().clone(),
            offsets: column(Column::Offset)?.as_primitive::<Int64Type>().clone(),
            timestamps: column(Column::Timestamp)?.as_primitive::<TimestampMillisecondType>().clone(),
            timestamp_types: column(Column::TimestampType)?.as_primitive::<Int32Type>().clone(),
            headers: column(Column::Headers)?.as_list::<i32>().clone(),
        })
    }
}

/// One record; its bytes become Python objects when they are asked for.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct ConsumerRecord {
    rows: Arc<RecordRows>,
    row: usize,
}

fn cell<'py>(py: Python<'py>, column: &BinaryViewArray, row: usize) -> Option<Bound<'py, PyBytes>> {
    column.is_valid(row).then(|| PyBytes::new(py, column.value(row)))
}

#[pymethods]
impl ConsumerRecord {
    #[getter]
    fn topic(&self, py: Python<'_>) -> Py<PyString> {
        self.rows.topic.clone_ref(py)
    }

    #[getter]
    fn partition(&self) -> i32 {
        self.rows.partition
    }

    #[getter]
    fn offset(&self) -> i64 {
        self.rows.offsets.value(self.row)
    }

    #[getter]
    fn timestamp(&self) -> i64 {
        self.rows.timestamps.value(self.row)
    }

    #[getter]
    fn timestamp_type(&self) -> i32 {
        self.rows.timestamp_types.value(self.row)
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        cell(py, &self.rows.keys, self.row)
    }

    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        cell(py, &self.rows.values, self.row)
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let items = self.rows.headers.value(self.row);
        let items = items.as_struct();
        let (keys, values) = (items.column(0).as_string::<i32>(), items.column(1).as_binary::<i32>());
        for item in 0..items.len() {
            let value = values.is_valid(item).then(|| PyBytes::new(py, values.value(item)));
            list.append((keys.value(item), value))?;
        }
        Ok(list)
    }

    fn __repr__(&self) -> String {
        format!(
            "ConsumerRecord(topic={:?}, partition={}, offset={})",
            self.rows.topic.to_string(),
            self.rows.partition,
            self.offset()
        )
    }
}

/// Whether the names are columns: what a consumer checks before it fetches.
#[pyfunction]
fn check_columns(columns: Vec<String>) -> PyResult<()> {
    ColumnOptions::parse_columns(&columns)
        .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
    Ok(())
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<FetchedPartition>()?;
    m.add_class::<ConsumerRecord>()?;
    m.add_function(wrap_pyfunction!(check_columns, m)?)
}
