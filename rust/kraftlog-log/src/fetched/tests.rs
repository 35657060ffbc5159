use super::*;
use crate::builder::{BatchBuilder, BatchOptions};
use crate::compression::Codec;

fn batch(options: BatchOptions, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options).unwrap();
    for value in values {
        builder.append(1_700_000_000_000, None, Some(value.as_bytes()), &[]).unwrap();
    }
    builder.finish().unwrap()
}

fn plain(base_offset: i64, epoch: i32, values: &[&str]) -> Vec<u8> {
    batch(BatchOptions { base_offset, partition_leader_epoch: epoch, ..BatchOptions::default() }, values)
}

fn of_producer(base_offset: i64, producer_id: i64, values: &[&str]) -> Vec<u8> {
    let options = BatchOptions {
        base_offset,
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    batch(options, values)
}

fn marker(base_offset: i64, producer_id: i64, kind: i16) -> Vec<u8> {
    let options = BatchOptions {
        base_offset,
        producer_id,
        producer_epoch: 0,
        is_transactional: true,
        is_control: true,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options).unwrap();
    let key = [0_i16.to_be_bytes(), kind.to_be_bytes()].concat();
    builder.append(1, Some(&key), Some(&[0; 6]), &[]).unwrap();
    builder.finish().unwrap()
}

fn options(batch_rows: usize) -> ColumnOptions {
    let columns = ColumnOptions::parse_columns(&["value"]).unwrap();
    ColumnOptions { columns, batch_rows, ..ColumnOptions::default() }
}

fn values(rows: &RecordBatch) -> Vec<String> {
    assert_eq!(rows.num_columns(), 1);
    let column = rows.column(0).as_binary::<i32>();
    column.iter().map(|value| String::from_utf8(value.unwrap().to_vec()).unwrap()).collect()
}

fn all(records: &mut FetchedRecords) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(rows) = records.next_rows().unwrap() {
        found.extend(values(&rows));
    }
    found
}

#[test]
fn position_and_epoch_are_those_of_the_rows_given_so_far() {
    let data = [plain(10, 3, &["a", "b", "c"]), plain(13, 5, &["d"])].concat();
    let mut records = FetchedRecords::new(Buffer::from_vec(data), 11, None, options(1));
    assert_eq!((records.next_offset(), records.last_epoch()), (11, -1));
    assert_eq!(values(&records.next_rows().unwrap().unwrap()), ["b"]);
    assert_eq!((records.next_offset(), records.last_epoch()), (12, 3));
    assert!(!records.is_finished());
    assert_eq!(values(&records.next_rows().unwrap().unwrap()), ["c"]);
    assert_eq!(values(&records.next_rows().unwrap().unwrap()), ["d"]);
    assert_eq!((records.next_offset(), records.last_epoch()), (14, 5));
    assert!(records.is_finished());
    assert!(records.next_rows().unwrap().is_none());
}

#[test]
fn aborted_transactions_and_markers_are_no_rows() {
    let data = [
        of_producer(0, 7, &["aborted"]),
        of_producer(1, 8, &["kept"]),
        marker(2, 7, 0),
        of_producer(3, 7, &["after"]),
        marker(4, 7, 1),
        marker(5, 8, 1),
    ]
    .concat();
    let aborted = vec![Aborted { producer_id: 7, first_offset: 0 }];
    let mut committed = FetchedRecords::new(Buffer::from_vec(data.clone()), 0, Some(aborted), options(9));
    assert_eq!(all(&mut committed), ["kept", "after"]);
    assert_eq!(committed.next_offset(), 6);
    let mut uncommitted = FetchedRecords::new(Buffer::from_vec(data), 0, None, options(9));
    assert_eq!(all(&mut uncommitted), ["aborted", "kept", "after"]);
}

#[test]
fn rows_before_a_bad_batch_come_first_and_the_position_stays_on_it() {
    let mut data = [plain(0, 0, &["a"]), plain(1, 0, &["b"])].concat();
    *data.last_mut().unwrap() ^= 1;
    let mut records = FetchedRecords::new(Buffer::from_vec(data), 0, None, options(9));
    assert_eq!(values(&records.next_rows().unwrap().unwrap()), ["a"]);
    for _ in 0..2 {
        let error = records.next_rows().unwrap_err().to_string();
        assert!(error.contains("CRC"), "{error}");
        assert_eq!(records.next_offset(), 1);
    }
}

