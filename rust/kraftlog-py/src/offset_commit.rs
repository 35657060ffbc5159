//! Plain OffsetCommit requests: read once, then answered and kept without an object per field.
use kraftlog_path::wire::offset_commit::{OffsetCommit, Positions, TopicKey};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::raw::Borrowed;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PlainOffsetCommit>()
}

/// One request whose topics and partitions are named once each.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
struct PlainOffsetCommit {
    request: OffsetCommit,
}

#[pymethods]
impl PlainOffsetCommit {
    /// Read a frame without its size; None if it is not plain.
    #[staticmethod]
    #[pyo3(signature = (frame, *, partitions_max))]
    fn parse(frame: &Bound<'_, PyAny>, partitions_max: usize) -> PyResult<Option<Self>> {
        let buffer = Borrowed::of(frame)?;
        Ok(OffsetCommit::parse(buffer.as_slice(), partitions_max).ok().map(|request| Self { request }))
    }

    #[getter]
    fn group_id(&self) -> &str {
        &self.request.group_id
    }

    #[getter]
    fn generation_id_or_member_epoch(&self) -> i32 {
        self.request.generation_id
    }

    #[getter]
    fn member_id(&self) -> &str {
        &self.request.member_id
    }

    #[getter]
    fn group_instance_id(&self) -> Option<&str> {
        self.request.group_instance_id.as_deref()
    }

    #[getter]
    fn metadata_units_max(&self) -> usize {
        self.request.metadata_units_max()
    }

    #[getter]
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for Positions { topic, partitions } in &self.request.topics {
            let name = match topic {
                TopicKey::Name(name) => PyString::new(py, name).into_any(),
                TopicKey::Id(id) => PyBytes::new(py, id).into_any(),
            };
            let indexes = PyTuple::new(py, partitions.iter().map(|position| position.partition))?;
            list.append((name, indexes))?;
        }
        Ok(list)
    }

    /// Key and value of each position's record, and the positions as their reader will have them.
    fn records<'py>(
        &self,
        py: Python<'py>,
        topics: Vec<(Bound<'py, PyString>, Bound<'py, PyBytes>)>,
        commit_timestamp_ms: i64,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
        if topics.len() != self.request.topics.len() {
            return Err(PyValueError::new_err("one name and id per topic of the request"));
        }
        let (records, positions) = (PyList::empty(py), PyList::empty(py));
        for ((name, id), of_topic) in topics.iter().zip(&self.request.topics) {
            let text = name.to_str()?;
            let raw_id: &[u8; 16] = id
                .as_bytes()
                .try_into()
                .map_err(|_| PyValueError::new_err("the id of a topic has 16 bytes"))?;
            for position in &of_topic.partitions {
                let key = PyBytes::new(py, &self.request.record_key(text, position));
                let value = OffsetCommit::record_value(position, raw_id, commit_timestamp_ms);
                records.append((key, PyBytes::new(py, &value)))?;
                let metadata = PyString::new(py, &position.metadata);
                let place = (name, position.partition);
                positions.append((place, position.offset, position.leader_epoch, metadata, id))?;
            }
        }
        Ok((records, positions))
    }

    /// The whole frame of the answer: `error_code` for each partition.
    fn answer<'py>(&self, py: Python<'py>, error_code: i16) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.request.answer(error_code))
    }
}
