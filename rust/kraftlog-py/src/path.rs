//! The data path: sockets, partitions and flushes outside the interpreter.
use pyo3::prelude::*;

mod data_path;
mod data_service_probe;
mod data_socket;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<data_path::DataPath>()?;
    m.add_class::<data_service_probe::DataServiceProbe>()?;
    m.add_class::<data_socket::DataSocket>()?;
    Ok(())
}
