//! Starts this program once per rank.

use super::error::{CommandError, Result};
use super::run::launch;
use super::task::Task;
#[cfg(feature = "cuda")]
use super::task::{DEADLINE, Kind};
use crate::launch::RunOptions;
use crate::output::color_argument;
use std::ffi::OsString;
use std::process::ExitCode;

/// Starts this program once per rank, with these additional variables; blocks until all ranks have ended.
pub fn start_ranks(
    task: &Task,
    ranks: u32,
    environment: Vec<(OsString, OsString)>,
) -> Result<ExitCode> {
    let text = serde_json::to_string(task)
        .map_err(|error| CommandError::Said(format!("a file name is not valid UTF-8: {error}")))?;
    let program = std::env::current_exe().map_err(|error| CommandError::System {
        what: "finding this program's file".into(),
        error,
    })?;
    let mut options = RunOptions::new(ranks, program);
    options.arguments = vec!["rank".into(), color_argument(), text.into()];
    options.environment = environment;
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
