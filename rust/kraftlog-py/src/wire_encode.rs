//! Messages to bytes.
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyString, PyTuple};

use crate::errors::LocalProtocolError;
use crate::raw::Borrowed;
use crate::wire_schema::{Field, Kind, Plan};

const TEXT_BYTES_MAX: usize = 0x7fff;
/// Bytes that become a buffer of their own before a message is complete.
const PART_BYTES_MIN: usize = 64 * 1024;
/// Values of type bytes from here on are sent as they are instead of being copied.
const SHARED_BYTES_MIN: usize = 64 * 1024;

/// Why an encode ended early: a value does not fit, which is no peer's fault, or a small response has too many elements.
pub(crate) struct Failure {
    pub(crate) is_large: bool,
    reason: String,
    path: Vec<String>,
    cause: Option<Box<PyErr>>,
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure { is_large: false, reason: error.to_string(), path: Vec::new(), cause: Some(Box::new(error)) }
    }
}

impl Failure {
    #[cold]
    fn new(reason: String) -> Self {
        Failure { is_large: false, reason, path: Vec::new(), cause: None }
    }

    /// The same, named as being in a field.
    #[cold]
    pub(crate) fn within(mut self, name: String) -> Self {
        self.path.push(name);
        self
    }

    /// The exception for Python.
    pub(crate) fn into_error(self, py: Python<'_>, message: &str, version: i16) -> PyErr {
        let mut place = String::new();
        for name in self.path.iter().rev() {
            place.push_str(if place.is_empty() { " " } else { "." });
            place.push_str(name);
        }
        let error = LocalProtocolError::new_err(format!("{message} v{version}{place}: {}", self.reason));
        error.set_cause(py, self.cause.map(|cause| *cause));
        error
    }
}

pub(crate) type Encoded<T> = Result<T, Failure>;

/// Collects bytes; record fields stay objects of their own, each after the byte where it belongs.
pub(crate) struct Writer<'py> {
    py: Python<'py>,
    bytes: Vec<u8>,
    objects: Vec<(usize, Bound<'py, PyAny>)>,
    objects_size: usize,
    elements_left: usize,
}

impl<'py> Writer<'py> {
    pub(crate) fn new(py: Python<'py>) -> Self {
        Self::of_small(py, usize::MAX)
    }

    /// For a message that is given up with `Failure::is_large` if it has more array elements.
    pub(crate) fn of_small(py: Python<'py>, elements_max: usize) -> Self {
        let bytes = Vec::with_capacity(256);
        Self { py, bytes, objects: Vec::new(), objects_size: 0, elements_left: elements_max }
    }

    /// Go on behind bytes of another writer.
    pub(crate) fn resume(py: Python<'py>, bytes: Vec<u8>) -> Self {
        Self { py, bytes, objects: Vec::new(), objects_size: 0, elements_left: usize::MAX }
    }

