//! The `symmem` command.

use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the command with these words, the first of which is its name, and returns its exit code. `file` and `arguments` start this
/// program again. Blocks until the command has ended.
#[pyfunction]
pub fn main(
    python: Python<'_>,
    words: Vec<OsString>,
    file: PathBuf,
    arguments: Vec<OsString>,
) -> u8 {
    let code = python.detach(|| symmem_cli::main_in(words, (file, arguments)));
    // An exit code can be compared, but not read.
    let mut codes = 0..=u8::MAX;
    codes
        .find(|number| ExitCode::from(*number) == code)
        .unwrap_or(1)
}
