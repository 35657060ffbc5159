//! Records of a batch in small groups, with their keys hashed.
use super::key_hash::{KeyHash, KeyHasher};
use super::offset_map::OffsetMap;
use crate::batch::{BatchView, TimestampType};
use crate::record::RecordIter;
use crate::Result;

/// Records looked at together: as many cache misses as a processor takes at once, and some more.
const GROUP: usize = 32;

/// What the cleaner needs of a record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyedRecord {
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    /// `None` is a null key.
    pub(super) hash: Option<KeyHash>,
    pub(super) has_value: bool,
    /// Where the record ends in the body; the next begins there.
    pub(super) end: usize,
}

/// Calls `visit` with the records of `batch` in order, a few at a time. With a map, its slots for their keys are on
/// the way from memory by then.
pub(super) fn for_each_group(
    batch: &BatchView<'_>,
    body: &[u8],
    hasher: &KeyHasher,
    map: Option<&OffsetMap>,
    mut visit: impl FnMut(&[KeyedRecord]) -> Result<()>,
) -> Result<()> {
    let mut group = [KeyedRecord::default(); GROUP];
    let mut count = 0;
    let mut end = 0;
    RecordIter::new(batch, body)?.try_for_each_record(|record| {
        end += record.size_bytes;
        if let Some(place) = group.get_mut(count) {
            *place = KeyedRecord {
                offset: record.offset,
                timestamp: record.timestamp,
                hash: record.key.map(|key| hasher.hash(key)),
                has_value: record.value.is_some(),
                end,
            };
        }
        count += 1;
        if count == GROUP {
            count = 0;
            warm(map, &group);
            visit(&group)?;
        }
        Ok(())
    })?;
    let rest = group.get(..count).unwrap_or_default();
    warm(map, rest);
    visit(rest)
}

fn warm(map: Option<&OffsetMap>, group: &[KeyedRecord]) {
    if let Some(map) = map {
        map.warm(group.iter().filter_map(|record| record.hash));
    }
}

/// Time of a record with this delta.
pub(super) fn record_timestamp(batch: &BatchView<'_>, delta: i64) -> i64 {
    match batch.timestamp_type() {
        TimestampType::CreateTime | TimestampType::NoTimestamp => batch.base_timestamp().wrapping_add(delta),
        TimestampType::LogAppendTime => batch.max_timestamp(),
    }
}
