//! A scan of a directory with two segments and an index: rows that the segments have, in order of the files.
#![no_main]
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use kraftlog_fuzz::{bounded, framed_many, inflating_bound, pieces, scratch_file};
use kraftlog_log::columns::ColumnOptions;
use kraftlog_log::scan::{IsolationLevel, OnCorrupt, Scan, ScanOptions, ScanSource};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let [first, second, index, time_index] = pieces::<4>(data);
    let (first, second) = (framed_many(first), framed_many(second));
    let path = scratch_file("scan", "00000000000000000000.log", &first);
    scratch_file("scan", "00000000000000000100.log", &second);
    scratch_file("scan", "00000000000000000000.index", index);
    scratch_file("scan", "00000000000000000000.timeindex", time_index);
    let directory = path.parent().unwrap();
    bounded(4 * inflating_bound(data.len()) + (16 << 20), || {
        let start = if choice & 1 == 0 { i64::MIN } else { i64::from(choice) };
        let options = ColumnOptions {
            start_offset: start,
            end_offset: if choice & 2 == 0 { i64::MAX } else { start.saturating_add(100) },
            batch_rows: if choice & 4 == 0 { 7 } else { 16_384 },
            include_control: choice & 8 != 0,
            check_crc: choice & 64 == 0,
            ..ColumnOptions::default()
        };
        let column = options.schema().index_of("offset").unwrap();
        let (start, end) = (options.start_offset, options.end_offset);
        let sources = vec![ScanSource::of_directory(directory)];
        let committed = choice & 16 != 0;
        let scan_options = ScanOptions {
            columns: Arc::new(options),
            isolation: if committed { IsolationLevel::ReadCommitted } else { IsolationLevel::ReadUncommitted },
            on_corrupt: if choice & 32 == 0 { OnCorrupt::Raise } else { OnCorrupt::Skip },
            memory_map: false,
            threads: if choice & 128 == 0 { 1 } else { 2 },
            ..ScanOptions::default()
        };
        let mut scan = Scan::new(sources, Arc::new(scan_options));
        while let Ok(Some(batch)) = scan.next_batch() {
            assert!(batch.num_rows() > 0);
            for offset in batch.column(column).as_primitive::<Int64Type>().values() {
                assert!((start..=end).contains(offset));
            }
        }
    });
});
