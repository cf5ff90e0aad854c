//! `symmem completions`: prints a completion script for a shell.

use super::error::Result;
use crate::output;
use clap::Command;
use clap_complete::Shell;
use std::process::ExitCode;

/// The arguments of `symmem completions`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The shell that reads the script
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for the visible subcommands of `all`.
pub fn print(options: &Options, all: &Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    let shown = all.get_subcommands().filter(|one| !one.is_hide_set());
    let mut command = Command::new("symmem")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments())
        .subcommands(shown);
    clap_complete::generate(options.shell, &mut command, "symmem", &mut script);
    output::data(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
