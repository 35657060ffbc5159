//! `DataSocket`: a connection of an I/O thread, in Python's hands.
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    /// The beginnings of answers that are not complete, by the numbers of their requests.
    unfinished: Mutex<Vec<(u64, Vec<Output>)>>,
}

impl DataSocket {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, unfinished: Mutex::default() }
    }

    fn take_unfinished(&self, number: u64) -> Option<Vec<Output>> {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let place = unfinished.iter().position(|(of, _)| *of == number)?;
        Some(unfinished.swap_remove(place).1)
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
        let beginning = self.take_unfinished(number);
        self.socket.answer(number, outputs.map(|outputs| copied(beginning, &outputs)).transpose()?);
        Ok(())
    }

    #[pyo3(signature = (number, outputs, /))]
    fn begin_answer(&self, number: u64, outputs: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let whole = copied(self.take_unfinished(number), &outputs)?;
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).push((number, whole));
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

    #[pyo3(signature = (left_ms, /))]
    fn set_session(&self, left_ms: Option<u64>) {
        self.socket.set_session(left_ms.map(Duration::from_millis));
    }

    fn stop_reading(&self) {
        self.socket.stop_reading();
    }

    fn ask_for_drained(&self) {
        self.socket.status().ask_for_drained();
    }
}

/// What was begun, and the copies of further outputs behind it.
fn copied(beginning: Option<Vec<Output>>, outputs: &[Bound<'_, PyAny>]) -> PyResult<Vec<Output>> {
    let mut whole = beginning.unwrap_or_else(|| Vec::with_capacity(outputs.len()));
    for output in outputs {
        whole.push(output_of(output)?);
    }
    Ok(whole)
}

fn output_of(object: &Bound<'_, PyAny>) -> PyResult<Output> {
    match object.cast::<FileSlice>() {
        Ok(slice) => Ok(Output::File(slice.get().engine_slice().clone())),
        Err(_) => Ok(Output::Bytes(Borrowed::of(object)?.as_slice().to_vec())),
    }
}
