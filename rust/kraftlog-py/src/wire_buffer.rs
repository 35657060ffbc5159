//! Text of the wire, as Kafka's readers make it of bytes.
use pyo3::prelude::*;

use crate::raw;

/// Java's `String.hashCode`: over UTF-16, wrapping.
#[pyfunction]
pub(crate) fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Text from bytes that should be UTF-8; each malformed part becomes U+FFFD as in Kafka's reader.
pub(crate) fn text<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match raw::decode_utf8(py, data) {
        Some(value) => Ok(value),
        None => Ok(java_text(data).into_pyobject(py)?.into_any()),
    }
}

/// Java's `new String(bytes, UTF_8)`: `from_utf8_lossy` but for encoded surrogates, which Java replaces as one.
fn java_text(data: &[u8]) -> String {
    let mut text = String::with_capacity(data.len());
    let mut rest = data;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, bad) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                text.push(char::REPLACEMENT_CHARACTER);
                let skip = match bad {
                    [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..] => 3,
                    _ => error.error_len().unwrap_or(bad.len()),
                };
                rest = bad.get(skip.max(1)..).unwrap_or(&[]);
            }
        }
    }
}
