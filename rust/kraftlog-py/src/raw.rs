//! All `unsafe` of the binding: memory that Python objects own, slots of instances, and the C interfaces of buffers and
//! Arrow. What is here is safe to call with any argument that safe code can make; the one exception says so.
//!
//! Two facts carry most proofs. A [`Bound`] proves that the interpreter lock is held. And an exported buffer stays in
//! place until it is released; that nobody writes into it meanwhile is asked of callers by the documentation of every
//! function that takes one, and all that is read from it is checked against its length.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::{size_of, MaybeUninit};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::ffi::{from_ffi, FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{make_array, ArrayRef};
use arrow_buffer::Buffer;
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyCapsule, PyList, PyString, PyType};

// --- descriptors ---

/// A descriptor that Python gives away, as `socket.detach` does.
pub(crate) fn own_descriptor(number: c_int) -> PyResult<OwnedFd> {
    // SAFETY: no memory is touched, whatever the number is.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the descriptor is open, and the documentation of the callers in Python says that it belongs to the callee
    // from then on.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

// --- the allocator ---

/// Give free memory back to the operating system, where the allocator is glibc's, which keeps much of it.
pub(crate) fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function takes no pointer, and locks what it changes.
    unsafe {
        libc::malloc_trim(0);
    }
}

// --- bytes of Python objects ---

/// Contiguous bytes that stay in place as long as this lives, to be read without the interpreter lock.
pub(crate) struct ByteBuffer {
    slice: NonNull<[u8]>,
    _owner: Owner,
}

/// What keeps the bytes: a reference will do for `bytes`, others stay exported.
enum Owner {
    Bytes(#[allow(dead_code)] Py<PyBytes>),
    Exported(#[allow(dead_code)] PyBuffer<u8>),
}

// SAFETY: the pointer is only read through, and both owners may be sent to and shared with any thread.
unsafe impl Send for ByteBuffer {}
// SAFETY: as above.
unsafe impl Sync for ByteBuffer {}

impl ByteBuffer {
    /// The bytes.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the owner keeps the memory from being moved, resized or freed. `bytes` never change; who passes
        // another object is asked not to write into it meanwhile.
        unsafe { self.slice.as_ref() }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for ByteBuffer {
    type Error = PyErr;

    #[inline]
    fn extract(object: pyo3::Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self {
                slice: NonNull::from(bytes.as_bytes()),
                _owner: Owner::Bytes(bytes.to_owned().unbind()),
            });
        }
        let buffer = PyBuffer::<u8>::get(&object)?;
        match buffer.as_slice_ptr() {
            Some(slice) => Ok(Self { slice, _owner: Owner::Exported(buffer) }),
            None => Err(PyBufferError::new_err("the buffer is not contiguous")),
        }
    }
}

/// A contiguous view of a buffer object, held until dropped, under the interpreter lock.
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
            // when `self` is dropped.
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
            // SAFETY: filled by PyObject_GetBuffer and not released before; `of` was given a Bound that lives longer
            // than `self`, so the lock is held.
            unsafe { ffi::PyBuffer_Release(view.as_mut()) };
        }
    }
}

/// A str of UTF-8 bytes; None, and no exception set, when they are not UTF-8.
#[inline]
pub(crate) fn decode_utf8<'py>(py: Python<'py>, data: &[u8]) -> Option<Bound<'py, PyAny>> {
    // SAFETY: pointer and length are those of a slice; a null pointer cannot occur.
    let value = unsafe {
        let value = ffi::PyUnicode_DecodeUTF8(
            data.as_ptr().cast(),
            data.len() as ffi::Py_ssize_t,
            c"strict".as_ptr(),
        );
        Bound::from_owned_ptr_or_opt(py, value)
    };
    if value.is_none() {
        drop(PyErr::take(py));
    }
    value
}

/// Copy bytes, which may be some of its own, into a bytearray.
pub(crate) fn copy_into(memory: &Bound<'_, PyByteArray>, at: usize, data: &[u8]) -> PyResult<()> {
    if at.checked_add(data.len()).is_none_or(|end| end > memory.len()) {
        return Err(PyBufferError::new_err("a frame outgrew its memory"));
    }
    // SAFETY: `at + data.len()` bytes are in the bytearray, which nobody resizes while the lock is held here; the two
    // ranges may overlap, and no slice of the bytearray is made.
    unsafe { std::ptr::copy(data.as_ptr(), memory.data().add(at), data.len()) };
    Ok(())
}

