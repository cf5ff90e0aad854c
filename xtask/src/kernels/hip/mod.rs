//! The artefacts of `kernels-hip`: code objects for AMD GPUs.

pub mod compile;
pub mod cost;
mod isa;
mod lint;
mod loops;
mod metadata;
mod object;
mod order;
mod registers;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::family::{EXAMPLES_FOLDER, Family};
use super::{manifest, verdict};
use crate::error::{Error, Result, at};
use crate::tools::{self, Scratch, side_by_side};
use compile::{Compiler, EXAMPLES, MODULES, TARGETS};
use metadata::Owner;

/// Compiles every module and the examples' kernels for every target into `folder`. Returns the compiler's version, or an
/// error if the lint finds anything.
pub fn make(folder: &Path) -> Result<Vec<String>> {
    let compiler = Compiler::find()?;
    let objdump = tools::objdump()?;
    let examples = folder.join(EXAMPLES_FOLDER);
    at(&examples, std::fs::create_dir_all(&examples))?;
    let linted = side_by_side(&TARGETS, |target| {
        let mut found = Vec::new();
        for name in MODULES {
            let object = compiler.module(name, target, folder)?;
            found.extend(lint(&objdump, &object, target, Owner::Symmem)?);
        }
        for name in EXAMPLES {
            let object = compiler.example(name, target, &examples)?;
            found.extend(lint(&objdump, &object, target, Owner::User)?);
        }
        Ok(found)
    })?;
    verdict(linted.concat())?;
    Ok(vec![tools::version(&compiler.clang)?])
}

/// Lints the committed artefacts.
pub fn lint_committed() -> Result<()> {
    let objdump = tools::objdump()?;
    let scratch = Scratch::new("kernels-lint-hip")?;
    manifest::unpack(Family::Hip, scratch.path())?;
    let mut found = Vec::new();
    for target in TARGETS {
        let paths = |folder: PathBuf, names: &'static [&'static str]| {
            names
                .iter()
                .map(move |name| folder.join(format!("{name}.{target}.co")))
        };
        for path in paths(scratch.path().to_owned(), &MODULES) {
            found.extend(lint(&objdump, &path, target, Owner::Symmem)?);
        }
        for path in paths(tools::root().join(EXAMPLES_FOLDER), &EXAMPLES) {
            found.extend(lint(&objdump, &path, target, Owner::User)?);
        }
    }
    verdict(found)?;
    println!("lint of code objects: nothing found");
    Ok(())
}

/// Lints one code object, whose name ends in its target and `.co`.
pub fn lint_file(path: &Path) -> Result<()> {
    let name = path.to_string_lossy();
    let target = TARGETS
        .into_iter()
        .find(|target| name.ends_with(&format!(".{target}.co")));
    let target = target.ok_or_else(|| Error::CodeObject {
        path: path.to_owned(),
        what:
            "the name does not end in .gfx90a.co, .gfx942.co or .gfx950.co, which names the target"
                .into(),
    })?;
    verdict(lint(&tools::objdump()?, path, target, Owner::Symmem)?)?;
    println!("lint of code objects: nothing found");
    Ok(())
}

/// Returns the violations in the machine code of a code object, one line each: those of [`lint()`] without its metadata.
pub fn lint_code(objdump: &Path, path: &Path, target: &str) -> Result<Vec<String>> {
    let object = object::read(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let functions = disassemble(objdump, path, target)?;
    Ok(lint::lint(&name, target, &functions, &object.publications))
}

/// Returns what a code object does to memory, in order: see [`order::of`].
pub fn order_of(objdump: &Path, path: &Path, target: &str) -> Result<Vec<String>> {
    let functions = disassemble(objdump, path, target)?;
    Ok(functions.iter().flat_map(order::of).collect())
}

fn disassemble(objdump: &Path, path: &Path, target: &str) -> Result<Vec<isa::Function>> {
    let text = tools::output(
        Command::new(objdump)
            .arg("--disassemble")
            .arg(format!("--mcpu={target}"))
            .arg(path),
    )?;
    Ok(isa::parse(&text))
}

/// Returns the violations in a code object, one line each.
fn lint(objdump: &Path, path: &Path, target: &str, owner: Owner) -> Result<Vec<String>> {
    let object = object::read(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let functions = disassemble(objdump, path, target)?;
    let kernels = object.kernels.iter().map(|kernel| kernel.name.as_str());
    let mut found = metadata::lint(&name, target, owner, &object);
    found.extend(lint::unread(&name, kernels, &functions));
    found.extend(lint::lint(&name, target, &functions, &object.publications));
    Ok(found)
}
