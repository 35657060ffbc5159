//! Bytes of any object with the buffer protocol, read in place and without the interpreter lock.
#![allow(unsafe_code)]
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ptr::NonNull;

/// Contiguous bytes that stay in place as long as this lives.
pub(crate) struct ByteBuffer {
    slice: NonNull<[u8]>,
    _owner: Owner,
}

/// What keeps the bytes: a reference will do for `bytes`, others stay exported.
enum Owner {
    Bytes(#[allow(dead_code)] Py<PyBytes>),
    Exported(#[allow(dead_code)] PyBuffer<u8>),
}

// SAFETY: the pointer is only read through, and both owners may be sent to and shared with any thread.
unsafe impl Send for ByteBuffer {}
// SAFETY: as above.
unsafe impl Sync for ByteBuffer {}

impl ByteBuffer {
    /// The bytes.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the owner keeps the memory from being moved, resized or freed. `bytes` never change; who
        // passes another object is asked by the documentation of every function that takes one not to
        // write into it meanwhile. A reader of ours checks every length it reads against the slice.
        unsafe { self.slice.as_ref() }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for ByteBuffer {
    type Error = PyErr;

    #[inline]
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self {
                slice: NonNull::from(bytes.as_bytes()),
                _owner: Owner::Bytes(bytes.to_owned().unbind()),
            });
        }
        let buffer = PyBuffer::<u8>::get(&object)?;
        match buffer.as_slice_ptr() {
            Some(slice) => Ok(Self { slice, _owner: Owner::Exported(buffer) }),
            None => Err(PyBufferError::new_err("the buffer is not contiguous")),
        }
    }
}
