//! The partitions of this node, by topic id and by name.
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::partition::{Partition, PartitionKey};

/// The registry; read by every request and written when a partition comes or goes.
#[derive(Debug, Default)]
pub struct Partitions {
    maps: RwLock<Maps>,
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.read().by_key.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
