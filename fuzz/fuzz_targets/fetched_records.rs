//! The records of a Fetch answer: no bytes of a broker panic, pass the bounds of memory, or move a position backwards.
#![no_main]
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_buffer::Buffer;
use kraftlog_fuzz::{bounded, framed_many, inflating_bound};
use kraftlog_log::columns::ColumnOptions;
use kraftlog_log::fetched::{Aborted, FetchedRecords};
use libfuzzer_sys::fuzz_target;

const ROWS: usize = 64;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let bytes = if choice & 1 == 0 { framed_many(data) } else { data.to_vec() };
    let fetch_offset = match bytes.first_chunk::<8>() {
        Some(offset) if choice & 2 != 0 => i64::from_be_bytes(*offset) & i64::MAX,
        _ => 0,
    };
    let producer_id = bytes.get(43..51).and_then(<[u8]>::first_chunk).map_or(0, |id| i64::from_be_bytes(*id));
    let aborted = (choice & 4 != 0).then(|| vec![Aborted { producer_id, first_offset: fetch_offset }]);
    let size = bytes.len();
    bounded(3 * inflating_bound(size) + (1 << 20), || {
        let options = ColumnOptions {
            columns: ColumnOptions::parse_columns(&["key", "value", "offset", "headers"]).unwrap(),
            batch_rows: ROWS,
            ..ColumnOptions::default()
        };
        let mut fetched = FetchedRecords::new(Buffer::from_vec(bytes), fetch_offset, aborted, options);
        let mut position = fetch_offset;
        loop {
            let rows = match fetched.next_rows() {
                Ok(Some(rows)) => rows,
                Ok(None) => break,
                Err(_) => {
                    assert!(fetched.next_rows().is_err(), "an error stays");
                    break;
                }
            };
            assert!((1..=ROWS).contains(&rows.num_rows()));
            for offset in rows.column(2).as_primitive::<Int64Type>().values() {
                assert!(*offset >= fetch_offset, "a record before the fetch offset");
            }
            assert!(fetched.next_offset() >= position, "the position went back");
            position = fetched.next_offset();
        }
        assert!(fetched.next_offset() >= position);
    });
});
