//! Batches from Arrow arrays of every type, sliced and imported through the C interface: decoded to the same values.
#![no_main]
use arrow_array::{
    make_array, Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, Int64Array, LargeBinaryArray,
    StringArray, StringViewArray,
};
use kraftlog_fuzz::{bounded, inflating_bound};
use kraftlog_log::batch::Batches;
use kraftlog_log::builder::{encode_columns, BatchBuilder, BatchOptions, Column, Timestamps};
use kraftlog_log::compression::Codec;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let Some(([kind, codec, skip, most], data)) = data.split_first_chunk::<4>() else { return };
    bounded(4 * inflating_bound(data.len()), || {
        let values: Vec<Option<&[u8]>> =
            data.split(|&byte| byte == b'\n').map(|part| (part != b"\0").then_some(part)).collect();
        let skip = usize::from(*skip) % values.len();
        let array = imported(array(*kind % 6, &values).slice(skip, values.len() - skip));
        let expected: Vec<Option<Vec<u8>>> = (0..array.len()).map(|row| value(&array, row)).collect();
        let times: Int64Array = (0..array.len())
            .map(|row| (row % 5 != 4).then_some((row as i64).wrapping_mul(i64::from(*most) << 50)))
            .collect();
        let codec = Codec::from_id(*codec % 5).unwrap();
        let builder = BatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() }).unwrap();
        let column = Column::new(&array).unwrap();
        let keys = if *most & 1 == 0 { Column::Null } else { Column::new(&array).unwrap() };
        let limit = (*most & 2 != 0).then_some(usize::from(*most) * 4);
        let bytes = encode_columns(builder, limit, &Timestamps::new(&times).unwrap(), &keys, &column).unwrap();
        let mut row = 0;
        let mut scratch = Vec::new();
        for batch in Batches::new(&bytes) {
            let batch = batch.unwrap();
            batch.validate_crc().unwrap();
            for record in batch.records(&mut scratch).unwrap() {
                let record = record.unwrap();
                assert_eq!(record.offset, row as i64);
                assert_eq!(record.value, expected[row].as_deref());
                assert_eq!(record.key, if *most & 1 == 0 { None } else { expected[row].as_deref() });
                assert_eq!(record.timestamp, if times.is_null(row) { -1 } else { times.value(row) });
                row += 1;
            }
        }
        assert_eq!(row, expected.len());
    });
});

fn array(kind: u8, values: &[Option<&[u8]>]) -> ArrayRef {
    let texts = || values.iter().map(|value| value.map(|value| String::from_utf8_lossy(value).into_owned()));
    match kind {
        0 => Arc::new(BinaryArray::from_iter(values)),
        1 => Arc::new(LargeBinaryArray::from_iter(values)),
        2 => Arc::new(BinaryViewArray::from_iter(values.iter().copied())),
        3 => Arc::new(texts().collect::<StringArray>()),
        4 => Arc::new(texts().collect::<StringViewArray>()),
        _ => {
            let fixed = values.iter().map(|value| value.and_then(|value| value.first_chunk::<3>()));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 3).unwrap())
        }
    }
}

/// The same array after a journey through the C data interface.
fn imported(array: ArrayRef) -> ArrayRef {
    let (exported, schema) = arrow_array::ffi::to_ffi(&array.to_data()).unwrap();
    // SAFETY: both structs were made by `to_ffi` a line above.
    make_array(unsafe { arrow_array::ffi::from_ffi(exported, &schema) }.unwrap())
}

fn value(array: &ArrayRef, row: usize) -> Option<Vec<u8>> {
    let any = array.as_any();
    let bytes = if let Some(array) = any.downcast_ref::<BinaryArray>() {
        array.value(row)
    } else if let Some(array) = any.downcast_ref::<LargeBinaryArray>() {
        array.value(row)
    } else if let Some(array) = any.downcast_ref::<BinaryViewArray>() {
        array.value(row)
    } else if let Some(array) = any.downcast_ref::<StringArray>() {
        array.value(row).as_bytes()
    } else if let Some(array) = any.downcast_ref::<StringViewArray>() {
        array.value(row).as_bytes()
    } else {
        any.downcast_ref::<FixedSizeBinaryArray>().unwrap().value(row)
    };
    array.is_valid(row).then(|| bytes.to_vec())
}
