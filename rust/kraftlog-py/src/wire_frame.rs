//! Frames: a size, a header and a body.
use std::sync::OnceLock;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};

use crate::errors::{LocalProtocolError, RemoteProtocolError, UnsupportedVersionError};
use crate::raw::Borrowed;
use crate::wire_decode::{Failure, Progress, Reader, ELEMENT_COUNT_MAX};
use crate::wire_decode_steps::RequestDecoder;
use crate::wire_encode::Writer;
use crate::wire_encode_steps::ResponseEncoder;
use crate::wire_schema::{plan_of, MessageType};

const API_VERSIONS_KEY: i16 = 18;
const CONTROLLED_SHUTDOWN_KEY: i16 = 7;
const API_KEYS_END: usize = 256;
/// Responses come from a node that we chose to ask; a large cluster's metadata has millions of elements.
const RESPONSE_ELEMENT_COUNT_MAX: usize = 1 << 24;

struct Api {
    name: String,
    min_version: i16,
    max_version: i16,
    request: &'static MessageType,
    response: &'static MessageType,
}

/// Decodes and encodes whole frames by API key.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct FrameCodec {
    request_header: &'static MessageType,
    response_header: &'static MessageType,
    registry: Py<PyAny>,
    apis: Vec<OnceLock<Option<Api>>>,
}

impl FrameCodec {
    fn api(&self, py: Python<'_>, key: i16) -> PyResult<Option<&Api>> {
        let Some(cell) = usize::try_from(key).ok().and_then(|index| self.apis.get(index)) else {
            return Ok(None);
        };
        if let Some(known) = cell.get() {
            return Ok(known.as_ref());
        }
        let entry = self.registry.bind(py).call_method1(intern!(py, "get"), (key,))?;
        let api = if entry.is_none() {
            None
        } else {
            Some(Api {
                name: entry.getattr("name")?.extract()?,
                min_version: entry.getattr("min_version")?.extract()?,
                max_version: entry.getattr("max_version")?.extract()?,
                request: MessageType::of(entry.getattr("request")?.cast::<PyType>()?)?,
                response: MessageType::of(entry.getattr("response")?.cast::<PyType>()?)?,
            })
        };
        Ok(cell.get_or_init(|| api).as_ref())
    }

    /// The header of a frame, what its body is, and how far the header goes.
    fn header<'py>(
        &self,
        frame: &Bound<'py, PyAny>,
        progress: Progress,
    ) -> PyResult<(Bound<'py, PyAny>, &'static MessageType, i16, Progress)> {
        let py = frame.py();
        let buffer = Borrowed::of(frame)?;
        let data = buffer.as_slice();
        let Some([k0, k1, v0, v1]) = data.first_chunk::<4>().copied() else {
            return Err(RemoteProtocolError::new_err(format!(
                "a request of {} bytes has no header",
                data.len()
            )));
        };
        let (key, version) = (i16::from_be_bytes([k0, k1]), i16::from_be_bytes([v0, v1]));
        let Some(api) = self.api(py, key)? else {
            return Err(unsupported(py, format!("API key {key} is not known"), key, version, None));
        };
        let mut reader = Reader::resume(frame, data, progress);
        let header_version = request_header_version(api, key, version);
        let header = reader
            .message(plan_of(py, self.request_header, header_version)?)
            .map_err(|failure| failure.into_error(&self.request_header.name, header_version))?;
        if version < api.min_version || version > api.max_version {
            let text = if api.min_version > api.max_version {
                format!("{} is not served", api.name)
            } else {
                format!(
                    "{} version {version} is not served ({} to {} are)",
                    api.name, api.min_version, api.max_version
                )
            };
            let correlation_id = header.getattr(intern!(py, "correlation_id"))?.extract()?;
            return Err(unsupported(py, text, key, version, Some(correlation_id)));
        }
        Ok((header, api.request, version, reader.progress()))
    }

    /// The header and the body of a frame; None if the body is too large for one that is small.
    fn decode<'py>(
        &self,
        frame: &Bound<'py, PyAny>,
        progress: Progress,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let (header, message, version, progress) = self.header(frame, progress)?;
        let buffer = Borrowed::of(frame)?;
        let mut reader = Reader::resume(frame, buffer.as_slice(), progress);
        // Bytes after the body are ignored, as RequestContext.parseRequest does: librdkafka sends some with Metadata v13.
        match reader.message(plan_of(frame.py(), message, version)?) {
            Ok(body) => Ok(Some((header, body))),
            Err(Failure::Large) => Ok(None),
            Err(failure) => Err(failure.into_error(&message.name, version)),
        }
    }

    fn response_writer<'py>(
        &self,
        py: Python<'py>,
        api_key: i16,
        version: i16,
        correlation_id: i32,
        mut writer: Writer<'py>,
    ) -> PyResult<(&'static MessageType, Writer<'py>)> {
        let api = self.known(py, api_key)?;
        writer.raw(&correlation_id.to_be_bytes());
        if response_header_version(api, api_key, version) > 0 {
            writer.raw(&[0]);
        }
        Ok((api.response, writer))
    }

    fn known(&self, py: Python<'_>, key: i16) -> PyResult<&Api> {
        self.api(py, key)?.ok_or_else(|| LocalProtocolError::new_err(format!("there is no API key {key}")))
    }
}

fn request_header_version(api: &Api, key: i16, version: i16) -> i16 {
    if api.request.is_flexible(version) {
        2
    } else {
        i16::from(key != CONTROLLED_SHUTDOWN_KEY || version != 0)
    }
}

fn response_header_version(api: &Api, key: i16, version: i16) -> i16 {
    i16::from(key != API_VERSIONS_KEY && api.response.is_flexible(version))
}

