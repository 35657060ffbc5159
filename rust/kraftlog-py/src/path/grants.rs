//! `GrantTable`: what an authorizer has allowed, for the I/O threads.
use std::sync::Arc;

use kraftlog_path::serve::grants::{Allowed, GrantLimits, Grants, Identity, TopicId, TopicOperation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Grants of one node.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct GrantTable {
    pub(super) grants: Arc<Grants>,
}

#[pymethods]
impl GrantTable {
    #[new]
    fn new() -> Self {
        Self { grants: Arc::new(Grants::new(GrantLimits::default())) }
    }

    fn revoke(&self, generation: u64) {
        self.grants.revoke(generation);
    }

    #[pyo3(signature = (generation, principal, host, topic_ids, *, to_write))]
    fn allow_topics(
        &self,
        generation: u64,
        principal: &str,
        host: &str,
        topic_ids: &[u8],
        to_write: bool,
    ) -> PyResult<bool> {
        let (topic_ids, rest) = topic_ids.as_chunks::<{ size_of::<TopicId>() }>();
        if !rest.is_empty() {
            return Err(PyValueError::new_err("topic ids have 16 bytes each"));
        }
        let operation = if to_write { TopicOperation::Write } else { TopicOperation::Read };
        let allowed = Allowed::Topics(operation, topic_ids);
        Ok(self.grants.allow(generation, Identity { principal, host }, allowed))
    }

    fn allow_transactional_id(
        &self,
        generation: u64,
        principal: &str,
        host: &str,
        transactional_id: &str,
    ) -> bool {
        self.grants.allow(
            generation,
            Identity { principal, host },
            Allowed::TransactionalId(transactional_id),
        )
    }

    fn allow_replication(&self, generation: u64, principal: &str, host: &str) -> bool {
        self.grants.allow(generation, Identity { principal, host }, Allowed::Replication)
    }
}
