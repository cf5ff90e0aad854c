//! The artefacts of `kernels-ptx`: PTX and cubins.

pub mod compile;
pub mod lint;
pub mod multimem;
mod text;
mod waits;

use std::path::Path;

use super::family::{EXAMPLES_FOLDER, Family};
use super::{image, manifest, verdict};
use crate::error::{Result, at};
use crate::tools::{self, side_by_side};
use compile::{Compilers, EXAMPLES, MODULES};

/// Returns the PTX of a committed module.
fn committed(module: &str) -> Result<String> {
    let path = manifest::place(Family::Ptx, &format!("{module}.ptx"));
    let text = String::from_utf8(image::read(&path)?);
    at(&path, text.map_err(std::io::Error::other))
}

/// Compiles every module and the examples' kernels into `folder`. Returns the compilers' versions, or an error if the
/// lint finds anything.
pub fn make(folder: &Path) -> Result<Vec<String>> {
    let compilers = Compilers::find()?;
    let linted = side_by_side(&MODULES, |module| {
        let said = compilers.module(module, folder)?;
        let path = folder.join(format!("{}.ptx", module.name));
        let text = at(&path, std::fs::read_to_string(&path))?;
        let mut found = lint::ptx(module.name, &text);
        found.extend(lint::assembler(module.name, &said));
        Ok(found)
    })?;
    let mut found = linted.concat();
    let examples = folder.join(EXAMPLES_FOLDER);
    at(&examples, std::fs::create_dir_all(&examples))?;
    for name in EXAMPLES {
        let said = compilers.example(name, &examples)?;
        let path = examples.join(format!("{name}.ptx"));
        let text = at(&path, std::fs::read_to_string(&path))?;
        found.extend(lint::ptx(name, &text));
        found.extend(lint::assembler(name, &said));
    }
    verdict(found)?;
    Ok(vec![
        tools::version(&compilers.clang)?,
        tools::version(&compilers.ptxas)?,
    ])
}
