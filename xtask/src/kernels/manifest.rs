//! `artefacts/manifest.json` of a crate: compilers, options, and digests of sources and artefacts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::family::{EXAMPLES_FOLDER, Family};
use super::image;
use crate::error::{Error, Result, at};
use crate::tools;

/// Versions, options and SHA-256 digests.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub struct Manifest {
    pub compilers: Vec<String>,
    pub options: Vec<String>,
    /// Digests by path, relative to the repository's root.
    pub sources: BTreeMap<String, String>,
    /// Digests of the bytes before compression, by file name; for examples by path relative to the repository's root.
    pub artefacts: BTreeMap<String, String>,
}

fn path(family: Family) -> PathBuf {
    family.artefacts().join("manifest.json")
}

/// Returns the path of a committed artefact from its name in the manifest. Crates' artefacts are compressed, those of
/// examples are not.
pub fn place(family: Family, name: &str) -> PathBuf {
    if name.starts_with(EXAMPLES_FOLDER) {
        tools::root().join(name)
    } else {
        let file = format!("{name}.{}", image::EXTENSION);
        family.artefacts().join(file)
    }
}

/// Returns the committed images that a crate embeds.
pub fn images(family: Family) -> Result<Vec<PathBuf>> {
    files(&family.artefacts(), &[image::EXTENSION])
}

/// Decompresses all images that a crate embeds into `folder`, under their names in the manifest.
pub fn unpack(family: Family, folder: &Path) -> Result<()> {
    for path in images(family)? {
        let image = folder.join(name(&path.with_extension("")));
        at(&image, std::fs::write(&image, image::read(&path)?))?;
    }
    Ok(())
}

/// Returns digests of the committed artefacts, decompressed.
pub fn committed(family: Family) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for path in images(family)? {
        all.insert(name(&path.with_extension("")), digest(&path)?);
    }
    all.append(&mut of_examples(
        family,
        &tools::root().join(EXAMPLES_FOLDER),
    )?);
    Ok(all)
}

/// Returns digests of the examples' artefacts in a folder.
fn of_examples(family: Family, folder: &Path) -> Result<BTreeMap<String, String>> {
    let prefix = format!("{EXAMPLES_FOLDER}/");
    digests(folder, family.extensions(), &prefix)
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

    /// Returns the manifest of artefacts that these compilers wrote to `folder`.
    pub fn of(family: Family, compilers: Vec<String>, folder: &Path) -> Result<Self> {
        let mut artefacts = digests(folder, family.extensions(), "")?;
        artefacts.append(&mut of_examples(family, &folder.join(EXAMPLES_FOLDER))?);
        Ok(Self {
            compilers,
            options: family.options(),
            sources: sources(family)?,
            artefacts,
        })
    }
}

/// Returns digests of all sources of the artefacts, without headers of other targets.
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

/// Returns digests of a folder's files with one of the extensions, by `prefix` and name.
pub(super) fn digests(
    folder: &Path,
    extensions: &[&str],
    prefix: &str,
) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for path in files(folder, extensions)? {
        all.insert(format!("{prefix}{}", name(&path)), digest(&path)?);
    }
    Ok(all)
}

/// Returns the digest of a file's bytes, decompressed if necessary.
pub(super) fn digest(path: &Path) -> Result<String> {
    let digest = Sha256::digest(image::read(path)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns a folder's files with one of the extensions.
fn files(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in at(folder, std::fs::read_dir(folder))? {
        let path = at(folder, entry)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| extensions.contains(&extension)) {
            all.push(path);
        }
    }
    Ok(all)
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
