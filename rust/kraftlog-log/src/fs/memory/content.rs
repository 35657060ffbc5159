//! Bytes of a file in pages that are shared until they are written, so that a copy of a whole disk costs little.
use std::sync::Arc;

/// What a kernel writes back at once, and in any order.
pub(super) const PAGE_BYTES: usize = 4096;

/// The bytes of a file. A page may be shorter than [`PAGE_BYTES`]: what is missing up to the length is zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pages: Vec<Arc<Vec<u8>>>,
    size: usize,
}

impl Content {
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn resize(&mut self, size: usize) {
        if size < self.size {
            self.pages.truncate(size.div_ceil(PAGE_BYTES));
            if let Some(last) = self.pages.get_mut(size / PAGE_BYTES) {
                if last.len() > size % PAGE_BYTES {
                    Arc::make_mut(last).truncate(size % PAGE_BYTES);
                }
            }
        }
        self.size = size;
    }

    pub(super) fn write(&mut self, position: usize, mut bytes: &[u8]) {
        let mut start = position;
        while !bytes.is_empty() {
            let (page, offset) = (start / PAGE_BYTES, start % PAGE_BYTES);
            let (now, rest) = bytes.split_at(bytes.len().min(PAGE_BYTES - offset));
            if self.pages.len() <= page {
                self.pages.resize_with(page + 1, Arc::default);
            }
            if let Some(page) = self.pages.get_mut(page) {
                let page = Arc::make_mut(page);
                if page.len() < offset + now.len() {
                    page.resize(offset + now.len(), 0);
                }
                if let Some(target) = page.get_mut(offset..offset + now.len()) {
                    target.copy_from_slice(now);
                }
            }
            start += now.len();
            bytes = rest;
        }
        self.size = self.size.max(start);
    }

    /// Copy what there is from `position` on; returns the number of bytes.
    pub(super) fn read(&self, mut buffer: &mut [u8], position: usize) -> usize {
        let count = self.size.saturating_sub(position).min(buffer.len());
        buffer = buffer.get_mut(..count).unwrap_or_default();
        let mut start = position;
        while !buffer.is_empty() {
            let offset = start % PAGE_BYTES;
            let (now, rest) = buffer.split_at_mut(buffer.len().min(PAGE_BYTES - offset));
            let page = self.pages.get(start / PAGE_BYTES).map_or(&[][..], |page| page.as_slice());
            let held = page.get(offset..).unwrap_or_default();
            let shared = held.len().min(now.len());
            let (data, zeros) = now.split_at_mut(shared);
            data.copy_from_slice(held.get(..shared).unwrap_or_default());
            zeros.fill(0);
            start += now.len();
            buffer = rest;
        }
        count
    }

    /// Number of pages up to the length.
    pub(super) fn page_count(&self) -> usize {
        self.size.div_ceil(PAGE_BYTES)
    }

    /// Take one page from `other`, as it is there; beyond its length that is zeros.
    pub(super) fn take_page(&mut self, other: &Self, index: usize) {
        let end = self.size.saturating_sub(index * PAGE_BYTES).min(PAGE_BYTES);
        if self.pages.len() <= index {
            self.pages.resize_with(index + 1, Arc::default);
        }
        if let Some(page) = self.pages.get_mut(index) {
            *page = other.pages.get(index).cloned().unwrap_or_default();
            if page.len() > end {
                Arc::make_mut(page).truncate(end);
            }
        }
    }

    pub(super) fn flip_bit(&mut self, bit: u64) {
        let Ok(position) = usize::try_from(bit / 8) else { return };
        let mut byte = [0];
        if self.read(&mut byte, position) == 1 {
            let [value] = byte;
            self.write(position, &[value ^ 1 << (bit % 8)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(content: &Content) -> Vec<u8> {
        let mut bytes = vec![7; content.size() + 3];
        let count = content.read(&mut bytes, 0);
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn is_like_a_vector_of_bytes() {
        let mut random = crate::fs::Random::new(1);
        for _ in 0..200 {
            let mut content = Content::default();
            let mut model: Vec<u8> = Vec::new();
            for _ in 0..12 {
                let copy = (content.clone(), model.clone());
                if random.one_in(3) {
                    let size = random.index(3 * PAGE_BYTES);
                    content.resize(size);
                    model.resize(size, 0);
                } else {
                    let (position, count) = (random.index(2 * PAGE_BYTES), random.index(2 * PAGE_BYTES));
                    let data: Vec<u8> = (0..count).map(|_| random.next_u64() as u8).collect();
                    content.write(position, &data);
                    if count > 0 {
                        model.resize(model.len().max(position + count), 0);
                        model[position..position + count].copy_from_slice(&data);
                    }
                }
                assert_eq!(bytes(&content), model);
                assert_eq!(bytes(&copy.0), copy.1);
            }
        }
    }
}
