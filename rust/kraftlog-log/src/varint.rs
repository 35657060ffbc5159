//! Variable-length integers of the record format: unsigned varints, and zigzag varints and
//! varlongs. Odd input is read as `org.apache.kafka.common.utils.ByteUtils` reads it: bits beyond
//! the width fall off, non-minimal forms are accepted, a sixth (eleventh) byte is refused.

/// Why a variable-length integer cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// The bytes end before the last byte of the integer.
    #[error("the bytes end inside a variable-length integer")]
    Truncated,
    /// The fifth byte of a varint, or the tenth of a varlong, says that more follow.
    #[error("a variable-length integer has too many bytes")]
    TooLong,
}

/// Longest encoding of a 32-bit integer, in bytes.
pub const VARINT_SIZE_MAX: usize = 5;
/// Longest encoding of a 64-bit integer, in bytes.
pub const VARLONG_SIZE_MAX: usize = 10;

/// Reads an unsigned varint: the value and the bytes it took.
#[inline]
pub fn read_unsigned_varint(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    match *bytes {
        [a, ..] if a < 0x80 => Ok((u32::from(a), 1)),
        [a, b, ..] if b < 0x80 => Ok((u32::from(a & 0x7f) | u32::from(b) << 7, 2)),
        _ => read_long_varint(bytes),
    }
}

fn read_long_varint(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    let mut value = 0u32;
    for (index, &byte) in bytes.iter().take(VARINT_SIZE_MAX).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(if bytes.len() < VARINT_SIZE_MAX { VarintError::Truncated } else { VarintError::TooLong })
}

/// Reads an unsigned varlong: the value and the bytes it took.
#[inline]
pub fn read_unsigned_varlong(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    match *bytes {
        [a, ..] if a < 0x80 => Ok((u64::from(a), 1)),
        [a, b, ..] if b < 0x80 => Ok((u64::from(a & 0x7f) | u64::from(b) << 7, 2)),
        _ => read_long_varlong(bytes),
    }
}

fn read_long_varlong(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(VARLONG_SIZE_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(if bytes.len() < VARLONG_SIZE_MAX { VarintError::Truncated } else { VarintError::TooLong })
}

/// Reads a zigzag varint: the value and the bytes it took.
#[inline]
pub fn read_varint(bytes: &[u8]) -> Result<(i32, usize), VarintError> {
    let (raw, size) = read_unsigned_varint(bytes)?;
    Ok(((raw >> 1) as i32 ^ -((raw & 1) as i32), size))
}

/// Reads a zigzag varlong: the value and the bytes it took.
#[inline]
pub fn read_varlong(bytes: &[u8]) -> Result<(i64, usize), VarintError> {
    let (raw, size) = read_unsigned_varlong(bytes)?;
    Ok(((raw >> 1) as i64 ^ -((raw & 1) as i64), size))
}

/// The zigzag form of a 32-bit integer.
#[inline]
pub const fn zigzag32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

/// The zigzag form of a 64-bit integer.
#[inline]
pub const fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Appends an unsigned varint.
#[inline]
pub fn write_unsigned_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends an unsigned varlong.
#[inline]
pub fn write_unsigned_varlong(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a zigzag varint.
#[inline]
pub fn write_varint(out: &mut Vec<u8>, value: i32) {
    write_unsigned_varint(out, zigzag32(value));
}

/// Appends a zigzag varlong.
#[inline]
pub fn write_varlong(out: &mut Vec<u8>, value: i64) {
    write_unsigned_varlong(out, zigzag64(value));
}

/// Bytes that [`write_unsigned_varint`] appends.
#[inline]
pub const fn unsigned_varint_size(value: u32) -> usize {
    // Seven bits a byte: 9/64 is 1/7 closely enough for 1..=32 significant bits.
    ((32 - (value | 1).leading_zeros()) * 9 + 64) as usize / 64
}

/// Bytes that [`write_unsigned_varlong`] appends.
#[inline]
pub const fn unsigned_varlong_size(value: u64) -> usize {
    ((64 - (value | 1).leading_zeros()) * 9 + 64) as usize / 64
}

/// Bytes that [`write_varint`] appends.
#[inline]
pub const fn varint_size(value: i32) -> usize {
    unsigned_varint_size(zigzag32(value))
}

/// Bytes that [`write_varlong`] appends.
#[inline]
pub const fn varlong_size(value: i64) -> usize {
    unsigned_varlong_size(zigzag64(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varint_roundtrip(value: i32) {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_size(value));
            prop_assert_eq!(read_varint(&out), Ok((value, out.len())));
            prop_assert_eq!(read_varint(&out[..out.len() - 1]), Err(VarintError::Truncated));
        }

        #[test]
        fn varlong_roundtrip(value: i64, shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            write_varlong(&mut out, value);
            prop_assert_eq!(out.len(), varlong_size(value));
            prop_assert_eq!(read_varlong(&out), Ok((value, out.len())));
        }
    }

    #[test]
    fn size_at_every_power_of_two_equals_written_size() {
        for bit in 0..64 {
            for value in [(1u64 << bit) - 1, 1 << bit] {
                let mut out = Vec::new();
                write_unsigned_varlong(&mut out, value);
                assert_eq!(out.len(), unsigned_varlong_size(value), "{value}");
                if let Ok(value) = u32::try_from(value) {
                    assert_eq!(out.len(), unsigned_varint_size(value), "{value}");
                }
            }
        }
    }

    #[test]
    fn odd_input_is_read_as_kafka_reads_it() {
        assert_eq!(read_unsigned_varint(&[0xff, 0xff, 0xff, 0xff, 0x7f]), Ok((u32::MAX, 5)));
        assert_eq!(read_unsigned_varint(&[0x80, 0x80, 0]), Ok((0, 3)));
        assert_eq!(read_unsigned_varint(&[0x80; 6]), Err(VarintError::TooLong));
        assert_eq!(read_unsigned_varint(&[]), Err(VarintError::Truncated));
        let mut long = [0xff; 10];
        long[9] = 3;
        assert_eq!(read_varlong(&long), Ok((i64::MIN, 10)));
        assert_eq!(read_varlong(&[0x80; 11]), Err(VarintError::TooLong));
    }
}
