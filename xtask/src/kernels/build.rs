//! `cargo xtask kernels build`.

use super::family::Family;
use super::manifest::{self, Manifest};
use crate::error::{Result, at};
use crate::tools::Scratch;

/// Compiles and lints everything aside, then replaces the committed artefacts.
pub fn run(family: Family) -> Result<()> {
    let scratch = Scratch::new("kernels-build")?;
    let compilers = family.make(scratch.path())?;
    let folder = family.artefacts();
    at(&folder, std::fs::create_dir_all(&folder))?;
    for name in manifest::committed(family)?.keys() {
        let stale = manifest::place(family, name);
        at(&stale, std::fs::remove_file(&stale))?;
    }
    let made = Manifest::of(family, compilers, scratch.path())?;
    for name in made.artefacts.keys() {
        let target = manifest::place(family, name);
        at(&target, std::fs::copy(scratch.path().join(name), &target))?;
    }
    made.write(family)?;
    println!(
        "built {} artefacts with {}",
        made.artefacts.len(),
        made.compilers.join(", ")
    );
    Ok(())
}
