//! What the services of all I/O threads share.
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::grants::Grants;
use crate::partitions::Partitions;
use crate::session::{SessionCache, SessionLimits};
use crate::wire::produce::BrokerAddress;

/// Settings of the node that requests depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// `fetch.max.bytes`: of records in one answer, but for a first batch that is larger.
    pub fetch_max_bytes: i32,
    /// Of the fetch sessions.
    pub sessions: SessionLimits,
    /// Whether a consumer that names its rack may be told to read from a follower (`replica.selector.class`).
    pub selects_replicas: bool,
}

impl Default for ServiceSettings {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            fetch_max_bytes: 55 << 20,
            sessions: SessionLimits { max_slots: 1000, eviction_ms: 120_000 },
            selects_replicas: false,
        }
    }
}

/// Partitions, sessions, settings and clock of a node.
pub struct ServiceShared {
    partitions: Arc<Partitions>,
    sessions: SessionCache,
    settings: RwLock<ServiceSettings>,
    /// Raised with every change of `settings`.
    settings_version: AtomicU64,
    /// A client quota may apply, which Python judges.
    hands_over_clients: AtomicBool,
    /// By listener; what Python last published.
    brokers: RwLock<Vec<Vec<BrokerAddress>>>,
    /// `None` without an authorizer: everybody may do everything.
    grants: Option<Arc<Grants>>,
    clock_ms: Box<dyn Fn() -> i64 + Send + Sync>,
}

impl fmt::Debug for ServiceShared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ServiceShared").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl ServiceShared {
    /// `clock_ms` is the wall clock, milliseconds since 1970; `seed` decides about the ids of sessions.
    pub fn new(
        partitions: Arc<Partitions>,
        settings: ServiceSettings,
        clock_ms: Box<dyn Fn() -> i64 + Send + Sync>,
        seed: u64,
    ) -> Self {
        Self {
            partitions,
            sessions: SessionCache::new(seed),
            settings: RwLock::new(settings),
            settings_version: AtomicU64::new(0),
            hands_over_clients: AtomicBool::new(false),
            brokers: RwLock::default(),
            grants: None,
            clock_ms,
        }
    }

    /// Serve only what `grants` has; `None` leaves everybody everything.
    #[must_use]
    pub fn with_grants(self, grants: Option<Arc<Grants>>) -> Self {
        Self { grants, ..self }
    }

    /// What the authorizer has allowed; `None` if there is none.
    pub(super) fn grants(&self) -> Option<&Grants> {
        self.grants.as_deref()
    }

    /// The partitions of the node.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// The fetch sessions that the data path opened.
    pub fn sessions(&self) -> &SessionCache {
        &self.sessions
    }

    /// Wall clock, milliseconds since 1970.
    pub(super) fn now_ms(&self) -> i64 {
        (self.clock_ms)()
    }

    /// Hand every Produce and every consumer's Fetch over, from the next request on, or serve them again.
    pub fn hand_over_clients(&self, is_on: bool) {
        self.hands_over_clients.store(is_on, Ordering::Release);
    }

    /// Whether these requests go to Python.
    pub(super) fn hands_over_clients(&self) -> bool {
        self.hands_over_clients.load(Ordering::Acquire)
    }

    /// Name these brokers from now on when they lead; one list for each listener, by its index.
    pub fn publish_brokers(&self, by_listener: Vec<Vec<BrokerAddress>>) {
        *self.brokers.write().unwrap_or_else(PoisonError::into_inner) = by_listener;
    }

    /// Where clients of a listener reach these brokers, in the order of the ids; without those that it does not reach.
    pub(super) fn addresses(&self, listener: u16, mut broker_ids: Vec<i32>) -> Vec<BrokerAddress> {
        if broker_ids.is_empty() {
            return Vec::new();
        }
        broker_ids.sort_unstable();
        broker_ids.dedup();
        let brokers = self.brokers.read().unwrap_or_else(PoisonError::into_inner);
        let reachable = brokers.get(usize::from(listener)).map(Vec::as_slice).unwrap_or_default();
        let address_of = |id: i32| reachable.iter().find(|broker| broker.broker_id == id).cloned();
        broker_ids.into_iter().filter_map(address_of).collect()
    }

    /// Use other settings from the next request on.
    pub fn publish(&self, settings: ServiceSettings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        self.settings_version.fetch_add(1, Ordering::Release);
    }
}

/// The settings as a thread last saw them: one atomic load per request while they do not change.
#[derive(Debug)]
pub(super) struct SettingsView {
    settings: ServiceSettings,
    version: u64,
}

impl SettingsView {
    pub(super) fn new(shared: &ServiceShared) -> Self {
        let version = shared.settings_version.load(Ordering::Acquire);
        Self { settings: *shared.settings.read().unwrap_or_else(PoisonError::into_inner), version }
    }

    pub(super) fn get(&mut self, shared: &ServiceShared) -> ServiceSettings {
        if shared.settings_version.load(Ordering::Acquire) != self.version {
            *self = Self::new(shared);
        }
        self.settings
    }
}
