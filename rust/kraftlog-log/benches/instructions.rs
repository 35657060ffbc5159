//! The main loops on inputs that never change, for counting their instructions.
//!
//!     sh .ci/dev instructions
//!
//! runs each case under callgrind, which counts what happens inside [`measured`], and compares the counts with
//! `benches/instructions.json`. With `KRAFTLOG_TIME=1` in the environment it times the case instead. Without arguments this program lists its cases, each with its number of records.
#![allow(clippy::disallowed_methods, reason = "it measures and bounds its own time")]

use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use kraftlog_log::batch::{next_batch, validate_produce_batch, ProduceRules};
use kraftlog_log::builder::{self, BatchBuilder, BatchOptions, HeaderRef};
use kraftlog_log::columns::{BatchCursor, BinaryType, Column, ColumnOptions, ColumnsDecoder};
use kraftlog_log::compression::{compress, decompress, Bound, Codec};
use kraftlog_log::crc::crc32c;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RECORDS: usize = 3000;
const BATCH_RECORDS: usize = 150;
const NOW_MS: i64 = 1_700_000_000_000;
const MAIN: [&str; 4] = ["key", "value", "offset", "timestamp"];

/// What callgrind counts: everything that one call of `work` does.
#[inline(never)]
fn measured<R>(work: &mut dyn FnMut() -> R) -> R {
    let result = black_box(work());
    if std::env::var_os("KRAFTLOG_TIME").is_some() {
        let (mut fastest, started) = (f64::MAX, Instant::now());
        while started.elapsed() < Duration::from_millis(500) {
            let one = Instant::now();
            black_box(work());
            fastest = fastest.min(one.elapsed().as_secs_f64());
        }
        println!("{:10.1} ns, all of it", fastest * 1e9);
    }
    result
}

/// Words and numbers by a fixed generator.
fn value(size: usize, seed: usize) -> Vec<u8> {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let mut out = Vec::new();
    while out.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = [b"price ", b"click ", b"total ", b"false "][(state >> 60) as usize & 3];
        out.extend_from_slice(word);
        out.extend_from_slice(&((state >> 33) as u16).to_string().into_bytes());
    }
    out.truncate(size);
    out
}

