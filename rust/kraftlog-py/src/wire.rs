//! The codec's face for Python: whole messages. Frames are in `wire_frame.rs`.
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyType};

use crate::errors::RemoteProtocolError;
use crate::raw::Borrowed;
use crate::wire_buffer::java_string_hash;
use crate::wire_decode::{Reader, ELEMENT_COUNT_MAX};
use crate::wire_decode_steps::RequestDecoder;
use crate::wire_discard::{untracked, Discard};
use crate::wire_encode::Writer;
use crate::wire_encode_steps::ResponseEncoder;
use crate::wire_frame::FrameCodec;
use crate::wire_frame_reader::FrameReader;
use crate::wire_layout::struct_base;
use crate::wire_schema::{plan_of, MessageType};

/// Read one message that fills the buffer.
#[pyfunction]
#[pyo3(signature = (cls, buffer, version, *, max_elements=ELEMENT_COUNT_MAX))]
fn decode_message<'py>(
    cls: &Bound<'py, PyType>,
    buffer: &Bound<'py, PyAny>,
    version: i16,
    max_elements: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let message = MessageType::of(cls)?;
    let plan = plan_of(cls.py(), message, version)?;
    let data = Borrowed::of(buffer)?;
    let mut reader = Reader::new(buffer, data.as_slice(), max_elements);
    let object = reader.message(plan).map_err(|failure| failure.into_error(&message.name, version))?;
    match reader.remaining() {
        0 => Ok(object),
        count => {
            Err(RemoteProtocolError::new_err(format!("{} v{version}: {count} bytes left over", message.name)))
        }
    }
}

/// Read one message from the start of the buffer; also the position after it.
#[pyfunction]
#[pyo3(signature = (cls, buffer, version, *, max_elements=ELEMENT_COUNT_MAX))]
fn decode_prefix<'py>(
    cls: &Bound<'py, PyType>,
    buffer: &Bound<'py, PyAny>,
    version: i16,
    max_elements: usize,
) -> PyResult<(Bound<'py, PyAny>, usize)> {
    let message = MessageType::of(cls)?;
    let plan = plan_of(cls.py(), message, version)?;
    let data = Borrowed::of(buffer)?;
    let mut reader = Reader::new(buffer, data.as_slice(), max_elements);
    let object = reader.message(plan).map_err(|failure| failure.into_error(&message.name, version))?;
    Ok((object, reader.position()))
}

fn write<'py>(message: &Bound<'py, PyAny>, version: i16) -> PyResult<Writer<'py>> {
    let py = message.py();
    let kind = MessageType::of(&message.get_type())?;
    let mut writer = Writer::new(py);
    writer
        .message(plan_of(py, kind, version)?, message)
        .map_err(|failure| failure.into_error(py, &kind.name, version))?;
    Ok(writer)
}

/// The bytes of one message.
#[pyfunction]
fn encode_message<'py>(message: &Bound<'py, PyAny>, version: i16) -> PyResult<Bound<'py, PyBytes>> {
    write(message, version)?.into_bytes()
}

/// The bytes of one message; record fields stay items of their own.
#[pyfunction]
fn encode_parts<'py>(message: &Bound<'py, PyAny>, version: i16) -> PyResult<Bound<'py, PyList>> {
    write(message, version)?.into_parts()
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("StructBase", struct_base(m.py())?)?;
    m.add_function(wrap_pyfunction!(decode_message, m)?)?;
    m.add_function(wrap_pyfunction!(decode_prefix, m)?)?;
    m.add_function(wrap_pyfunction!(encode_message, m)?)?;
    m.add_function(wrap_pyfunction!(encode_parts, m)?)?;
    m.add_function(wrap_pyfunction!(java_string_hash, m)?)?;
    m.add_function(wrap_pyfunction!(untracked, m)?)?;
    m.add_class::<FrameCodec>()?;
    m.add_class::<RequestDecoder>()?;
    m.add_class::<ResponseEncoder>()?;
    m.add_class::<Discard>()?;
    m.add_class::<FrameReader>()
}
