//! The compact schema text of a message class, compiled into a plan per version.
//!
//! The text is described in `kraftlog/wire/schema.py`. A plan holds only what one version has, so that
//! decoding and encoding walk a list and ask nothing about versions.
use std::collections::HashMap;
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::errors::LocalProtocolError;
use crate::wire_layout::Layout;

/// What stands on the wire.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    Uuid,
    Text,
    Bytes,
    Records,
    Struct(&'static Plan),
}

/// One field as one version has it.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    /// Index of the slot in the layout.
    pub(crate) slot: usize,
    pub(crate) kind: Kind,
    pub(crate) is_array: bool,
    pub(crate) nullable: bool,
    /// Whether lengths are compact (varint of length + 1).
    pub(crate) compact: bool,
    /// Whether people read it and a longer text is cut: it may quote a name of the request.
    pub(crate) is_error_message: bool,
}

/// A field that the version lacks.
pub(crate) struct Absent {
    pub(crate) slot: usize,
    pub(crate) ignorable: bool,
}

/// A tagged field.
pub(crate) struct Tagged {
    pub(crate) tag: u32,
    pub(crate) field: Field,
}

/// A struct in one version.
pub(crate) struct Plan {
    pub(crate) layout: &'static Layout,
    pub(crate) fields: Vec<Field>,
    /// In the order of their tags.
    pub(crate) tagged: Vec<Tagged>,
    pub(crate) absent: Vec<Absent>,
    pub(crate) flexible: bool,
    /// Whether a field that is not tagged is an array, or a struct with one.
    pub(crate) has_arrays: bool,
    /// The fewest bytes an instance can take; at least 1, so that counts stay bounded by what remains.
    pub(crate) size_min: usize,
}

/// A whole message: its class, name, version range and plans.
pub(crate) struct MessageType {
    pub(crate) name: String,
    pub(crate) layout: &'static Layout,
    pub(crate) low: i16,
    pub(crate) high: i16,
    flexible_from: i16,
    plans: Vec<OnceLock<&'static Plan>>,
}

impl MessageType {
    /// What is known about a message class.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<&'static MessageType> {
        let layout = Layout::of(class)?;
        if let Some(message) = layout.message.get() {
            return Ok(message);
        }
        let (low, high): (i16, i16) = class.getattr("VERSIONS")?.extract()?;
        let flexible: Option<(i16, i16)> = class.getattr("FLEXIBLE_VERSIONS")?.extract()?;
        let count = usize::try_from(high.saturating_add(1)).unwrap_or(0);
        let message = MessageType {
            name: class.name()?.to_string(),
            layout,
            low,
            high,
            flexible_from: flexible.map_or(i16::MAX, |(from, _)| from),
            plans: (0..count).map(|_| OnceLock::new()).collect(),
        };
        Ok(layout.message.get_or_init(|| Box::leak(Box::new(message))))
    }

    /// Whether a version has tagged fields and compact lengths.
    pub(crate) fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// The plan of a version; None when the message has no such version.
    pub(crate) fn plan(&self, py: Python<'_>, version: i16) -> PyResult<Option<&'static Plan>> {
        if version < self.low || version > self.high {
            return Ok(None);
        }
        let Some(cell) = usize::try_from(version).ok().and_then(|index| self.plans.get(index)) else {
            return Ok(None);
        };
        if let Some(plan) = cell.get() {
            return Ok(Some(plan));
        }
        let top = self.layout.class(py);
        let flexible = self.is_flexible(version);
        let plan = Compiler { top, version, flexible, done: HashMap::new() }.compile(top)?;
        Ok(Some(cell.get_or_init(|| plan)))
    }
}

/// An inclusive range of versions.
#[derive(Clone, Copy)]
struct Versions(i16, i16);

impl Versions {
    const NONE: Versions = Versions(0, -1);

    fn parse(text: &str) -> PyResult<Self> {
        let bad = |_| PyValueError::new_err(format!("'{text}' is not a range of versions"));
        if let Some(low) = text.strip_suffix('+') {
            return Ok(Versions(low.parse().map_err(bad)?, i16::MAX));
        }
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        Ok(Versions(low.parse().map_err(bad)?, high.parse().map_err(bad)?))
    }

    fn contains(self, version: i16) -> bool {
        self.0 <= version && version <= self.1
    }
}

/// One line of the schema text.
struct Line<'a> {
    name: &'a str,
    kind: &'a str,
    is_array: bool,
    versions: Versions,
    nullable: Versions,
    tag: Option<(u32, Versions)>,
    ignorable: bool,
    never_flexible: bool,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> PyResult<Self> {
        let bad = || PyValueError::new_err(format!("'{line}' is not a line of a message schema"));
        let mut words = line.split_ascii_whitespace();
        let name = words.next().ok_or_else(bad)?;
        let kind = words.next().ok_or_else(bad)?;
        let mut parsed = Line {
            name,
            kind: kind.strip_prefix("[]").unwrap_or(kind),
            is_array: kind.starts_with("[]"),
            versions: Versions::parse(words.next().ok_or_else(bad)?)?,
            nullable: Versions::NONE,
            tag: None,
            ignorable: false,
            never_flexible: false,
        };
        for word in words {
            if let Some(range) = word.strip_prefix('?') {
                parsed.nullable = Versions::parse(range)?;
            } else if let Some(tagged) = word.strip_prefix('#') {
                let (tag, range) = tagged.split_once('@').ok_or_else(bad)?;
                parsed.tag = Some((tag.parse().map_err(|_| bad())?, Versions::parse(range)?));
            } else if word == "~" {
                parsed.ignorable = true;
            } else if word == "!" {
                parsed.never_flexible = true;
            } else {
                return Err(bad());
            }
        }
        Ok(parsed)
    }
}

