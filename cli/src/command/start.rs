//! Starts this program once per rank.

use super::error::{CommandError, Result};
use super::nodes::check_world;
use super::run::launch;
use super::task::Task;
#[cfg(feature = "cuda")]
use super::task::{DEADLINE, Kind};
use crate::launch::{NodeOptions, RunOptions};
use crate::output::color_argument;
use crate::program::{self, Program};
use std::ffi::OsString;
use std::process::ExitCode;

/// Returns the user's command, for reports.
pub fn command_line() -> String {
    let words = std::env::args_os();
    // `std::env::args` panics at a word that is not Unicode.
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}

/// Returns this program with these arguments behind its own.
pub fn this_program(arguments: &[OsString]) -> Result<Program> {
    let mut program = program::this().map_err(|error| CommandError::System {
        what: "finding this program's file".into(),
        error,
    })?;
    program.arguments.extend_from_slice(arguments);
    Ok(program)
}

/// Starts this program once per rank of this `node`, with these additional variables; blocks until all ranks of the
/// node have ended. `None` is a job on one node.
pub fn start_ranks(
    task: &Task,
    ranks: u32,
    node: Option<NodeOptions>,
    environment: Vec<(OsString, OsString)>,
) -> Result<ExitCode> {
    let text = serde_json::to_string(task)
        .map_err(|error| CommandError::Said(format!("a file name is not valid UTF-8: {error}")))?;
    let program = this_program(&["rank".into(), color_argument(), text.into()])?;
    let mut options = RunOptions::new(ranks, program.file);
    options.arguments = program.arguments;
    options.environment = environment;
    options.node = node;
    check_world(&options)?;
    // Only rank 0 prints, and its progress bar needs the terminal.
    options.prefix = false;
    options.tells_codes = false;
    #[cfg(feature = "cuda")]
    if matches!(task.kind, Kind::Doctor(_)) {
        // Killing a rank during the multicast setup can put the machine out of service.
        options.asks_to_end = false;
        options.grace = DEADLINE;
    }
    launch(options)
}
