//! Latencies in buckets that grow with the value: 128 per power of two, so that a percentile is off by at most 0.8 %.

const SUB_BITS: u32 = 7;
const SUB: u64 = 1 << SUB_BITS;

/// Counts of nanoseconds.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; ((64 - SUB_BITS as usize) + 1) << SUB_BITS], total: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Count one.
    pub fn record(&mut self, ns: u64) {
        self.counts[place(ns)] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The largest value, exactly.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The upper end of the bucket below which `share` (0 to 1) of the values lie; 0 if there are none.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_end(place).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

fn place(ns: u64) -> usize {
    if ns < SUB {
        return ns as usize;
    }
    let shift = 63 - ns.leading_zeros() - SUB_BITS;
    // The highest SUB_BITS + 1 bits, the first of which is always 1.
    (((u64::from(shift) + 1) << SUB_BITS) + (ns >> shift) - SUB) as usize
}

fn upper_end(place: usize) -> u64 {
    let (row, column) = (place as u64 >> SUB_BITS, place as u64 & (SUB - 1));
    if row == 0 {
        return column;
    }
    ((SUB + column + 1) << (row - 1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_its_bucket_and_buckets_are_narrow() {
        for ns in (0..5_000).chain([65_535, 65_536, 1_000_000_007, u64::MAX / 2]) {
            let end = upper_end(place(ns));
            assert!(end >= ns && end - ns <= ns / SUB, "{ns} {end}");
            assert_eq!(place(end), place(ns), "{ns}");
            assert_eq!(place(end + 1), place(ns) + 1, "{ns}");
        }
    }

    #[test]
    fn quantiles_count_from_the_least() {
        let mut latencies = Histogram::default();
        (1..=1000).for_each(|ns| latencies.record(ns * 1000));
        let off = |share: f64, ns: f64| (latencies.quantile_ns(share) as f64 / ns - 1.0).abs();
        assert!(off(0.5, 500_000.0) < 0.01 && off(0.99, 990_000.0) < 0.01);
        assert_eq!(latencies.quantile_ns(1.0), 1_000_000);
        assert_eq!(Histogram::default().quantile_ns(0.5), 0);
    }
}
