//! Bytes of Python objects, borrowed for the length of one call.
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A contiguous view of a buffer object, held until dropped.
pub(crate) struct Borrowed<'a> {
    view: Option<Box<ffi::Py_buffer>>,
    data: &'a [u8],
    owner: PhantomData<&'a Py<PyAny>>,
}

impl<'a> Borrowed<'a> {
    /// Borrow the bytes of an object.
    pub(crate) fn of(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(Self { view: None, data: bytes.as_bytes(), owner: PhantomData });
        }
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::uninit());
        // SAFETY: a live object; the struct is filled when 0 comes back.
        let result =
            unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), ffi::PyBUF_SIMPLE) };
        if result != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: filled above.
        let view = unsafe { Box::from_raw(Box::into_raw(view).cast::<ffi::Py_buffer>()) };
        let length = usize::try_from(view.len).unwrap_or(0);
        let data = if view.buf.is_null() || length == 0 {
            &[]
        } else {
            // SAFETY: the exporter keeps `len` bytes at `buf` in place until the view is released, which is
            // when `self` is dropped; the GIL is held for as long as a decode runs.
            unsafe { std::slice::from_raw_parts(view.buf.cast::<u8>().cast_const(), length) }
        };
        Ok(Self { view: Some(view), data, owner: PhantomData })
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.data
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(view) = self.view.as_mut() {
            // SAFETY: filled by PyObject_GetBuffer and not released before; callers hold the GIL.
            unsafe { ffi::PyBuffer_Release(view.as_mut()) };
        }
    }
}

/// Text from bytes that should be UTF-8; each malformed part becomes U+FFFD as in Kafka's reader.
pub(crate) fn text<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: pointer and length are those of a slice; a null pointer cannot occur.
    let value = unsafe {
        let value = ffi::PyUnicode_DecodeUTF8(
            data.as_ptr().cast(),
            data.len() as ffi::Py_ssize_t,
            c"strict".as_ptr(),
        );
        Bound::from_owned_ptr_or_opt(py, value)
    };
    match value {
        Some(value) => Ok(value),
        None => {
            drop(PyErr::take(py));
            Ok(java_text(data).into_pyobject(py)?.into_any())
        }
    }
}

/// Java's `new String(bytes, UTF_8)`: `from_utf8_lossy` but for encoded surrogates, which Java replaces as one.
fn java_text(data: &[u8]) -> String {
    let mut text = String::with_capacity(data.len());
    let mut rest = data;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, bad) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                text.push(char::REPLACEMENT_CHARACTER);
                let skip = match bad {
                    [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..] => 3,
                    _ => error.error_len().unwrap_or(bad.len()),
                };
                rest = bad.get(skip.max(1)..).unwrap_or(&[]);
            }
        }
    }
}
