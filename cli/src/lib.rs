//! The `symmem` command, as a library for programs with other names.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod command;
#[cfg(feature = "cuda")]
pub mod doctor;
pub mod launch;
mod output;
mod program;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the command with this process's arguments; blocks until it has ended.
///
/// The exit code is 0 for success, 1 if the work failed (wrong results, a backend that cannot start, a lost rank),
/// 2 if the command was used wrongly or its output could not be written, and 130 after Ctrl-C. A closed pipe
/// (`symmem info | head -1`) is success. `symmem run` ends with the code of the first rank that failed.
pub fn main() -> ExitCode {
    run(std::env::args_os().collect())
}

/// [`main`] with these words, the command's name and its arguments, in a process whose own file is not the command: `again`
/// are the file and the first arguments that start it, such as `python3 -m symmem`.
pub fn main_in(words: Vec<OsString>, again: (PathBuf, Vec<OsString>)) -> ExitCode {
    program::name(again.0, again.1);
    run(words)
}

fn run(words: Vec<OsString>) -> ExitCode {
    match command::run(words) {
        Ok(code) => code,
        Err(error) => error.end(),
    }
}
