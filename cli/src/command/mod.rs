//! The commands: what the command line offers, and who does it.

mod ag_gemm;
mod arguments;
mod bar;
mod bench;
mod collectives;
mod common;
mod compare;
#[cfg(feature = "cuda")]
mod doctor;
mod error;
mod files;
mod info;
mod logging;
mod rank;
mod run;
mod selftest;
mod start;
mod task;

use arguments::Arguments;
use clap::Parser;
use error::Result;
use std::ffi::OsString;
use std::process::ExitCode;

/// Does what `words`, the program's name and its arguments, ask for.
pub fn run(words: Vec<OsString>) -> Result<ExitCode> {
    let arguments = Arguments::parse_from(words);
    logging::logging();
    arguments.execute()
}
