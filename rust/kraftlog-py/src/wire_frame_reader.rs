//! Cuts the bytes of a connection into frames.
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PySlice};

use crate::errors::RemoteProtocolError;
use crate::raw::{copy_into, copy_start, take_front, Borrowed};

/// Small frames are gathered here; a larger one gets memory of its own and is received into it.
const SCRATCH_SIZE: usize = 64 * 1024;
/// What a large frame gets before its bytes arrive, or as much as the large frame before it on this connection took; it
/// doubles from there. Untouched pages cost nothing.
const LARGE_SIZE_START: usize = 1024 * 1024;

struct Receiving {
    /// Made when a frame is incomplete; one who only feeds holds none between whole frames.
    scratch: Option<Py<PyByteArray>>,
    /// Bytes of the scratch that are filled; frames begin at its start.
    filled: usize,
    /// A frame larger than the scratch: its memory, its size, and what has arrived.
    large: Option<Large>,
    /// Size of the last large frame that arrived whole.
    last_large_size: usize,
}

impl Receiving {
    fn next_large(&mut self) -> NextLarge<'_> {
        NextLarge { large: &mut self.large, last_size: self.last_large_size }
    }

    /// Gives a large frame that arrived whole to `frames`.
    fn give(&mut self, frames: &Bound<'_, PyList>) -> PyResult<()> {
        let Some(large) = self.large.take() else { return Ok(()) };
        self.last_large_size = large.size;
        frames.append(large.memory)
    }

    fn scratch<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        if let Some(scratch) = &self.scratch {
            return Ok(scratch.bind(py).clone());
        }
        let scratch = PyByteArray::new(py, &[]);
        scratch.resize(SCRATCH_SIZE)?;
        self.scratch = Some(scratch.clone().unbind());
        Ok(scratch)
    }
}

struct Large {
    memory: Py<PyByteArray>,
    size: usize,
    filled: usize,
}

impl Large {
    /// Make room for `capacity` bytes, or for the whole frame when that is less.
    fn grow(&mut self, py: Python<'_>, capacity: usize) -> PyResult<()> {
        let capacity = self.size.min(capacity);
        if self.memory.bind(py).resize(capacity).is_ok() {
            return Ok(());
        }
        // Somebody still holds the view of an earlier `get_buffer`, so that the memory cannot move.
        let memory = PyByteArray::new(py, &[]);
        memory.resize(capacity)?;
        copy_start(self.memory.bind(py), &memory, self.filled)?;
        self.memory = memory.unbind();
        Ok(())
    }
}

/// Cuts the bytes of one connection into frames.
///
/// Use either `feed` or the pair of an `asyncio.BufferedProtocol`, `get_buffer` and `buffer_updated`. Memory
/// grows with what arrived, now or in the large frame before, never with what a size claims.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct FrameReader {
    max_frame_bytes: Mutex<usize>,
    state: Mutex<Receiving>,
}

impl FrameReader {
    fn state(&self) -> MutexGuard<'_, Receiving> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self) -> usize {
        *self.max_frame_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size that a prefix names, if it is one that we accept.
    fn size_of(&self, prefix: [u8; 4]) -> PyResult<usize> {
        let size = i32::from_be_bytes(prefix);
        let limit = self.limit();
        match usize::try_from(size) {
            Ok(size) if size <= limit => Ok(size),
            _ => Err(RemoteProtocolError::new_err(format!(
                "a frame of {size} bytes is not between 0 and {limit} bytes"
            ))),
        }
    }

    /// Frames at the start of `data`, and the bytes they took. A partial one that cannot fit the scratch begins
    /// its own memory.
    fn cut<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        frames: &Bound<'py, PyList>,
        next: &mut NextLarge<'_>,
    ) -> PyResult<usize> {
        let mut position = 0;
        while let Some((prefix, rest)) = data.get(position..).and_then(|rest| rest.split_first_chunk::<4>()) {
            let size = self.size_of(*prefix)?;
            if let Some(frame) = rest.get(..size) {
                frames.append(PyBytes::new(py, frame))?;
                position += 4 + size;
                continue;
            }
            if size + 4 > SCRATCH_SIZE {
                *next.large = Some(next.begin(py, size, rest)?);
                position = data.len();
            }
            break;
        }
        Ok(position)
    }
}

/// Where the next large frame goes.
struct NextLarge<'a> {
    large: &'a mut Option<Large>,
    last_size: usize,
}

impl NextLarge<'_> {
    /// A frame of `size` bytes that begins with `start`.
    fn begin(&self, py: Python<'_>, size: usize, start: &[u8]) -> PyResult<Large> {
        let room = LARGE_SIZE_START.max(self.last_size).max(start.len().saturating_mul(2));
        let memory = PyByteArray::new(py, &[]);
        memory.resize(size.min(room))?;
        copy_into(&memory, 0, start)?;
        Ok(Large { memory: memory.unbind(), size, filled: start.len() })
    }
}

