//! The arguments `name=value`.
use std::collections::BTreeMap;
use std::str::FromStr;

use crate::wire::Topic;
use crate::Failure;

/// Arguments by name; one that no mode asked for is an error, so that a misspelt name does not pass silently.
#[derive(Debug)]
pub struct Options {
    given: BTreeMap<String, String>,
}

impl Options {
    /// Splits each argument at its first `=`.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut given = BTreeMap::new();
        for argument in arguments {
            let (name, value) = argument.split_once('=').ok_or(format!("{argument:?} is not name=value"))?;
            given.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self { given })
    }

    /// A value, or the default.
    pub fn take<T: FromStr>(&mut self, name: &str, default: T) -> Result<T, Failure> {
        match self.given.remove(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("{name}={text} cannot be read").into()),
        }
    }

    /// A value that must be given.
    pub fn need<T: FromStr>(&mut self, name: &str) -> Result<T, Failure> {
        let text = self.given.remove(name).ok_or(format!("{name}= is missing"))?;
        text.parse().map_err(|_| format!("{name}={text} cannot be read").into())
    }

    /// `topics=ID:PARTITIONS,...`, the id in 32 hexadecimal digits.
    pub fn topics(&mut self) -> Result<Vec<Topic>, Failure> {
        self.need::<String>("topics")?.split(',').map(Topic::parse).collect()
    }

    /// Fails if an argument is left.
    pub fn finish(&self) -> Result<(), Failure> {
        match self.given.keys().next() {
            Some(name) => Err(format!("{name}= has no meaning in this mode").into()),
            None => Ok(()),
        }
    }
}
