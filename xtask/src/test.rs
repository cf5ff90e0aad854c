//! `cargo xtask test`: the README's test command, with more of the cases than a newcomer waits for.

use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result, at};
use crate::tools::root;

#[derive(clap::Args)]
pub struct Options {
    /// Run the long lists instead of the sample.
    #[arg(long)]
    full: bool,
    /// Run every case of every matrix, in a release build; takes hours on two cores.
    #[arg(long, conflicts_with = "full")]
    all: bool,
    /// Run only tests whose names contain one of these.
    filter: Vec<String>,
}

/// Runs the tests of the workspace to their end, even if one fails.
///
/// # Errors
///
/// Fails if cargo cannot be started, or if a test fails.
pub fn run(options: &Options) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--workspace", "--no-fail-fast"]);
    let amount = match (options.all, options.full) {
        (true, _) => "all",
        (_, true) => "long",
        _ => "sample",
    };
    if options.all {
        command.arg("--release");
    }
    command.arg("--").args(&options.filter);
    command.current_dir(root()).env("SYMMEM_TESTS", amount);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        // Most tests wait for processes of their own, or for a deadline, most of the time.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (2 * processors).to_string());
    }
    // The output goes to the terminal, since the run takes long.
    let status = at(Path::new("cargo"), command.status())?;
    if status.success() {
        return Ok(());
    }
    Err(Error::ToolFailed {
        command: format!("{command:?}"),
        output: status.to_string(),
    })
}