/// Copy the first `size` bytes of one bytearray into another; fewer when it is shorter.
pub(crate) fn copy_start(
    from: &Bound<'_, PyByteArray>,
    to: &Bound<'_, PyByteArray>,
    size: usize,
) -> PyResult<()> {
    if from.is(to) {
        return Ok(());
    }
    // SAFETY: the lock is held and no Python code runs while the slice exists; the other bytearray is another object.
    let old = unsafe { from.as_bytes() };
    copy_into(to, 0, old.get(..size).unwrap_or(old))
}

/// Give the first `size` bytes of a bytearray to `take`, which says how many it took; those behind move to the front.
/// Returns how many are left.
pub(crate) fn take_front(
    memory: &Bound<'_, PyByteArray>,
    size: usize,
    take: impl FnOnce(&[u8]) -> PyResult<usize>,
) -> PyResult<usize> {
    let held = Borrowed::of(memory.as_any())?;
    // While the view is held the bytearray cannot be resized, whatever `take` runs.
    let data = held.as_slice();
    let size = size.min(data.len());
    let taken = take(data.get(..size).unwrap_or_default())?.min(size);
    let size = size.min(memory.len());
    let left = size.saturating_sub(taken);
    // SAFETY: both ranges are within the first `size` bytes of the bytearray, which cannot be resized while `held`
    // exports it; they may overlap, and no exclusive slice is made.
    unsafe { std::ptr::copy(memory.data().add(taken.min(size)), memory.data(), left) };
    drop(held);
    Ok(left)
}

/// `__getbuffer__` for read-only bytes of `owner`.
///
/// The exception of this module: `view` has to be what the interpreter gave to `__getbuffer__`, and `bytes` must stay
/// as they are while `owner` lives.
pub(crate) fn export_bytes(
    owner: &Bound<'_, PyAny>,
    bytes: &[u8],
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: `view` comes from the interpreter and is writable. The bytes are owned by the object, are not changed or
    // freed while it lives, and the view holds a reference to it. They are exported read only.
    let result = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            bytes.as_ptr().cast_mut().cast(),
            isize::try_from(bytes.len()).unwrap_or(isize::MAX),
            1,
            flags,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(owner.py()))
    }
}

// --- Arrow ---

/// Keeps a Python buffer exported while Arrow refers to its bytes.
struct Exported(#[allow(dead_code)] PyUntypedBuffer);

/// The bytes of a Python object: shared when it says that nobody writes to them, else copied.
///
/// Bytes of any format do: pyarrow's buffers, for one, say that their bytes are signed.
pub(crate) fn arrow_buffer(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() || buffer.item_size() != 1 {
        return Err(PyBufferError::new_err("the buffer is not one run of bytes"));
    }
    let size = buffer.len_bytes();
    let Some(start) = NonNull::new(buffer.buf_ptr().cast::<u8>()).filter(|_| size > 0) else {
        return Ok(Buffer::from_vec(Vec::<u8>::new()));
    };
    if !buffer.readonly() {
        // SAFETY: the exporter keeps `size` contiguous bytes at `start` while `buffer` lives, and Python code, which
        // might write to them, does not run before they are copied.
        return Ok(Buffer::from(unsafe { std::slice::from_raw_parts(start.as_ptr(), size) }));
    }
    // SAFETY: the exporter keeps `size` contiguous read-only bytes at `start` until the export is released, which
    // `Exported` does when the last Arrow buffer goes.
    Ok(unsafe { Buffer::from_custom_allocation(start, size, Arc::new(Exported(buffer))) })
}

/// The array in the capsules of an object's `__arrow_c_array__`; they are empty afterwards.
pub(crate) fn array_of_capsules(
    schema: &Bound<'_, PyCapsule>,
    array: &Bound<'_, PyCapsule>,
) -> PyResult<ArrayRef> {
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
    // SAFETY: the names say that the capsules hold these structs, which live until the capsules are released; from_raw
    // takes the contents and marks the struct in the capsule as released.
    let (schema, array) =
        unsafe { (FFI_ArrowSchema::from_raw(schema.as_ptr()), FFI_ArrowArray::from_raw(array.as_ptr())) };
    // SAFETY: both structs come from the producer of the capsules and obey the C data interface, which is what their
    // names promise.
    let data =
        unsafe { from_ffi(array, &schema) }.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(make_array(data))
}

/// The fields of `ArrowSchema` in C, as far as the one that tells whether it still has contents.
#[repr(C)]
struct CSchema {
    _texts: [*const c_void; 3],
    _flags_and_count: [i64; 2],
    _children: [*const c_void; 2],
    release: *const c_void,
}

/// A schema that a capsule lends.
pub(crate) struct LentSchema<'a>(&'a FFI_ArrowSchema);

