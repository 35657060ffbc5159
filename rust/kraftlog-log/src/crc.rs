//! CRC-32C (Castagnoli), the checksum of record batches, and CRC-32, that of the formats before them.
//!
//! `crc-fast` folds with VPCLMULQDQ, PCLMULQDQ or the NEON forms where the processor has them;
//! elsewhere the `crc32c` crate does the work. The tests hold the two against each other, and
//! `benches/records.rs` compares their speed from 64 bytes on.
use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `data`.
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    if has_fast_path() {
        crc_fast::crc32_iscsi(data)
    } else {
        ::crc32c::crc32c(data)
    }
}

/// The checksum of what `crc` covers followed by `data`; `crc` is 0 for nothing.
#[inline]
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    if !has_fast_path() {
        ::crc32c::crc32c_append(crc, data)
    } else if crc == 0 {
        crc_fast::crc32_iscsi(data)
    } else {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
        digest.update(data);
        digest.finalize() as u32
    }
}

/// The CRC-32 of zlib, which message formats v0 and v1 have.
pub fn crc32(data: &[u8]) -> u32 {
    if has_fast_path() {
        return crc_fast::crc32_iso_hdlc(data);
    }
    let mut crc = flate2::Crc::new();
    crc.update(data);
    crc.sum()
}

#[inline]
fn has_fast_path() -> bool {
    // Miri knows no instructions that the processor may or may not have.
    #[cfg(miri)]
    {
        false
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        std::arch::is_x86_feature_detected!("pclmulqdq") && std::arch::is_x86_feature_detected!("sse4.1")
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        std::arch::is_aarch64_feature_detected!("aes")
    }
    #[cfg(not(any(miri, target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn check_value_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    proptest! {
        #[test]
        fn equals_the_portable_crate(data in prop::collection::vec(any::<u8>(), 0..5000), cut in any::<prop::sample::Index>()) {
            let expected = ::crc32c::crc32c(&data);
            prop_assert_eq!(crc32c(&data), expected);
            let (left, right) = data.split_at(cut.index(data.len() + 1));
            prop_assert_eq!(crc32c_append(crc32c(left), right), expected);
            prop_assert_eq!(crc32c_append(0, &data), expected);
            let mut zlib = flate2::Crc::new();
            zlib.update(&data);
            prop_assert_eq!(crc32(&data), zlib.sum());
        }
    }
}
