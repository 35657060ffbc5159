//! `LogConfig`: Kafka's names to the engine's settings.
use kraftlog_log::batch::TimestampType;
use kraftlog_log::compression::Codec;
use kraftlog_log::log as engine;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Settings of one log.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct LogConfig(pub(crate) engine::LogConfig);

#[pymethods]
impl LogConfig {
    #[new]
    #[pyo3(signature = (*, segment_bytes=1_073_741_824, segment_ms=604_800_000, segment_jitter_ms=0,
        segment_index_bytes=10_485_760, index_interval_bytes=4096, max_message_bytes=1_048_588,
        retention_ms=604_800_000, retention_bytes=-1, compression_type="producer", compression_level=None,
        timestamp_type="CreateTime", timestamp_before_max_ms=9_223_372_036_854_775_807, timestamp_after_max_ms=3_600_000,
        cleanup_policy="delete", file_delete_delay_ms=60_000, preallocate=false,
        producer_id_expiration_ms=86_400_000, segment_jitter_seed=0))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        segment_bytes: u64,
        segment_ms: i64,
        segment_jitter_ms: i64,
        segment_index_bytes: u64,
        index_interval_bytes: u64,
        max_message_bytes: u64,
        retention_ms: i64,
        retention_bytes: i64,
        compression_type: &str,
        compression_level: Option<i32>,
        timestamp_type: &str,
        timestamp_before_max_ms: i64,
        timestamp_after_max_ms: i64,
        cleanup_policy: &str,
        file_delete_delay_ms: i64,
        preallocate: bool,
        producer_id_expiration_ms: i64,
        segment_jitter_seed: u64,
    ) -> PyResult<Self> {
        let bad = |what: &str, value: &str| PyValueError::new_err(format!("{what} {value:?} is unknown"));
        let compression = match compression_type {
            "producer" => None,
            "uncompressed" | "none" => Some(Codec::None),
            name => Some(Codec::from_name(name).ok_or_else(|| bad("compression.type", name))?),
        };
        let mut policy = engine::CleanupPolicy { delete: false, compact: false };
        for name in cleanup_policy.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "delete" => policy.delete = true,
                "compact" => policy.compact = true,
                other => return Err(bad("cleanup.policy", other)),
            }
        }
        let config = engine::LogConfig {
            segment_bytes,
            segment_ms,
            segment_jitter_ms,
            segment_jitter_seed,
            preallocate,
            segment_index_bytes,
            index_interval_bytes,
            max_message_bytes,
            retention_ms,
            retention_bytes,
            compression,
            compression_level,
            timestamp_type: TimestampType::from_name(timestamp_type)
                .ok_or_else(|| bad("message.timestamp.type", timestamp_type))?,
            timestamp_before_max_ms,
            timestamp_after_max_ms,
            cleanup_policy: policy,
            file_delete_delay_ms,
            producer_id_expiration_ms,
        };
        config.validate().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self(config))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}
