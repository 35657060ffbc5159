//! Settings of one log, with Kafka's names and defaults.
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use crate::batch::TimestampType;
use crate::compression::Codec;
use crate::segment::SegmentConfig;
use crate::{Error, Result};

/// `cleanup.policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Old segments go by time and size.
    pub delete: bool,
    /// The last record of each key stays; records need keys.
    pub compact: bool,
}

/// Settings of one log. Sizes are bytes, times milliseconds.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is closed before it would grow beyond. Default 1 GiB.
    pub segment_bytes: u64,
    /// `segment.ms`: a segment is closed when timestamps span more. Default 7 days.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: at most this is taken off `segment.ms`, so that segments do not roll at once. Default 0.
    pub segment_jitter_ms: i64,
    /// What the jitter of each segment is drawn from, together with the segment's base offset. Default 0.
    pub segment_jitter_seed: u64,
    /// `preallocate`: a new segment's `.log` gets `segment.bytes` at once. Default false.
    pub preallocate: bool,
    /// `segment.index.bytes`: largest index file. Default 10 MiB.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`: bytes of log between index entries. Default 4096.
    pub index_interval_bytes: u64,
    /// `max.message.bytes`: largest batch, header included. Default 1 MiB and 12.
    pub max_message_bytes: u64,
    /// `retention.ms`: segments older than this go; -1 keeps all. Default 7 days.
    pub retention_ms: i64,
    /// `retention.bytes`: oldest segments go while the log is larger; -1 keeps all. Default -1.
    pub retention_bytes: i64,
    /// `compression.type`: `None` keeps what the producer chose. Default `None`.
    pub compression: Option<Codec>,
    /// `compression.<codec>.level`; `None` is Kafka's default for the codec.
    pub compression_level: Option<i32>,
    /// `message.timestamp.type`. Default CreateTime.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`. Default: no limit.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`. Default one hour.
    pub timestamp_after_max_ms: i64,
    /// `cleanup.policy`. Default delete.
    pub cleanup_policy: CleanupPolicy,
    /// `file.delete.delay.ms`: how long a file stays after its segment went. Default one minute.
    pub file_delete_delay_ms: i64,
    /// `producer.id.expiration.ms`: how long an idle producer is remembered. Default one day.
    pub producer_id_expiration_ms: i64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 604_800_000,
            segment_jitter_ms: 0,
            segment_jitter_seed: 0,
            preallocate: false,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            max_message_bytes: 1_048_588,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            compression: None,
            compression_level: None,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            cleanup_policy: CleanupPolicy { delete: true, compact: false },
            file_delete_delay_ms: 60_000,
            producer_id_expiration_ms: 86_400_000,
        }
    }
}

impl LogConfig {
    /// # Errors
    /// [`Error::Invalid`] naming the setting that makes no sense.
    pub fn validate(&self) -> Result<()> {
        let bad = |text: String| Err(Error::Invalid(text));
        if self.segment_bytes < 14 || self.segment_bytes > i32::MAX as u64 {
            return bad(format!("segment.bytes {} is not in [14, {}]", self.segment_bytes, i32::MAX));
        }
        if self.segment_index_bytes < 4 {
            return bad(format!("segment.index.bytes {} is less than 4", self.segment_index_bytes));
        }
        if self.segment_ms < 1 || self.segment_jitter_ms < 0 || self.file_delete_delay_ms < 0 {
            return bad("segment.ms, segment.jitter.ms and file.delete.delay.ms are not negative".to_owned());
        }
        Ok(())
    }

    /// What a segment of the log in `path` takes from here. The jitter is drawn once per segment, as in Kafka, but
    /// follows from the seed, the path and the base offset, so that runs can be repeated.
    pub(super) fn segment_config(&self, path: &Path, base_offset: i64) -> SegmentConfig {
        let limit = self.segment_jitter_ms.min(self.segment_ms);
        let roll_jitter_ms = if limit <= 0 {
            0
        } else {
            let mut hasher = DefaultHasher::new();
            (self.segment_jitter_seed, path, base_offset).hash(&mut hasher);
            (hasher.finish() % limit as u64) as i64
        };
        SegmentConfig {
            index_interval_bytes: self.index_interval_bytes,
            segment_index_bytes: self.segment_index_bytes,
            roll_jitter_ms,
            preallocate_bytes: if self.preallocate { self.segment_bytes } else { 0 },
        }
    }
}