fn unsupported(py: Python<'_>, text: String, key: i16, version: i16, correlation_id: Option<i32>) -> PyErr {
    let make = || -> PyResult<Bound<'_, PyAny>> {
        let details = PyDict::new(py);
        details.set_item("api_key", key)?;
        details.set_item("api_version", version)?;
        details.set_item("correlation_id", correlation_id)?;
        py.get_type::<UnsupportedVersionError>().call((text,), Some(&details))
    };
    match make() {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

#[pymethods]
impl FrameCodec {
    #[new]
    fn new(
        request_header: &Bound<'_, PyType>,
        response_header: &Bound<'_, PyType>,
        registry: Py<PyAny>,
    ) -> PyResult<Self> {
        Ok(Self {
            request_header: MessageType::of(request_header)?,
            response_header: MessageType::of(response_header)?,
            registry,
            apis: (0..API_KEYS_END).map(|_| OnceLock::new()).collect(),
        })
    }

    /// Header and request of a frame without its size.
    fn decode_request<'py>(
        &self,
        frame: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let decoded = self.decode(frame, Progress::new(ELEMENT_COUNT_MAX))?;
        decoded.ok_or_else(|| RemoteProtocolError::new_err("too large"))
    }

    /// The same for a small request; None when it has more array elements, or more bytes that are copied.
    fn decode_small_request<'py>(
        &self,
        frame: &Bound<'py, PyAny>,
        max_elements: usize,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        self.decode(frame, Progress::of_small(max_elements))
    }

    /// Decode the header of a frame without its size, and begin with its request.
    fn begin_request<'py>(&self, frame: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, RequestDecoder)> {
        let (header, message, version, progress) = self.header(frame, Progress::new(ELEMENT_COUNT_MAX))?;
        let decoder = RequestDecoder::new(frame, message, version, progress)?;
        Ok((header, decoder))
    }

    /// Buffers of a response; the first begins with the size of the frame.
    fn encode_response<'py>(
        &self,
        py: Python<'py>,
        api_key: i16,
        version: i16,
        correlation_id: i32,
        response: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let parts = self.encode_small_response(py, api_key, version, correlation_id, response, usize::MAX)?;
        parts.ok_or_else(|| LocalProtocolError::new_err("too large"))
    }

    /// The same for a small response; None when it has more array elements.
    fn encode_small_response<'py>(
        &self,
        py: Python<'py>,
        api_key: i16,
        version: i16,
        correlation_id: i32,
        response: &Bound<'py, PyAny>,
        max_elements: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let mut writer = Writer::of_small(py, max_elements);
        writer.begin_frame();
        let (message, mut writer) = self.response_writer(py, api_key, version, correlation_id, writer)?;
        match writer.message(plan_of(py, message, version)?, response) {
            Ok(()) => {
                writer.end_frame()?;
                writer.into_parts().map(Some)
            }
            Err(failure) if failure.is_large => Ok(None),
            Err(failure) => Err(failure.into_error(py, &message.name, version)),
        }
    }

    /// Begin to write a response.
    fn begin_response<'py>(
        &self,
        py: Python<'py>,
        api_key: i16,
        version: i16,
        correlation_id: i32,
        response: &Bound<'py, PyAny>,
    ) -> PyResult<ResponseEncoder> {
        let writer = Writer::resume(py, Vec::new());
        let (message, writer) = self.response_writer(py, api_key, version, correlation_id, writer)?;
        ResponseEncoder::new(message, version, writer, response)
    }

    /// Buffers of a request; the first begins with the size of the frame.
    fn encode_request<'py>(
        &self,
        py: Python<'py>,
        api_key: i16,
        version: i16,
        correlation_id: i32,
        client_id: Option<&str>,
        request: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let api = self.known(py, api_key)?;
        let mut writer = Writer::new(py);
        writer.begin_frame();
        writer.raw(&api_key.to_be_bytes());
        writer.raw(&version.to_be_bytes());
        writer.raw(&correlation_id.to_be_bytes());
        let header_version = request_header_version(api, api_key, version);
        if header_version >= 1 {
            writer.client_id(client_id)?;
        }
        if header_version >= 2 {
            writer.raw(&[0]);
        }
        body(py, &mut writer, api.request, version, request)
            .and_then(|()| writer.end_frame())
            .and_then(|()| writer.into_parts())
    }

    /// Correlation id and response of a frame without its size, and how many bytes follow the response. A client
    /// ignores those, as `AbstractResponse.parseResponse` does: librdkafka's mock cluster sends one with Metadata v13.
    fn decode_response<'py>(
        &self,
        api_key: i16,
        version: i16,
        frame: &Bound<'py, PyAny>,
    ) -> PyResult<(i32, Bound<'py, PyAny>, usize)> {
        let py = frame.py();
        let api = self.known(py, api_key)?;
        let header_version = response_header_version(api, api_key, version);
        let buffer = Borrowed::of(frame)?;
        let mut reader = Reader::new(frame, buffer.as_slice(), RESPONSE_ELEMENT_COUNT_MAX);
        let header = reader
            .message(plan_of(py, self.response_header, header_version)?)
            .map_err(|failure| failure.into_error(&self.response_header.name, header_version))?;
        let response = reader
            .message(plan_of(py, api.response, version)?)
            .map_err(|failure| failure.into_error(&api.response.name, version))?;
        Ok((header.getattr(intern!(py, "correlation_id"))?.extract()?, response, reader.remaining()))
    }
}

fn body<'py>(
    py: Python<'py>,
    writer: &mut Writer<'py>,
    message: &MessageType,
    version: i16,
    object: &Bound<'py, PyAny>,
) -> PyResult<()> {
    writer
        .message(plan_of(py, message, version)?, object)
        .map_err(|failure| failure.into_error(py, &message.name, version))
}
