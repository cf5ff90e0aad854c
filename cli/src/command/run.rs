//! `symmem run`: starts any program once per rank, on this node or on each of several.

use super::common::{Backend, RANKS, ranks};
use super::error::{CommandError, Result};
use super::nodes::{Nodes, check_world};
use crate::launch::{self, REACTION, RunOptions, SUPERVISOR_ARGUMENT};
use crate::output::{OutputError, color_argument};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use symmem::backends::{Chosen, Selection};

/// The arguments of `symmem run`.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    backend: Backend,
    /// Number of ranks [default: one per GPU, at least 2]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks::<1>, help_heading = RANKS)]
    ranks: Option<u32>,
    #[command(flatten)]
    nodes: Nodes,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
    /// Time that the other ranks have to report errors after a rank has failed; then they are stopped [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    reaction: Option<Duration>,
    /// Do not prefix lines of output with the rank
    #[arg(long)]
    plain: bool,
}

/// Runs the program once per rank; blocks until all ranks have ended.
pub fn run(asked: Options) -> Result<ExitCode> {
    let selection = asked.backend.selection()?;
    let nodes = asked.nodes.across()?;
    let ranks = match asked.ranks {
        Some(ranks) => ranks,
        None => default_ranks(&Backend::choose(&selection)?),
    };
    let mut words = asked.program.into_iter();
    let Some(program) = words.next() else {
        return Err(CommandError::Said(
            "symmem run: no program; name one after `--`".into(),
        ));
    };
    check_named(&selection, &program)?;
    let mut options = RunOptions::new(ranks, program);
    options.node = nodes;
    check_world(&options)?;
    options.arguments = words.collect();
    options.prefix = !asked.plain;
    options.reaction = asked.reaction.unwrap_or(REACTION);
    if asked.backend.backend.is_some() {
        let selected = ("SYMMEM_BACKEND".into(), selection.to_string().into());
        options.environment.push(selected);
    }
    launch(options)
}

/// Fails if neither this command nor the program's directory has a backend of this name. Does not check the known
/// backends, since that would start their drivers; the ranks check them.
fn check_named(selection: &Selection, program: &OsStr) -> Result<()> {
    match selection {
        Selection::Named(name) if !["host", "cuda", "hip"].contains(&&**name) => {
            let beside = Path::new(program).with_file_name(format!("libsymmem_{name}.so"));
            match beside.is_file() {
                true => Ok(()),
                false => Backend::probe(selection).map(drop),
            }
        }
        other => Backend::check(other),
    }
}

/// Parses a time in seconds, one hour at most.
fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (0.0..=3600.0).contains(number))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| {
            format!("{text} is not a number of seconds from 0 to 3600; write one, such as 1.5")
        })
}

/// Starts the ranks and blocks until they have ended.
pub fn launch(mut options: RunOptions) -> Result<ExitCode> {
    options.supervisor = vec![SUPERVISOR_ARGUMENT.into(), color_argument()];
    launch::run(options).map_err(|error| match error.downcast::<OutputError>() {
        Ok(error) => error.into(),
        Err(error) => CommandError::System {
            what: "symmem run".into(),
            error,
        },
    })
}

/// Supervises the ranks of another process of this command; blocks until they have ended.
pub fn supervise() -> Result<ExitCode> {
    let done = launch::supervise().map(|()| ExitCode::SUCCESS);
    done.map_err(|error| {
        CommandError::Said(format!(
            "`symmem {SUPERVISOR_ARGUMENT}` is for symmem itself; its input has no job: {error}"
        ))
    })
}

/// Returns one rank per device, and at least two.
pub fn default_ranks(chosen: &Chosen) -> u32 {
    chosen.devices.max(2)
}
