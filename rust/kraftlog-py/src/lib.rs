//! The binding: conversions between Python and `kraftlog_log`, no decisions.
#![deny(unsafe_code)]

use pyo3::prelude::*;

mod arrow;
mod arrow_file;
mod arrow_import;
mod arrow_request;
mod dump;
mod errors;
mod fetched;
mod log;
mod memory;
mod memory_disk;
mod memory_mounts;
mod offset_commit;
mod path;
mod produced;
mod raw;
mod records;
mod rows;
mod scan;
mod topics;
mod verify;
mod wire;
mod wire_buffer;
mod wire_decode;
mod wire_decode_steps;
mod wire_discard;
mod wire_encode;
mod wire_encode_steps;
mod wire_frame;
mod wire_frame_reader;
mod wire_layout;
mod wire_schema;

/// The extension module behind the public `kraftlog` package.
#[pymodule]
fn _kraftlog(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    m.add("build_profile", profile)?;
    records::register(m)?;
    produced::register(m)?;
    log::register(m)?;
    memory::register(m)?;
    memory_disk::register(m)?;
    offset_commit::register(m)?;
    path::register(m)?;
    rows::register(m)?;
    scan::register(m)?;
    topics::register(m)?;
    dump::register(m)?;
    arrow_file::register(m)?;
    verify::register(m)?;
    fetched::register(m)?;
    wire::register(m)?;
    Ok(())
}
