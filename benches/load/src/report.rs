//! What a run prints: one flat JSON object of numbers.
use std::fmt::Write;

use crate::histogram::Histogram;
use crate::sampler::{cpu_ns, rss_kb, Usage};
use crate::Failure;

/// Names and numbers in order.
#[derive(Debug, Default)]
pub struct Report {
    fields: Vec<(String, f64)>,
}

impl Report {
    /// Add a number.
    pub fn put(&mut self, name: &str, value: f64) {
        self.fields.push((name.to_owned(), value));
    }

    /// Add percentiles in milliseconds: `p50_ms`, `p99_ms`, `p999_ms`, `max_ms`, each behind `prefix`.
    pub fn put_latencies(&mut self, prefix: &str, latencies: &Histogram) {
        if latencies.total() == 0 {
            return;
        }
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            self.put(&format!("{prefix}{name}_ms"), latencies.quantile_ns(share) as f64 / 1e6);
        }
        self.put(&format!("{prefix}max_ms"), latencies.max_ns() as f64 / 1e6);
    }

    /// Add what the broker took for `units` of work of `unit_bytes` bytes each, and the generator's own time.
    pub fn put_usage(&mut self, pid: u32, usage: &Usage, units: u64, bytes: u64) -> Result<(), Failure> {
        let mean_us = usage.cpu_ns as f64 / units.max(1) as f64 / 1e3;
        self.put("cpu_us_mean", mean_us);
        if let Some((median_ns, best_ns)) = usage.per_unit_ns() {
            self.put("cpu_us", median_ns / 1e3);
            self.put("cpu_us_best", best_ns / 1e3);
            if bytes > 0 {
                let unit_bytes = bytes as f64 / units.max(1) as f64;
                self.put("cpu_s_per_GB", median_ns / unit_bytes);
                self.put("cpu_s_per_GB_best", best_ns / unit_bytes);
            }
        }
        self.put("server_cores", usage.cpu_ns as f64 / 1e9 / usage.wall_s);
        self.put("rss_MB", rss_kb(pid)? as f64 / 1024.0);
        self.put("load_cpu_s", cpu_ns(std::process::id())? as f64 / 1e9);
        Ok(())
    }

    /// As JSON.
    pub fn json(&self) -> String {
        let mut text = String::from("{");
        for (name, value) in &self.fields {
            let comma = if text.len() > 1 { ", " } else { "" };
            write!(text, "{comma}\"{name}\": {value}").expect("a string takes all");
        }
        text + "}"
    }
}
