//! Pseudo-random numbers for simulations: the same seed gives the same run on every machine.

/// SplitMix64: small, fast, good enough to choose what a simulated disk loses. Not for secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose numbers follow from `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number in `[0, limit)`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        match limit {
            0 => 0,
            _ => self.next_u64() % limit,
        }
    }

    /// An index in `[0, length)`; 0 when `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// True once in `times` on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A generator of its own, so that what it is asked for does not move this one.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}
