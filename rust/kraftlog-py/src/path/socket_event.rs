//! What the I/O threads tell Python of its sockets.
use std::ffi::c_int;

use kraftlog_path::io::{Frame, IoEvent};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use super::data_socket::{key_of, DataSocket};
use crate::raw;

/// Key of the connection, number of the request or kind of the event, and what belongs to it.
pub(super) type SocketEvent<'py> = (u64, i64, Option<Bound<'py, PyAny>>);

/// Kind of an event: the peer took answers again.
pub(super) const DRAINED: i64 = -1;
/// Kind of an event: the connection is closed.
pub(super) const LOST: i64 = -2;
/// Kind of an event: a thread ended by a defect.
pub(super) const FAILED: i64 = -3;

/// Kind of an event: a connection was accepted; has the connection, the number of the listener, host and port.
pub(super) const ACCEPTED: i64 = -4;
/// Kind of an event: a connection was refused; has the number of the listener, host, port and reason. No key.
pub(super) const REFUSED: i64 = -5;
/// Kind of an event: a listener is short of descriptors; has the reason. Its key is the number of the listener, as below.
pub(super) const PAUSED: i64 = -6;
/// Kind of an event: a listener accepts again.
pub(super) const RESUMED: i64 = -7;
/// Kind of an event: a listener is closed.
pub(super) const LISTENER_ENDED: i64 = -8;

/// Frames from here on are shared with Python: to copy one of a hundred megabytes takes tens of milliseconds.
const SHARED_FRAME_BYTES_MIN: usize = 64 * 1024;

/// A large frame that was handed over.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
struct SharedFrame(Frame);

#[pymethods]
impl SharedFrame {
    // PyO3 asks for the keyword; what it is about happens in `raw`.
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        raw::export_bytes(slf.as_any(), slf.get().0.as_slice(), view, flags)
    }
}

/// The frame as `bytes`, or as a memoryview if it is large.
fn frame_object(py: Python<'_>, frame: Frame) -> PyResult<Bound<'_, PyAny>> {
    if frame.as_slice().len() < SHARED_FRAME_BYTES_MIN {
        return Ok(PyBytes::new(py, frame.as_slice()).into_any());
    }
    let shared = Bound::new(py, SharedFrame(frame))?;
    Ok(PyMemoryView::from(shared.as_any())?.into_any())
}

pub(super) fn event_of(py: Python<'_>, event: IoEvent) -> SocketEvent<'_> {
    let text = |text: String| text.into_pyobject(py).map(Bound::into_any).ok();
    match event {
        IoEvent::Accepted { listener, socket, address, .. } => {
            let key = key_of(socket.id());
            let fields = Bound::new(py, DataSocket::new(socket)).and_then(|socket| {
                (socket, listener, address.ip().to_string(), address.port()).into_pyobject(py)
            });
            (key, ACCEPTED, fields.map(Bound::into_any).ok())
        }
        IoEvent::Refused { listener, address, reason, .. } => {
            let fields = (listener, address.ip().to_string(), address.port(), reason).into_pyobject(py);
            (u64::MAX, REFUSED, fields.map(Bound::into_any).ok())
        }
        IoEvent::Paused { listener, reason } => (u64::from(listener), PAUSED, text(reason)),
        IoEvent::Resumed { listener } => (u64::from(listener), RESUMED, None),
        IoEvent::ListenerEnded { listener } => (u64::from(listener), LISTENER_ENDED, None),
        IoEvent::HandedOver { request, frame } => (
            key_of(request.connection),
            i64::try_from(request.number).unwrap_or(i64::MAX),
            frame_object(py, frame).ok(),
        ),
        IoEvent::Drained(connection) => (key_of(connection), DRAINED, None),
        IoEvent::Lost { connection, reason } => (key_of(connection), LOST, reason.and_then(text)),
        IoEvent::Failed(reason) => (u64::MAX, FAILED, text(reason)),
    }
}
