//! Growable memory for columns that goes back to a pool when Arrow is done with it.
//!
//! Fresh memory costs a page fault for each 4 KiB, which on a virtual machine takes longer than to fill
//! the page; a scan whose consumer drops each batch before the next one is read runs in the same pages.
//! New memory is zeroed, by the system where the block is large; used memory holds what it held before.
#![deny(unsafe_code)]

use super::{Plain, Unit};
use arrow_buffer::Buffer;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

const UNIT_SIZE: usize = size_of::<Unit>();
/// Smaller blocks are left to the allocator.
const POOLED_SIZE_MIN: usize = 16 << 10;
/// Most bytes that wait in the pool.
const POOL_SIZE_MAX: usize = 64 << 20;
/// Most blocks that wait in the pool.
const POOL_COUNT_MAX: usize = 64;

static POOL: Mutex<Pool> = Mutex::new(Pool { blocks: Vec::new(), size: 0 });

#[derive(Debug)]
struct Pool {
    blocks: Vec<Vec<Unit>>,
    size: usize,
}

impl Pool {
    /// The smallest block of at least `size` bytes, unless it would waste most of itself.
    fn take(&mut self, size: usize) -> Option<Vec<Unit>> {
        let fits = |block: &Vec<Unit>| block_size(block) >= size && block_size(block) / 8 <= size;
        let candidates = self.blocks.iter().enumerate().filter(|(_, block)| fits(block));
        let (index, _) = candidates.min_by_key(|(_, block)| block_size(block))?;
        let block = self.blocks.swap_remove(index);
        self.size -= block_size(&block);
        Some(block)
    }

    /// Keeps a block, or gives it back when it can not be kept.
    fn give(&mut self, block: Vec<Unit>) -> Option<Vec<Unit>> {
        let size = block_size(&block);
        if self.blocks.len() >= POOL_COUNT_MAX || self.size + size > POOL_SIZE_MAX {
            return Some(block);
        }
        self.size += size;
        self.blocks.push(block);
        None
    }
}

fn block_size(block: &[Unit]) -> usize {
    block.len() * UNIT_SIZE
}

fn take_block(size: usize) -> Vec<Unit> {
    if size >= POOLED_SIZE_MIN {
        if let Some(block) = POOL.lock().unwrap_or_else(PoisonError::into_inner).take(size) {
            return block;
        }
    }
    vec![0; size.div_ceil(UNIT_SIZE)]
}

/// A block of memory; dropping it gives it to the pool.
#[derive(Debug, Default)]
pub(crate) struct Block(Vec<Unit>);

impl Block {
    /// All of it.
    #[inline(always)]
    pub(crate) fn units(&self) -> &[Unit] {
        &self.0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let block = std::mem::take(&mut self.0);
        if block_size(&block) >= POOLED_SIZE_MIN {
            let refused = POOL.lock().unwrap_or_else(PoisonError::into_inner).give(block);
            // Freed here, where the pool is unlocked again.
            drop(refused);
        }
    }
}

/// A vector of numbers in pooled memory.
#[derive(Debug)]
pub(crate) struct Column<T> {
    block: Block,
    len: usize,
    /// Values of the column before [`take`](Self::take), a good guess for the next.
    expected: usize,
    values: PhantomData<T>,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { block: Block::default(), len: 0, expected: 0, values: PhantomData }
    }
}

impl<T: Plain> Column<T> {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Values that there is room for.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        size_of_val(self.block.units()) / size_of::<T>()
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        super::numbers(self.block.units()).get(..self.len).unwrap_or_default()
    }

    #[inline(always)]
    fn all_mut(&mut self) -> &mut [T] {
        super::numbers_mut(&mut self.block.0)
    }

    pub(crate) fn last(&self) -> Option<T> {
        self.as_slice().last().copied()
    }

    /// Makes the first block at least this many values large.
    pub(crate) fn expect(&mut self, values: usize) {
        self.expected = values;
    }

    /// Makes room for `more` values.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, more: usize) {
        if self.capacity() - self.len < more {
            self.grow(more);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) {
        let needed = self.len.saturating_add(more);
        let wanted = needed.max(self.capacity().saturating_mul(2)).max(self.expected);
        let mut block = Block(take_block(wanted.saturating_mul(size_of::<T>())));
        let old = self.as_slice();
        if let Some(target) = super::numbers_mut(&mut block.0).get_mut(..old.len()) {
            target.copy_from_slice(old);
        }
        self.block = block;
    }

    /// Room for `more` values behind the last, to be counted by [`advance`](Self::advance). They have values already,
    /// though not useful ones.
    #[inline(always)]
    pub(crate) fn spare_mut(&mut self, more: usize) -> &mut [T] {
        self.reserve(more);
        let len = self.len;
        self.all_mut().get_mut(len..).and_then(|spare| spare.get_mut(..more)).unwrap_or_default()
    }

    /// Counts `count` values that were written into the room behind the last, at most those that there is room for.
    #[inline(always)]
    pub(crate) fn advance(&mut self, count: usize) {
        self.len = self.len.saturating_add(count).min(self.capacity());
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        self.reserve(1);
        let len = self.len;
        if let Some(place) = self.all_mut().get_mut(len) {
            *place = value;
            self.len = len + 1;
        }
    }

    #[inline]
    pub(crate) fn extend_from_slice(&mut self, values: &[T]) {
        self.spare_mut(values.len()).copy_from_slice(values);
        self.advance(values.len());
    }

    /// Appends `value` until there are `len`.
    pub(crate) fn fill_to(&mut self, len: usize, value: T) {
        let more = len.saturating_sub(self.len);
        self.spare_mut(more).fill(value);
        self.advance(more);
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The values as an Arrow buffer; the column is empty afterwards.
    pub(crate) fn take(&mut self) -> Buffer {
        let len = std::mem::take(&mut self.len);
        let block = std::mem::take(&mut self.block);
        self.expected = len + len / 16;
        super::shared(block, len * size_of::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_grows_and_keeps_its_values() {
        let mut column = Column::<i64>::default();
        for value in 0..10_000 {
            column.push(value);
        }
        column.extend_from_slice(&[7, 8]);
        column.fill_to(10_005, -1);
        column.truncate(10_004);
        let buffer = column.take();
        let values = buffer.typed_data::<i64>();
        assert!(values.iter().take(10_000).copied().eq(0..10_000));
        assert_eq!(values.get(10_000..), Some([7, 8, -1, -1].as_slice()));
        assert_eq!(column.len(), 0);
    }

    #[test]
    fn the_pool_gives_back_the_smallest_block_that_fits_and_keeps_its_bound() {
        let mut pool = Pool { blocks: Vec::new(), size: 0 };
        for units in [4096, 1024, 2048] {
            assert!(pool.give(vec![0; units]).is_none());
        }
        assert_eq!(pool.take(1500 * UNIT_SIZE).map(|block| block.len()), Some(2048));
        assert!(pool.take(64 << 20).is_none());
        assert!(pool.take(16).is_none(), "a large block is not wasted on a few bytes");
        let mut refused = 0;
        for _ in 0..200 {
            refused += usize::from(pool.give(vec![0; 1 << 16]).is_some());
        }
        assert!(refused > 0 && pool.size <= POOL_SIZE_MAX && pool.blocks.len() <= POOL_COUNT_MAX);
    }
}