    /// Bytes written, the fields of type records included.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len().saturating_add(self.objects_size)
    }

    /// Move what was written to `parts`, if it is much or has objects; returns the bytes that stay.
    pub(crate) fn pause(self, parts: &mut Vec<Py<PyAny>>) -> PyResult<Vec<u8>> {
        if self.objects.is_empty() && self.bytes.len() < PART_BYTES_MIN {
            return Ok(self.bytes);
        }
        parts.extend(self.into_parts()?.iter().map(Bound::unbind));
        Ok(Vec::new())
    }

    /// Leave room for the size of a frame.
    pub(crate) fn begin_frame(&mut self) {
        self.bytes.extend_from_slice(&[0; 4]);
    }

    /// Fill in the size of a frame.
    pub(crate) fn end_frame(&mut self) -> PyResult<()> {
        let size = self.bytes.len().saturating_sub(4).saturating_add(self.objects_size);
        let size = i32::try_from(size)
            .map_err(|_| LocalProtocolError::new_err(format!("a frame of {size} bytes is too large")))?;
        if let Some(prefix) = self.bytes.first_chunk_mut::<4>() {
            *prefix = size.to_be_bytes();
        }
        Ok(())
    }

    /// Bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The client id of a request header, which keeps its old encoding in flexible versions.
    pub(crate) fn client_id(&mut self, client_id: Option<&str>) -> PyResult<()> {
        let Some(text) = client_id else {
            self.bytes.extend_from_slice(&(-1i16).to_be_bytes());
            return Ok(());
        };
        let length = i16::try_from(text.len()).map_err(|_| {
            LocalProtocolError::new_err(format!("a client id of {} bytes is too long", text.len()))
        })?;
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// What was written, record fields as items of their own.
    pub(crate) fn into_parts(self) -> PyResult<Bound<'py, PyList>> {
        let parts = PyList::empty(self.py);
        let mut start = 0;
        for (end, object) in self.objects {
            if let Some(piece) = self.bytes.get(start..end).filter(|piece| !piece.is_empty()) {
                parts.append(PyBytes::new(self.py, piece))?;
            }
            parts.append(object)?;
            start = end;
        }
        if let Some(piece) = self.bytes.get(start..).filter(|piece| !piece.is_empty()) {
            parts.append(PyBytes::new(self.py, piece))?;
        }
        Ok(parts)
    }

    /// What was written, record fields copied in.
    pub(crate) fn into_bytes(self) -> PyResult<Bound<'py, PyBytes>> {
        if self.objects.is_empty() {
            return Ok(PyBytes::new(self.py, &self.bytes));
        }
        let mut whole = Vec::with_capacity(self.bytes.len().saturating_add(self.objects_size));
        let mut start = 0;
        for (end, object) in &self.objects {
            whole.extend_from_slice(self.bytes.get(start..*end).unwrap_or(&[]));
            whole.extend_from_slice(Borrowed::of(object)?.as_slice());
            start = *end;
        }
        whole.extend_from_slice(self.bytes.get(start..).unwrap_or(&[]));
        Ok(PyBytes::new(self.py, &whole))
    }

    fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Whether the object is what the plan writes.
    pub(crate) fn check_class(&self, plan: &Plan, object: &Bound<'py, PyAny>) -> Encoded<()> {
        if !plan.layout.is_instance(object) {
            let expected = plan.layout.class(self.py).qualname()?;
            return Err(Failure::new(format!(
                "{expected} expected, {} given",
                object.get_type().qualname()?
            )));
        }
        Ok(())
    }

    /// A whole struct.
    pub(crate) fn message(&mut self, plan: &Plan, object: &Bound<'py, PyAny>) -> Encoded<()> {
        self.check_class(plan, object)?;
        for field in &plan.fields {
            let value = plan.layout.get(object, field.slot)?;
            self.field(field, &value).map_err(|failure| self.at(failure, plan, field.slot))?;
        }
        self.end_message(plan, object)
    }

    /// What follows the fields of a struct.
    pub(crate) fn end_message(&mut self, plan: &Plan, object: &Bound<'py, PyAny>) -> Encoded<()> {
        for absent in &plan.absent {
            if !absent.ignorable
                && !self.is_default(plan, absent.slot, &plan.layout.get(object, absent.slot)?)?
            {
                let failure =
                    Failure::new("the version has no such field, and it cannot be left out".to_owned());
                return Err(self.at(failure, plan, absent.slot));
            }
        }
        if plan.flexible {
            self.tagged_fields(plan, object)?;
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn at(&self, failure: Failure, plan: &Plan, slot: usize) -> Failure {
        match plan.layout.names.get(slot) {
            Some(name) => failure.within(name.bind(self.py).to_string()),
            None => failure,
        }
    }

    fn is_default(&self, plan: &Plan, slot: usize, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        let default = plan.layout.default(slot)?.bind(self.py);
        if value.is(default) {
            return Ok(true);
        }
        if let Ok(empty) = default.cast_exact::<PyTuple>() {
            return Ok(empty.is_empty() && !value.is_none() && value.len()? == 0);
        }
        value.eq(default)
    }

    fn tagged_fields(&mut self, plan: &Plan, object: &Bound<'py, PyAny>) -> Encoded<()> {
        let last = plan.layout.names.len().saturating_sub(1);
        let unknown = plan.layout.get(object, last)?;
        let mut present: Vec<(u32, Option<&Field>, Bound<'py, PyAny>)> = Vec::new();
        for tagged in &plan.tagged {
            let value = plan.layout.get(object, tagged.field.slot)?;
            if !self.is_default(plan, tagged.field.slot, &value)? {
                present.push((tagged.tag, Some(&tagged.field), value));
            }
        }
        if unknown.len()? != 0 {
            for entry in unknown.try_iter()? {
                let (tag, data): (u32, Bound<'py, PyAny>) = entry?.extract()?;
                present.push((tag, None, data));
            }
            present.sort_by_key(|(tag, ..)| *tag);
        }
        self.uvarint(length_of(present.len())?);
        for (tag, field, value) in &present {
            self.uvarint(*tag);
            match field {
                Some(field) => {
                    let start = self.bytes.len();
                    let objects_before = self.objects_size;
                    if value.is_none() && field.nullable {
                        self.bytes.push(0); // a tagged null is 0 for every type, structs included
                    } else {
                        self.field(field, value).map_err(|failure| self.at(failure, plan, field.slot))?;
                    }
                    let size = (self.bytes.len() - start) + (self.objects_size - objects_before);
                    self.insert_size(start, length_of(size)?);
                }
                None => {
                    let data = Borrowed::of(value)?;
                    self.uvarint(length_of(data.as_slice().len())?);
                    self.bytes.extend_from_slice(data.as_slice());
                }
            }
        }
        Ok(())
    }

    /// Put the size of a tagged field before its bytes.
    fn insert_size(&mut self, start: usize, size: u32) {
        let end = self.bytes.len();
        self.uvarint(size);
        let width = self.bytes.len() - end;
        if let Some(tail) = self.bytes.get_mut(start..) {
            tail.rotate_right(width);
        }
        for (position, _) in self.objects.iter_mut().rev().take_while(|(position, _)| *position >= start) {
            *position += width;
        }
    }

    #[inline]
    pub(crate) fn field(&mut self, field: &Field, value: &Bound<'py, PyAny>) -> Encoded<()> {
        if !field.is_array {
            return self.value(field, value, field.nullable);
        }
        if value.is_none() {
            return self.null(field, field.nullable);
        }
        if let Ok(items) = value.cast_exact::<PyTuple>() {
            self.begin_array(field, items.len())?;
            for item in items.iter_borrowed() {
                self.value(field, &item, false)?;
            }
        } else if let Ok(items) = value.cast_exact::<PyList>() {
            self.begin_array(field, items.len())?;
            for item in items {
                self.value(field, &item, false)?;
            }
        } else {
            let items = value.try_iter()?.collect::<PyResult<Vec<_>>>()?;
            self.begin_array(field, items.len())?;
            for item in &items {
                self.value(field, item, false)?;
            }
        }
        Ok(())
    }

    /// The number of elements of an array.
    #[inline]
    pub(crate) fn begin_array(&mut self, field: &Field, count: usize) -> Encoded<()> {
        match self.elements_left.checked_sub(count) {
            Some(left) => self.elements_left = left,
            None => return Err(Failure { is_large: true, ..Failure::new("too many elements".to_owned()) }),
        }
        self.count(field, count)
    }

    #[inline]
    fn count(&mut self, field: &Field, count: usize) -> Encoded<()> {
        let count = length_of(count)?;
        if field.compact {
            self.uvarint(count + 1);
        } else {
            self.bytes.extend_from_slice(&count.to_be_bytes());
        }
        Ok(())
    }

    pub(crate) fn null(&mut self, field: &Field, nullable: bool) -> Encoded<()> {
        if !nullable {
            return Err(Failure::new("null where the version allows none".to_owned()));
        }
        match field.kind {
            Kind::Struct(_) if !field.is_array => self.bytes.push(0xff),
            _ if field.compact => self.bytes.push(0),
            Kind::Text if !field.is_array => self.bytes.extend_from_slice(&(-1i16).to_be_bytes()),
            _ => self.bytes.extend_from_slice(&(-1i32).to_be_bytes()),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn value(&mut self, field: &Field, value: &Bound<'py, PyAny>, nullable: bool) -> Encoded<()> {
        match field.kind {
            Kind::Bool => self.bytes.push(u8::from(value.is_truthy()?)),
            Kind::Int8 => self.bytes.extend_from_slice(&value.extract::<i8>()?.to_be_bytes()),
            Kind::Int16 => self.bytes.extend_from_slice(&value.extract::<i16>()?.to_be_bytes()),
            Kind::Uint16 => self.bytes.extend_from_slice(&value.extract::<u16>()?.to_be_bytes()),
            Kind::Int32 => self.bytes.extend_from_slice(&value.extract::<i32>()?.to_be_bytes()),
            Kind::Uint32 => self.bytes.extend_from_slice(&value.extract::<u32>()?.to_be_bytes()),
            Kind::Int64 => self.bytes.extend_from_slice(&value.extract::<i64>()?.to_be_bytes()),
            Kind::Float64 => self.bytes.extend_from_slice(&value.extract::<f64>()?.to_be_bytes()),
            Kind::Uuid => {
                let data = Borrowed::of(value)?;
                if data.as_slice().len() != 16 {
                    return Err(Failure::new(format!("a uuid has 16 bytes, not {}", data.as_slice().len())));
                }
                self.bytes.extend_from_slice(data.as_slice());
            }
            _ if value.is_none() => return self.null(field, nullable),
            Kind::Text => {
                let mut text = value.cast::<PyString>().map_err(PyErr::from)?.to_str()?;
                if text.len() > TEXT_BYTES_MAX && field.is_error_message {
                    text = start_of(text, TEXT_BYTES_MAX);
                }
                if text.len() > TEXT_BYTES_MAX {
                    return Err(Failure::new(format!("a string of {} bytes is too long", text.len())));
                }
                if field.compact {
                    self.uvarint(text.len() as u32 + 1);
                } else {
                    self.bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
                }
                self.bytes.extend_from_slice(text.as_bytes());
            }
            Kind::Bytes => {
                let data = Borrowed::of(value)?;
                let size = data.as_slice().len();
                self.count(field, size)?;
                if size >= SHARED_BYTES_MIN && value.is_exact_instance_of::<PyBytes>() {
                    self.objects.push((self.bytes.len(), value.clone()));
                    self.objects_size += size;
                } else {
                    self.bytes.extend_from_slice(data.as_slice());
                }
            }
            Kind::Records => {
                let size = records_size(value)?;
                self.count(field, size)?;
                if size > 0 {
                    self.objects.push((self.bytes.len(), value.clone()));
                    self.objects_size += size;
                }
            }
            Kind::Struct(plan) => {
                if nullable {
                    self.bytes.push(1);
                }
                self.message(plan, value)?;
            }
        }
        Ok(())
    }
}

/// A length or count that Kafka's int can hold.
fn length_of(length: usize) -> Encoded<u32> {
    match u32::try_from(length) {
        Ok(value) if value < i32::MAX as u32 => Ok(value),
        _ => Err(Failure::new(format!("{length} is more than a message can hold"))),
    }
}

/// As many whole characters of `text` as `max` bytes hold.
fn start_of(text: &str, max: usize) -> &str {
    let end = (0..=max).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

/// Bytes of a record field. A file slice says its size; taking its buffer would read the file.
fn records_size(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return Ok(bytes.as_bytes().len());
    }
    if value.cast_exact::<PyMemoryView>().is_err() {
        if let Ok(size) = value.getattr(intern!(value.py(), "nbytes")) {
            return size.extract();
        }
    }
    match Borrowed::of(value) {
        Ok(data) => Ok(data.as_slice().len()),
        Err(error) => Err(PyValueError::new_err(format!("records are bytes or a file slice: {error}"))),
    }
}
