//! `cargo xtask kernels build`.

use super::compile::{Compilers, EXAMPLES, EXAMPLES_FOLDER, MODULES};
use super::lint;
use super::manifest::{self, Manifest};
use crate::error::{Result, at};
use crate::tools::Scratch;

/// Compiles and lints everything aside, then replaces the committed artefacts.
pub fn run() -> Result<()> {
    let compilers = Compilers::find()?;
    let scratch = Scratch::new("kernels-build")?;
    compile_and_lint(&compilers, scratch.path())?;
    let folder = manifest::artefacts();
    at(&folder, std::fs::create_dir_all(&folder))?;
    for name in manifest::committed()?.keys() {
        let stale = manifest::place(name);
        at(&stale, std::fs::remove_file(&stale))?;
    }
    let made = Manifest::of(&compilers, scratch.path())?;
    for name in made.artefacts.keys() {
        let target = manifest::place(name);
        at(&target, std::fs::copy(scratch.path().join(name), &target))?;
    }
    made.write()?;
    println!(
        "built {} artefacts with {}, {}",
        made.artefacts.len(),
        made.compiler,
        made.assembler
    );
    Ok(())
}

/// Compiles every module, and the examples' kernels, into `folder`; an error if the lint finds anything.
pub fn compile_and_lint(compilers: &Compilers, folder: &std::path::Path) -> Result<()> {
    let mut found = Vec::new();
    for module in &MODULES {
        let said = compilers.module(module, folder)?;
        let path = folder.join(format!("{}.ptx", module.name));
        let text = at(&path, std::fs::read_to_string(&path))?;
        found.extend(lint::ptx(module.name, &text));
        found.extend(lint::assembler(module.name, &said));
    }
    let examples = folder.join(EXAMPLES_FOLDER);
    at(&examples, std::fs::create_dir_all(&examples))?;
    for name in EXAMPLES {
        let said = compilers.example(name, &examples)?;
        let path = examples.join(format!("{name}.ptx"));
        let text = at(&path, std::fs::read_to_string(&path))?;
        found.extend(lint::ptx(name, &text));
        found.extend(lint::assembler(name, &said));
    }
    lint::verdict(found)
}
