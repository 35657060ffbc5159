//! `Admission`: which connections a node takes, from acceptors of both kinds.
use std::collections::HashMap;
use std::sync::Arc;

use kraftlog_path::admission::{self, AddressRateLimits, AdmissionLimits};
use pyo3::prelude::*;

/// Bounds on connections over all listeners of a node.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct Admission {
    pub(super) admission: Arc<admission::Admission>,
}

#[pymethods]
impl Admission {
    #[new]
    fn new() -> Self {
        Self { admission: Arc::default() }
    }

    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (*, max_connections, max_connections_per_ip, per_ip_overrides, creation_rate,
        max_connections_by_listener, creation_rate_by_listener, unlimited_listener))]
    fn publish(
        &self,
        max_connections: u64,
        max_connections_per_ip: u64,
        per_ip_overrides: HashMap<String, u64>,
        creation_rate: u64,
        max_connections_by_listener: HashMap<String, u64>,
        creation_rate_by_listener: HashMap<String, u64>,
        unlimited_listener: Option<String>,
    ) {
        self.admission.publish(AdmissionLimits {
            max_connections,
            max_connections_per_ip,
            per_ip_overrides,
            creation_rate,
            max_connections_by_listener,
            creation_rate_by_listener,
            unlimited_listener,
        });
    }

    /// The quotas of addresses, in connections per second.
    #[pyo3(signature = (default, by_address, /))]
    fn publish_address_rates(&self, default: Option<u64>, by_address: HashMap<String, u64>) {
        self.admission.publish_address_rates(AddressRateLimits { default, by_address });
    }

    #[pyo3(signature = (host, now_s, /))]
    fn held_for(&self, host: &str, now_s: f64) -> f64 {
        self.admission.held_for(host, now_s)
    }

    #[pyo3(signature = (listener, now_s, /))]
    fn arrived(&self, listener: &str, now_s: f64) -> f64 {
        self.admission.arrived(listener, now_s)
    }

    #[pyo3(signature = (listener, /))]
    fn has_slot(&self, listener: &str) -> bool {
        self.admission.has_slot(listener)
    }

    /// Why the connection is refused; `None` if it is counted from here on.
    #[pyo3(signature = (listener, host, /))]
    fn admit(&self, listener: &str, host: &str) -> Option<String> {
        self.admission.admit(listener, host).err().map(|refusal| refusal.to_string())
    }

    #[pyo3(signature = (listener, host, /))]
    fn ended(&self, listener: &str, host: &str) {
        self.admission.ended(listener, host);
    }

    #[getter]
    fn open(&self) -> u64 {
        self.admission.open()
    }
}
