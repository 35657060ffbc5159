//! Bytes to messages.
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyMemoryError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyMemoryView, PySlice, PyTuple};

use crate::errors::RemoteProtocolError;
use crate::raw::untracked;
use crate::wire_buffer::text;
use crate::wire_schema::{Field, Kind, Plan};

/// Array elements of one message. A byte on the wire can cost two hundred in memory (CVE-2026-111108), so that
/// the bytes that remain are no sufficient bound.
pub(crate) const ELEMENT_COUNT_MAX: usize = 1 << 20;
/// Unknown tagged fields of one message (CVE-2026-111115).
const UNKNOWN_TAG_COUNT_MAX: usize = 128;
/// Bytes in the unknown tagged fields of one message.
const UNKNOWN_TAG_BYTES_MAX: usize = 64 * 1024;
/// Kafka refuses longer strings in either encoding.
const TEXT_BYTES_MAX: usize = 0x7fff;

/// Bytes that a small request may copy.
const SMALL_COPIES_MAX: usize = 256 * 1024;

/// Why a decode ended early.
pub(crate) enum Failure {
    /// The peer's bytes are wrong: what, and the fields around it, innermost first.
    Bytes { reason: String, path: Vec<String> },
    /// The interpreter raised something.
    Python(PyErr),
    /// A request that should be small has too many elements, or too many bytes to copy.
    Large,
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure::Python(error)
    }
}

impl Failure {
    /// The exception for Python.
    pub(crate) fn into_error(self, message: &str, version: i16) -> PyErr {
        match self {
            Failure::Python(error) => error,
            Failure::Large => RemoteProtocolError::new_err(format!("{message} v{version}: too large")),
            Failure::Bytes { reason, path } => {
                let mut place = String::new();
                for name in path.iter().rev() {
                    place.push_str(if place.is_empty() { " " } else { "." });
                    place.push_str(name);
                }
                RemoteProtocolError::new_err(format!("{message} v{version}{place}: {reason}"))
            }
        }
    }

    #[cold]
    fn bytes(reason: String) -> Self {
        Failure::Bytes { reason, path: Vec::new() }
    }

    #[cold]
    pub(crate) fn within(mut self, name: &str) -> Self {
        if let Failure::Bytes { path, .. } = &mut self {
            path.push(name.to_owned());
        }
        self
    }
}

pub(crate) type Decoded<T> = Result<T, Failure>;

/// Reads one message.
pub(crate) struct Reader<'a, 'py> {
    py: Python<'py>,
    source: &'a Bound<'py, PyAny>,
    data: &'a [u8],
    view: Option<Bound<'py, PyMemoryView>>,
    progress: Progress,
}

/// How far a reader came, and what it may still read.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) position: usize,
    elements_left: usize,
    unknown_tags_left: usize,
    unknown_bytes_left: usize,
    /// What a small request may copy; None in others.
    copies_left: Option<usize>,
}

impl Progress {
    /// At the start of a message that may have so many array elements.
    pub(crate) fn new(elements_max: usize) -> Self {
        Self {
            position: 0,
            elements_left: elements_max,
            unknown_tags_left: UNKNOWN_TAG_COUNT_MAX,
            unknown_bytes_left: UNKNOWN_TAG_BYTES_MAX,
            copies_left: None,
        }
    }

    /// The same for a message that is given up with [`Failure::Large`] if it has more elements.
    pub(crate) fn of_small(elements_max: usize) -> Self {
        Self { copies_left: Some(SMALL_COPIES_MAX), ..Self::new(elements_max) }
    }
}

impl<'a, 'py> Reader<'a, 'py> {
    /// `data` are the bytes of `source`, of which records become memoryviews.
    pub(crate) fn new(source: &'a Bound<'py, PyAny>, data: &'a [u8], elements_max: usize) -> Self {
        Self::resume(source, data, Progress::new(elements_max))
    }

    /// Go on where another reader of the same bytes stopped.
    pub(crate) fn resume(source: &'a Bound<'py, PyAny>, data: &'a [u8], progress: Progress) -> Self {
        Self { py: source.py(), source, data, view: None, progress }
    }

