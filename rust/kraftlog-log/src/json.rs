//! JSON objects of reports, written field by field.
use std::fmt::{Display, Write};

/// An object in the making.
#[derive(Debug)]
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(&mut self.0, name);
        self.0.push(':');
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        quote(&mut self.0, value);
    }

    pub(crate) fn number(&mut self, name: &str, value: impl Display) {
        self.name(name);
        // Writing into a string does not fail.
        let _ = write!(self.0, "{value}");
    }

    pub(crate) fn optional(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        self.number(name, value);
    }

    /// A list of values that are JSON already.
    pub(crate) fn list(&mut self, name: &str, values: impl Iterator<Item = String>) {
        self.name(name);
        self.0.push('[');
        for (index, value) in values.enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            self.0.push_str(&value);
        }
        self.0.push(']');
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if (control as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// A string as a JSON value.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::new();
    quote(&mut out, text);
    out
}
