//! The `symmem` command.

mod command;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    command::logging();
    match command::Arguments::parse().execute() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("symmem: {error}");
            ExitCode::FAILURE
        }
    }
}
