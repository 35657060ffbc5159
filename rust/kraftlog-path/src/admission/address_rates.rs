//! The rates at which single addresses may connect: the quota `connection_creation_rate` (KIP-612).
use std::collections::HashMap;
use std::net::IpAddr;

use super::creation_rate::CreationRate;

/// Addresses whose rates are kept before those that no longer matter are looked for.
const SWEEP_FROM: usize = 1024;

/// The quotas, in connections per second; an address without one has no bound.
#[derive(Clone, Debug, Default)]
pub struct AddressRateLimits {
    /// Of each address that has no quota of its own.
    pub default: Option<u64>,
    /// By address.
    pub by_address: HashMap<String, u64>,
}

/// What came lately from the addresses that have a quota.
#[derive(Debug, Default)]
pub(super) struct AddressRates {
    limits: AddressRateLimits,
    rates: HashMap<String, CreationRate>,
    sweep_at: usize,
}

impl AddressRates {
    /// Replace the quotas; what came lately stays.
    pub(super) fn publish(&mut self, limits: AddressRateLimits) {
        let by_address = limits.by_address.into_iter();
        self.limits = AddressRateLimits {
            default: limits.default,
            by_address: by_address.map(|(address, limit)| (canonical(&address), limit)).collect(),
        };
    }

    /// Count a connection, unless it is above the quota of its address: then the seconds to hold it.
    pub(super) fn add(&mut self, host: &str, now_s: f64) -> f64 {
        if self.limits.default.is_none() && self.limits.by_address.is_empty() {
            return 0.0;
        }
        let address = canonical(host);
        let Some(limit) = self.limits.by_address.get(&address).copied().or(self.limits.default) else {
            return 0.0;
        };
        if !self.rates.contains_key(&address) && self.rates.len() >= self.sweep_at.max(SWEEP_FROM) {
            self.rates.retain(|_, rate| !rate.is_forgotten(now_s));
            // Each sweep is paid for by as many new addresses as it looks at.
            self.sweep_at = 2 * self.rates.len();
        }
        let rate = self.rates.entry(address).or_default();
        let held_s = rate.add(limit, now_s);
        if held_s > 0.0 {
            rate.take_back();
        }
        held_s
    }

    /// Addresses that are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rates.len()
    }
}

/// One spelling per address, so that an IPv4 address in an IPv6 one is the same client, as in Java.
fn canonical(host: &str) -> String {
    host.parse::<IpAddr>().map_or_else(|_| host.to_owned(), |address| address.to_canonical().to_string())
}