    /// How far it came.
    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.progress.position
    }

    /// Bytes not read yet.
    pub(crate) fn remaining(&self) -> usize {
        self.data.len().saturating_sub(self.progress.position)
    }

    #[inline]
    fn take(&mut self, count: usize) -> Decoded<&'a [u8]> {
        match self.data.get(self.progress.position..).and_then(|rest| rest.get(..count)) {
            Some(bytes) => {
                self.progress.position += count;
                Ok(bytes)
            }
            None => Err(Failure::bytes(format!(
                "{count} bytes wanted at position {}, {} are left",
                self.progress.position,
                self.remaining()
            ))),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        match self.data.get(self.progress.position..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(bytes) => {
                self.progress.position += N;
                Ok(*bytes)
            }
            None => self.take(N).map(|_| [0; N]),
        }
    }

    /// An unsigned varint of at most 5 bytes, as Java's int: above 2^31 - 1 it is negative.
    #[inline]
    fn uvarint(&mut self) -> Decoded<i32> {
        let [first] = self.array::<1>()?;
        if first < 0x80 {
            return Ok(i32::from(first));
        }
        let mut value = u32::from(first & 0x7f);
        for shift in [7, 14, 21, 28] {
            let [byte] = self.array::<1>()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value as i32);
            }
        }
        Err(Failure::bytes(format!(
            "the varint before position {} is longer than 5 bytes",
            self.progress.position
        )))
    }

    /// The whole struct of a plan.
    pub(crate) fn message(&mut self, plan: &Plan) -> Decoded<Bound<'py, PyAny>> {
        let object = plan.layout.allocate_untracked(self.py)?;
        for field in &plan.fields {
            let value = self.field(field).map_err(|failure| self.at(failure, plan, field.slot))?;
            plan.layout.set(&object, field.slot, value)?;
        }
        self.end_message(plan, &object)?;
        Ok(object)
    }

    /// What follows the fields of a struct, and what the version lacks.
    pub(crate) fn end_message(&mut self, plan: &Plan, object: &Bound<'py, PyAny>) -> Decoded<()> {
        for absent in &plan.absent {
            plan.layout.set(object, absent.slot, plan.layout.default(absent.slot)?.bind(self.py).clone())?;
        }
        if plan.flexible {
            self.tagged_fields(plan, object)?;
        } else {
            let last = plan.layout.names.len().saturating_sub(1);
            plan.layout.set(object, last, plan.layout.default(last)?.bind(self.py).clone())?;
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn at(&self, failure: Failure, plan: &Plan, slot: usize) -> Failure {
        match plan.layout.names.get(slot) {
            Some(name) => failure.within(&name.bind(self.py).to_string()),
            None => failure,
        }
    }

    fn tagged_fields(&mut self, plan: &Plan, object: &Bound<'py, PyAny>) -> Decoded<()> {
        for tagged in &plan.tagged {
            let slot = tagged.field.slot;
            plan.layout.set(object, slot, plan.layout.default(slot)?.bind(self.py).clone())?;
        }
        let last = plan.layout.names.len().saturating_sub(1);
        let count = self.uvarint()?;
        let mut unknown = Vec::new();
        // Kafka reads a negative count as none.
        for _ in 0..count.max(0) {
            let (tag, size) = (self.uvarint()?, self.uvarint()?);
            match plan.tagged.iter().find(|tagged| i64::from(tagged.tag) == i64::from(tag)) {
                Some(tagged) => {
                    // Kafka's reader does not look at the size of a field it knows.
                    let field = &tagged.field;
                    let value = if self.is_tagged_null(field) {
                        self.py.None().into_bound(self.py)
                    } else {
                        self.field(field).map_err(|failure| self.at(failure, plan, field.slot))?
                    };
                    plan.layout.set(object, field.slot, value)?;
                }
                None => unknown.push(self.unknown(tag, size)?),
            }
        }
        if unknown.is_empty() {
            plan.layout.set(object, last, plan.layout.default(last)?.bind(self.py).clone())?;
        } else {
            plan.layout.set(object, last, PyTuple::new(self.py, unknown)?.into_any())?;
        }
        Ok(())
    }

    #[cold]
    fn unknown(&mut self, tag: i32, size: i32) -> Decoded<Bound<'py, PyTuple>> {
        let length = usize::try_from(size)
            .map_err(|_| Failure::bytes(format!("unknown tag {tag} has the negative size {size}")))?;
        if tag < 0 || tag == i32::MAX {
            return Err(Failure::bytes(format!("tag {tag} is out of range")));
        }
        if self.progress.unknown_tags_left == 0 {
            return Err(Failure::bytes(format!("more than {UNKNOWN_TAG_COUNT_MAX} unknown tagged fields")));
        }
        if length > self.progress.unknown_bytes_left {
            return Err(Failure::bytes(format!(
                "more than {UNKNOWN_TAG_BYTES_MAX} bytes in unknown tagged fields"
            )));
        }
        self.progress.unknown_tags_left -= 1;
        self.progress.unknown_bytes_left -= length;
        let bytes = PyBytes::new(self.py, self.take(length)?);
        Ok((tag, bytes).into_pyobject(self.py)?)
    }

    #[inline]
    pub(crate) fn field(&mut self, field: &Field) -> Decoded<Bound<'py, PyAny>> {
        if !field.is_array {
            return self.value(field, field.nullable);
        }
        let Some(count) = self.begin_array(field)? else {
            return Ok(self.py.None().into_bound(self.py));
        };
        if count == 0 {
            return Ok(PyTuple::empty(self.py).into_any());
        }
        // Grown as elements arrive: the count is only a claim until then.
        let mut elements = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            elements.push(self.value(field, false)?);
        }
        Ok(untracked(PyTuple::new(self.py, elements)?.into_any()))
    }

    /// The number of elements of the array that begins here; None for null.
    #[inline]
    pub(crate) fn begin_array(&mut self, field: &Field) -> Decoded<Option<usize>> {
        let count =
            if field.compact { self.uvarint()?.wrapping_sub(1) } else { i32::from_be_bytes(self.array()?) };
        let Ok(count) = usize::try_from(count) else {
            return self.null(field.nullable).map(|_| None);
        };
        if count > self.remaining() / field.element_size_min() {
            return Err(Failure::bytes(format!(
                "{count} elements cannot be in the {} bytes that are left",
                self.remaining()
            )));
        }
        if count > self.progress.elements_left {
            if self.progress.copies_left.is_some() {
                return Err(Failure::Large);
            }
            return Err(Failure::bytes("more array elements than a message may have".to_owned()));
        }
        self.progress.elements_left -= count;
        Ok(Some(count))
    }

    /// Takes the null of a tagged struct, which is 0; that of others is negative.
    fn is_tagged_null(&mut self, field: &Field) -> bool {
        let candidate = field.nullable && !field.is_array && matches!(field.kind, Kind::Struct(_));
        if !candidate {
            return false;
        }
        let start = self.progress.position;
        let null = matches!(self.array::<1>(), Ok([0]));
        if !null {
            self.progress.position = start;
        }
        null
    }

    fn null(&self, nullable: bool) -> Decoded<Bound<'py, PyAny>> {
        if nullable {
            Ok(self.py.None().into_bound(self.py))
        } else {
            Err(Failure::bytes("null where the version allows none".to_owned()))
        }
    }

    #[inline]
    pub(crate) fn value(&mut self, field: &Field, nullable: bool) -> Decoded<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match field.kind {
            Kind::Bool => PyBool::new(py, self.array::<1>()? != [0]).to_owned().into_any(),
            Kind::Int8 => integer(py, i64::from(i8::from_be_bytes(self.array()?)))?,
            Kind::Int16 => integer(py, i64::from(i16::from_be_bytes(self.array()?)))?,
            Kind::Uint16 => integer(py, i64::from(u16::from_be_bytes(self.array()?)))?,
            Kind::Int32 => integer(py, i64::from(i32::from_be_bytes(self.array()?)))?,
            Kind::Uint32 => integer(py, i64::from(u32::from_be_bytes(self.array()?)))?,
            Kind::Int64 => integer(py, i64::from_be_bytes(self.array()?))?,
            Kind::Float64 => {
                f64::from_be_bytes(self.array()?).into_pyobject(py).map_err(PyErr::from)?.into_any()
            }
            Kind::Uuid => uuid(py, self.array()?)?,
            Kind::Text => {
                let length = if field.compact {
                    self.uvarint()?.wrapping_sub(1)
                } else {
                    i32::from(i16::from_be_bytes(self.array()?))
                };
                let Ok(length) = usize::try_from(length) else { return self.null(nullable) };
                if length > TEXT_BYTES_MAX {
                    return Err(Failure::bytes(format!("a string of {length} bytes is too long")));
                }
                text(py, self.take(length)?)?
            }
            Kind::Bytes | Kind::Records => {
                let length = if field.compact {
                    self.uvarint()?.wrapping_sub(1)
                } else {
                    i32::from_be_bytes(self.array()?)
                };
                let Ok(length) = usize::try_from(length) else { return self.null(nullable) };
                let data = self.take(length)?;
                if matches!(field.kind, Kind::Bytes) {
                    self.charge_copy(length)?;
                    PyBytes::new(py, data).into_any()
                } else {
                    self.slice(length)?
                }
            }
            Kind::Struct(plan) => {
                if nullable {
                    let [present] = self.array::<1>()?;
                    if present >= 0x80 {
                        return self.null(true);
                    }
                }
                self.message(plan)?
            }
        })
    }

    #[inline]
    fn charge_copy(&mut self, length: usize) -> Decoded<()> {
        if let Some(left) = &mut self.progress.copies_left {
            *left = left.checked_sub(length).ok_or(Failure::Large)?;
        }
        Ok(())
    }

    /// The last `length` bytes read, as a memoryview of the source.
    fn slice(&mut self, length: usize) -> Decoded<Bound<'py, PyAny>> {
        let view = match &self.view {
            Some(view) => view,
            None => self.view.insert(PyMemoryView::from(self.source)?),
        };
        let too_large = |_| PyMemoryError::new_err("a frame too large for this machine");
        let end = isize::try_from(self.progress.position).map_err(too_large)?;
        let length = isize::try_from(length).map_err(too_large)?;
        Ok(view.get_item(PySlice::new(self.py, end - length, end, 1))?)
    }
}

