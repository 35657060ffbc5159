//! The data path: sockets, partitions and flushes outside the interpreter.
use pyo3::prelude::*;

mod admission;
mod core;
mod data_path;
mod data_service_probe;
mod data_socket;
mod flush_pool;
mod future;
mod grants;
mod inbox;
mod partition;
mod replication;
mod socket_event;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<admission::Admission>()?;
    m.add_class::<data_path::DataPath>()?;
    m.add_class::<data_service_probe::DataServiceProbe>()?;
    m.add_class::<data_socket::DataSocket>()?;
    m.add_class::<core::PartitionCore>()?;
    m.add_class::<flush_pool::FlushPool>()?;
    m.add_class::<grants::GrantTable>()?;
    m.add_class::<inbox::Inbox>()?;
    m.add_class::<partition::Appended>()?;
    m.add_class::<partition::Partition>()?;
    m.add_class::<partition::Partitions>()?;
    m.add_function(wrap_pyfunction!(replication::append_fetched, m)?)?;
    m.add_function(wrap_pyfunction!(future::copy_to_future, m)?)?;
    m.add_function(wrap_pyfunction!(future::replace_with_future, m)?)
}
