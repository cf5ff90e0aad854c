//! The artefacts of `kernels-hip`: code objects for AMD GPUs.

pub mod compile;

use std::path::Path;

use super::family::EXAMPLES_FOLDER;
use crate::error::{Result, at};
use crate::tools;
use compile::{Compiler, EXAMPLES, MODULES, TARGETS};

/// Compiles every module, and the examples' kernels, for every target into `folder`. Returns the compiler's version.
pub fn make(folder: &Path) -> Result<Vec<String>> {
    let compiler = Compiler::find()?;
    let examples = folder.join(EXAMPLES_FOLDER);
    at(&examples, std::fs::create_dir_all(&examples))?;
    for target in TARGETS {
        for name in MODULES {
            compiler.module(name, target, folder)?;
        }
        for name in EXAMPLES {
            compiler.example(name, target, &examples)?;
        }
    }
    Ok(vec![tools::version(&compiler.clang)?])
}

pub fn lint_file(_file: &Path) -> Result<()> {
    Ok(())
}
pub fn lint_committed() -> Result<()> {
    Ok(())
}
