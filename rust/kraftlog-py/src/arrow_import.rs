//! Arrow arrays of other libraries, through the PyCapsule interface.
use arrow_array::ArrayRef;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::raw::array_of_capsules;

/// The array that `object.__arrow_c_array__()` hands over.
pub(crate) fn import_array(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let capsules = object.call_method0("__arrow_c_array__").map_err(|_| {
        PyTypeError::new_err(format!("{} is not an Arrow array (no __arrow_c_array__)", object.get_type()))
    })?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
        capsules.cast::<PyTuple>()?.extract()?;
    array_of_capsules(&schema, &array)
}
