//! The `symmem` command, for whoever starts it from a program of another name.

mod command;
#[cfg(feature = "cuda")]
pub mod doctor;
pub mod launch;

use clap::Parser;
use std::process::ExitCode;

/// Runs the command with this process's arguments; blocks until it has ended.
pub fn main() -> ExitCode {
    command::logging();
    match command::Arguments::parse().execute() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("symmem: {error}");
            ExitCode::FAILURE
        }
    }
}
