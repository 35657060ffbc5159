//! Bytes that were received and not handled, and the memory they lie in.
use std::mem;

/// What is received at once, and the largest frame that is handled where it was received.
pub(super) const SCRATCH_BYTES: usize = 128 * 1024;
/// What a large frame gets before its bytes arrive; it doubles from there. Untouched pages cost nothing.
const LARGE_START_BYTES: usize = 1 << 20;
/// Memory that is kept for the next large frames of any connection, and the largest piece of it.
const POOL_BYTES: usize = 16 << 20;
const POOLED_MAX_BYTES: usize = 4 << 20;
const PREFIX_BYTES: usize = 4;

/// The start of a stream of frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// A frame of this many bytes lies behind the prefix.
    Whole(usize),
    /// So many bytes are missing, at least.
    Partial(usize),
}

/// Look at the frame that `data` starts with.
///
/// # Errors
/// The size that the prefix names is not one that is accepted.
pub(super) fn cut(data: &[u8], max_frame_bytes: usize) -> Result<Cut, String> {
    let Some((prefix, rest)) = data.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(Cut::Partial(PREFIX_BYTES - data.len()));
    };
    let claimed = i32::from_be_bytes(*prefix);
    match usize::try_from(claimed) {
        Ok(size) if size <= max_frame_bytes => Ok(match size.checked_sub(rest.len()) {
            None | Some(0) => Cut::Whole(size),
            Some(missing) => Cut::Partial(missing),
        }),
        _ => Err(format!("a frame of {claimed} bytes is not between 0 and {max_frame_bytes} bytes")),
    }
}

/// Buffers that frames of earlier wake-ups left, of all connections of a thread: memory that was touched before is
/// several times cheaper than new memory.
#[derive(Debug, Default)]
pub(super) struct Pool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    was_used: bool,
}

impl Pool {
    /// An empty buffer of at least `at_least` bytes; large enough for `best` if the pool has such a one.
    fn take(&mut self, at_least: usize, best: usize) -> Vec<u8> {
        self.was_used = true;
        let fitting = self.buffers.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= best);
        let smallest = fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(index, _)| index);
        if let Some(index) = smallest {
            let buffer = self.buffers.swap_remove(index);
            self.bytes -= buffer.capacity();
            return buffer;
        }
        Vec::with_capacity(at_least.max(best.min(LARGE_START_BYTES)))
    }

    fn give_back(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity > 0 && capacity <= POOLED_MAX_BYTES && self.bytes + capacity <= POOL_BYTES {
            buffer.clear();
            self.bytes += capacity;
            self.buffers.push(buffer);
        }
    }

    /// Whether memory is kept that [`Self::trim`] could free.
    pub(super) fn has_memory(&self) -> bool {
        self.bytes > 0
    }

    /// Called once a second or so: free everything if nothing was used since the last call.
    pub(super) fn trim(&mut self) {
        if !mem::take(&mut self.was_used) {
            self.buffers = Vec::new();
            self.bytes = 0;
        }
    }
}

/// Unhandled bytes of one connection. Holds no memory while there are none.
#[derive(Debug, Default)]
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
}

impl Input {
    pub(super) fn unhandled(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.buffer.len()
    }

    /// Keep bytes for later.
    pub(super) fn append(&mut self, data: &[u8], pool: &mut Pool) {
        if !data.is_empty() {
            self.reserve(data.len(), pool);
            self.buffer.extend_from_slice(data);
        }
    }

    /// Room for at least `count` bytes, and for the rest of the frame at the front as far as memory grows by doubling.
    fn reserve(&mut self, count: usize, pool: &mut Pool) {
        if self.buffer.capacity() - self.buffer.len() >= count {
            return;
        }
        let held = self.unhandled().len();
        let frame = match self.unhandled().first_chunk::<PREFIX_BYTES>() {
            Some(prefix) => usize::try_from(i32::from_be_bytes(*prefix)).unwrap_or(0) + PREFIX_BYTES,
            None => 0,
        };
        let best = frame.min((2 * held).max(LARGE_START_BYTES)).max(held + count);
        if self.start > 0 || self.buffer.capacity() == 0 {
            let mut buffer = pool.take(held + count, best);
            buffer.extend_from_slice(self.unhandled());
            pool.give_back(mem::replace(&mut self.buffer, buffer));
            self.start = 0;
        } else {
            self.buffer.reserve_exact(best - held);
        }
    }

