//! Names of topics: the patterns consumer groups subscribe by, and the hash over a topic's metadata.

use kraftlog_log::{topic_hash, topic_pattern};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A regular expression that has to match a whole topic name, or a whole text.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
struct TopicPattern {
    inner: topic_pattern::TopicPattern,
}

#[pymethods]
impl TopicPattern {
    #[new]
    #[pyo3(signature = (pattern, *, is_text = false))]
    fn new(pattern: &str, is_text: bool) -> PyResult<Self> {
        let compile = match is_text {
            true => topic_pattern::TopicPattern::of_text,
            false => topic_pattern::TopicPattern::new,
        };
        Ok(Self { inner: compile(pattern).map_err(PyValueError::new_err)? })
    }

    #[getter]
    fn cost(&self) -> u32 {
        self.inner.cost()
    }

    /// Whether the whole of `name` matches.
    fn matches(&self, name: &str) -> bool {
        self.inner.matches(name)
    }
}

/// XXH3 of `data` with 64 bits and without a seed, signed.
#[pyfunction]
fn xxh3_64(data: &[u8]) -> i64 {
    topic_hash::xxh3_64(data)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<TopicPattern>()?;
    m.add_function(wrap_pyfunction!(xxh3_64, m)?)
}
