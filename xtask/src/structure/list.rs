//! Reads the list of allowed edges, `xtask/structure.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result, at};

/// The allowed edges.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// The workspace crates that each shipped crate may depend on, except in tests.
    pub crates: BTreeMap<String, Vec<String>>,
    /// The files and folders that may name a crate, by the crate's name in paths.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
    /// The folders and top-level modules of a crate, bottom up.
    #[serde(default)]
    pub folders: BTreeMap<String, Vec<String>>,
    /// The packages that a crate may bring into a program.
    #[serde(default)]
    pub packages: BTreeMap<String, Packages>,
}

/// The packages that a crate with default features may bring into a program that depends on it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// The largest number of packages, including the crate and procedural macros.
    pub most: usize,
    /// Names of forbidden packages.
    #[serde(default)]
    pub without: Vec<String>,
}

impl List {
    /// Reads the list of the repository at `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join("xtask/structure.toml");
        let text = at(&path, std::fs::read_to_string(&path))?;
        toml::from_str(&text).map_err(|error| Error::Source {
            path,
            what: error.to_string(),
        })
    }
}
