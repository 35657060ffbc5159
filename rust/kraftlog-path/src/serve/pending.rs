//! Requests that wait for something, and when each has waited long enough.
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Entries with numbers that are not used again, ordered by their deadlines.
#[derive(Debug)]
pub(super) struct PendingTable<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// With entries that ended before their time; they are dropped when they are the most.
    deadlines: BinaryHeap<Reverse<(Instant, u64)>>,
    live: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

const STALE_DEADLINES_MIN: usize = 64;

impl<T> Default for PendingTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), deadlines: BinaryHeap::new(), live: 0 }
    }
}

fn id_of(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}

impl<T> PendingTable<T> {
    /// A number for [`Self::fill`], or for [`Self::give_back`] if there is nothing to keep.
    pub(super) fn reserve(&mut self) -> u64 {
        if let Some(slot) = self.free.pop() {
            return id_of(slot, self.slots.get(slot as usize).map_or(0, |slot| slot.generation));
        }
        self.slots.push(Slot { generation: 0, entry: None });
        id_of(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX), 0)
    }

    /// End a reservation.
    pub(super) fn give_back(&mut self, id: u64) {
        self.free.push(id as u32);
    }

    /// Keep an entry under a reserved number until it is removed; [`Self::take_due`] names it at `deadline`, if there is
    /// one.
    pub(super) fn fill(&mut self, id: u64, entry: T, deadline: Option<Instant>) {
        let Some(slot) = self.slots.get_mut((id as u32) as usize) else { return };
        slot.entry = Some(entry);
        self.live += 1;
        if let Some(deadline) = deadline {
            if self.deadlines.len() > 2 * self.live + STALE_DEADLINES_MIN {
                let mut deadlines = std::mem::take(&mut self.deadlines);
                deadlines.retain(|Reverse((_, id))| self.get(*id).is_some());
                self.deadlines = deadlines;
            }
            self.deadlines.push(Reverse((deadline, id)));
        }
    }

    /// Keep an entry, as [`Self::fill`] does; its number.
    pub(super) fn insert(&mut self, entry: T, deadline: Option<Instant>) -> u64 {
        let id = self.reserve();
        self.fill(id, entry, deadline);
        id
    }

    fn slot(&self, id: u64) -> Option<&Slot<T>> {
        self.slots.get((id as u32) as usize).filter(|slot| slot.generation == (id >> 32) as u32)
    }

    fn get(&self, id: u64) -> Option<&T> {
        self.slot(id)?.entry.as_ref()
    }

    /// The entry, unless it has ended.
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut((id as u32) as usize);
        slot.filter(|slot| slot.generation == (id >> 32) as u32)?.entry.as_mut()
    }

    /// End an entry.
    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        let number = id as u32;
        let slot = self.slots.get_mut(number as usize);
        let slot = slot.filter(|slot| slot.generation == (id >> 32) as u32)?;
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(number);
        self.live -= 1;
        Some(entry)
    }

    /// End all entries that `is_over` names.
    pub(super) fn remove_if(&mut self, is_over: impl Fn(&T) -> bool) {
        for slot in 0..self.slots.len() {
            let number = u32::try_from(slot).unwrap_or(u32::MAX);
            let Some(found) = self.slots.get(slot) else { return };
            if found.entry.as_ref().is_some_and(&is_over) {
                self.remove(id_of(number, found.generation));
            }
        }
    }

    /// When [`Self::take_due`] may have something; it may be early.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// The first entry that is due at `now`; it stays until it is removed, and is not named again.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u64> {
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let found = self.deadlines.pop().map(|Reverse((_, id))| id);
            if found.is_some_and(|id| self.get(id).is_some()) {
                return found;
            }
        }
        None
    }

    /// Entries there are.
    pub(super) fn len(&self) -> usize {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_id_names_one_entry_only() {
        let mut table = PendingTable::default();
        let first = table.insert('a', None);
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b', None);
        assert_ne!(first, second);
        assert_eq!(table.get_mut(first), None);
        assert_eq!((table.remove(first), table.len()), (None, 1));
        assert_eq!(table.get_mut(second), Some(&mut 'b'));
        table.remove_if(|entry| *entry == 'b');
        assert_eq!((table.remove(second), table.len()), (None, 0));
    }

    #[test]
    fn a_reserved_number_names_nothing_until_it_is_filled() {
        let mut table = PendingTable::default();
        let (unused, late) = (table.reserve(), table.reserve());
        assert_ne!(unused, late);
        assert_eq!(table.get_mut(late), None);
        assert_eq!((table.remove(late), table.len()), (None, 0));
        table.give_back(unused);
        let other = table.insert('o', None);
        table.fill(late, 'l', None);
        assert_ne!(other, late);
        assert_eq!((table.remove(late), table.remove(other)), (Some('l'), Some('o')));
    }

    #[test]
    fn deadlines_come_in_order_without_those_that_ended() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut table = PendingTable::default();
        let late = table.insert('l', Some(at(3)));
        let early = table.insert('e', Some(at(1)));
        let gone = table.insert('g', Some(at(2)));
        table.remove(gone);
        assert_eq!((table.next_deadline(), table.take_due(start)), (Some(at(1)), None));
        assert_eq!(table.take_due(at(5)), Some(early));
        assert_eq!(table.take_due(at(5)), Some(late));
        assert_eq!((table.take_due(at(5)), table.next_deadline()), (None, None));
        assert_eq!(table.len(), 2, "they are removed by whoever took them");
    }

    #[test]
    fn deadlines_of_entries_that_ended_take_no_memory() {
        let start = Instant::now();
        let mut table = PendingTable::default();
        for _ in 0..10_000 {
            let id = table.insert((), Some(start));
            table.remove(id);
        }
        assert!(table.deadlines.len() <= 2 * STALE_DEADLINES_MIN, "{}", table.deadlines.len());
        assert_eq!(table.slots.len(), 1);
    }
}