#[inline]
fn integer(py: Python<'_>, value: i64) -> PyResult<Bound<'_, PyAny>> {
    Ok(value.into_pyobject(py)?.into_any())
}

const UUID_CACHE_SIZE: usize = 256;

/// Topic ids come again and again: the last ones are kept, a slot for each value of their last byte.
type UuidCache = Mutex<Vec<Option<([u8; 16], Py<PyAny>)>>>;
static UUIDS: PyOnceLock<(Py<PyAny>, UuidCache)> = PyOnceLock::new();

fn uuid(py: Python<'_>, bytes: [u8; 16]) -> PyResult<Bound<'_, PyAny>> {
    let (class, cache) = UUIDS.get_or_try_init(py, || -> PyResult<_> {
        let class = py.import(intern!(py, "kraftlog.types"))?.getattr(intern!(py, "Uuid"))?;
        let empty = (0..UUID_CACHE_SIZE).map(|_| None).collect();
        Ok((class.unbind(), Mutex::new(empty)))
    })?;
    let index = usize::from(bytes[15]);
    {
        let cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some((known, value))) = cache.get(index) {
            if *known == bytes {
                return Ok(value.bind(py).clone());
            }
        }
    }
    let value = class.bind(py).call1((PyBytes::new(py, &bytes),))?;
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    let previous = cache.get_mut(index).and_then(|entry| entry.replace((bytes, value.clone().unbind())));
    drop(cache); // before the previous value, whose end may run Python code
    drop(previous);
    Ok(value)
}
