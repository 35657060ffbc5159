//! Inputs that were made, or found by the fuzz targets, to do harm: each ends in an error at a stated bound.
#![allow(clippy::unwrap_used)]
use kraftlog_log::batch::{
    split_header_mut, update_crc, validate_produce_batch, BatchView, ProduceRules, HEADER_SIZE, LOG_OVERHEAD,
};
use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::compression::{compress, decompress, Bound, Codec, CodecError};
use kraftlog_log::fs::{FileSystem, MemoryFileSystem, OpenMode};
use kraftlog_log::index::OffsetIndex;
use kraftlog_log::log::{Log, LogConfig, OpenOptions};
use kraftlog_log::producer_state::Origin;
use kraftlog_log::scan::{DumpOptions, FileDump, OnCorrupt, Plain, Scan, ScanOptions, ScanSource};
use kraftlog_log::time_index::TimeIndex;
use kraftlog_log::verify::{verify, VerifyOptions, VerifyProgress};
use kraftlog_log::Error;
use std::path::Path;
use std::sync::Arc;

/// Zeros enough to pass the default bound of both: gzip shrinks them 1029 times, zstd some 15 000 times.
const BOMB_BYTES: usize = 68 << 20;

/// One record of zeros, in a batch whose header and checksum are right.
fn bomb(codec: Codec) -> Vec<u8> {
    let options =
        BatchOptions { codec, level: (codec == Codec::Gzip).then_some(9), ..BatchOptions::default() };
    let mut builder = BatchBuilder::new(options).unwrap();
    builder.append(0, None, Some(&vec![0; BOMB_BYTES]), &[]).unwrap();
    builder.finish().unwrap()
}

fn is_over_bound(error: &Error) -> bool {
    error.to_string().contains("decompresses to more than the bound")
}

