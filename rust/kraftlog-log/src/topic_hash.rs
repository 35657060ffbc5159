//! The hash over a topic's metadata that consumer groups keep in their records (KIP-1101).

use twox_hash::XxHash3_64;

/// XXH3 of `data` with 64 bits and without a seed, as the signed number that a record holds.
pub fn xxh3_64(data: &[u8]) -> i64 {
    XxHash3_64::oneshot(data).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::xxh3_64;

    #[test]
    fn hashes_what_hash4j_hashes() {
        // `Hashing.xxh3_64().hashBytesToLong` of hash4j 0.22.
        assert_eq!(
            xxh3_64(&[0x61, 0, 0x62, 0, 0xe9, 0, 3, 0, 0, 0]),
            0x930d_ef8c_bfc4_a7b2_u64.cast_signed()
        );
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    }
}