impl std::ops::Deref for LentSchema<'_> {
    type Target = FFI_ArrowSchema;

    fn deref(&self) -> &FFI_ArrowSchema {
        self.0
    }
}

/// The schema in a capsule of the name `arrow_schema`, which keeps it.
pub(crate) fn schema_of_capsule<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<LentSchema<'a>> {
    let capsule = object.cast::<PyCapsule>()?;
    let schema = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: the name says that the capsule holds this struct, which is as large; who took the contents out of it left
    // null for `release`. It lives until the capsule is released, which `object` keeps from happening.
    let release = unsafe { schema.cast::<CSchema>().read() }.release;
    if release.is_null() {
        return Err(PyValueError::new_err("the capsule holds no schema: somebody took it out"));
    }
    // SAFETY: as above; nobody else writes to it while the interpreter lock is held, and the reference is only used then.
    Ok(LentSchema(unsafe { schema.as_ref() }))
}

// --- slots of instances ---

/// Where the `__slots__` of a class are in its instances: only [`Slots::find`] makes one, so the offsets are right.
pub(crate) struct Slots {
    class: Py<PyType>,
    /// Bytes from the start of an instance to each slot.
    offsets: Vec<usize>,
}

impl Slots {
    /// Look the slots up: a new object is put into each through its descriptor, and the instance is searched for it.
    pub(crate) fn find(class: &Bound<'_, PyType>, names: &[Py<PyString>]) -> PyResult<Self> {
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
                found.ok_or_else(|| {
                    PyTypeError::new_err(format!("the slot {} was not found", name.bind(py)))
                })?,
            );
        }
        Ok(Self { class: class.clone().unbind(), offsets })
    }

    /// The class itself.
    pub(crate) fn class<'py>(&self, py: Python<'py>) -> &Bound<'py, PyType> {
        self.class.bind(py)
    }

    /// Whether an object is an instance of exactly this class.
    #[inline]
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
}

#[cold]
pub(crate) fn no_such_slot() -> PyErr {
    PyAttributeError::new_err("no such field")
}

/// The object, which the collector of garbage looks at no more: it and what it refers to cannot be part of a cycle.
///
/// A large request has hundred thousands of such objects; each full collection would stop everything for them.
#[inline]
pub(crate) fn untracked(object: Bound<'_, PyAny>) -> Bound<'_, PyAny> {
    // SAFETY: the object is alive, and is untracked only if its type is one of the collector's. To untrack an object twice is allowed, and
    // what is not tracked is never collected, which at worst keeps a cycle.
    unsafe {
        if ffi::PyType_GetFlags(object.get_type_ptr()) & ffi::Py_TPFLAGS_HAVE_GC != 0 {
            ffi::PyObject_GC_UnTrack(object.as_ptr().cast());
        }
    }
    object
}

/// How many references an object has.
pub(crate) fn references(object: &Bound<'_, PyAny>) -> isize {
    // SAFETY: the object is alive, and the interpreter lock is held.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) }
}

fn allocate<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the class is alive and its instances are plain slotted objects; an unset slot reads as AttributeError.
    unsafe { Bound::from_owned_ptr_or_err(class.py(), ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0)) }
}

// --- the base class of messages ---

/// What a class does when an instance is made, and when somebody assigns to a field of one.
pub(crate) trait Frozen {
    /// `__init__` with positional and keyword arguments.
    fn initialise(
        object: &Bound<'_, PyAny>,
        args: &Bound<'_, PyAny>,
        kwargs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()>;

    /// The exception for assigning to, or deleting, a field.
    fn refusal(name: &Bound<'_, PyAny>, is_delete: bool) -> PyErr;
}

/// `tp_init`.
unsafe extern "C" fn struct_init<F: Frozen>(
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
    match F::initialise(&object, &args, kwargs.as_ref()) {
        Ok(()) => 0,
        Err(error) => {
            error.restore(py);
            -1
        }
    }
}

/// `tp_setattro`.
unsafe extern "C" fn struct_setattro<F: Frozen>(
    _object: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: called by the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: `name` is a live, borrowed reference.
    let name = unsafe { Bound::from_borrowed_ptr(py, name) };
    F::refusal(&name, value.is_null()).restore(py);
    -1
}

/// A new base class without fields whose instances are made and guarded by `F`.
pub(crate) fn frozen_base<F: Frozen>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_init, pfunc: struct_init::<F> as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_setattro, pfunc: struct_setattro::<F> as *mut c_void },
        ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() },
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"kraftlog._kraftlog.StructBase".as_ptr(),
        basicsize: size_of::<ffi::PyObject>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as std::ffi::c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: name and functions are static; the interpreter copies what it keeps of spec and slots.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec)) }
}
