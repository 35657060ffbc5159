//! The partitions of this node, by topic id and by name.
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::partition::{Partition, PartitionKey};
use crate::session::FollowerPolls;

/// How many partitions are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// All of this node.
    pub partitions: usize,
    /// Those led here; the rest counts only among these.
    pub leaders: usize,
    /// With an assigned replica that is not in sync.
    pub under_replicated: usize,
    /// With too few replicas in sync to commit.
    pub under_min_isr: usize,
    /// With just enough.
    pub at_min_isr: usize,
}

/// The registry; read by every request and written when a partition comes or goes.
#[derive(Debug, Default)]
pub struct Partitions {
    maps: RwLock<Maps>,
    replicated_bytes: AtomicU64,
    reassigned_bytes: AtomicU64,
    follower_polls: FollowerPolls,
}

#[derive(Debug, Default)]
struct Maps {
    by_key: HashMap<PartitionKey, Arc<Partition>>,
    /// By topic, then by index.
    by_name: HashMap<String, HashMap<i32, Arc<Partition>>>,
}

impl Partitions {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> RwLockReadGuard<'_, Maps> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Maps> {
        self.maps.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partition with this topic id, if it is here.
    pub fn get(&self, key: &PartitionKey) -> Option<Arc<Partition>> {
        self.read().by_key.get(key).cloned()
    }

    /// The partition with this topic name, if it is here.
    pub fn get_by_name(&self, topic: &str, index: i32) -> Option<Arc<Partition>> {
        self.read().by_name.get(topic)?.get(&index).cloned()
    }

    /// A partition's log was opened. It replaces one of the same key or name.
    pub fn add(&self, partition: &Arc<Partition>) {
        let key = *partition.key();
        let mut maps = self.write();
        maps.by_key.insert(key, Arc::clone(partition));
        let of_topic = maps.by_name.entry(partition.topic().to_owned()).or_default();
        of_topic.insert(key.index, Arc::clone(partition));
    }

    /// A partition is deleted or its directory failed; another one of its key or name stays.
    pub fn remove(&self, partition: &Arc<Partition>) {
        let key = *partition.key();
        let mut maps = self.write();
        if maps.by_key.get(&key).is_some_and(|found| Arc::ptr_eq(found, partition)) {
            maps.by_key.remove(&key);
        }
        if let Some(of_topic) = maps.by_name.get_mut(partition.topic()) {
            if of_topic.get(&key.index).is_some_and(|found| Arc::ptr_eq(found, partition)) {
                of_topic.remove(&key.index);
            }
            if of_topic.is_empty() {
                maps.by_name.remove(partition.topic());
            }
        }
    }

    /// Count the states of all partitions; each is looked at for a moment of its own.
    pub fn counts(&self) -> ReplicaCounts {
        let partitions: Vec<Arc<Partition>> = self.read().by_key.values().cloned().collect();
        let mut counts = ReplicaCounts { partitions: partitions.len(), ..ReplicaCounts::default() };
        for partition in partitions.iter().filter(|partition| partition.is_leader()) {
            partition.with_core(|core| {
                counts.leaders += 1;
                counts.under_replicated += usize::from(core.is_under_replicated());
                counts.under_min_isr += usize::from(core.is_under_min_isr());
                counts.at_min_isr += usize::from(core.is_at_min_isr());
            });
        }
        counts
    }

    /// A follower was answered with so many bytes, of which `reassigned_bytes` to a replica that is being added. True if
    /// they are the first since [`Self::take_replicated_out`].
    pub fn replicated_out(&self, bytes: u64, reassigned_bytes: u64) -> bool {
        self.reassigned_bytes.fetch_add(reassigned_bytes, Ordering::Relaxed);
        self.replicated_bytes.fetch_add(bytes, Ordering::Relaxed) == 0
    }

    /// Bytes that followers were answered with since the last call, and those of them to replicas that are being added.
    pub fn take_replicated_out(&self) -> (u64, u64) {
        (self.replicated_bytes.swap(0, Ordering::Relaxed), self.reassigned_bytes.swap(0, Ordering::Relaxed))
    }

    /// Fetches of followers that wait on I/O threads.
    pub fn follower_polls(&self) -> &FollowerPolls {
        &self.follower_polls
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.read().by_key.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
