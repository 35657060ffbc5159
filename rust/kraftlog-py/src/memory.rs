//! Memory of the process.
use pyo3::prelude::*;

use crate::raw;

/// Give free memory of the allocator back to the operating system; the interpreter runs meanwhile.
#[pyfunction]
fn release_free_memory(py: Python<'_>) {
    py.detach(raw::release_free_memory);
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(release_free_memory, m)?)
}
