//! Instances of the generated message classes, made and read without running Python code.
//!
//! A message class is a plain Python class with `__slots__`: each slot is a pointer at a fixed place in the instance,
//! null while unset. Where it is, the stable ABI does not say, so it is looked up once a class: a new object is put
//! into the slot through its descriptor, and the instance is searched for the pointer. From then on a field costs a
//! load or a store. Nearly all of the codec's `unsafe` is in this file and in `wire_buffer.rs`.
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::{OnceLock, PoisonError, RwLock};

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};

use crate::wire_schema::MessageType;

/// What is known about one message class or nested struct.
pub(crate) struct Layout {
    class: Py<PyType>,
    /// Attribute names in the order of the schema; the unknown tagged fields come last.
    pub(crate) names: Vec<Py<PyString>>,
    /// Kafka's defaults in the same order.
    pub(crate) defaults: Vec<Py<PyAny>>,
    /// The whole message, when the class is one; made at first use.
    pub(crate) message: OnceLock<&'static MessageType>,
    /// Bytes from the start of an instance to each slot.
    offsets: Vec<usize>,
}

/// Classes live as long as the process, so their layouts are leaked on purpose.
static LAYOUTS: RwLock<Option<HashMap<usize, &'static Layout>>> = RwLock::new(None);

impl Layout {
    /// The layout of a class, built when it is first asked for.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<&'static Layout> {
        let key = class.as_ptr() as usize;
        let known = LAYOUTS.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(layout) = known.as_ref().and_then(|map| map.get(&key)) {
            return Ok(layout);
        }
        drop(known);
        let layout: &'static Layout = Box::leak(Box::new(Self::build(class)?));
        let mut all = LAYOUTS.write().unwrap_or_else(PoisonError::into_inner);
        Ok(all.get_or_insert_default().entry(key).or_insert(layout))
    }

    fn build(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = class.py();
        let mut names: Vec<Py<PyString>> = Vec::new();
        for name in class.getattr("FIELDS")?.cast::<PyTuple>()? {
            names.push(PyString::intern(py, name.cast::<PyString>()?.to_str()?).unbind());
        }
        names.push(PyString::intern(py, "unknown_tagged_fields").unbind());
        let mut defaults: Vec<Py<PyAny>> = class.getattr("DEFAULTS")?.extract()?;
        defaults.push(PyTuple::empty(py).into_any().unbind());
        if defaults.len() != names.len() {
            return Err(PyTypeError::new_err("FIELDS and DEFAULTS differ in length"));
        }
        Ok(Self {
            offsets: find_slots(class, &names)?,
            class: class.clone().unbind(),
            names,
            defaults,
            message: OnceLock::new(),
        })
    }

    /// The class itself.
    pub(crate) fn class<'py>(&self, py: Python<'py>) -> &Bound<'py, PyType> {
        self.class.bind(py)
    }

    /// Whether an object is an instance of exactly this class.
    pub(crate) fn is_instance(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type_ptr().cast::<ffi::PyObject>() == self.class.as_ptr()
    }

    /// A new instance with no field set yet.
    pub(crate) fn allocate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        allocate(self.class.bind(py))
    }

    /// The place of a slot in an instance of this class.
    #[inline]
    fn slot(&self, object: &Bound<'_, PyAny>, index: usize) -> PyResult<*mut *mut ffi::PyObject> {
        match self.offsets.get(index) {
            Some(offset) if self.is_instance(object) => {
                // SAFETY: the object is an instance of the class, whose instances have this slot at this offset.
                Ok(unsafe { object.as_ptr().cast::<u8>().add(*offset) }.cast::<*mut ffi::PyObject>())
            }
            _ => Err(no_such_slot()),
        }
    }

    /// Set one field of an instance of this class.
    #[inline]
    pub(crate) fn set(
        &self,
        object: &Bound<'_, PyAny>,
        index: usize,
        value: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let slot = self.slot(object, index)?;
        // SAFETY: the slot is a pointer that owns a reference or is null; the new value's reference moves into it,
        // and the old one is given up only after that.
        unsafe {
            let old = slot.replace(value.into_ptr());
            drop(Bound::from_owned_ptr_or_opt(object.py(), old));
        }
        Ok(())
    }

    /// Read one field of an instance of this class.
    #[inline]
    pub(crate) fn get<'py>(&self, object: &Bound<'py, PyAny>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let slot = self.slot(object, index)?;
        // SAFETY: the slot is a pointer to a live object or null; the result has a reference of its own.
        let value = unsafe { Bound::from_borrowed_ptr_or_opt(object.py(), slot.read()) };
        value.ok_or_else(no_such_slot)
    }

    /// The value a field has when nobody sets it.
    pub(crate) fn default(&self, index: usize) -> PyResult<&Py<PyAny>> {
        self.defaults.get(index).ok_or_else(no_such_slot)
    }

    fn initialise(&self, object: &Bound<'_, PyAny>, values: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let py = object.py();
        for (index, default) in self.defaults.iter().enumerate() {
            self.set(object, index, default.bind(py).clone())?;
        }
        let Some(values) = values else { return Ok(()) };
        for (key, value) in values.iter() {
            let same = |name: &Py<PyString>| name.as_ptr() == key.as_ptr();
            let index = match self.names.iter().position(same) {
                Some(index) => index,
                None => {
                    let text = key.cast::<PyString>()?.to_str()?;
                    let equal = |name: &Py<PyString>| name.bind(py).to_str().is_ok_and(|known| known == text);
                    self.names.iter().position(equal).ok_or_else(|| {
                        let class =
                            self.class.bind(py).qualname().map(|name| name.to_string()).unwrap_or_default();
                        PyTypeError::new_err(format!("{class} has no field '{text}'"))
                    })?
                }
            };
            self.set(object, index, value)?;
        }
        Ok(())
    }
}

