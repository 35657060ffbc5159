//! The LZ4 frames of v0, whose header checksum Kafka computed over the wrong bytes (KAFKA-3160).
use crate::compression::lz4_header_checksum;

const MAGIC_SIZE: usize = 4;
const CONTENT_SIZE_FLAG: u8 = 0x08;

/// The frame with the checksum that its header should have. As in Kafka's reader of v0, the one it has is not looked at.
pub(super) fn with_right_checksum(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let flags = frame.get(MAGIC_SIZE).copied().unwrap_or_default();
    let size = if flags & CONTENT_SIZE_FLAG == 0 { 2 } else { 10 };
    let checksum = frame.get(MAGIC_SIZE..MAGIC_SIZE + size).map(lz4_header_checksum);
    if let (Some(checksum), Some(field)) = (checksum, frame.get_mut(MAGIC_SIZE + size)) {
        *field = checksum;
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

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