/// The rows of a write that went to the wrong place were given a second time.
#[test]
fn a_batch_that_lies_behind_a_later_one_is_an_error() {
    let data = [plain(0, 0, &["a", "b"]), plain(2, 0, &["c"]), plain(0, 0, &["a", "b"]), plain(3, 0, &["d"])];
    for rows_max in [1, 9] {
        let mut records = FetchedRecords::new(Buffer::from_vec(data.concat()), 0, None, options(rows_max));
        let mut found = Vec::new();
        let error = loop {
            match records.next_rows() {
                Ok(rows) => found.extend(values(&rows.unwrap())),
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(found, ["a", "b", "c"]);
        assert!(error.contains("follows one that ends at offset 2"), "{error}");
        assert_eq!(records.next_offset(), 3);
    }
    // The first batch may begin before the fetch offset, and an answer may follow another one.
    let mut records = FetchedRecords::new(Buffer::from_vec(data.concat()), 1, None, options(9));
    records.restart(Buffer::from_vec(plain(0, 0, &["a", "b"])), 1, None);
    assert_eq!(values(&records.next_rows().unwrap().unwrap()), ["b"]);
}

/// Of a later offset: what it lies upon looked like a gap that compaction left, and its own rows came too early.
#[test]
fn a_batch_after_a_gap_that_an_earlier_one_follows_is_an_error() {
    let of_later = [plain(0, 0, &["a"]), plain(9, 0, &["z"]), plain(2, 0, &["c"])];
    let mut records = FetchedRecords::new(Buffer::from_vec(of_later.concat()), 0, None, options(9));
    assert_eq!(values(&records.next_rows().unwrap().unwrap()), ["a"]);
    let error = records.next_rows().unwrap_err().to_string();
    assert!(error.contains("follows a gap, and one of offset 2 follows it"), "{error}");
    assert_eq!(records.next_offset(), 1);
    // Also where the answer begins with it.
    records.restart(Buffer::from_vec(of_later[1..].concat()), 1, None);
    assert!(records.next_rows().unwrap_err().to_string().contains("follows a gap"));
    // Damage behind the gap is reported at its own position.
    let mut damaged = of_later.clone();
    *damaged[2].last_mut().unwrap() ^= 1;
    records.restart(Buffer::from_vec(damaged.concat()), 0, None);
    assert_eq!(values(&records.next_rows().unwrap().unwrap()), ["a", "z"]);
    let compacted = [plain(0, 0, &["a"]), plain(4, 0, &["e"]), plain(9, 0, &["z"])];
    records.restart(Buffer::from_vec(compacted.concat()), 0, None);
    assert_eq!(all(&mut records), ["a", "e", "z"]);
}

/// Such a row was given: a batch whose base offset is behind the fetch offset is not filtered.
#[test]
fn a_record_that_claims_an_offset_before_its_batch_is_an_error() {
    for (delta, rows_max) in [(5, 9), (5, 1), (1, 9)] {
        let mut bad = plain(5, 0, &["bad"]);
        // The offset delta as zigzag stores it: -3 and -1.
        *bad.get_mut(64).unwrap() = delta;
        let (header, body) = crate::batch::split_header_mut(&mut bad).unwrap();
        crate::batch::update_crc(header, body);
        let data = [plain(4, 0, &["good"]), bad].concat();
        let fetch_offset = if delta == 1 { 5 } else { 4 };
        let mut records = FetchedRecords::new(Buffer::from_vec(data), fetch_offset, None, options(rows_max));
        if fetch_offset == 4 {
            assert_eq!(values(&records.next_rows().unwrap().unwrap()), ["good"]);
        }
        for _ in 0..2 {
            let error = records.next_rows().unwrap_err().to_string();
            assert!(error.contains("before the fetch offset"), "{error}");
            assert_eq!(records.next_offset(), 5);
        }
    }
}

#[test]
fn an_answer_that_brings_nothing_forward_is_an_error() {
    let whole = plain(0, 0, &["a", "b"]);
    for (data, wanted) in [(whole.get(..70).unwrap(), "one whole batch"), (&whole, "fetch offset 5")] {
        let mut records = FetchedRecords::new(Buffer::from_vec(data.to_vec()), 5, None, options(9));
        let error = records.next_rows().unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let mut nothing = FetchedRecords::new(Buffer::from_vec(Vec::<u8>::new()), 5, None, options(9));
    assert!(nothing.next_rows().unwrap().is_none());
}

#[test]
fn a_truncated_batch_at_the_end_is_left_for_the_next_fetch() {
    let second = plain(2, 0, &["c"]);
    let data = [plain(0, 0, &["a", "b"]), second.get(..second.len() - 1).unwrap().to_vec()].concat();
    let mut records = FetchedRecords::new(Buffer::from_vec(data), 0, None, options(9));
    assert_eq!(all(&mut records), ["a", "b"]);
    assert_eq!(records.next_offset(), 2);
}

#[test]
fn compressed_batches_continue_where_the_last_rows_ended() {
    for codec in Codec::ALL {
        let bytes = batch(BatchOptions { codec, ..BatchOptions::default() }, &["a", "b", "c"]);
        let mut records = FetchedRecords::new(Buffer::from_vec(bytes), 0, None, options(2));
        assert_eq!(values(&records.next_rows().unwrap().unwrap()), ["a", "b"]);
        assert_eq!(records.next_offset(), 2);
        assert_eq!(all(&mut records), ["c"]);
    }
}

#[test]
fn a_decoder_that_begins_again_gives_what_a_new_one_gives() {
    let aborted = || Some(vec![Aborted { producer_id: 7, first_offset: 0 }]);
    let transactional =
        [of_producer(0, 7, &["aborted"]), of_producer(1, 8, &["kept"]), marker(2, 7, 0)].concat();
    let mut bad = plain(30, 2, &["x"]);
    *bad.last_mut().unwrap() ^= 1;
    let answers = [
        (plain(10, 3, &["a", "b", "c"]), 11, None),
        (transactional.clone(), 0, aborted()),
        (bad, 30, None),
        (plain(30, 2, &["x", "y", "z"]), 31, None),
        (transactional, 1, aborted()),
        (Vec::new(), 50, None),
    ];
    let mut reused = FetchedRecords::new(Buffer::from_vec(Vec::<u8>::new()), 0, None, options(2));
    for (data, offset, aborted) in answers {
        let mut new =
            FetchedRecords::new(Buffer::from_vec(data.clone()), offset, aborted.clone(), options(2));
        reused.restart(Buffer::from_vec(data), offset, aborted);
        for _ in 0..3 {
            match (reused.next_rows(), new.next_rows()) {
                (Ok(left), Ok(right)) => assert_eq!(left, right),
                (Err(left), Err(right)) => assert_eq!(left.to_string(), right.to_string()),
                (left, right) => panic!("{left:?} {right:?}"),
            }
            let state = |records: &FetchedRecords| {
                (records.next_offset(), records.last_epoch(), records.is_finished())
            };
            assert_eq!(state(&reused), state(&new));
        }
    }
}

#[test]
fn batches_of_one_partition_share_their_constant_columns() {
    let columns = ColumnOptions::parse_columns(&["topic", "partition", "value"]).unwrap();
    let options = ColumnOptions {
        columns,
        batch_rows: 2,
        topic: Some("orders".into()),
        partition: Some(3),
        ..ColumnOptions::default()
    };
    let data = plain(0, 0, &["a", "b", "c"]);
    let mut records = FetchedRecords::new(Buffer::from_vec(data), 0, None, options);
    let (first, second) = (records.next_rows().unwrap().unwrap(), records.next_rows().unwrap().unwrap());
    assert_eq!((first.num_rows(), second.num_rows()), (2, 1));
    for (rows, count) in [(&first, 2), (&second, 1)] {
        assert_eq!(
            rows.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(),
            vec!["orders"; count]
        );
        assert_eq!(
            rows.column(1).as_primitive::<arrow_array::types::Int32Type>().values().to_vec(),
            vec![3; count]
        );
    }
    let bytes_of = |rows: &RecordBatch| rows.column(0).as_string::<i32>().values().as_ptr();
    assert_eq!(bytes_of(&first), bytes_of(&second), "the second batch made its topics anew");
}
