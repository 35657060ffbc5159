//! Arrow data to Python by the PyCapsule interface, with capsules made by hand.
//!
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>. A capsule holds the C
//! struct itself. A consumer moves the content out and leaves `release` null; when none did, dropping the
//! capsule drops the struct, which releases it.
use crate::arrow_request::{can_give, convert, convert_batch, negotiate, Representation};
use crate::errors::PyLogError;
use crate::raw::schema_of_capsule;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use kraftlog_log::scan::{Report, ReportValues};
use kraftlog_log::Error;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};

fn arrow_error(error: ArrowError) -> PyErr {
    PyLogError(Error::Invalid(error.to_string())).into()
}

pub(crate) fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(arrow_error)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

fn array_capsules<'py>(
    py: Python<'py>,
    schema: FFI_ArrowSchema,
    array: &dyn Array,
) -> PyResult<Bound<'py, PyTuple>> {
    let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
    let array = PyCapsule::new_with_value(py, FFI_ArrowArray::new(&array.to_data()), c"arrow_array")?;
    PyTuple::new(py, [schema, array])
}

/// Rows in columns, for any reader of the Arrow PyCapsule interface.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct ArrowBatch(pub(crate) RecordBatch);

#[pymethods]
impl ArrowBatch {
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<ArrowBatch {} rows: {}>", self.0.num_rows(), self.column_names().join(", "))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.0.schema_ref())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut rows = self.0.clone();
        if let Some(wanted) = wanted_schema(self.0.schema_ref(), requested_schema.as_ref())? {
            rows = py.detach(|| convert_batch(rows, &wanted)).map_err(arrow_error)?;
        }
        let schema = FFI_ArrowSchema::try_from(rows.schema_ref().as_ref()).map_err(arrow_error)?;
        array_capsules(py, schema, &StructArray::from(rows))
    }
}

/// One Arrow array, for any reader of the Arrow PyCapsule interface.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct ArrowArray {
    pub(crate) array: ArrayRef,
}

impl ArrowArray {
    fn schema(&self) -> PyResult<FFI_ArrowSchema> {
        let field = Field::new("", self.array.data_type().clone(), true);
        FFI_ArrowSchema::try_from(&field).map_err(arrow_error)
    }

    fn capsules<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        array_capsules(py, self.schema()?, &self.array)
    }
}

#[pymethods]
impl ArrowArray {
    fn __len__(&self) -> usize {
        self.array.len()
    }

    fn __repr__(&self) -> String {
        format!("<ArrowArray {} x {}>", self.array.len(), self.array.data_type())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new_with_value(py, self.schema()?, c"arrow_schema")
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let Some(requested) = requested_schema else {
            return self.capsules(py);
        };
        let wanted = DataType::try_from(&*schema_of_capsule(&requested)?).map_err(arrow_error)?;
        let mut array = Arc::clone(&self.array);
        if can_give(array.data_type(), &wanted, true) {
            array = py.detach(|| convert(&array, &wanted)).map_err(arrow_error)?;
        }
        Self { array }.capsules(py)
    }
}

/// Gives Arrow batches until there are no more.
pub(crate) trait BatchSource: Send {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error>;
    /// The counters of this pass.
    fn report(&self) -> Arc<Report>;
}

/// Path, first byte, exclusive end, base offset and reason of a damaged range.
type SkippedTuple = (String, u64, u64, i64, String);
/// Bytes read, segments, batches, batches stepped over, rows, damaged ranges, the first of them one by one.
type ReportTuple = (u64, u64, u64, u64, u64, u64, Vec<SkippedTuple>);

fn report_tuple(report: &Report) -> ReportTuple {
    let values = report.values();
    let skipped = values.skipped.into_iter();
    let skipped =
        skipped.map(|one| (one.path, one.position, one.end_position, one.base_offset, one.reason)).collect();
    let ReportValues { bytes_read, segments, batches, batches_skipped, rows, skipped_count, .. } = values;
    (bytes_read, segments, batches, batches_skipped, rows, skipped_count, skipped)
}

/// The schema that answers a request; None without a request.
fn wanted_schema(ours: &Schema, requested: Option<&Bound<'_, PyAny>>) -> PyResult<Option<SchemaRef>> {
    let Some(requested) = requested else { return Ok(None) };
    let requested = Schema::try_from(&*schema_of_capsule(requested)?).map_err(arrow_error)?;
    negotiate(ours, &requested).map(Some)
}

type OpenSource = dyn Fn(Representation) -> Box<dyn BatchSource> + Send + Sync;
/// Counters of the pass that was begun last.
type LastReport = Arc<Mutex<Arc<Report>>>;

/// A scan that starts anew for each consumer.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct ArrowStream {
    schema: SchemaRef,
    open: Arc<OpenSource>,
    report: LastReport,
}

impl ArrowStream {
    /// `open` begins a pass; it may give other types than those of the representation, which are converted then.
    pub(crate) fn new(
        schema: SchemaRef,
        open: impl Fn(Representation) -> Box<dyn BatchSource> + Send + Sync + 'static,
    ) -> Self {
        Self { schema, open: Arc::new(open), report: LastReport::default() }
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }
}

fn begin(open: &OpenSource, representation: Representation, report: &LastReport) -> Box<dyn BatchSource> {
    let source = open(representation);
    *report.lock().unwrap_or_else(PoisonError::into_inner) = source.report();
    source
}

#[pymethods]
impl ArrowStream {
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __repr__(&self) -> String {
        format!("<ArrowStream {}>", self.column_names().join(", "))
    }

    fn report(&self) -> ReportTuple {
        report_tuple(&self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn __iter__(&self) -> ArrowBatchIterator {
        ArrowBatchIterator(Mutex::new(begin(&*self.open, Representation::default(), &self.report)))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let wanted = wanted_schema(&self.schema, requested_schema.as_ref())?;
        let representation = wanted.as_deref().map(Representation::of).unwrap_or_default();
        let reader = SourceReader {
            schema: wanted.unwrap_or_else(|| Arc::clone(&self.schema)),
            representation,
            open: Arc::clone(&self.open),
            report: Arc::clone(&self.report),
            source: None,
        };
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }
}

/// A source as the C stream wants it; the pass begins with the first rows that are asked for, as some consumers open a
/// stream only to look at its schema.
struct SourceReader {
    schema: SchemaRef,
    representation: Representation,
    open: Arc<OpenSource>,
    report: LastReport,
    source: Option<Box<dyn BatchSource>>,
}

impl Iterator for SourceReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let source = self.source.get_or_insert_with(|| begin(&*self.open, self.representation, &self.report));
        let rows = source.next_batch().map_err(|error| ArrowError::ExternalError(Box::new(error)));
        rows.and_then(|rows| rows.map(|rows| convert_batch(rows, &self.schema)).transpose()).transpose()
    }
}

impl RecordBatchReader for SourceReader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// One pass over a stream.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct ArrowBatchIterator(Mutex<Box<dyn BatchSource>>);

#[pymethods]
impl ArrowBatchIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        let batch = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).next_batch());
        Ok(batch.map_err(PyLogError)?.map(ArrowBatch))
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ArrowBatch>()?;
    m.add_class::<ArrowArray>()?;
    m.add_class::<ArrowStream>()?;
    m.add_class::<ArrowBatchIterator>()?;
    Ok(())
}