#[test]
fn bombs_end_at_the_bound_wherever_records_are_read() {
    for codec in [Codec::Gzip, Codec::Zstd] {
        let bytes = bomb(codec);
        assert!(bytes.len() < 1 << 20, "it fits max.message.bytes: {}", bytes.len());
        let batch = BatchView::parse(&bytes).unwrap();
        batch.validate_crc().unwrap();
        let mut scratch = Vec::new();
        assert!(is_over_bound(&batch.records(&mut scratch).unwrap_err()), "{codec:?}");
        assert!(scratch.capacity() <= 2 * Bound::DEFAULT.limit(bytes.len()) + (1 << 20));
        assert!(is_over_bound(
            &validate_produce_batch(&batch, &ProduceRules::default(), &mut scratch).unwrap_err()
        ));

        if codec == Codec::Gzip {
            // All that follows decompresses by the same call, and inflating takes seconds in a debug build.
            continue;
        }
        let fs = MemoryFileSystem::new();
        let options =
            OpenOptions { recovery_point: 0, log_start_offset: 0, clean_shutdown: false, now_ms: 0 };
        let log = Log::open(Arc::new(fs), Path::new("/topic-0"), LogConfig::default(), options).unwrap();
        assert!(is_over_bound(&log.append_as_leader(&bytes, 0, 0, Origin::Client).unwrap_err()));
        assert_eq!(log.log_end_offset(), 0);

        let directory = std::env::temp_dir().join(format!("kraftlog-bomb-{codec:?}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("00000000000000000000.log");
        std::fs::write(&path, &bytes).unwrap();
        let sources = vec![ScanSource::of_directory(&directory)];
        assert!(is_over_bound(
            &Scan::new(sources, Arc::new(ScanOptions::default())).next_batch().unwrap_err()
        ));
        let options = DumpOptions { records: true, data: true, ..DumpOptions::default() };
        let mut dump = FileDump::open(&path, options).unwrap();
        assert!(is_over_bound(&dump.next_lines(&mut Vec::new(), &mut Plain).unwrap_err()));
        let report = verify(&[path], VerifyOptions::default(), &VerifyProgress::default()).unwrap();
        let finding = report.findings.iter().find(|finding| finding.kind == "records").unwrap();
        assert!(finding.what.contains("more than the bound"), "{}", finding.what);
        std::fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn bombs_of_every_codec_end_at_a_bound_that_is_asked_for() {
    let zeros = vec![0; 8 << 20];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut data = Vec::new();
        compress(codec, None, &zeros, &mut data).unwrap();
        let mut out = Vec::new();
        let error = decompress(codec, &data, Bound::of_bytes(1 << 20), &mut out).unwrap_err();
        assert!(
            matches!(error, CodecError::OverBound { limit, .. } if limit == 1 << 20),
            "{codec:?}: {error}"
        );
        assert!(out.capacity() <= 3 << 20, "{codec:?}: {}", out.capacity());
    }
}

#[test]
fn sizes_that_only_a_number_claims_are_not_allocated() {
    // A record count and a record length of 2^31-1 in a batch of 70 bytes.
    let mut bytes = vec![0; HEADER_SIZE + 9];
    bytes[8..12].copy_from_slice(&((HEADER_SIZE + 9 - LOG_OVERHEAD) as u32).to_be_bytes());
    bytes[16] = 2;
    bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    bytes[61..66].copy_from_slice(&[0xfe, 0xff, 0xff, 0xff, 0x0f]);
    let (header, body) = split_header_mut(&mut bytes).unwrap();
    update_crc(header, body);
    let batch = BatchView::parse(&bytes).unwrap();
    let mut scratch = Vec::new();
    let outcome = batch.records(&mut scratch).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    assert!(outcome.unwrap_err().to_string().contains("2147483647"));
    assert_eq!(scratch.capacity(), 0);
}

fn one_file(name: &str, bytes: &[u8]) -> Arc<dyn FileSystem> {
    let fs = MemoryFileSystem::new();
    fs.create_dir(Path::new("/log")).unwrap();
    let file = fs.open(&Path::new("/log").join(name), OpenMode::Truncate).unwrap();
    file.write_all_at(&[bytes], 0).unwrap();
    Arc::new(fs)
}

/// Found by the targets `offset_index` and `time_index`: relative offsets beyond the largest offset.
#[test]
fn index_entries_beyond_the_largest_offset_do_not_overflow() {
    let base_offset = 0x7fff_ffff_ff3f_0e10;
    let time = [0xff, 0xff, 0xff, 0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0];
    let mut index = TimeIndex::open(one_file("t", &time), "/log/t".into(), base_offset);
    assert_eq!(index.last().unwrap().offset, i64::MAX);
    index.truncate_to(i64::MAX).unwrap();
    let offset = [0xff, 0xff, 0, 0, 0, 0, 0, 1];
    let mut index = OffsetIndex::open(one_file("o", &offset), "/log/o".into(), base_offset);
    assert_eq!(index.lookup(i64::MAX).unwrap().position, 1);
    assert_eq!(index.lookup(base_offset).unwrap().position, 0);
}

/// Found by the target `codec_zstd`: the error named depended on the room that the output had from before.
#[test]
fn zstd_names_the_bound_whatever_the_output_held_before() {
    // A frame whose block is larger than the size that its header gives.
    let data = [0x28, 0xb5, 0x2f, 0xfd, 0x31, 0, 0x58, 0, 0, 0, 0x5a, 0xfe, 0xe7, 0xe7, 1, 0, 0];
    for capacity in [0, 10, 100, 1000] {
        let mut out = Vec::with_capacity(capacity);
        let error = decompress(Codec::Zstd, &data, Bound::of_bytes(0), &mut out).unwrap_err();
        assert!(matches!(error, CodecError::OverBound { .. }), "{capacity}: {error}");
    }
}

#[test]
fn nothing_is_appended_behind_a_marker_that_recovery_cannot_read() {
    let options = BatchOptions {
        producer_id: 7,
        producer_epoch: 0,
        is_transactional: true,
        is_control: true,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options).unwrap();
    builder.append(0, Some(b"\0"), Some(b""), &[]).unwrap();
    let fs = one_file("00000000000000000000.log", &builder.finish().unwrap());
    let options = OpenOptions { recovery_point: 0, log_start_offset: 0, clean_shutdown: false, now_ms: 0 };
    let error = Log::open(fs, Path::new("/log"), LogConfig::default(), options).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("00000000000000000000.log position 0"), "{text}");
    assert!(text.contains("a transaction marker that cannot be read"), "{text}");
}

#[test]
fn nothing_is_appended_behind_offsets_that_fall() {
    let batch_at = |base_offset| {
        let mut builder = BatchBuilder::new(BatchOptions { base_offset, ..BatchOptions::default() }).unwrap();
        builder.append(0, None, Some(b"value"), &[]).unwrap();
        builder.finish().unwrap()
    };
    // Too close to each other for the index to notice.
    let fs = one_file("00000000000000000000.log", &[batch_at(100), batch_at(5)].concat());
    let options = OpenOptions { recovery_point: 0, log_start_offset: 0, clean_shutdown: false, now_ms: 0 };
    let error = Log::open(fs, Path::new("/log"), LogConfig::default(), options).err().unwrap();
    assert!(error.to_string().contains("its last offset does not rise above the one before"), "{error}");
}

#[test]
fn an_index_that_leads_back_does_not_keep_a_scan_for_ever() {
    let directory =
        std::env::temp_dir().join(format!("kraftlog-leads-back-{}", std::process::id())).join("t-0");
    std::fs::create_dir_all(&directory).unwrap();
    let mut builder = BatchBuilder::new(BatchOptions::default()).unwrap();
    builder.append(1000, None, Some(b"value"), &[]).unwrap();
    let mut bytes = builder.finish().unwrap();
    bytes.extend([0xee; 100]); // no batch
    std::fs::write(directory.join("00000000000000000000.log"), &bytes).unwrap();
    let entries: Vec<u8> = [(1u32, 9_999_999u32), (2, 9_999_998), (3, 0)]
        .iter()
        .flat_map(|(offset, position)| [offset.to_be_bytes(), position.to_be_bytes()].concat())
        .collect();
    std::fs::write(directory.join("00000000000000000000.index"), entries).unwrap();
    let options = ScanOptions { on_corrupt: OnCorrupt::Skip, ..ScanOptions::default() };
    let mut scan = Scan::new(vec![ScanSource::of_directory(&directory)], Arc::new(options));
    let batch = scan.next_batch().unwrap().unwrap();
    assert_eq!(batch.num_rows(), 1);
    assert!(scan.next_batch().unwrap().is_none());
    std::fs::remove_dir_all(directory.parent().unwrap()).unwrap();
}
