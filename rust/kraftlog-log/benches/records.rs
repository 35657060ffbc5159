//! What encoding, iterating, checking and decompressing batches costs, beside the bare libraries.
//!
//!     cargo bench -p kraftlog-log --bench records
//!
//! Each figure is the best of many runs on one core, as others share the machine.
#![allow(clippy::disallowed_methods, reason = "it measures and bounds its own time")]

use kraftlog_log::batch::{validate_produce_batch, BatchView, ProduceRules, HEADER_SIZE};
use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::compression::{compress, decompress, Bound, Codec};
use kraftlog_log::crc::crc32c;
use kraftlog_log::record::RecordRef;
use std::hint::black_box;
use std::time::{Duration, Instant};

const BATCH_VALUE_BYTES: usize = 1_000_000;
const TIME_PER_FIGURE: Duration = Duration::from_millis(300);

/// Seconds of the fastest run.
fn best<R>(mut run: impl FnMut() -> R) -> f64 {
    let (mut fastest, started) = (f64::MAX, Instant::now());
    while started.elapsed() < TIME_PER_FIGURE {
        let one = Instant::now();
        black_box(run());
        fastest = fastest.min(one.elapsed().as_secs_f64());
    }
    fastest
}

/// Words with some noise: compresses to about a third.
fn value(size: usize, seed: usize) -> Vec<u8> {
    let mut state = seed as u64 * 0x9e37_79b9_7f4a_7c15 + 1;
    let mut out = Vec::new();
    while out.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let words: [&[u8]; 8] =
            [b"price ", b"click ", b"total ", b"user-", b"false ", b"true ", b"{\"id\":", b"count "];
        out.extend_from_slice(words[(state >> 60) as usize & 7]);
        out.extend_from_slice(&((state >> 33) as u16).to_string().into_bytes());
    }
    out.truncate(size);
    out
}

fn encode(codec: Codec, values: &[Vec<u8>], buffer: Vec<u8>) -> Vec<u8> {
    let options = BatchOptions { codec, ..BatchOptions::default() };
    let mut builder = BatchBuilder::with_buffer(options, buffer).unwrap();
    for (index, value) in values.iter().enumerate() {
        builder.append(1_700_000_000_000 + index as i64, None, Some(value), &[]).unwrap();
    }
    builder.finish().unwrap()
}

fn records(size: usize) {
    let values: Vec<Vec<u8>> = (0..BATCH_VALUE_BYTES / size).map(|seed| value(size, seed)).collect();
    let mut buffer = Vec::new();
    let figure = |name: &str, seconds: f64| {
        println!("{size:5} B values  {name:24} {:7.1} ns/record", seconds / values.len() as f64 * 1e9);
    };
    figure("encode", best(|| buffer = encode(Codec::None, &values, std::mem::take(&mut buffer))));
    let bytes = encode(Codec::None, &values, Vec::new());
    let batch = BatchView::parse(&bytes).unwrap();
    let mut scratch = Vec::new();
    let use_up = |record: &RecordRef<'_>| {
        record.value.map_or(0, <[u8]>::len) + record.offset as usize + record.timestamp as usize
    };
    let iterate =
        || batch.records(&mut scratch).unwrap().map(|record| use_up(&record.unwrap())).sum::<usize>();
    figure("iterate", best(iterate));
    let visit = || {
        let mut sum = 0;
        let records = batch.records(&mut scratch).unwrap();
        records
            .try_for_each_record(|record| {
                sum += use_up(&record);
                Ok(())
            })
            .unwrap();
        sum
    };
    figure("visit", best(visit));
    figure("checksum", best(|| crc32c(&bytes)));
    let rules =
        ProduceRules { max_message_bytes: usize::MAX, now_ms: 1_700_000_000_000, ..ProduceRules::default() };
    figure(
        "validate (with checksum)",
        best(|| validate_produce_batch(&batch, &rules, &mut Vec::new()).unwrap()),
    );
}

