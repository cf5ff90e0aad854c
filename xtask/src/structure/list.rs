//! The one list of allowed edges: `xtask/structure.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result, at};

/// Which crates, folders and files may use which.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// The crates of the workspace that each shipped crate may depend on, tests left out.
    pub crates: BTreeMap<String, Vec<String>>,
    /// The files and folders that may name a crate, by the crate's name in paths.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
    /// The folders and top-level modules of a crate, bottom up.
    #[serde(default)]
    pub folders: BTreeMap<String, Vec<String>>,
    /// What a crate may bring into a program that depends on it.
    #[serde(default)]
    pub packages: BTreeMap<String, Packages>,
}

/// What a crate may bring into a program that depends on it, with the crate's default features.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// The most packages, the crate and procedural macros included.
    pub most: usize,
    /// Packages that must not be among them, by name.
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
