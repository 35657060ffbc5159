use super::*;
use proptest::prelude::*;
use std::io::{Read, Write};

const COMPRESSING: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn decoded(codec: Codec, data: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::new();
    decompress(codec, data, Bound::DEFAULT, &mut out).map(|()| out)
}

fn encoded(codec: Codec, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(codec, None, data, &mut out).unwrap();
    out
}

/// Text-like bytes: compressible, of any size up to a few blocks of each codec.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    (prop::collection::vec(any::<u8>(), 1..600), 0usize..400).prop_map(|(word, repeats)| word.repeat(repeats))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn roundtrip(data in payload()) {
        for codec in Codec::ALL {
            prop_assert_eq!(&decoded(codec, &encoded(codec, &data)).unwrap(), &data, "{:?}", codec);
        }
    }

    #[test]
    fn random_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..300), codec in 0usize..4) {
        let _ = decoded(COMPRESSING[codec], &data);
    }

    #[test]
    fn damaged_bytes_never_panic(data in payload(), codec in 0usize..4, at in any::<prop::sample::Index>(), xor in 1u8..) {
        let mut bytes = encoded(COMPRESSING[codec], &data);
        let at = at.index(bytes.len());
        bytes[at] ^= xor;
        let _ = decoded(COMPRESSING[codec], &bytes);
        bytes.truncate(at);
        let _ = decoded(COMPRESSING[codec], &bytes);
    }

    #[test]
    fn lz4_equals_lz4_flex(data in payload(), linked: bool, size: bool, checksum: bool) {
        use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo, FrameDecoder};
        let mut info = FrameInfo::new().content_checksum(checksum).block_checksums(checksum);
        info.block_mode = if linked { BlockMode::Linked } else { BlockMode::Independent };
        if size {
            info.content_size = Some(data.len() as u64);
        }
        let mut writer = FrameEncoder::with_frame_info(info, Vec::new());
        writer.write_all(&data).unwrap();
        prop_assert_eq!(&decoded(Codec::Lz4, &writer.finish().unwrap()).unwrap(), &data);

        let mut read = Vec::new();
        FrameDecoder::new(encoded(Codec::Lz4, &data).as_slice()).read_to_end(&mut read).unwrap();
        prop_assert_eq!(&read, &data);
    }
}

#[test]
fn bound_ends_every_codec_exactly() {
    let data = vec![7u8; 1_000_003];
    for codec in COMPRESSING {
        let bytes = encoded(codec, &data);
        let mut out = Vec::new();
        decompress(codec, &bytes, Bound::of_bytes(data.len()), &mut out).unwrap();
        assert_eq!(out, data);
        for limit in [0, 1, 4096, 65_536, data.len() - 1] {
            let mut out = Vec::new();
            let error = decompress(codec, &bytes, Bound::of_bytes(limit), &mut out).unwrap_err();
            assert!(matches!(error, CodecError::OverBound { .. }), "{codec:?} {limit}: {error}");
            assert!(out.capacity() <= 2 * limit + 131_072, "{codec:?} {limit}: {}", out.capacity());
        }
    }
}

#[test]
fn default_bound_follows_ratio_size_and_floor() {
    assert_eq!(Bound::DEFAULT.limit(10), 64 << 20);
    assert_eq!(Bound::DEFAULT.limit(512 << 10), 512 << 20);
    assert_eq!(Bound::DEFAULT.limit(usize::MAX), 1 << 30);
}

#[test]
fn snappy_raw_block_and_joined_streams_are_read() {
    let data = b"the quick brown fox ".repeat(50);
    let raw = snap::raw::Encoder::new().compress_vec(&data).unwrap();
    assert_eq!(decoded(Codec::Snappy, &raw).unwrap(), data);
    let mut joined = encoded(Codec::Snappy, &data);
    joined.extend(encoded(Codec::Snappy, &data));
    assert_eq!(decoded(Codec::Snappy, &joined).unwrap(), data.repeat(2));
}

