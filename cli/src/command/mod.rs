//! The commands of `symmem`.

mod ag_gemm;
mod arguments;
mod bar;
mod bench;
mod collectives;
mod common;
mod compare;
mod completions;
#[cfg(feature = "cuda")]
mod doctor;
mod error;
mod files;
mod gemm_reduce;
mod gemm_shapes;
mod info;
mod logging;
mod nodes;
mod predict;
mod processors;
mod rank;
mod rms_norm;
mod run;
mod selftest;
mod start;
mod task;
mod usage;

use crate::output;
use arguments::Arguments;
use clap::{CommandFactory, Parser};
use error::Result;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command that `words`, the program's name and its arguments, ask for.
pub fn run(words: Vec<OsString>) -> Result<ExitCode> {
    output::set_color(usage::color(&words));
    let words = usage::behind_command(&Arguments::command(), words);
    match Arguments::try_parse_from(&words) {
        Ok(arguments) => {
            logging::logging();
            arguments.execute()
        }
        Err(error) => usage::answer(&error, &words),
    }
}