fn batches(size: usize, codec: Codec, has_headers: bool) -> Vec<u8> {
    let headers: [HeaderRef<'_>; 2] = [(b"trace", Some(b"0123456789abcdef")), (b"kind", None)];
    let mut all = Vec::new();
    for first in (0..RECORDS).step_by(BATCH_RECORDS) {
        let options = BatchOptions { codec, base_offset: first as i64, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options).unwrap();
        for number in first..first + BATCH_RECORDS {
            let key = format!("k{number:08}");
            let headers = if has_headers { headers.as_slice() } else { &[] };
            builder
                .append(NOW_MS + number as i64, Some(key.as_bytes()), Some(&value(size, number)), headers)
                .unwrap();
        }
        all.extend_from_slice(&builder.finish().unwrap());
    }
    all
}

fn decode(data: &Buffer, options: &Arc<ColumnOptions>) -> RecordBatch {
    let mut decoder = ColumnsDecoder::new(options.clone());
    decoder.expect(RECORDS, data.len());
    let mut position = 0;
    while let Some(batch) = next_batch(data, position).unwrap() {
        decoder.decode(&batch, data, &mut BatchCursor::default()).unwrap();
        position += batch.bytes().len();
    }
    decoder.finish().unwrap()
}

fn decode_case(size: usize, codec: Codec, columns: &[&str], binary_type: BinaryType, has_headers: bool) {
    let mut options = ColumnOptions { binary_type, batch_rows: RECORDS, ..ColumnOptions::default() };
    if !columns.is_empty() {
        options.columns = ColumnOptions::parse_columns(columns).unwrap();
    }
    assert_eq!(options.has(Column::Headers), columns.is_empty());
    let options = Arc::new(options);
    let data = Buffer::from_vec(batches(size, codec, has_headers));
    // The second time runs in pooled memory and with contexts that are there.
    drop(decode(&data, &options));
    let rows = measured(&mut || decode(&data, &options));
    assert_eq!(rows.num_rows(), RECORDS);
}

fn encode_case(size: usize, codec: Codec) {
    let values: Vec<Vec<u8>> = (0..RECORDS).map(|number| value(size, number)).collect();
    let mut buffer = Vec::new();
    let mut run = || {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        let mut builder = BatchBuilder::with_buffer(options, std::mem::take(&mut buffer)).unwrap();
        for (number, value) in values.iter().enumerate() {
            builder.append(NOW_MS + number as i64, None, Some(value), &[]).unwrap();
        }
        buffer = builder.finish().unwrap();
        buffer.len()
    };
    run();
    measured(&mut run);
}

fn encode_columns_case(size: usize) {
    let values: Vec<Vec<u8>> = (0..RECORDS).map(|number| value(size, number)).collect();
    let array = arrow_array::BinaryArray::from_iter_values(&values);
    let values = builder::Column::new(&array as &dyn Array).unwrap();
    let times: Vec<i64> = (0..RECORDS as i64).map(|number| NOW_MS + number).collect();
    measured(&mut || {
        let builder = BatchBuilder::new(BatchOptions::default()).unwrap();
        let timestamps = builder::Timestamps::Each(&times, None);
        builder::encode_columns(builder, None, &timestamps, &builder::Column::Null, &values).unwrap()
    });
}

fn codec_case(codec: Codec, compresses: bool) {
    let plain = batches(100, Codec::None, false);
    let plain = plain.get(..64 << 10).unwrap();
    let (mut stored, mut out) = (Vec::new(), Vec::new());
    compress(codec, None, plain, &mut stored).unwrap();
    if compresses {
        measured(&mut || {
            out.clear();
            compress(codec, None, plain, &mut out).unwrap();
        });
    } else {
        decompress(codec, &stored, Bound::DEFAULT, &mut out).unwrap();
        measured(&mut || decompress(codec, &stored, Bound::DEFAULT, &mut out).unwrap());
    }
}

fn validate_case() {
    let data = batches(100, Codec::None, false);
    let rules = ProduceRules { max_message_bytes: usize::MAX, now_ms: NOW_MS, ..ProduceRules::default() };
    let mut scratch = Vec::new();
    measured(&mut || {
        let mut position = 0;
        while let Some(batch) = next_batch(&data, position).unwrap() {
            validate_produce_batch(&batch, &rules, &mut scratch).unwrap();
            position += batch.bytes().len();
        }
    });
}

fn iterate_case() {
    let data = batches(100, Codec::None, true);
    let mut scratch = Vec::new();
    let records = measured(&mut || {
        let (mut position, mut records) = (0, 0);
        while let Some(batch) = next_batch(&data, position).unwrap() {
            records += batch
                .records(&mut scratch)
                .unwrap()
                .filter(|record| record.as_ref().unwrap().offset >= 0)
                .count();
            position += batch.bytes().len();
        }
        records
    });
    assert_eq!(records, RECORDS);
}

fn crc_case(size: usize) {
    let data = value(size, 1);
    measured(&mut || crc32c(&data));
}

/// Name, what its count is divided by, and the case.
type Case = (&'static str, usize, fn());

const CASES: &[Case] = &[
    ("decode 100 B, binary", RECORDS, || decode_case(100, Codec::None, &MAIN, BinaryType::Binary, false)),
    ("decode 100 B, binary view", RECORDS, || {
        decode_case(100, Codec::None, &MAIN, BinaryType::BinaryView, false);
    }),
    ("decode 1000 B, binary", RECORDS, || decode_case(1000, Codec::None, &MAIN, BinaryType::Binary, false)),
    ("decode 1000 B, binary view", RECORDS, || {
        decode_case(1000, Codec::None, &MAIN, BinaryType::BinaryView, false);
    }),
    ("decode 100 B, offsets only", RECORDS, || {
        decode_case(100, Codec::None, &["offset"], BinaryType::Binary, false);
    }),
    ("decode 100 B, all columns, headers", RECORDS, || {
        decode_case(100, Codec::None, &[], BinaryType::Binary, true);
    }),
    ("decode 100 B, lz4, binary", RECORDS, || decode_case(100, Codec::Lz4, &MAIN, BinaryType::Binary, false)),
    ("decode 100 B, lz4, binary view", RECORDS, || {
        decode_case(100, Codec::Lz4, &MAIN, BinaryType::BinaryView, false);
    }),
    ("decode 100 B, snappy, binary", RECORDS, || {
        decode_case(100, Codec::Snappy, &MAIN, BinaryType::Binary, false);
    }),
    ("encode 100 B, builder", RECORDS, || encode_case(100, Codec::None)),
    ("encode 1000 B, builder", RECORDS, || encode_case(1000, Codec::None)),
    ("encode 100 B, columns", RECORDS, || encode_columns_case(100)),
    ("validate a produced batch, 100 B", RECORDS, validate_case),
    ("iterate records, 100 B, headers", RECORDS, iterate_case),
    ("decompress 64 KiB, gzip", 64, || codec_case(Codec::Gzip, false)),
    ("decompress 64 KiB, snappy", 64, || codec_case(Codec::Snappy, false)),
    ("decompress 64 KiB, lz4", 64, || codec_case(Codec::Lz4, false)),
    ("decompress 64 KiB, zstd", 64, || codec_case(Codec::Zstd, false)),
    ("compress 64 KiB, gzip", 64, || codec_case(Codec::Gzip, true)),
    ("compress 64 KiB, snappy", 64, || codec_case(Codec::Snappy, true)),
    ("compress 64 KiB, lz4", 64, || codec_case(Codec::Lz4, true)),
    ("compress 64 KiB, zstd", 64, || codec_case(Codec::Zstd, true)),
    ("CRC-32C of 16 KiB", 16, || crc_case(16 << 10)),
];

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for (name, divisor, case) in CASES {
        if wanted.is_empty() {
            println!("{divisor}\t{name}");
        } else if wanted.iter().any(|wanted| wanted == name) {
            case();
        }
    }
}
