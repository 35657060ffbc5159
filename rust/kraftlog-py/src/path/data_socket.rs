//! `DataSocket`: a connection of an I/O thread, in Python's hands.
use kraftlog_path::exchange::{ConnectionId, Output};
use kraftlog_path::io::Socket;
use pyo3::prelude::*;

use crate::log::FileSlice;
use crate::raw::Borrowed;

/// One number for a connection: thread, place and generation.
pub(super) fn key_of(id: ConnectionId) -> u64 {
    u64::from(id.thread) << 56 | u64::from(id.slot) << 32 | u64::from(id.generation)
}

/// A connection that an I/O thread owns.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct DataSocket {
    socket: Socket,
}

impl DataSocket {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket }
    }
}

#[pymethods]
impl DataSocket {
    #[getter]
    fn key(&self) -> u64 {
        key_of(self.socket.id())
    }

    #[getter]
    fn unsent_bytes(&self) -> usize {
        self.socket.status().unsent_bytes()
    }

    #[getter]
    fn owed(&self) -> usize {
        self.socket.status().owed()
    }

    #[pyo3(signature = (number, outputs, /))]
    fn answer(&self, number: u64, outputs: Option<Vec<Bound<'_, PyAny>>>) -> PyResult<()> {
        let outputs =
            outputs.map(|outputs| outputs.iter().map(output_of).collect::<PyResult<_>>()).transpose()?;
        self.socket.answer(number, outputs);
        Ok(())
    }

    #[pyo3(signature = (number, /))]
    fn begun(&self, number: u64) {
        self.socket.begun(number);
    }

    #[pyo3(signature = (number, /))]
    fn taken(&self, number: u64) {
        self.socket.taken(number);
    }

    #[pyo3(signature = (reason, /))]
    fn close(&self, reason: Option<String>) {
        self.socket.close(reason);
    }

    #[pyo3(signature = (is_on, /))]
    fn mute(&self, is_on: bool) {
        self.socket.mute(is_on);
    }

    fn stop_reading(&self) {
        self.socket.stop_reading();
    }

    fn ask_for_drained(&self) {
        self.socket.status().ask_for_drained();
    }
}

fn output_of(object: &Bound<'_, PyAny>) -> PyResult<Output> {
    match object.cast::<FileSlice>() {
        Ok(slice) => Ok(Output::File(slice.get().engine_slice().clone())),
        Err(_) => Ok(Output::Bytes(Borrowed::of(object)?.as_slice().to_vec())),
    }
}