struct Compiler<'a, 'py> {
    top: &'a Bound<'py, PyType>,
    version: i16,
    flexible: bool,
    done: HashMap<usize, &'static Plan>,
}

impl Compiler<'_, '_> {
    fn compile(&mut self, class: &Bound<'_, PyType>) -> PyResult<&'static Plan> {
        let layout = Layout::of(class)?;
        let mut plan = Plan {
            layout,
            fields: Vec::new(),
            tagged: Vec::new(),
            absent: Vec::new(),
            flexible: self.flexible,
            has_arrays: false,
            size_min: usize::from(self.flexible),
        };
        let schema = class.getattr("SCHEMA")?;
        let schema = schema.cast::<PyString>()?.to_str()?.to_owned();
        for (slot, text) in schema.lines().enumerate() {
            let line = Line::parse(text)?;
            let tag = line.tag.filter(|(_, versions)| versions.contains(self.version));
            if !line.versions.contains(self.version) {
                plan.absent.push(Absent { slot, ignorable: line.ignorable });
                continue;
            }
            let field = Field {
                slot,
                kind: self.kind(line.kind)?,
                is_array: line.is_array,
                nullable: line.nullable.contains(self.version),
                compact: self.flexible && !line.never_flexible,
                is_error_message: line.name == "errorMessage",
            };
            match tag {
                Some((tag, _)) => plan.tagged.push(Tagged { tag, field }),
                None => {
                    plan.size_min = plan.size_min.saturating_add(field.size_min());
                    plan.has_arrays |= field.has_arrays();
                    plan.fields.push(field);
                }
            }
        }
        plan.tagged.sort_by_key(|tagged| tagged.tag);
        plan.size_min = plan.size_min.max(1);
        Ok(Box::leak(Box::new(plan)))
    }

    fn kind(&mut self, name: &str) -> PyResult<Kind> {
        Ok(match name {
            "bool" => Kind::Bool,
            "int8" => Kind::Int8,
            "int16" => Kind::Int16,
            "uint16" => Kind::Uint16,
            "int32" => Kind::Int32,
            "uint32" => Kind::Uint32,
            "int64" => Kind::Int64,
            "float64" => Kind::Float64,
            "uuid" => Kind::Uuid,
            "string" => Kind::Text,
            "bytes" => Kind::Bytes,
            "records" => Kind::Records,
            _ => {
                let class = self.top.getattr(name)?;
                let key = class.as_ptr() as usize;
                if let Some(plan) = self.done.get(&key) {
                    return Ok(Kind::Struct(plan));
                }
                let plan = self.compile(class.cast::<PyType>()?)?;
                self.done.insert(key, plan);
                Kind::Struct(plan)
            }
        })
    }
}

impl Field {
    /// Whether it is an array, or a struct with one.
    pub(crate) fn has_arrays(&self) -> bool {
        self.is_array || self.element_has_arrays()
    }

    /// Whether an element of the array, or the value itself, is a struct with an array.
    pub(crate) fn element_has_arrays(&self) -> bool {
        matches!(self.kind, Kind::Struct(plan) if plan.has_arrays)
    }

    /// The fewest bytes the field can take.
    fn size_min(&self) -> usize {
        if self.is_array {
            return if self.compact { 1 } else { 4 };
        }
        match self.kind {
            Kind::Struct(_) if self.nullable => 1,
            _ => self.element_size_min(),
        }
    }

    /// The fewest bytes one element of an array can take.
    pub(crate) fn element_size_min(&self) -> usize {
        match self.kind {
            Kind::Bool | Kind::Int8 => 1,
            Kind::Int16 | Kind::Uint16 => 2,
            Kind::Int32 | Kind::Uint32 => 4,
            Kind::Int64 | Kind::Float64 => 8,
            Kind::Uuid => 16,
            Kind::Text | Kind::Bytes | Kind::Records if self.compact => 1,
            Kind::Text => 2,
            Kind::Bytes | Kind::Records => 4,
            Kind::Struct(plan) => plan.size_min,
        }
    }
}

/// The plan of a message in one version, or the error that it has no such version.
pub(crate) fn plan_of(py: Python<'_>, message: &MessageType, version: i16) -> PyResult<&'static Plan> {
    message.plan(py, version)?.ok_or_else(|| {
        LocalProtocolError::new_err(format!(
            "{} has versions {} to {}, not {version}",
            message.name, message.low, message.high
        ))
    })
}
