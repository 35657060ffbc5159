//! Parts of files mapped into memory, in a way that survives the file becoming shorter.
//!
//! To read a mapped page that the file no longer has is a SIGBUS, which ends a process. The handler here gives the
//! page zeros instead when it is in a range of this module, and flags the range; every other SIGBUS goes to the handler before.
use arrow_buffer::Buffer;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Once};

/// A mapped range, for the signal handler. Slots are used again and never freed, so that the handler can walk over
/// them at any time.
#[derive(Debug)]
struct Slot {
    /// First address, 0 while the slot is free, 1 while it is being filled.
    start: AtomicUsize,
    end: AtomicUsize,
    has_faulted: AtomicBool,
    next: *const Slot,
}

const FREE: usize = 0;
const CLAIMED: usize = 1;

static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(4096);
static INSTALL: Once = Once::new();
/// The handler that was there before, as an address; its flags say how to call it.
static PREVIOUS: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static PREVIOUS_TAKES_INFO: AtomicBool = AtomicBool::new(false);

fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut next = SLOTS.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: slots come from leaked boxes and live for ever; `next` never changes.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

fn claim_slot() -> &'static Slot {
    let is_claimed = |slot: &&Slot| {
        slot.start.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    if let Some(slot) = slots().find(is_claimed) {
        return slot;
    }
    let slot = Box::leak(Box::new(Slot {
        start: AtomicUsize::new(CLAIMED),
        end: AtomicUsize::new(0),
        has_faulted: AtomicBool::new(false),
        next: ptr::null(),
    }));
    let mut first = SLOTS.load(Ordering::Acquire);
    loop {
        slot.next = first;
        match SLOTS.compare_exchange_weak(first, slot, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return slot,
            Err(other) => first = other,
        }
    }
}

/// Part of a file in memory, read only. Where the file has become shorter it reads as zeros.
#[derive(Debug)]
pub(crate) struct MappedRange {
    start: NonNull<u8>,
    size: usize,
    slot: &'static Slot,
}

// SAFETY: the memory is only read, and what changes in a slot is atomic.
unsafe impl Send for MappedRange {}
// SAFETY: as above.
unsafe impl Sync for MappedRange {}

impl MappedRange {
    /// Maps `size` bytes, at least one, from byte `position` on, which is a multiple of [`page_size`].
    pub(crate) fn open(file: &File, position: u64, size: usize) -> Result<Self> {
        INSTALL.call_once(install_handler);
        let offset = libc::off_t::try_from(position).map_err(Error::other)?;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at a place that the kernel chooses takes no memory from anyone.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_READ, flags, file.as_raw_fd(), offset) };
        let start =
            NonNull::new(start.cast::<u8>()).filter(|start| start.as_ptr().cast() != libc::MAP_FAILED);
        let start = start.ok_or_else(Error::last_os_error)?;
        let slot = claim_slot();
        slot.has_faulted.store(false, Ordering::Relaxed);
        slot.end.store(start.addr().get() + size, Ordering::Relaxed);
        slot.start.store(start.addr().get(), Ordering::Release);
        Ok(Self { start, size, slot })
    }

    /// True once bytes were read that the file did not have any more.
    pub(crate) fn has_faulted(&self) -> bool {
        self.slot.has_faulted.load(Ordering::Acquire)
    }

    /// The bytes, which stay mapped as long as a buffer refers to them.
    pub(crate) fn buffer(self: &Arc<Self>) -> Buffer {
        let owner: Arc<Self> = Arc::clone(self);
        // SAFETY: the range is mapped until the last reference to it is dropped. Its bytes may change when someone
        // writes to the file; a sealed segment is not written to, and what is read of it is checked as outside data.
        unsafe { Buffer::from_custom_allocation(self.start, self.size, owner) }
    }
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        // The slot goes first: from here on a fault at these addresses belongs to another owner.
        self.slot.start.store(FREE, Ordering::Release);
        // SAFETY: this mapping was made by `open` and nobody refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// Bytes of a page of memory.
pub(crate) fn page_size() -> u64 {
    INSTALL.call_once(install_handler);
    PAGE_SIZE.load(Ordering::Relaxed) as u64
}

fn install_handler() {
    // SAFETY: plain queries and calls with zeroed structures that the kernel fills; the handler only does what is
    // allowed in one: atomic loads and stores, and system calls.
    unsafe {
        let page_size = libc::sysconf(libc::_SC_PAGESIZE);
        PAGE_SIZE.store(usize::try_from(page_size).unwrap_or(4096), Ordering::Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut previous: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) == 0 {
            PREVIOUS.store(previous.sa_sigaction, Ordering::Relaxed);
            PREVIOUS_TAKES_INFO.store(previous.sa_flags & libc::SA_SIGINFO != 0, Ordering::Relaxed);
            libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
        }
    }
}

/// Puts zeros where a page of this module is gone; otherwise calls the previous handler.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid siginfo with an address for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in slots() {
        let start = slot.start.load(Ordering::Acquire);
        if start <= CLAIMED || address < start || address >= slot.end.load(Ordering::Relaxed) {
            continue;
        }
        let page_size = PAGE_SIZE.load(Ordering::Relaxed);
        let page = address & !(page_size - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies in a range that is mapped by us, read only, and is replaced by zeros.
        let mapped = unsafe { libc::mmap(page as *mut _, page_size, libc::PROT_READ, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            slot.has_faulted.store(true, Ordering::Release);
            return;
        }
    }
    let previous = PREVIOUS.load(Ordering::Relaxed);
    if previous == libc::SIG_DFL || previous == libc::SIG_IGN {
        // SAFETY: back to what the kernel does by itself; the access is tried again and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    } else if PREVIOUS_TAKES_INFO.load(Ordering::Relaxed) {
        // SAFETY: its installer declared that it has this signature.
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(previous) };
        handler(signal, info, context);
    } else {
        // SAFETY: as above.
        let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(previous) };
        handler(signal);
    }
}
