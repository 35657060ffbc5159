//! Engine errors as the exceptions of `kraftlog.errors`.
use kraftlog_log::Error;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError};
use pyo3::import_exception;
use pyo3::prelude::*;

import_exception!(kraftlog.errors, CorruptRecordError);
import_exception!(kraftlog.errors, KafkaError);
import_exception!(kraftlog.errors, LocalProtocolError);
import_exception!(kraftlog.errors, LogError);
import_exception!(kraftlog.errors, OffsetOutOfRangeError);
import_exception!(kraftlog.errors, PoisonedLogError);
import_exception!(kraftlog.errors, RemoteLogError);
import_exception!(kraftlog.errors, RemoteProtocolError);
import_exception!(kraftlog.errors, UnsupportedVersionError);

/// An engine error on its way to Python (both types are foreign here, hence the newtype).
#[derive(Debug)]
pub(crate) struct PyLogError(pub(crate) Error);

impl From<Error> for PyLogError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<PyLogError> for PyErr {
    fn from(error: PyLogError) -> Self {
        let text = error.0.to_string();
        match error.0 {
            Error::Corrupt { .. } => CorruptRecordError::new_err(text),
            Error::OffsetOutOfRange { .. } => OffsetOutOfRangeError::new_err(text),
            Error::Poisoned { .. } => PoisonedLogError::new_err(text),
            Error::Rejected { code, record_errors, .. } => KafkaError::new_err((code, text, record_errors)),
            Error::Io { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                PyFileNotFoundError::new_err(text)
            }
            Error::Io { ref source, .. } => match source.raw_os_error() {
                Some(errno) => PyOSError::new_err((errno, text)),
                None => PyOSError::new_err(text),
            },
            Error::Remote { .. } => RemoteLogError::new_err(text),
            _ => LogError::new_err(text),
        }
    }
}
