//! `cargo xtask kernels`: builds, checks and lints the artefacts of `kernels-ptx` and `kernels-hip`.

mod build;
mod check;
mod family;
mod flow;
mod hip;
mod image;
mod manifest;
mod mutants;
mod ptx;

use std::path::PathBuf;

use clap::Subcommand;

use crate::error::{Error, Result};
use family::Family;

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Rebuild all artefacts and their manifests.
    Build {
        /// Only those of one crate.
        #[arg(long)]
        only: Option<Family>,
    },
    /// Check that the committed artefacts match their sources.
    Check {
        /// Only those of one crate.
        #[arg(long)]
        only: Option<Family>,
    },
    /// Check the machine code for violations of the memory model's rules, for spills and for a wrong layout of
    /// arguments.
    Lint {
        /// Only those of one crate.
        #[arg(long)]
        only: Option<Family>,
        /// A PTX file or AMD code object to lint instead of the committed artefacts.
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Print what a model of AMD's devices says of the kernels' loops: clocks, busy units, bytes in flight, rates.
    Cost(hip::cost::Options),
    /// Plant faults in the sources of AMD's kernels, one at a time, and check that the lint or the interpreter of
    /// `tests/weak-memory` finds each. A fault that neither finds must be listed with a proof that it is none.
    Mutate(mutants::Options),
    /// Check with every named assembler that the multicast instructions in the artefacts assemble for all targets
    /// with multicast, and that similar forms outside of the instruction set are rejected.
    Multimem,
}

/// Runs the command.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Build { only } => each(only, build::run),
        Command::Check { only } => each(only, check::run),
        Command::Lint {
            file: Some(file), ..
        } => {
            if file.extension().is_some_and(|extension| extension == "co") {
                hip::lint_file(&file)
            } else {
                ptx::lint::run(Some(&file))
            }
        }
        Command::Cost(options) => hip::cost::run(&options),
        Command::Mutate(options) => mutants::run(&options),
        Command::Multimem => ptx::multimem::run(),
        Command::Lint { only, file: None } => each(only, |family| match family {
            Family::Ptx => ptx::lint::run(None),
            Family::Hip => hip::lint_committed(),
        }),
    }
}

fn each(only: Option<Family>, run: impl Fn(Family) -> Result<()>) -> Result<()> {
    Family::ALL
        .into_iter()
        .filter(|family| only.is_none_or(|only| only == *family))
        .try_for_each(run)
}

/// Returns an error if the lint found anything.
fn verdict(found: Vec<String>) -> Result<()> {
    if found.is_empty() {
        Ok(())
    } else {
        Err(Error::Lint(found))
    }
}
