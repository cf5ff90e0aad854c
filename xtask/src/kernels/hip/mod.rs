//! The artefacts of `kernels-hip`: code objects for AMD GPUs.

pub mod compile;
pub mod cost;
mod isa;
mod lint;
mod loops;
mod metadata;
mod object;
mod registers;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
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

/// Returns what a code object does to memory, in order: accesses, waits, fences, barriers and branches, with their modifiers
/// and without their registers. Code that only computes in another order has the same, and so has code that loads arguments,
/// which nothing stores, in other pieces, or that waits again before anything could have come in between.
pub fn order_of(objdump: &Path, path: &Path, target: &str) -> Result<Vec<String>> {
    const ORDERS: [&str; 5] = ["s_memrealtime", "s_barrier", "buffer_", "ds_", "s_end"];
    let mut order = Vec::new();
    for function in disassemble(objdump, path, target)? {
        order.push(function.name.clone());
        let instructions = &function.instructions;
        let targets: BTreeSet<u64> = instructions.iter().filter_map(|each| each.target).collect();
        let mut waited: Vec<&str> = Vec::new();
        for each in instructions {
            if targets.contains(&each.address) {
                order.push("target".to_owned());
                waited.clear();
            }
            if each.mnemonic == "s_waitcnt" {
                let counters = each.operands.split(' ');
                let new: Vec<&str> = counters.filter(|each| !waited.contains(each)).collect();
                if !new.is_empty() {
                    order.push(format!("s_waitcnt {}", new.join(" ")));
                    waited.extend(new);
                }
                continue;
            }
            if each.mnemonic.starts_with("s_load") {
                waited.clear();
                continue;
            }
            let is_ordered = each.access().is_some()
                || each.target.is_some()
                || ORDERS.iter().any(|begin| each.mnemonic.starts_with(begin));
            if is_ordered {
                let modifiers = ["sc0", "sc1", "nt", "glc", "slc", "scc"];
                let kept = modifiers.into_iter().filter(|modifier| each.has(modifier));
                order.push(format!(
                    "{} {}",
                    each.mnemonic,
                    kept.collect::<Vec<_>>().join(" ")
                ));
                waited.clear();
            }
        }
    }
    Ok(order)
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
