use super::*;
use crate::batch::Batches;
use crate::fs::MemoryFileSystem;
use arrow_array::{ArrayRef, BinaryArray, Int32Array, Int64Array, StringArray};
use arrow_schema::{DataType, Field};
use std::path::Path;

fn options() -> RowOptions {
    RowOptions {
        codec: Codec::None,
        level: None,
        batch_bytes: 1 << 16,
        batch_rows: i32::MAX,
        timestamp_type: None,
        log: LogConfig::default(),
    }
}

fn rows(columns: Vec<(&str, ArrayRef)>) -> StructArray {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    StructArray::new(fields.into(), arrays, None)
}

fn values(count: usize) -> ArrayRef {
    Arc::new(BinaryArray::from_iter_values((0..count).map(|row| format!("value {row}"))))
}

fn numbers(numbers: &[i32]) -> ArrayRef {
    Arc::new(Int32Array::from(numbers.to_vec()))
}

fn writer(fs: &MemoryFileSystem, options: RowOptions, target: Target) -> RowWriter {
    fs.create_dir(Path::new("/out")).unwrap();
    RowWriter::new(Arc::new(fs.clone()), "/out".into(), options, target).unwrap()
}

fn topic(name: &str) -> Target {
    Target { topic: Some(name.to_owned()), ..Target::default() }
}

/// (base offset, last offset, records, epoch, timestamp type, largest timestamp) of each batch of a file.
fn batches(fs: &MemoryFileSystem, path: &str) -> Vec<(i64, i64, i32, i32, bool, i64)> {
    let bytes = crate::fs::read_file(fs, Path::new(path)).unwrap().unwrap();
    Batches::new(&bytes)
        .map(|batch| {
            let batch = batch.unwrap();
            batch.validate_crc().unwrap();
            (
                batch.base_offset(),
                batch.last_offset(),
                batch.record_count(),
                batch.partition_leader_epoch(),
                batch.timestamp_type() == TimestampType::LogAppendTime,
                batch.max_timestamp(),
            )
        })
        .collect()
}

#[test]
fn partitions_get_logs_of_their_own() {
    let fs = MemoryFileSystem::new();
    let start = Start { offset: 40, leader_epoch: 3 };
    let target = Target { starts: [(("t".to_owned(), 1), start)].into(), ..topic("t") };
    let mut writer = writer(&fs, options(), target);
    let partition = numbers(&[0, 0, 1]);
    writer.write(&rows(vec![("value", values(3)), ("partition", partition)]), 7).unwrap();
    writer.write(&rows(vec![("value", values(2)), ("partition", numbers(&[1, 1]))]), 8).unwrap();
    let written = writer.finish().unwrap();
    let facts: Vec<_> =
        written.iter().map(|one| (one.partition, one.first_offset, one.end_offset, one.rows)).collect();
    assert_eq!(facts, [(0, 0, 2, 2), (1, 40, 43, 3)]);
    assert_eq!(batches(&fs, "/out/t-0/00000000000000000000.log"), [(0, 1, 2, 0, false, 7)]);
    let second = batches(&fs, "/out/t-1/00000000000000000040.log");
    assert_eq!(second, [(40, 40, 1, 3, false, 7), (41, 42, 2, 3, false, 8)]);
}

#[test]
fn batches_are_cut_where_what_they_share_changes() {
    let fs = MemoryFileSystem::new();
    let target = Target { partition: Some(0), ..topic("t") };
    let mut writer = writer(&fs, RowOptions { batch_rows: 3, ..options() }, target);
    let far = 10 + i64::from(i32::MAX) + 1;
    let offsets: ArrayRef = Arc::new(Int64Array::from(vec![10, 12, 13, 14, far, far + 1, far + 2, far + 3]));
    let timestamps: ArrayRef = Arc::new(Int64Array::from(vec![5, 4, 5, 6, 7, 7, 8, 8]));
    let types = numbers(&[0, 0, 0, 0, 1, 1, 1, 1]);
    let epochs = numbers(&[-1, 0, 0, 0, 2, 2, 2, 3]);
    let columns = vec![
        ("value", values(8)),
        ("offset", offsets),
        ("timestamp", timestamps),
        ("timestampType", types),
        ("leaderEpoch", epochs),
    ];
    writer.write(&rows(columns), 1).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!((written[0].first_offset, written[0].end_offset), (10, far + 4));
    let epochs: Vec<_> = written[0].epochs.iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
    assert_eq!(epochs, [(0, 10), (2, far), (3, far + 3)]);
    let mut found = batches(&fs, "/out/t-0/00000000000000000010.log");
    // What is too far from the first offset of a segment begins another.
    found.extend(batches(&fs, &format!("/out/t-0/{far:020}.log")));
    assert_eq!(
        found,
        [
            (10, 13, 3, 0, false, 5),
            (14, 14, 1, 0, false, 6),
            (far, far + 1, 2, 2, true, 7),
            (far + 2, far + 2, 1, 2, true, 8),
            (far + 3, far + 3, 1, 3, true, 8),
        ]
    );
}

#[test]
fn rows_that_make_no_log_are_refused() {
    let refused = |target: Target, columns: Vec<(&str, ArrayRef)>| {
        let fs = MemoryFileSystem::new();
        let mut writer = writer(&fs, options(), target);
        writer.write(&rows(columns), 1).unwrap_err().to_string()
    };
    let again = refused(topic("t"), vec![("value", values(3)), ("partition", numbers(&[0, 1, 0]))]);
    assert!(again.contains("t-0 come again"), "{again}");
    let offsets: ArrayRef = Arc::new(Int64Array::from(vec![4, 4]));
    let twice =
        refused(Target { partition: Some(2), ..topic("t") }, vec![("value", values(2)), ("offset", offsets)]);
    assert!(twice.contains("t-2: offset 4 comes after offset 4"), "{twice}");
    let start = Start { offset: 5, leader_epoch: 0 };
    let target = Target { partition: Some(0), starts: [(("t".to_owned(), 0), start)].into(), ..topic("t") };
    let offsets: ArrayRef = Arc::new(Int64Array::from(vec![4]));
    let below = refused(target, vec![("value", values(1)), ("offset", offsets)]);
    assert!(below.contains("offset 4 of t-0 is below 5"), "{below}");
    let names: ArrayRef = Arc::new(StringArray::from(vec!["../t"]));
    let name = refused(
        Target { partition: Some(0), ..Target::default() },
        vec![("value", values(1)), ("topic", names)],
    );
    assert!(name.contains("no name for a topic"), "{name}");
    let null: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
    let null = refused(
        Target { partition: Some(0), ..Target::default() },
        vec![("value", values(1)), ("topic", null)],
    );
    assert!(null.contains("null topic"), "{null}");
    let negative = refused(topic("t"), vec![("value", values(1)), ("partition", numbers(&[-1]))]);
    assert!(negative.contains("partition -1"), "{negative}");
    let unknown = refused(topic("t"), vec![("value", values(1)), ("extra", numbers(&[1]))]);
    assert!(unknown.contains("column extra"), "{unknown}");
    let wrong = refused(topic("t"), vec![("value", numbers(&[1]))]);
    assert!(wrong.contains(&format!("column value: a column of {}", DataType::Int32)), "{wrong}");
}
