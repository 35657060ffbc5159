//! The end of messages with many entries: to free them at once takes tens of milliseconds.
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::raw;
use crate::wire_layout::Layout;

/// Frees what nobody else refers to, a step at a time.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct Discard {
    objects: Mutex<Vec<Py<PyAny>>>,
}

#[pymethods]
impl Discard {
    /// Take over the objects of a list, which is empty afterwards.
    #[new]
    fn new(objects: &Bound<'_, PyList>) -> PyResult<Self> {
        let taken = objects.iter().map(Bound::unbind).collect();
        objects.call_method0("clear")?;
        Ok(Self { objects: Mutex::new(taken) })
    }

    /// Free about so many further objects; True when all are gone.
    fn step(&self, py: Python<'_>, count: usize) -> PyResult<bool> {
        for _ in 0..count {
            // The lock is not held while an object ends, which may run Python code.
            let next = self.objects.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(object) = next else { return Ok(true) };
            self.free(object.into_bound(py))?;
        }
        Ok(self.objects.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }
}

/// Hide an object from the collector of garbage, and give it back.
///
/// Values by the hundred thousand would make each full collection take long. What is hidden must not be part of a cycle.
#[pyfunction]
pub(crate) fn untracked(object: Bound<'_, PyAny>) -> Bound<'_, PyAny> {
    raw::untracked(object)
}

impl Discard {
    /// Free an object whose contents are freed later.
    fn free(&self, object: Bound<'_, PyAny>) -> PyResult<()> {
        if raw::references(&object) > 1 {
            return Ok(()); // what refers to it decides when it ends
        }
        let mut contents: Vec<Py<PyAny>> = Vec::new();
        if let Ok(items) = object.cast_exact::<PyTuple>() {
            contents.extend(items.iter().map(Bound::unbind));
        } else if let Ok(items) = object.cast_exact::<PyList>() {
            contents.extend(items.iter().map(Bound::unbind));
        } else if let Some(layout) = Layout::known(&object.get_type()) {
            for index in 0..layout.names.len() {
                // A request that was given up half way has fields that are not set.
                if let Ok(value) = layout.get(&object, index) {
                    if value.is_exact_instance_of::<PyTuple>()
                        || value.is_exact_instance_of::<PyList>()
                        || Layout::known(&value.get_type()).is_some()
                    {
                        contents.push(value.unbind());
                    }
                }
            }
        }
        drop(object);
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).append(&mut contents);
        Ok(())
    }
}