    /// Where the next bytes of the frame at the front go, behind what is there; not necessarily room for all that is
    /// `missing` of it.
    pub(super) fn room(&mut self, missing: usize, pool: &mut Pool) -> &mut Vec<u8> {
        if self.buffer.len() == self.buffer.capacity() || self.start > 0 {
            self.reserve(missing.min(self.unhandled().len().max(LARGE_START_BYTES)), pool);
        }
        &mut self.buffer
    }

    /// The first `count` bytes are handled.
    pub(super) fn consume(&mut self, count: usize, pool: &mut Pool) {
        self.start += count;
        if self.is_empty() {
            self.clear(pool);
        }
    }

    /// Take the frame at the front, of `size` bytes behind its prefix, out of the buffer: the buffer itself if the
    /// frame fills most of it. Gives the bytes and where the frame begins in them.
    pub(super) fn take_frame(&mut self, size: usize, pool: &mut Pool) -> (Vec<u8>, usize) {
        let end = self.start + PREFIX_BYTES + size;
        if self.buffer.len() == end && self.buffer.capacity() <= 2 * size {
            let start = mem::take(&mut self.start) + PREFIX_BYTES;
            return (mem::take(&mut self.buffer), start);
        }
        let frame = self.buffer.get(self.start + PREFIX_BYTES..end).unwrap_or_default().to_vec();
        self.consume(PREFIX_BYTES + size, pool);
        (frame, 0)
    }

    /// Forget everything and give the memory back.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        self.start = 0;
        pool.give_back(mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_what_arrived_and_not_with_what_a_size_claims() {
        let mut pool = Pool::default();
        let mut input = Input::default();
        input.append(&(90_i32 << 20).to_be_bytes(), &mut pool);
        assert!(input.room(90 << 20, &mut pool).capacity() <= LARGE_START_BYTES + PREFIX_BYTES);
        for _ in 0..300 {
            input.append(&[1; 10_000], &mut pool);
            let room = input.room(90 << 20, &mut pool);
            assert!(room.capacity() <= 2 * room.len() + LARGE_START_BYTES + 10_000);
        }
        assert!(matches!(cut(input.unhandled(), 100 << 20), Ok(Cut::Partial(_))));
    }

    #[test]
    fn a_large_half_frame_is_freed_at_once_and_small_memory_is_kept_for_the_next_frame() {
        let mut pool = Pool::default();
        let mut input = Input::default();
        input.append(&vec![0; 50 << 20], &mut pool);
        input.clear(&mut pool);
        assert!(!pool.has_memory());
        input.append(&vec![0; 900_000], &mut pool);
        let memory = input.unhandled().as_ptr();
        input.clear(&mut pool);
        assert_eq!(input.buffer.capacity(), 0);
        input.append(&vec![0; 800_000], &mut pool);
        assert_eq!(input.unhandled().as_ptr(), memory);
        input.clear(&mut pool);
        pool.trim();
        assert!(pool.has_memory());
        pool.trim();
        assert!(!pool.has_memory());
    }

    #[test]
    fn what_the_pool_keeps_is_bounded() {
        let mut pool = Pool::default();
        let mut inputs: Vec<Input> = Vec::new();
        for _ in 0..40 {
            let mut input = Input::default();
            input.append(&vec![0; 1 << 20], &mut pool);
            inputs.push(input);
        }
        for input in &mut inputs {
            input.clear(&mut pool);
        }
        assert!(pool.bytes <= POOL_BYTES);
    }

    #[test]
    fn a_frame_that_fills_its_memory_is_given_away_without_a_copy() {
        let mut pool = Pool::default();
        let mut input = Input::default();
        let mut data = 1_000_000_i32.to_be_bytes().to_vec();
        data.resize(1_000_004, 5);
        input.append(&data, &mut pool);
        let memory = input.unhandled().as_ptr();
        let (buffer, start) = input.take_frame(1_000_000, &mut pool);
        assert_eq!((buffer.as_ptr(), start), (memory, 4));
        assert!(input.is_empty());
        input.append(&data, &mut pool);
        input.append(&data, &mut pool);
        for _ in 0..2 {
            let (buffer, start) = input.take_frame(1_000_000, &mut pool);
            assert!(buffer[start..] == data[4..]);
        }
        assert!(input.is_empty());
    }
}
