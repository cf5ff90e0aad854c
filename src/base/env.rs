//! Reading of environment variables: the place of this crate that queries the system for them.
//!
//! A variable set to the empty string counts as unset: job scripts write `VARIABLE=` to unset one.

use crate::base::limits::LEAST_SILENCE;
use crate::base::names::ShareKind;
use crate::base::variables::{VARIABLES, Variable};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// An environment variable with a value that symmem cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadVariable {
    /// The rank that read it, if its number was known by then.
    pub rank: Option<usize>,
    /// The variable.
    pub name: &'static str,
    /// The value; bytes that are not UTF-8 are replaced.
    pub value: String,
    /// The reason; empty if the value is simply not an accepted one.
    pub reason: String,
    /// The accepted values.
    pub accepts: &'static str,
}

impl BadVariable {
    /// Makes the error for a value that is not accepted, without a further reason.
    pub(crate) fn new(name: &'static str, value: impl Into<String>, accepts: &'static str) -> Self {
        Self {
            rank: None,
            name,
            value: value.into(),
            reason: String::new(),
            accepts,
        }
    }

    /// Adds the rank that read it.
    pub(crate) fn at(self, rank: usize) -> Self {
        Self {
            rank: Some(rank),
            ..self
        }
    }
}

impl fmt::Display for BadVariable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank,
            name,
            value,
            reason,
            accepts,
        } = self;
        if let Some(rank) = rank {
            write!(formatter, "rank {rank}: ")?;
        }
        write!(formatter, "{name}=`{value}`")?;
        match reason.as_str() {
            "" => write!(formatter, " is not {accepts}; correct it")?,
            reason => write!(formatter, ": {reason}; set it to {accepts}")?,
        }
        write!(formatter, ", or unset {name}")
    }
}

impl std::error::Error for BadVariable {}

impl Variable {
    /// Returns its value, if it is set and not empty.
    pub(crate) fn value(&self) -> Option<OsString> {
        value_of(self.name)
    }

    /// Returns its value as parsed by `parse`, if it is set and not empty.
    ///
    /// # Errors
    /// [`BadVariable`] if the value is not UTF-8, or `parse` refuses it: with a reason, or with empty text for
    /// a value that is simply not accepted.
    pub(crate) fn read<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, BadVariable> {
        let Some(value) = self.value() else {
            return Ok(None);
        };
        self.parse(&value, parse).map(Some)
    }

    fn parse<T>(
        &self,
        value: &OsStr,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, BadVariable> {
        let text = value.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
        text.and_then(parse)
            .map_err(|reason| self.refuse(value, reason))
    }

    /// Makes the error for a value, with a `reason`, which is empty if the value is simply not accepted.
    pub(crate) fn refuse(&self, value: &OsStr, reason: String) -> BadVariable {
        BadVariable {
            reason,
            ..BadVariable::new(self.name, value.to_string_lossy(), self.accepts)
        }
    }
}

/// Returns the value of the variable `name`, which [`VARIABLES`] lists, if it is set and not empty.
pub(crate) fn value_of(name: &str) -> Option<OsString> {
    debug_assert!(
        VARIABLES.iter().any(|variable| variable.name == name),
        "{name} is not in the table of variables"
    );
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Parses 1 or 0.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(String::new()),
    }
}

/// Parses the seconds of silence after which a rank is dead.
pub(crate) fn silence(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| String::new())?;
    let silence = Duration::try_from_secs_f64(seconds).map_err(|_| String::new())?;
    (silence >= LEAST_SILENCE)
        .then_some(silence)
        .ok_or_else(String::new)
}

/// Parses names of strategies of sharing memory, separated by commas, in order.
pub(crate) fn share_kinds(text: &str) -> Result<Vec<ShareKind>, String> {
    let names = text.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(|name| {
            ShareKind::ALL
                .iter()
                .copied()
                .find(|kind| kind.name().eq_ignore_ascii_case(name))
                .ok_or_else(|| format!("`{name}` is not a sharing strategy"))
        })
        .collect()
}

/// Parses directories separated by colons. An empty element, as in `/plugins:`, does not stand for the working
/// directory: it is left out.
pub(crate) fn directories(value: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(value)
        .filter(|directory| !directory.as_os_str().is_empty())
        .collect()
}

#[cfg(test)]
#[path = "env_tests.rs"]
mod tests;
