//! The list of survivors that were shown to be no faults, and of those that are known to be missed: `equivalent.toml`.

use std::path::PathBuf;

use serde::Deserialize;

use super::generate::Mutant;
use super::slices::Slice;
use crate::error::{Error, Result, at};
use crate::tools;

/// A mutant that behaves as the source does, and why. It is named by file, function, text of the line, operator, and
/// number among equal ones, since the numbers of lines change.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Equivalent {
    pub file: String,
    pub function: String,
    pub text: String,
    pub operator: String,
    /// All mutants of that line by that operator, if nothing is named.
    #[serde(default)]
    pub numbers: Vec<usize>,
    /// The slices in which it is equivalent; all, if none is named.
    #[serde(default)]
    pub slices: Vec<String>,
    /// The targets for which it is equivalent; all, if none is named.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Why it is no fault. Without a proof it is one that is known to be missed.
    #[serde(default)]
    pub proof: String,
    /// What would find it, where there is no proof.
    #[serde(default)]
    pub missing: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    equivalent: Vec<Equivalent>,
}

fn path() -> PathBuf {
    tools::root().join("xtask/src/kernels/mutants/equivalent.toml")
}

/// Reads the list.
pub fn read() -> Result<Vec<Equivalent>> {
    let path = path();
    let text = at(&path, std::fs::read_to_string(&path))?;
    parse(&text)
}

pub fn parse(text: &str) -> Result<Vec<Equivalent>> {
    let list: List = toml::from_str(text).map_err(|source| Error::List {
        path: path(),
        source,
    })?;
    let bare = |each: &&Equivalent| each.proof.is_empty() == each.missing.is_empty();
    if let Some(bare) = list.equivalent.iter().find(bare) {
        return Err(Error::Mutants(vec![format!(
            "{}: `{}` in {} needs either a proof or what is missing",
            path().display(),
            bare.text,
            bare.function
        )]));
    }
    Ok(list.equivalent)
}

impl Equivalent {
    /// Whether it is shown to be no fault.
    pub fn is_proved(&self) -> bool {
        !self.proof.is_empty()
    }

    /// Whether a mutant is the named one.
    pub fn names(&self, mutant: &Mutant) -> bool {
        self.file == mutant.file
            && self.function == mutant.function
            && self.text == mutant.text
            && self.operator == mutant.operator
            && (self.numbers.is_empty() || self.numbers.contains(&mutant.number))
    }

    /// Whether the proof is about a slice and a target.
    pub fn covers(&self, slice: &Slice, target: &str) -> bool {
        let has =
            |list: &[String], name: &str| list.is_empty() || list.iter().any(|each| each == name);
        has(&self.slices, slice.name) && has(&self.targets, target)
    }
}
