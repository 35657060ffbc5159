//! Which connections a node takes: Kafka's bounds, over all its listeners and the acceptors of both kinds.
//!
//! A connection *arrives* when it was accepted from the kernel: it counts for `max.connection.creation.rate` and may have
//! to wait. Then its listener needs a slot. If its address connects too often, it is *held*: it counts for nothing, and
//! is closed after a while. Otherwise it is *admitted*, which counts it until it has *ended*, or it is refused. The caller
//! brings the clock and does the waiting. A listener has one acceptor, so that nobody else takes a slot between the
//! question and the admission.
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use address_rates::AddressRates;
use creation_rate::CreationRate;

mod address_rates;
mod creation_rate;

pub use address_rates::AddressRateLimits;

/// Bounds under Kafka's names; see `ConnectionQuotas` of Kafka.
#[derive(Clone, Debug)]
pub struct AdmissionLimits {
    /// `max.connections`: those open at once, of the node.
    pub max_connections: u64,
    /// `max.connections.per.ip`: those of one address.
    pub max_connections_per_ip: u64,
    /// `max.connections.per.ip.overrides`, by address.
    pub per_ip_overrides: HashMap<String, u64>,
    /// `max.connection.creation.rate` of the node, per second.
    pub creation_rate: u64,
    /// `listener.name.<name>.max.connections`, by lower-case name.
    pub max_connections_by_listener: HashMap<String, u64>,
    /// `listener.name.<name>.max.connection.creation.rate`, by lower-case name.
    pub creation_rate_by_listener: HashMap<String, u64>,
    /// Name of the listener for which the rate of the node does not count: that of other brokers, if clients have
    /// another one.
    pub unlimited_listener: Option<String>,
}

impl AdmissionLimits {
    /// No bounds.
    pub fn unbounded() -> Self {
        Self {
            max_connections: u64::MAX,
            max_connections_per_ip: u64::MAX,
            per_ip_overrides: HashMap::new(),
            creation_rate: u64::MAX,
            max_connections_by_listener: HashMap::new(),
            creation_rate_by_listener: HashMap::new(),
            unlimited_listener: None,
        }
    }
}

/// The bound that a connection would pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `max.connections`, with its value.
    Node(u64),
    /// `max.connections.per.ip` or the override of the address.
    Address(u64),
}

impl Display for Refusal {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(limit) => write!(formatter, "max.connections={limit} reached"),
            Self::Address(limit) => write!(formatter, "max.connections.per.ip={limit} reached"),
        }
    }
}

/// What is open and what came lately, of a node. Any thread may call it.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limits: AdmissionLimits,
    open: u64,
    open_by_host: HashMap<String, u64>,
    /// By name; they come from the configuration.
    listeners: HashMap<String, Listener>,
    rate: CreationRate,
    address_rates: AddressRates,
}

/// Of one listener.
#[derive(Debug, Default)]
struct Listener {
    open: u64,
    rate: CreationRate,
}

impl Default for Admission {
    /// Admits all until limits are published.
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                limits: AdmissionLimits::unbounded(),
                open: 0,
                open_by_host: HashMap::new(),
                listeners: HashMap::new(),
                rate: CreationRate::default(),
                address_rates: AddressRates::default(),
            }),
        }
    }
}

impl Admission {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replace the limits; what is open stays.
    pub fn publish(&self, limits: AdmissionLimits) {
        self.state().limits = limits;
    }

    /// Count a connection that arrived.
    ///
    /// `now_s` is any monotonic clock that all callers share. The connection, and those behind it in the kernel's queue,
    /// wait for as many seconds as this returns, at most one.
    pub fn arrived(&self, listener: &str, now_s: f64) -> f64 {
        let mut state = self.state();
        let State { limits, listeners, rate, .. } = &mut *state;
        let of_listener = limits.creation_rate_by_listener.get(&listener.to_lowercase()).copied();
        let delay_s = listeners
            .entry(listener.to_owned())
            .or_default()
            .rate
            .add(of_listener.unwrap_or(u64::MAX), now_s);
        if limits.unlimited_listener.as_deref() == Some(listener) {
            return delay_s;
        }
        delay_s.max(rate.add(limits.creation_rate, now_s))
    }

    /// Whether the listener may have one more connection; those above wait for others to end.
    pub fn has_slot(&self, listener: &str) -> bool {
        let state = self.state();
        let Some(limit) = state.limits.max_connections_by_listener.get(&listener.to_lowercase()) else {
            return true;
        };
        state.listeners.get(listener).map_or(0, |listener| listener.open) < *limit
    }

    /// Replace the quotas of addresses; what came lately stays.
    pub fn publish_address_rates(&self, limits: AddressRateLimits) {
        self.state().address_rates.publish(limits);
    }

    /// Seconds after which to close a connection without serving it, as its address connects too often; at most one.
    ///
    /// 0 if it may be admitted: then it counts for the rate of its address. One that is held does not. `now_s` as for
    /// [`Self::arrived`].
    pub fn held_for(&self, host: &str, now_s: f64) -> f64 {
        self.state().address_rates.add(host, now_s)
    }

    /// Count a connection as open until [`Self::ended`].
    ///
    /// # Errors
    /// The node or the address has as many as it may; nothing is counted.
    pub fn admit(&self, listener: &str, host: &str) -> Result<(), Refusal> {
        let mut state = self.state();
        let State { limits, open, open_by_host, listeners, .. } = &mut *state;
        if *open >= limits.max_connections {
            return Err(Refusal::Node(limits.max_connections));
        }
        let limit = limits.per_ip_overrides.get(host).copied().unwrap_or(limits.max_connections_per_ip);
        let of_host = open_by_host.get(host).copied().unwrap_or(0);
        if of_host >= limit {
            return Err(Refusal::Address(limit));
        }
        open_by_host.insert(host.to_owned(), of_host + 1);
        listeners.entry(listener.to_owned()).or_default().open += 1;
        *open += 1;
        Ok(())
    }

    /// An admitted connection is closed.
    pub fn ended(&self, listener: &str, host: &str) {
        let mut state = self.state();
        let State { open, open_by_host, listeners, .. } = &mut *state;
        let Some(of_host) = open_by_host.get_mut(host) else { return };
        *of_host -= 1;
        if *of_host == 0 {
            open_by_host.remove(host);
        }
        if let Some(listener) = listeners.get_mut(listener) {
            listener.open = listener.open.saturating_sub(1);
        }
        *open = open.saturating_sub(1);
    }

    /// Connections that were admitted and have not ended.
    pub fn open(&self) -> u64 {
        self.state().open
    }
}

/// The place of one connection, which ends when this is dropped.
#[derive(Debug)]
pub struct Admitted {
    admission: Arc<Admission>,
    listener: Arc<str>,
    host: String,
}

impl Admitted {
    /// As [`Admission::admit`].
    ///
    /// # Errors
    /// As there.
    pub fn new(admission: &Arc<Admission>, listener: &Arc<str>, host: &str) -> Result<Self, Refusal> {
        admission.admit(listener, host)?;
        Ok(Self::taken_over(admission, listener, host))
    }

    /// The place of a connection that was admitted already, and which somebody else would have ended.
    pub fn taken_over(admission: &Arc<Admission>, listener: &Arc<str>, host: &str) -> Self {
        Self { admission: Arc::clone(admission), listener: Arc::clone(listener), host: host.to_owned() }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.ended(&self.listener, &self.host);
    }
}

#[cfg(test)]
mod tests;