fn allocate<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the class is alive and its instances are plain slotted objects; an unset slot reads as AttributeError.
    unsafe { Bound::from_owned_ptr_or_err(class.py(), ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0)) }
}

/// Where the slots of these names are in an instance.
fn find_slots(class: &Bound<'_, PyType>, names: &[Py<PyString>]) -> PyResult<Vec<usize>> {
    let py = class.py();
    let size: usize = class.getattr("__basicsize__")?.extract()?;
    let instance = allocate(class)?;
    let mut offsets = Vec::with_capacity(names.len());
    for name in names {
        let descriptor = class.getattr(name)?;
        if descriptor.get_type().name()? != "member_descriptor" {
            return Err(PyTypeError::new_err(format!("{} is not a slot", name.bind(py))));
        }
        let probe = PyList::empty(py);
        descriptor.call_method1("__set__", (&instance, &probe))?;
        let words = size_of::<ffi::PyObject>()..size.saturating_sub(size_of::<usize>() - 1);
        let found = words.step_by(size_of::<usize>()).find(|offset| {
            // SAFETY: a whole word inside the instance, behind its header; slots are aligned pointers.
            let word = unsafe { instance.as_ptr().cast::<u8>().add(*offset).cast::<usize>().read() };
            word == probe.as_ptr() as usize
        });
        offsets.push(
            found.ok_or_else(|| PyTypeError::new_err(format!("the slot {} was not found", name.bind(py))))?,
        );
    }
    Ok(offsets)
}

#[cold]
fn no_such_slot() -> PyErr {
    PyAttributeError::new_err("no such field")
}

/// `tp_init` of every message class: keyword arguments over defaults.
unsafe extern "C" fn struct_init(
    object: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: called by the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: `object` and `args` are live, borrowed references; `kwargs` is one or null.
    let (object, args, kwargs) = unsafe {
        (
            Bound::from_borrowed_ptr(py, object),
            Bound::from_borrowed_ptr(py, args),
            Bound::from_borrowed_ptr_or_opt(py, kwargs),
        )
    };
    let result = (|| {
        if args.len()? != 0 {
            return Err(PyTypeError::new_err("message fields are keyword-only"));
        }
        let kwargs = kwargs.as_ref().map(|dict| dict.cast::<PyDict>()).transpose()?;
        Layout::of(&object.get_type())?.initialise(&object, kwargs)
    })();
    match result {
        Ok(()) => 0,
        Err(error) => {
            error.restore(py);
            -1
        }
    }
}

/// `tp_setattro` of every message class: they are frozen.
unsafe extern "C" fn struct_setattro(
    _object: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: called by the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: `name` is a live, borrowed reference.
    let name = unsafe { Bound::from_borrowed_ptr(py, name) };
    let verb = if value.is_null() { "delete" } else { "assign to" };
    let text = format!("cannot {verb} field '{name}'");
    let error = match py.import("dataclasses").and_then(|module| module.getattr("FrozenInstanceError")) {
        Ok(class) => match class.call1((text,)) {
            Ok(value) => PyErr::from_value(value),
            Err(error) => error,
        },
        Err(error) => error,
    };
    error.restore(py);
    -1
}

/// The base class of `kraftlog.wire.struct.Struct`.
pub(crate) fn struct_base(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_init, pfunc: struct_init as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_setattro, pfunc: struct_setattro as *mut c_void },
        ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() },
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"kraftlog._kraftlog.StructBase".as_ptr(),
        basicsize: std::mem::size_of::<ffi::PyObject>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as std::ffi::c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: name and functions are static; the interpreter copies what it keeps of spec and slots.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec)) }
}