/// The library called as directly as it can be, into memory that is there.
fn bare(codec: Codec, stored: &[u8], out: &mut [u8]) -> usize {
    match codec {
        Codec::None => 0,
        Codec::Gzip => {
            let mut state = flate2::Decompress::new_gzip(15);
            state.decompress(stored, out, flate2::FlushDecompress::Finish).unwrap();
            state.total_out() as usize
        }
        Codec::Snappy => {
            let (mut rest, mut written) = (&stored[16..], 0);
            while let Some((size, after)) = rest.split_first_chunk::<4>() {
                let (block, next) = after.split_at(u32::from_be_bytes(*size) as usize);
                written += snap::raw::Decoder::new().decompress(block, &mut out[written..]).unwrap();
                rest = next;
            }
            written
        }
        Codec::Lz4 => {
            let (mut rest, mut written) = (&stored[7..], 0);
            while let Some((size, after)) = rest.split_first_chunk::<4>() {
                let (block, next) = after.split_at((u32::from_le_bytes(*size) & 0x7fff_ffff) as usize);
                let target = &mut out[written..];
                // SAFETY: both pointers are valid for the sizes given.
                let size = unsafe {
                    lz4_sys::LZ4_decompress_safe(
                        block.as_ptr().cast(),
                        target.as_mut_ptr().cast(),
                        block.len() as i32,
                        target.len() as i32,
                    )
                };
                written += usize::try_from(size).unwrap();
                rest = if next.len() > 4 { next } else { &[] };
            }
            written
        }
        Codec::Zstd => zstd_safe::decompress(out, stored).unwrap(),
    }
}

fn codecs(size: usize, batch_bytes: usize) {
    let values: Vec<Vec<u8>> = (0..batch_bytes / size).map(|seed| value(size, seed)).collect();
    let plain = encode(Codec::None, &values, Vec::new()).split_off(HEADER_SIZE);
    for codec in &Codec::ALL[1..] {
        let mut stored = Vec::new();
        compress(*codec, None, &plain, &mut stored).unwrap();
        let (mut out, mut room) = (Vec::new(), vec![0; plain.len()]);
        assert_eq!(bare(*codec, &stored, &mut room), plain.len());
        // In turns, so that both meet the same neighbours.
        let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
        for _ in 0..3 {
            ours = ours.min(best(|| decompress(*codec, &stored, Bound::DEFAULT, &mut out).unwrap()));
            theirs = theirs.min(best(|| bare(*codec, &stored, &mut room)));
        }
        let rate = |seconds: f64| plain.len() as f64 / seconds / 1e9;
        println!(
            "{:7} B {:7} to {:4.1} %: decompress {:5.2} GB/s, bare {:5.2} GB/s: {:3.0} %",
            plain.len(),
            codec.name(),
            100.0 * stored.len() as f64 / plain.len() as f64,
            rate(ours),
            rate(theirs),
            100.0 * theirs / ours
        );
    }
}

fn checksums() {
    for size in [64, 128, 256, 512, 1024, 4096, 16 << 10, 1 << 20] {
        let data = value(size, 1);
        let times = 1 + (16 << 10) / size;
        let rate = |checksum: fn(&[u8]) -> u32| {
            let seconds = best(|| (0..times).fold(0, |sum, _| sum ^ checksum(black_box(&data))));
            (size * times) as f64 / seconds / 1e9
        };
        println!(
            "checksum of {size:7} B: {:6.1} GB/s, crc-fast {:6.1} GB/s, crc32c {:6.1} GB/s",
            rate(crc32c),
            rate(crc_fast::crc32_iscsi),
            rate(::crc32c::crc32c)
        );
    }
}

fn main() {
    if cfg!(debug_assertions) {
        println!("a debug build says nothing about speed");
        return;
    }
    records(100);
    records(1000);
    codecs(100, 16 << 10);
    codecs(100, 1 << 20);
    codecs(1000, 1 << 20);
    checksums();
}
