//! A response to bytes in steps, so that one with many entries leaves the interpreter to others between them.
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::errors::LocalProtocolError;
use crate::wire_encode::{Encoded, Writer};
use crate::wire_schema::{plan_of, Field, Kind, MessageType, Plan};

/// Arrays of no more elements are written at once if no element has arrays.
const SMALL_ARRAY: usize = 64;

/// A struct or an array that is not written to its end.
enum Level {
    Struct { plan: &'static Plan, object: Py<PyAny>, next: usize },
    Array { field: &'static Field, items: Py<PyTuple>, next: usize },
}

struct Steps {
    levels: Vec<Level>,
    bytes: Vec<u8>,
    parts: Vec<Py<PyAny>>,
    /// Of the parts.
    size: usize,
}

/// Encodes one response a step at a time.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct ResponseEncoder {
    message: &'static MessageType,
    version: i16,
    steps: Mutex<Option<Steps>>,
}

impl ResponseEncoder {
    /// Begin behind the header, which `writer` has.
    pub(crate) fn new<'py>(
        message: &'static MessageType,
        version: i16,
        writer: Writer<'py>,
        response: &Bound<'py, PyAny>,
    ) -> PyResult<Self> {
        let py = response.py();
        let plan = plan_of(py, message, version)?;
        let failed = writer.check_class(plan, response);
        failed.map_err(|failure| failure.into_error(py, &message.name, version))?;
        let mut parts = Vec::new();
        let bytes = writer.pause(&mut parts)?;
        let levels = vec![Level::Struct { plan, object: response.clone().unbind(), next: 0 }];
        Ok(Self { message, version, steps: Mutex::new(Some(Steps { levels, bytes, parts, size: 0 })) })
    }
}

#[pymethods]
impl ResponseEncoder {
    /// Encode about so many further array elements; the buffers when they are complete, else None.
    ///
    /// The first of them begins with the size of the frame.
    fn step<'py>(&self, py: Python<'py>, elements: usize) -> PyResult<Option<Bound<'py, PyList>>> {
        let mut guard = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut steps) = guard.take() else {
            return Err(PyValueError::new_err("the response was encoded already, or does not encode"));
        };
        let mut writer = Writer::resume(py, std::mem::take(&mut steps.bytes));
        let is_done = steps
            .run(py, &mut writer, elements)
            .map_err(|failure| failure.into_error(py, &self.message.name, self.version))?;
        if !is_done {
            let size = writer.size();
            steps.bytes = writer.pause(&mut steps.parts)?;
            steps.size += size - steps.bytes.len();
            *guard = Some(steps);
            return Ok(None);
        }
        let size = steps.size + writer.size();
        let size = i32::try_from(size)
            .map_err(|_| LocalProtocolError::new_err(format!("a frame of {size} bytes is too large")))?;
        let parts = PyList::new(py, [PyBytes::new(py, &size.to_be_bytes())])?;
        for part in steps.parts {
            parts.append(part)?;
        }
        for part in writer.into_parts()? {
            parts.append(part)?;
        }
        Ok(Some(parts))
    }
}

impl Steps {
    fn run<'py>(&mut self, py: Python<'py>, writer: &mut Writer<'py>, mut elements: usize) -> Encoded<bool> {
        while let Some(level) = self.levels.last_mut() {
            let inner = match level {
                Level::Struct { plan, object, next } => {
                    let inner = write_fields(plan, object.bind(py), next, writer, &mut elements)?;
                    if inner.is_none() {
                        writer.end_message(plan, object.bind(py))?;
                    }
                    inner
                }
                Level::Array { field, items, next } => {
                    let items = items.bind(py);
                    let mut inner = None;
                    while inner.is_none() && *next < items.len() {
                        if elements == 0 {
                            return Ok(false);
                        }
                        elements -= 1;
                        let item = items.get_borrowed_item(*next)?;
                        *next += 1;
                        match field.kind {
                            Kind::Struct(plan) if plan.has_arrays => {
                                writer.check_class(plan, &item)?;
                                let object = item.to_owned().unbind();
                                inner = Some(Level::Struct { plan, object, next: 0 });
                            }
                            _ => writer.value(field, &item, false)?,
                        }
                    }
                    inner
                }
            };
            match inner {
                Some(inner) => self.levels.push(inner),
                None => drop(self.levels.pop()),
            }
        }
        Ok(true)
    }
}

/// Write the fields of a struct up to the first array that takes steps of its own, which the result begins.
fn write_fields<'py>(
    plan: &'static Plan,
    object: &Bound<'py, PyAny>,
    next: &mut usize,
    writer: &mut Writer<'py>,
    elements: &mut usize,
) -> Encoded<Option<Level>> {
    while let Some(field) = plan.fields.get(*next) {
        *next += 1;
        let value = plan.layout.get(object, field.slot)?;
        if field.is_array && !value.is_none() {
            let items = match value.cast_into_exact::<PyTuple>() {
                Ok(items) => items,
                Err(other) => {
                    let other = other.into_inner();
                    match other.cast_exact::<PyList>() {
                        Ok(items) => items.to_tuple(),
                        Err(_) => PyTuple::new(other.py(), other.try_iter()?.collect::<PyResult<Vec<_>>>()?)?,
                    }
                }
            };
            if items.len() > SMALL_ARRAY || field.element_has_arrays() {
                writer.begin_array(field, items.len())?;
                return Ok(Some(Level::Array { field, items: items.unbind(), next: 0 }));
            }
            *elements = elements.saturating_sub(items.len());
            writer.field(field, items.as_any()).map_err(|failure| writer.at(failure, plan, field.slot))?;
        } else {
            writer.field(field, &value).map_err(|failure| writer.at(failure, plan, field.slot))?;
        }
    }
    Ok(None)
}
