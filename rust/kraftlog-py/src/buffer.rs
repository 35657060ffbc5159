//! Bytes of any object with the buffer protocol, read in place and without the interpreter lock.
#![allow(unsafe_code)]
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// A contiguous buffer that stays exported, and so in place, as long as this lives.
pub(crate) struct ByteBuffer(PyBuffer<u8>);

impl ByteBuffer {
    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self.0.as_slice_ptr() {
            // SAFETY: an exported buffer is neither moved, resized nor freed before it is released, which
            // PyBuffer does when dropped. Python code that writes into it meanwhile is asked not to by
            // the documentation of every function that takes one; a reader of ours then sees either
            // byte and checks every length it reads against the slice.
            Some(pointer) => unsafe { pointer.as_ref() },
            None => &[],
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for ByteBuffer {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(&object)?;
        if buffer.is_c_contiguous() {
            Ok(Self(buffer))
        } else {
            Err(PyBufferError::new_err("the buffer is not contiguous"))
        }
    }
}
