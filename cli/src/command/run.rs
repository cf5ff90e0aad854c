//! `symmem run`: ranks of any program.

use super::common::Common;
use super::error::{CommandError, Result};
use crate::launch::{self, RunOptions};
use crate::output::OutputError;
use std::ffi::OsString;
use std::process::ExitCode;
use symmem::backends::{self as select, Chosen};

/// Runs the program once for each rank.
pub fn run(common: &Common, program: Vec<OsString>, plain: bool) -> Result<ExitCode> {
    let selection = common.selection()?;
    let ranks = match common.ranks {
        Some(ranks) => ranks,
        None => default_ranks(&select::choose(&selection)?),
    };
    let mut words = program.into_iter();
    let Some(program) = words.next() else {
        return Err(CommandError::Said("symmem run: name a program".into()));
    };
    let mut options = RunOptions::new(ranks, program);
    options.arguments = words.collect();
    options.prefix = !plain;
    if common.backend.is_some() {
        let selected = ("SYMMEM_BACKEND".into(), selection.to_string().into());
        options.environment.push(selected);
    }
    launch(options)
}

/// Starts the ranks and stays with them.
pub fn launch(options: RunOptions) -> Result<ExitCode> {
    launch::run(options).map_err(|error| match error.downcast::<OutputError>() {
        Ok(error) => error.into(),
        Err(error) => CommandError::System {
            what: "symmem run".into(),
            error,
        },
    })
}

/// One rank per device, and two where there is only one.
pub fn default_ranks(chosen: &Chosen) -> u32 {
    chosen.devices.max(2)
}
