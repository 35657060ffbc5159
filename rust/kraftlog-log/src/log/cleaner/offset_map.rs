//! The latest offset of each key of the dirty section, in memory of a fixed size (Kafka's `SkimpyOffsetMap`).
//!
//! 24 bytes an entry: the hash of the key and the offset. Open addressing; entries are kept in the order of their
//! distance from home ("robin hood"), so that a look-up ends early also when the table is nine tenths full.
use super::key_hash::KeyHash;

/// Bytes an entry takes, as in Kafka.
pub(super) const ENTRY_BYTES: u64 = 24;

/// Hash, then offset plus one; zero there is an empty slot.
type Slot = [u64; 3];

/// Whether [`OffsetMap::put`] took the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    Full,
}

#[derive(Debug)]
pub(super) struct OffsetMap {
    slots: Vec<Slot>,
    count: usize,
    limit: usize,
    budget_slots: u64,
    latest_offset: i64,
}

impl OffsetMap {
    /// A map of at most `memory_bytes` and of `load_factor` of its slots, smaller when no more than `keys_max` keys
    /// can come. None when that is not even one key.
    pub(super) fn new(memory_bytes: u64, load_factor: f64, keys_max: u64) -> Option<Self> {
        let budget_slots = memory_bytes / ENTRY_BYTES;
        let limit = (budget_slots as f64 * load_factor.clamp(0.0, 1.0)) as u64;
        if limit < 1 {
            return None;
        }
        // Half empty when there is memory for it.
        let wanted = keys_max.saturating_mul(2).saturating_add(2).min(budget_slots.max(2));
        let slots = vec![[0; 3]; usize::try_from(wanted).ok()?];
        let limit = usize::try_from(limit).ok()?.min(slots.len() - 1);
        Some(Self { slots, count: 0, limit, budget_slots, latest_offset: -1 })
    }

    /// Keys in the map.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Share of the slots that the memory allows for which are taken, 0 to 1.
    pub(super) fn utilization(&self) -> f64 {
        self.count as f64 / self.budget_slots as f64
    }

    /// Offset up to which, inclusive, the log is reflected here.
    pub(super) fn latest_offset(&self) -> i64 {
        self.latest_offset
    }

    pub(super) fn set_latest_offset(&mut self, offset: i64) {
        self.latest_offset = offset;
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    #[inline(always)]
    fn next(&self, index: usize) -> usize {
        if index + 1 == self.slots.len() {
            0
        } else {
            index + 1
        }
    }

    /// Steps from the home of `hash` to `index`.
    #[inline(always)]
    fn distance(&self, hash: u64, index: usize) -> usize {
        let home = self.home(hash);
        if index >= home {
            index - home
        } else {
            index + self.slots.len() - home
        }
    }

    /// Read the home slots of some keys, all at once: the processor then waits for memory once and not once for each
    /// of the look-ups that follow.
    #[inline]
    pub(super) fn warm(&self, hashes: impl Iterator<Item = KeyHash>) {
        let read = |[hash, _]: KeyHash| self.slots.get(self.home(hash)).map_or(0, |slot| slot[2]);
        std::hint::black_box(hashes.fold(0, |sum, hash| sum ^ read(hash)));
    }

    /// Note that `offset` has this key; offsets rise.
    #[inline]
    pub(super) fn put(&mut self, hash: KeyHash, offset: i64) -> Put {
        if self.count >= self.limit {
            return Put::Full;
        }
        self.latest_offset = offset;
        let mut carried: Slot = [hash[0], hash[1], (offset as u64).wrapping_add(1)];
        let mut index = self.home(hash[0]);
        let mut distance = 0;
        let mut is_displacing = false;
        loop {
            let here = self.slots.get(index).copied().unwrap_or_default();
            if here[2] == 0 {
                self.count += 1;
                return self.store(index, carried);
            }
            if !is_displacing && here[0] == hash[0] && here[1] == hash[1] {
                return self.store(index, carried);
            }
            let its_distance = self.distance(here[0], index);
            if its_distance < distance {
                self.store(index, carried);
                carried = here;
                distance = its_distance;
                is_displacing = true;
            }
            index = self.next(index);
            distance += 1;
        }
    }

    #[inline(always)]
    fn store(&mut self, index: usize, slot: Slot) -> Put {
        if let Some(place) = self.slots.get_mut(index) {
            *place = slot;
        }
        Put::Done
    }

    /// The latest offset of a key, -1 for a key that is not there.
    #[inline]
    pub(super) fn get(&self, hash: KeyHash) -> i64 {
        let mut index = self.home(hash[0]);
        let mut distance = 0;
        loop {
            let here = self.slots.get(index).copied().unwrap_or_default();
            if here[2] == 0 {
                return -1;
            }
            if here[0] == hash[0] && here[1] == hash[1] {
                return here[2].wrapping_sub(1) as i64;
            }
            if self.distance(here[0], index) < distance {
                return -1;
            }
            index = self.next(index);
            distance += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Few homes and few slots, so that clusters form and wrap around.
        #[test]
        fn equals_a_hash_map(
            slots in 3_u64..40,
            puts in prop::collection::vec((0_u64..12, 0_u64..4), 0..80),
        ) {
            let mut map = OffsetMap::new(slots * ENTRY_BYTES, 0.9, u64::MAX).unwrap();
            let limit = (slots as f64 * 0.9) as usize;
            let mut expected = HashMap::new();
            for (offset, (home, second)) in puts.iter().enumerate() {
                let hash = [home * (u64::MAX / 12), *second];
                match map.put(hash, offset as i64) {
                    Put::Done => {
                        expected.insert(hash, offset as i64);
                        prop_assert_eq!(map.latest_offset(), offset as i64);
                    }
                    Put::Full => prop_assert_eq!(expected.len(), limit.min(slots as usize - 1)),
                }
            }
            prop_assert_eq!(map.count(), expected.len());
            for home in 0..12 {
                for second in 0..4 {
                    let hash = [home * (u64::MAX / 12), second];
                    prop_assert_eq!(map.get(hash), expected.get(&hash).copied().unwrap_or(-1));
                }
            }
        }
    }

    #[test]
    fn too_little_memory_for_one_key_is_refused() {
        assert!(OffsetMap::new(26, 0.9, 100).is_none());
        assert!(OffsetMap::new(48, 0.5, 100).is_some());
    }

    #[test]
    fn few_keys_take_little_memory_and_the_budget_counts() {
        let mut map = OffsetMap::new(1 << 30, 0.9, 3).unwrap();
        assert_eq!(map.slots.len(), 8);
        map.put([1, 2], 7);
        assert!(map.utilization() < 1e-7);
    }
}
