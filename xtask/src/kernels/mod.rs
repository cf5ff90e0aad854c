//! `cargo xtask kernels`: the artefacts of `kernels-ptx`.

mod build;
mod check;
mod compile;
mod flow;
mod lint;
mod manifest;
mod ptx;

use std::path::PathBuf;

use clap::Subcommand;

use crate::error::Result;

/// What to do with the artefacts.
#[derive(Subcommand)]
pub enum Command {
    /// Rebuild all artefacts and their manifest.
    Build,
    /// Compare the committed artefacts with what their sources make.
    Check,
    /// Look for instructions that break the memory model's rules, and for spills.
    Lint {
        /// A PTX file to lint instead of the committed artefacts.
        #[arg(long)]
        file: Option<PathBuf>,
    },
}

/// Runs the command.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Build => build::run(),
        Command::Check => check::run(),
        Command::Lint { file } => lint::run(file.as_deref()),
    }
}
