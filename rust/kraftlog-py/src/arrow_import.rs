//! Arrow arrays of other libraries, through the PyCapsule interface.
#![allow(unsafe_code)]
use arrow_array::ffi::{from_ffi, FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{make_array, ArrayRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::ffi::CStr;

const SCHEMA_NAME: &CStr = c"arrow_schema";
const ARRAY_NAME: &CStr = c"arrow_array";

/// The array that `object.__arrow_c_array__()` hands over.
pub(crate) fn import_array(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let capsules = object.call_method0("__arrow_c_array__").map_err(|_| {
        PyTypeError::new_err(format!("{} is not an Arrow array (no __arrow_c_array__)", object.get_type()))
    })?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
        capsules.cast::<PyTuple>()?.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA_NAME))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY_NAME))?.cast::<FFI_ArrowArray>();
    // SAFETY: the names say that the capsules hold these structs, which live until the capsules are
    // released; from_raw takes the contents and marks the struct in the capsule as released.
    let (schema, array) =
        unsafe { (FFI_ArrowSchema::from_raw(schema.as_ptr()), FFI_ArrowArray::from_raw(array.as_ptr())) };
    // SAFETY: both structs come from the producer of the capsules and obey the C data interface.
    let data =
        unsafe { from_ffi(array, &schema) }.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(make_array(data))
}