fn tail<'py>(memory: &Bound<'py, PyByteArray>, from: usize, end: usize) -> PyResult<Bound<'py, PyAny>> {
    let view = PyMemoryView::from(memory.as_any())?;
    view.get_item(PySlice::new(memory.py(), from as isize, end as isize, 1))
}

#[pymethods]
impl FrameReader {
    #[new]
    #[pyo3(signature = (max_frame_bytes))]
    fn new(max_frame_bytes: usize) -> Self {
        let state = Receiving { scratch: None, filled: 0, large: None, last_large_size: 0 };
        Self { max_frame_bytes: Mutex::new(max_frame_bytes), state: Mutex::new(state) }
    }

    /// The largest frame accepted, in bytes.
    #[getter]
    fn max_frame_bytes(&self) -> usize {
        self.limit()
    }

    /// Raise or lower the limit, as after authentication.
    fn set_max_frame_bytes(&self, max_frame_bytes: usize) {
        *self.max_frame_bytes.lock().unwrap_or_else(PoisonError::into_inner) = max_frame_bytes;
    }

    /// Bytes of an incomplete frame that are held.
    #[getter]
    fn pending_bytes(&self) -> usize {
        let state = self.state();
        state.filled + state.large.as_ref().map_or(0, |large| large.filled + 4)
    }

    /// Bytes that a frame larger than the scratch still lacks; 0 when none is incomplete.
    #[getter]
    fn missing_bytes(&self) -> usize {
        self.state().large.as_ref().map_or(0, |large| large.size.saturating_sub(large.filled))
    }

    /// Forget an incomplete frame and free its memory.
    fn clear(&self) {
        let mut state = self.state();
        let scratch = state.scratch.take();
        let large = state.large.take();
        state.filled = 0;
        drop(state); // before the memory, whose end is the interpreter's
        drop((scratch, large));
    }

    /// Where the next bytes of the connection go.
    #[pyo3(signature = (_size_hint, /))]
    fn get_buffer<'py>(&self, py: Python<'py>, _size_hint: isize) -> PyResult<Bound<'py, PyAny>> {
        let mut state = self.state();
        if let Some(large) = state.large.as_mut() {
            let memory = large.memory.bind(py);
            if large.filled < memory.len() {
                return tail(memory, large.filled, memory.len());
            }
            large.grow(py, large.filled.saturating_mul(2))?;
            let memory = large.memory.bind(py);
            return tail(memory, large.filled, memory.len());
        }
        tail(&state.scratch(py)?, state.filled, SCRATCH_SIZE)
    }

    /// Frames completed by `count` bytes that were put into the buffer.
    fn buffer_updated<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyList>> {
        let frames = PyList::empty(py);
        let mut state = self.state();
        let state = &mut *state;
        if let Some(large) = state.large.as_mut() {
            large.filled = large.filled.saturating_add(count);
            if large.filled >= large.size {
                state.give(&frames)?;
            }
            return Ok(frames);
        }
        let scratch = state.scratch(py)?;
        let filled = state.filled.saturating_add(count).min(SCRATCH_SIZE);
        let mut next = state.next_large();
        state.filled = take_front(&scratch, filled, |data| self.cut(py, data, &frames, &mut next))?;
        Ok(frames)
    }

    /// Frames completed by bytes that arrived.
    fn feed<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let frames = PyList::empty(py);
        let buffer = Borrowed::of(data)?;
        let mut rest = buffer.as_slice();
        let mut state = self.state();
        let state = &mut *state;
        while !rest.is_empty() {
            if let Some(large) = state.large.as_mut() {
                let count = rest.len().min(large.size - large.filled);
                let (part, after) = rest.split_at(count);
                if large.memory.bind(py).len() < large.filled + count {
                    large.grow(py, (large.filled + count).saturating_mul(2))?;
                }
                copy_into(large.memory.bind(py), large.filled, part)?;
                large.filled += count;
                if large.filled == large.size {
                    state.give(&frames)?;
                }
                rest = after;
            } else if state.filled == 0 {
                let taken = self.cut(py, rest, &frames, &mut state.next_large())?;
                let left = rest.get(taken..).unwrap_or(&[]);
                if !left.is_empty() {
                    copy_into(&state.scratch(py)?, 0, left)?;
                    state.filled = left.len();
                }
                rest = &[];
            } else {
                let scratch = state.scratch(py)?;
                let count = rest.len().min(SCRATCH_SIZE - state.filled);
                let (part, after) = rest.split_at(count);
                copy_into(&scratch, state.filled, part)?;
                let filled = state.filled + count;
                let mut next = state.next_large();
                state.filled = take_front(&scratch, filled, |data| self.cut(py, data, &frames, &mut next))?;
                if state.filled == 0 {
                    state.scratch = None;
                }
                rest = after;
            }
        }
        Ok(frames)
    }
}
