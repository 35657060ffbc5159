//! Memory for encoded and decompressed batches that is used again.
//!
//! Fresh memory costs a page fault for each 4 KiB, which takes longer than to fill the page. The pool is one for the
//! process and keeps at most [`POOL_SIZE_MAX`] bytes.
use std::sync::{Arc, Mutex, PoisonError};

/// Smaller blocks are left to the allocator.
const POOLED_SIZE_MIN: usize = 64 << 10;
/// Most bytes that wait in the pool: what a producer has under way, by default.
pub const POOL_SIZE_MAX: usize = 32 << 20;
/// Most blocks that wait in the pool.
const POOL_COUNT_MAX: usize = 64;
/// A block is not given to somebody who needs less of it than one part in so many.
const WASTE_MAX: usize = 2;

static POOL: Mutex<Pool> = Mutex::new(Pool { blocks: Vec::new(), size: 0 });

#[derive(Debug)]
struct Pool {
    blocks: Vec<Vec<u8>>,
    size: usize,
}

impl Pool {
    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let fits = |block: &Vec<u8>| block.capacity() >= size && block.capacity() / WASTE_MAX <= size;
        let candidates = self.blocks.iter().enumerate().filter(|(_, block)| fits(block));
        let (index, _) = candidates.min_by_key(|(_, block)| block.capacity())?;
        let block = self.blocks.swap_remove(index);
        self.size -= block.capacity();
        Some(block)
    }

    /// Keeps a block, or gives it back when it cannot be kept.
    fn give(&mut self, block: Vec<u8>) -> Option<Vec<u8>> {
        if self.blocks.len() >= POOL_COUNT_MAX || self.size.saturating_add(block.capacity()) > POOL_SIZE_MAX {
            return Some(block);
        }
        self.size += block.capacity();
        self.blocks.push(block);
        None
    }
}

/// Empty memory with room for `size` bytes at least.
pub fn take(size: usize) -> Vec<u8> {
    let found = (size >= POOLED_SIZE_MIN)
        .then(|| POOL.lock().unwrap_or_else(PoisonError::into_inner).take(size))
        .flatten();
    found.unwrap_or_else(|| Vec::with_capacity(size))
}

/// Gives memory back that nobody needs any more.
pub fn give(mut block: Vec<u8>) {
    if block.capacity() >= POOLED_SIZE_MIN {
        block.clear();
        let refused = POOL.lock().unwrap_or_else(PoisonError::into_inner).give(block);
        // Freed here, where the pool is unlocked again.
        drop(refused);
    }
}

/// Bytes that go to the pool with their last owner.
#[derive(Debug, Default)]
pub struct PooledBytes(Vec<u8>);

impl PooledBytes {
    /// These bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// All of them.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The bytes to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The bytes as an Arrow buffer.
    pub(crate) fn into_buffer(self) -> arrow_buffer::Buffer {
        crate::raw::shared_bytes(Arc::new(self))
    }
}

impl Drop for PooledBytes {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_gives_the_smallest_block_that_fits_and_keeps_its_bounds() {
        let mut pool = Pool { blocks: Vec::new(), size: 0 };
        for size in [256 << 10, 64 << 10, 128 << 10] {
            assert!(pool.give(Vec::with_capacity(size)).is_none());
        }
        assert_eq!(pool.take(100 << 10).map(|block| block.capacity()), Some(128 << 10));
        assert!(pool.take(1 << 20).is_none());
        assert!(pool.take(100 << 10).is_none(), "most of a block is not wasted");
        let refused = (0..200).filter(|_| pool.give(Vec::with_capacity(1 << 20)).is_some()).count();
        assert!(refused > 0 && pool.size <= POOL_SIZE_MAX && pool.blocks.len() <= POOL_COUNT_MAX);
        let held: usize = pool.blocks.iter().map(Vec::capacity).sum();
        assert_eq!(held, pool.size);
    }

    #[test]
    fn memory_comes_back_empty() {
        let mut block = take(80 << 10);
        block.extend_from_slice(&[7; 1000]);
        give(block);
        let again = take(80 << 10);
        assert!(again.is_empty() && again.capacity() >= 80 << 10);
    }

    #[test]
    fn an_arrow_buffer_keeps_the_bytes() {
        let bytes: Vec<u8> = (0..100_000).map(|number| number as u8).collect();
        let buffer = PooledBytes::new(bytes.clone()).into_buffer();
        let part = buffer.slice_with_length(5, 1000);
        drop(buffer);
        drop(take(90_000));
        assert_eq!(part.as_slice(), &bytes[5..1005]);
    }
}
