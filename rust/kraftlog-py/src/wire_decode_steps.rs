//! Bytes to a request in steps, so that one with many entries leaves the interpreter to others between them.
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::raw::{untracked, Borrowed};
use crate::wire_decode::{Decoded, Failure, Progress, Reader};
use crate::wire_schema::{plan_of, Field, Kind, MessageType, Plan};

/// A step ends after so many bytes, however few elements they are.
const STEP_BYTES_MAX: usize = 256 * 1024;

/// A struct or an array that is not complete.
enum Level {
    Struct { plan: &'static Plan, object: Py<PyAny>, next: usize },
    Array { field: Field, left: usize, elements: Vec<Py<PyAny>> },
}

struct Steps {
    progress: Progress,
    /// From the request to the innermost struct or array.
    levels: Vec<Level>,
}

/// Decodes one request a step at a time.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct RequestDecoder {
    frame: Py<PyAny>,
    message: &'static MessageType,
    version: i16,
    steps: Mutex<Option<Steps>>,
}

impl RequestDecoder {
    /// Begin behind the header of a frame.
    pub(crate) fn new(
        frame: &Bound<'_, PyAny>,
        message: &'static MessageType,
        version: i16,
        progress: Progress,
    ) -> PyResult<Self> {
        let plan = plan_of(frame.py(), message, version)?;
        let object = plan.layout.allocate_untracked(frame.py())?.unbind();
        let levels = vec![Level::Struct { plan, object, next: 0 }];
        let steps = Mutex::new(Some(Steps { progress, levels }));
        Ok(Self { frame: frame.clone().unbind(), message, version, steps })
    }
}

#[pymethods]
impl RequestDecoder {
    /// Decode about so many further array elements; the request when it is complete, else None.
    fn step<'py>(&self, py: Python<'py>, elements: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut guard = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(steps) = guard.as_mut() else {
            return Err(PyValueError::new_err("the request was decoded already, or given up"));
        };
        let frame = self.frame.bind(py);
        let buffer = Borrowed::of(frame)?;
        let mut reader = Reader::resume(frame, buffer.as_slice(), steps.progress);
        let result = steps.run(py, &mut reader, elements);
        steps.progress = reader.progress();
        match result {
            Ok(None) => Ok(None),
            Ok(request) => {
                *guard = None;
                Ok(request)
            }
            Err(failure) => Err(steps.place(py, failure).into_error(&self.message.name, self.version)),
        }
    }

    /// Give up: what was decoded so far, for `Discard`.
    fn abandon<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let taken = self.steps.lock().unwrap_or_else(PoisonError::into_inner).take();
        let rest = PyList::empty(py);
        for level in taken.map(|steps| steps.levels).unwrap_or_default() {
            match level {
                Level::Struct { object, .. } => rest.append(object)?,
                Level::Array { elements, .. } => rest.append(PyTuple::new(py, elements)?)?,
            }
        }
        Ok(rest)
    }
}

impl Steps {
    fn run<'py>(
        &mut self,
        py: Python<'py>,
        reader: &mut Reader<'_, 'py>,
        mut elements: usize,
    ) -> Decoded<Option<Bound<'py, PyAny>>> {
        let end = reader.position().saturating_add(STEP_BYTES_MAX);
        let mut value: Option<Bound<'py, PyAny>> = None;
        while let Some(level) = self.levels.last_mut() {
            let inner = match level {
                Level::Struct { plan, object, next } => {
                    fill(plan, object.bind(py), next, &mut value, reader)?
                }
                Level::Array { field, left, elements: taken } => {
                    if let Some(element) = value.take() {
                        taken.push(element.unbind());
                        *left -= 1;
                    }
                    let mut inner = None;
                    while *left > 0 && inner.is_none() {
                        if elements == 0 || reader.position() >= end {
                            return Ok(None);
                        }
                        elements -= 1;
                        match field.kind {
                            Kind::Struct(plan) if plan.has_arrays => {
                                let object = plan.layout.allocate_untracked(py)?.unbind();
                                inner = Some(Level::Struct { plan, object, next: 0 });
                            }
                            _ => {
                                taken.push(reader.value(field, false)?.unbind());
                                *left -= 1;
                            }
                        }
                    }
                    inner
                }
            };
            match (inner, self.levels.last_mut()) {
                (Some(inner), _) => self.levels.push(inner),
                (None, Some(Level::Struct { plan, object, .. })) => {
                    let object = object.bind(py).clone();
                    reader.end_message(plan, &object)?;
                    value = Some(object);
                    self.levels.pop();
                }
                (None, Some(Level::Array { elements, .. })) => {
                    let tuple = PyTuple::new(py, std::mem::take(elements))?.into_any();
                    value = Some(if tuple.is_empty()? { tuple } else { untracked(tuple) });
                    self.levels.pop();
                }
                (None, None) => {}
            }
        }
        Ok(value)
    }

    /// Name the structs around the one that a failure is in.
    fn place(&self, py: Python<'_>, failure: Failure) -> Failure {
        let mut failure = failure;
        let mut is_innermost = true;
        for level in self.levels.iter().rev() {
            if let Level::Struct { plan, next, .. } = level {
                let field = plan.fields.get(*next).filter(|field| !is_innermost || field.has_arrays());
                if let Some(name) = field.and_then(|field| plan.layout.names.get(field.slot)) {
                    failure = failure.within(&name.bind(py).to_string());
                }
            }
            is_innermost = false;
        }
        failure
    }
}

/// Decode the fields of a struct up to the first that is, or has, an array, which the result begins.
fn fill<'py>(
    plan: &'static Plan,
    object: &Bound<'py, PyAny>,
    next: &mut usize,
    value: &mut Option<Bound<'py, PyAny>>,
    reader: &mut Reader<'_, 'py>,
) -> Decoded<Option<Level>> {
    while let Some(field) = plan.fields.get(*next) {
        if value.is_none() {
            if field.is_array {
                match reader.begin_array(field)? {
                    Some(0) => *value = Some(PyTuple::empty(object.py()).into_any()),
                    Some(left) => {
                        let elements = Vec::with_capacity(left.min(64));
                        return Ok(Some(Level::Array { field: *field, left, elements }));
                    }
                    None => *value = Some(object.py().None().into_bound(object.py())),
                }
            } else {
                // A single struct with arrays is small in all of Kafka's requests.
                let decoded = reader.field(field).map_err(|failure| reader.at(failure, plan, field.slot));
                *value = Some(decoded?);
            }
        }
        if let Some(value) = value.take() {
            plan.layout.set(object, field.slot, value)?;
        }
        *next += 1;
    }
    Ok(None)
}