#[test]
fn snappy_announced_size_beyond_its_bytes_is_malformed() {
    let announced = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    assert!(matches!(decoded(Codec::Snappy, &announced), Err(CodecError::Malformed { .. })));
}

#[test]
fn gzip_members_are_joined_and_trailing_garbage_is_ignored() {
    let mut bytes = encoded(Codec::Gzip, b"one ");
    bytes.extend(encoded(Codec::Gzip, b"two"));
    assert_eq!(decoded(Codec::Gzip, &bytes).unwrap(), b"one two");
    bytes.extend_from_slice(&[0, 1, 2]);
    assert_eq!(decoded(Codec::Gzip, &bytes).unwrap(), b"one two");
}

#[test]
fn gzip_wrong_trailer_is_malformed() {
    let mut bytes = encoded(Codec::Gzip, b"some text");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert!(matches!(decoded(Codec::Gzip, &bytes), Err(CodecError::Malformed { .. })));
}

#[test]
fn every_level_of_the_range_roundtrips_and_others_are_refused() {
    let data = b"a b c d e f g ".repeat(300);
    for codec in COMPRESSING {
        let Some((low, high)) = codec.level_range() else { continue };
        for level in [low, 1, 3, 9, high] {
            let mut bytes = Vec::new();
            compress(codec, Some(level), &data, &mut bytes).unwrap();
            assert_eq!(decoded(codec, &bytes).unwrap(), data);
        }
        assert_eq!(
            compress(codec, Some(high + 1), &data, &mut Vec::new()),
            Err(CodecError::Level { codec, level: high + 1 })
        );
    }
}

#[test]
fn empty_input_roundtrips_but_no_bytes_are_malformed() {
    for codec in COMPRESSING {
        assert_eq!(decoded(codec, &encoded(codec, b"")).unwrap(), b"", "{codec:?}");
    }
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4] {
        assert!(matches!(decoded(codec, b""), Err(CodecError::Malformed { .. })), "{codec:?}");
    }
}

/// A frame of one stored block, with these flags, a content size and a content checksum that are both wrong.
fn lz4_frame(flags: u8, content: &[u8]) -> Vec<u8> {
    let mut descriptor = vec![flags, 0x40];
    if flags & 0x08 != 0 {
        descriptor.extend(77u64.to_le_bytes());
    }
    if flags & 0x01 != 0 {
        descriptor.extend(5u32.to_le_bytes());
    }
    descriptor.push(lz4_header_checksum(&descriptor));
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18];
    frame.extend(descriptor);
    frame.extend((content.len() as u32 | 1 << 31).to_le_bytes());
    frame.extend_from_slice(content);
    frame.extend([0; 4]);
    if flags & 0x04 != 0 {
        frame.extend([1, 2, 3, 4]);
    }
    frame
}

#[test]
fn lz4_content_size_and_content_checksum_are_ignored_as_in_kafka() {
    for flags in [0x60, 0x68, 0x64, 0x6c] {
        assert_eq!(decoded(Codec::Lz4, &lz4_frame(flags, b"content")).unwrap(), b"content", "{flags:#x}");
    }
    let mut cut = lz4_frame(0x64, b"content");
    cut.truncate(cut.len() - 1);
    assert!(matches!(decoded(Codec::Lz4, &cut), Err(CodecError::Malformed { .. })));
    for at in 4..=14 {
        let mut bad = lz4_frame(0x6c, b"content");
        bad[at] ^= 0x80;
        assert!(matches!(decoded(Codec::Lz4, &bad), Err(CodecError::Malformed { .. })), "{at}");
    }
}

#[test]
fn lz4_frames_that_kafka_refuses_are_named() {
    for (flags, is_refused) in [(0x60, false), (0x6c, false), (0x40, true), (0x61, true)] {
        let refusal = kafka_refusal(Codec::Lz4, &lz4_frame(flags, b"content"));
        assert_eq!(refusal.is_some(), is_refused, "{flags:#x} {refusal:?}");
    }
    assert_eq!(decoded(Codec::Lz4, &lz4_frame(0x40, b"content")).unwrap(), b"content");
}
