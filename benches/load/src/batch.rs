//! Record batches of magic 2, uncompressed.
use std::time::{SystemTime, UNIX_EPOCH};

/// A batch of `records` records with values of `record_bytes` bytes that do not compress; no keys, no headers.
pub fn batch(records: usize, record_bytes: usize) -> Vec<u8> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let mut body = Vec::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for delta in 0..records {
        let mut record = vec![0]; // attributes
        put_varint(&mut record, 0); // timestamp delta
        put_varint(&mut record, delta as i64);
        put_varint(&mut record, -1); // no key
        put_varint(&mut record, record_bytes as i64);
        record.extend((0..record_bytes).map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as u8
        }));
        put_varint(&mut record, 0); // no headers
        put_varint(&mut body, record.len() as i64);
        body.extend_from_slice(&record);
    }
    let mut checked = Vec::with_capacity(body.len() + 40);
    checked.extend_from_slice(&0_i16.to_be_bytes()); // attributes
    checked.extend_from_slice(&(records as i32 - 1).to_be_bytes());
    checked.extend_from_slice(&now_ms.to_be_bytes()); // first timestamp
    checked.extend_from_slice(&now_ms.to_be_bytes()); // largest timestamp
    checked.extend_from_slice(&(-1_i64).to_be_bytes()); // producer id
    checked.extend_from_slice(&(-1_i16).to_be_bytes()); // producer epoch
    checked.extend_from_slice(&(-1_i32).to_be_bytes()); // base sequence
    checked.extend_from_slice(&(records as i32).to_be_bytes());
    checked.extend_from_slice(&body);
    let mut batch = Vec::with_capacity(checked.len() + 21);
    batch.extend_from_slice(&0_i64.to_be_bytes()); // base offset
    batch.extend_from_slice(&(checked.len() as i32 + 9).to_be_bytes());
    batch.extend_from_slice(&(-1_i32).to_be_bytes()); // partition leader epoch
    batch.push(2);
    batch.extend_from_slice(&crc32c::crc32c(&checked).to_be_bytes());
    batch.extend_from_slice(&checked);
    batch
}

fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Records in a run of batches, and the offset behind them; a batch that the answer cut off is not counted.
///
/// Returns `None` if no whole batch is there.
pub fn whole_batches(mut bytes: &[u8]) -> Option<(u64, i64)> {
    let (mut records, mut end) = (0, None);
    while bytes.len() >= 61 {
        let size = 12 + u32::from_be_bytes(bytes[8..12].try_into().ok()?) as usize;
        if bytes.len() < size || size < 61 {
            break;
        }
        let base = i64::from_be_bytes(bytes[..8].try_into().ok()?);
        let last_delta = i32::from_be_bytes(bytes[23..27].try_into().ok()?);
        records += u64::from(u32::from_be_bytes(bytes[57..61].try_into().ok()?));
        end = Some(base + i64::from(last_delta) + 1);
        bytes = &bytes[size..];
    }
    end.map(|end| (records, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted_and_a_cut_one_is_not() {
        let whole = batch(3, 10);
        assert_eq!(whole_batches(&whole), Some((3, 3)));
        assert_eq!(whole_batches(&whole[..whole.len() - 1]), None);
        let two = [whole.clone(), whole].concat();
        assert_eq!(whole_batches(&two[..two.len() - 5]), Some((3, 3)));
        assert_eq!(whole_batches(&two), Some((6, 3)));
    }
}
