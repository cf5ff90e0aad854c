//! `artefacts/manifest.json` of a crate: what made the artefacts, and from what.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::family::{EXAMPLES_FOLDER, Family};
use crate::error::{Error, Result, at};
use crate::tools;

/// Versions, options and SHA-256 digests.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub struct Manifest {
    pub compilers: Vec<String>,
    pub options: Vec<String>,
    /// By path from the repository's root.
    pub sources: BTreeMap<String, String>,
    /// By file name; those of examples by path from the repository's root.
    pub artefacts: BTreeMap<String, String>,
}

fn path(family: Family) -> PathBuf {
    family.artefacts().join("manifest.json")
}

/// Where an artefact is committed, by its name in the manifest.
pub fn place(family: Family, name: &str) -> PathBuf {
    if name.starts_with(EXAMPLES_FOLDER) {
        tools::root().join(name)
    } else {
        family.artefacts().join(name)
    }
}

/// Digests of the committed artefacts.
pub fn committed(family: Family) -> Result<BTreeMap<String, String>> {
    made(
        family,
        &family.artefacts(),
        &tools::root().join(EXAMPLES_FOLDER),
    )
}

/// Digests of the artefacts in a folder, and of the examples' in another.
fn made(family: Family, folder: &Path, examples: &Path) -> Result<BTreeMap<String, String>> {
    let mut all = digests(folder, family.extensions(), "")?;
    let prefix = format!("{EXAMPLES_FOLDER}/");
    all.append(&mut digests(examples, family.extensions(), &prefix)?);
    Ok(all)
}

impl Manifest {
    pub fn read(family: Family) -> Result<Self> {
        let path = path(family);
        let text = at(&path, std::fs::read_to_string(&path))?;
        serde_json::from_str(&text).map_err(|source| Error::Manifest { path, source })
    }

    pub fn write(&self, family: Family) -> Result<()> {
        let path = path(family);
        let text = serde_json::to_string_pretty(self).map_err(|source| Error::Manifest {
            path: path.clone(),
            source,
        })?;
        at(&path, std::fs::write(&path, text + "\n"))
    }

    /// The manifest of artefacts that these compilers made in `folder`.
    pub fn of(family: Family, compilers: Vec<String>, folder: &Path) -> Result<Self> {
        Ok(Self {
            compilers,
            options: family.options(),
            sources: sources(family)?,
            artefacts: made(family, folder, &folder.join(EXAMPLES_FOLDER))?,
        })
    }
}

/// Digests of all sources that go into the artefacts. Other targets' headers do not.
pub fn sources(family: Family) -> Result<BTreeMap<String, String>> {
    let root = tools::root();
    let mut all = BTreeMap::new();
    for folder in family.sources() {
        let prefix = format!("{folder}/");
        all.append(&mut digests(&root.join(folder), &["h", "cu"], &prefix)?);
    }
    all.retain(|name, _| {
        let file = name.rsplit('/').next().unwrap_or(name);
        !family.foreign().contains(&file)
    });
    Ok(all)
}

/// Digests of the files in a folder that have one of the extensions, under `prefix` and their name.
pub(super) fn digests(
    folder: &Path,
    extensions: &[&str],
    prefix: &str,
) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for entry in at(folder, std::fs::read_dir(folder))? {
        let path = at(folder, entry)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !extension.is_some_and(|extension| extensions.contains(&extension)) {
            continue;
        }
        let contents = at(&path, std::fs::read(&path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let digest = Sha256::digest(&contents);
        let text = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        all.insert(format!("{prefix}{name}"), text);
    }
    Ok(all)
}
