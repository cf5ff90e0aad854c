//! `cargo xtask kernels build`.

use std::path::PathBuf;

use super::family::Family;
use super::image;
use super::manifest::{self, Manifest};
use crate::error::{Result, at};
use crate::tools::{self, Scratch};

/// Compiles and lints everything in a temporary folder, then replaces the committed artefacts that changed.
pub fn run(family: Family) -> Result<()> {
    // Fail now instead of after minutes of compilation.
    tools::zstd()?;
    let scratch = Scratch::new("kernels-build")?;
    let compilers = family.make(scratch.path())?;
    let folder = family.artefacts();
    at(&folder, std::fs::create_dir_all(&folder))?;
    let made = Manifest::of(family, compilers, scratch.path())?;
    let places: Vec<PathBuf> = made
        .artefacts
        .keys()
        .map(|name| manifest::place(family, name))
        .collect();
    for stale in manifest::images(family)? {
        if !places.contains(&stale) {
            at(&stale, std::fs::remove_file(&stale))?;
        }
    }
    for ((name, digest), place) in made.artefacts.iter().zip(&places) {
        // Keep the file if its bytes are the same, since another version of zstd would change it.
        if !manifest::digest(place).is_ok_and(|committed| committed == *digest) {
            image::store(&scratch.path().join(name), place)?;
        }
    }
    made.write(family)?;
    println!(
        "built {} artefacts with {}",
        made.artefacts.len(),
        made.compilers.join(", ")
    );
    Ok(())
}
