//! Which partition a key belongs to, as Kafka's default partitioner has it.
use crate::builder::Column;
use crate::{Error, Result};

const SEED: u32 = 0x9747_b28c;
const M: u32 = 0x5bd1_e995;

/// The 32-bit MurmurHash2 that Kafka's producers take of a key (`Utils.murmur2`).
pub fn murmur2(data: &[u8]) -> u32 {
    let mut value = SEED ^ data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        value = value.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
        value = (value ^ tail).wrapping_mul(M);
    }
    value = (value ^ (value >> 13)).wrapping_mul(M);
    value ^ (value >> 15)
}

/// The partition of each row: of its key, or of its value where the key is null, so that a row that is computed again
/// gets the same.
///
/// # Errors
/// [`Error::Invalid`] when there is no partition, or the columns differ in length.
pub fn key_partitions(keys: &Column<'_>, values: &Column<'_>, partition_count: i32) -> Result<Vec<i32>> {
    let count = u32::try_from(partition_count)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| Error::Invalid(format!("{partition_count} partitions: there is at least one")))?;
    let rows = keys.len().or(values.len()).unwrap_or(0);
    if values.len().is_some_and(|values| values != rows) {
        return Err(Error::Invalid(format!(
            "columns of {:?} keys and {:?} values",
            keys.len(),
            values.len()
        )));
    }
    let partition = |row| {
        let bytes = keys.get(row).or_else(|| values.get(row)).unwrap_or_default();
        ((murmur2(bytes) & 0x7fff_ffff) % count) as i32
    };
    Ok((0..rows).map(partition).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_kafkas_tests() {
        // From UtilsTest.testMurmur2.
        let cases: [(&[u8], i32); 5] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"abc", 479_470_107),
        ];
        for (key, hash) in cases {
            assert_eq!(murmur2(key) as i32, hash, "{key:?}");
        }
    }
}
