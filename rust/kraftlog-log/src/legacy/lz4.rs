//! The LZ4 frames of v0, whose header checksum Kafka computed over the wrong bytes (KAFKA-3160).

const MAGIC_SIZE: usize = 4;
const CONTENT_SIZE_FLAG: u8 = 0x08;
const PRIME: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];

/// The frame with the checksum that its header should have. As in Kafka's reader of v0, the one it has is not looked at.
pub(super) fn with_right_checksum(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let flags = frame.get(MAGIC_SIZE).copied().unwrap_or_default();
    let size = if flags & CONTENT_SIZE_FLAG == 0 { 2 } else { 10 };
    let checksum = frame.get(MAGIC_SIZE..MAGIC_SIZE + size).map(|header| (xxh32_short(header) >> 8) as u8);
    if let (Some(checksum), Some(field)) = (checksum, frame.get_mut(MAGIC_SIZE + size)) {
        *field = checksum;
    }
    frame
}

/// XXH32 with seed 0 of fewer than 16 bytes.
fn xxh32_short(data: &[u8]) -> u32 {
    let [prime1, prime2, prime3, prime4, prime5] = PRIME;
    let mut hash = prime5.wrapping_add(data.len() as u32);
    let mut lanes = data.chunks_exact(4);
    for lane in &mut lanes {
        let lane = lane.first_chunk().map_or(0, |lane| u32::from_le_bytes(*lane));
        hash = hash.wrapping_add(lane.wrapping_mul(prime3)).rotate_left(17).wrapping_mul(prime4);
    }
    for &byte in lanes.remainder() {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(prime5)).rotate_left(11).wrapping_mul(prime1);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(prime2);
    hash = (hash ^ hash >> 13).wrapping_mul(prime3);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xxh32_of_known_inputs() {
        // XXH32 test values: empty, "a", "abc", "abcd1234ef".
        assert_eq!(xxh32_short(b""), 0x02cc_5d05);
        assert_eq!(xxh32_short(b"a"), 0x550d_7456);
        assert_eq!(xxh32_short(b"abc"), 0x32d1_53ff);
    }

    #[test]
    fn a_frame_header_gets_the_checksum_of_the_specification() {
        // The header that liblz4 writes for independent blocks of 64 KiB without checksums and content size.
        let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
        assert_eq!(with_right_checksum(&frame), frame);
        frame[6] = 0;
        assert_eq!(with_right_checksum(&frame)[6], 0x82);
        for cut in 0..frame.len() {
            assert_eq!(with_right_checksum(&frame[..cut]), frame[..cut]);
        }
    }
}
