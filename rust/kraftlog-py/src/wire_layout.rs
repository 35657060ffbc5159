//! Instances of the generated message classes, made and read without running Python code.
//!
//! A message class is a plain Python class with `__slots__`: each slot is a pointer at a fixed place in the instance,
//! null while unset. Where it is, the stable ABI does not say, so it is looked up once a class: a new object is put
//! into the slot through its descriptor, and the instance is searched for the pointer. From then on a field costs a
//! load or a store, which [`Slots`] does.
use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError, RwLock};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::raw::{frozen_base, no_such_slot, untracked, Frozen, Slots};
use crate::wire_schema::MessageType;

/// What is known about one message class or nested struct.
pub(crate) struct Layout {
    slots: Slots,
    /// Attribute names in the order of the schema; the unknown tagged fields come last.
    pub(crate) names: Vec<Py<PyString>>,
    /// Kafka's defaults in the same order.
    pub(crate) defaults: Vec<Py<PyAny>>,
    /// The whole message, when the class is one; made at first use.
    pub(crate) message: OnceLock<&'static MessageType>,
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

    /// The layout of a class for which `of` was called before.
    pub(crate) fn known(class: &Bound<'_, PyType>) -> Option<&'static Layout> {
        let known = LAYOUTS.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref()?.get(&(class.as_ptr() as usize)).copied()
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
        Ok(Self { slots: Slots::find(class, &names)?, names, defaults, message: OnceLock::new() })
    }

    /// The class itself.
    pub(crate) fn class<'py>(&self, py: Python<'py>) -> &Bound<'py, PyType> {
        self.slots.class(py)
    }

    /// Whether an object is an instance of exactly this class.
    pub(crate) fn is_instance(&self, object: &Bound<'_, PyAny>) -> bool {
        self.slots.is_instance(object)
    }

    /// A new instance with no field set yet.
    pub(crate) fn allocate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.slots.allocate(py)
    }

    /// The same for an instance whose fields cannot lead back to it: the collector of garbage need not know it.
    #[inline]
    pub(crate) fn allocate_untracked<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.allocate(py).map(untracked)
    }

    /// Set one field of an instance of this class.
    #[inline]
    pub(crate) fn set(
        &self,
        object: &Bound<'_, PyAny>,
        index: usize,
        value: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.slots.set(object, index, value)
    }

    /// Read one field of an instance of this class.
    #[inline]
    pub(crate) fn get<'py>(&self, object: &Bound<'py, PyAny>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        self.slots.get(object, index)
    }

    /// The value a field has when nobody sets it.
    pub(crate) fn default(&self, index: usize) -> PyResult<&Py<PyAny>> {
        self.defaults.get(index).ok_or_else(no_such_slot)
    }

    /// Give an instance its values. It is frozen from then on, so that none of them can lead back to it.
    fn initialise(&self, object: &Bound<'_, PyAny>, values: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let py = object.py();
        for (index, default) in self.defaults.iter().enumerate() {
            self.set(object, index, default.bind(py).clone())?;
        }
        let Some(values) = values else {
            untracked(object.clone());
            return Ok(());
        };
        for (key, value) in values.iter() {
            let same = |name: &Py<PyString>| name.as_ptr() == key.as_ptr();
            let index = match self.names.iter().position(same) {
                Some(index) => index,
                None => {
                    let text = key.cast::<PyString>()?.to_str()?;
                    let equal = |name: &Py<PyString>| name.bind(py).to_str().is_ok_and(|known| known == text);
                    self.names.iter().position(equal).ok_or_else(|| {
                        let class =
                            self.class(py).qualname().map(|name| name.to_string()).unwrap_or_default();
                        PyTypeError::new_err(format!("{class} has no field '{text}'"))
                    })?
                }
            };
            self.set(object, index, value)?;
        }
        untracked(object.clone());
        Ok(())
    }
}

/// Message classes: keyword arguments over defaults, and no assignment afterwards.
struct Message;

impl Frozen for Message {
    fn initialise(
        object: &Bound<'_, PyAny>,
        args: &Bound<'_, PyAny>,
        kwargs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if args.len()? != 0 {
            return Err(PyTypeError::new_err("message fields are keyword-only"));
        }
        let kwargs = kwargs.map(|dict| dict.cast::<PyDict>()).transpose()?;
        Layout::of(&object.get_type())?.initialise(object, kwargs)
    }

    fn refusal(name: &Bound<'_, PyAny>, is_delete: bool) -> PyErr {
        let verb = if is_delete { "delete" } else { "assign to" };
        let text = format!("cannot {verb} field '{name}'");
        match name.py().import("dataclasses").and_then(|module| module.getattr("FrozenInstanceError")) {
            Ok(class) => match class.call1((text,)) {
                Ok(value) => PyErr::from_value(value),
                Err(error) => error,
            },
            Err(error) => error,
        }
    }
}

/// The base class of `kraftlog.wire.struct.Struct`.
pub(crate) fn struct_base(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    frozen_base::<Message>(py)
}
