//! `symmem run`: starts any program once per rank, on this node or on each of several.

use super::common::{Backend, RANKS, ranks};
use super::error::{CommandError, Result};
use crate::launch::{self, NodeOptions, REACTION, RunOptions, SUPERVISOR_ARGUMENT};
use crate::output::{OutputError, color_argument};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use symmem::MAX_WORLD;
use symmem::backends::{Chosen, Selection};
use symmem::bootstrap::Secret;

/// Heading in the help.
const NODES: &str = "Several nodes";

/// The arguments of `symmem run`.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    backend: Backend,
    /// Number of ranks [default: one per GPU, at least 2]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks::<1>, help_heading = RANKS)]
    ranks: Option<u32>,
    /// Number of nodes, on each of which `symmem run` starts as many ranks
    #[arg(long, value_name = "N", requires = "node", value_parser = clap::value_parser!(u32).range(1..), help_heading = NODES)]
    nodes: Option<u32>,
    /// This node's number, from 0
    #[arg(long, value_name = "I", requires = "nodes", help_heading = NODES)]
    node: Option<u32>,
    /// Where rank 0, on node 0, listens; the same on all nodes
    #[arg(long, value_name = "HOST:PORT", requires = "nodes", help_heading = NODES)]
    rendezvous: Option<String>,
    /// File with the job's secret, 64 hexadecimal digits, the same on all nodes [default: SYMMEM_SECRET]
    #[arg(long, value_name = "FILE", requires = "nodes", help_heading = NODES)]
    secret_file: Option<PathBuf>,
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
    let nodes = asked.across()?;
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

impl Options {
    /// Returns this node's part of a job on several nodes.
    fn across(&self) -> Result<Option<NodeOptions>> {
        let (Some(nodes), Some(node)) = (self.nodes, self.node) else {
            return Ok(None);
        };
        let said = |text: String| Err(CommandError::Said(text));
        if node >= nodes {
            return said(format!(
                "--node {node} is not one of {nodes} nodes; number them from 0 to {}",
                nodes - 1
            ));
        }
        let Some(rendezvous) = self.rendezvous.clone() else {
            return said(
                "--nodes needs an address where the ranks meet; pass --rendezvous HOST:PORT of node 0 on every node"
                    .into(),
            );
        };
        let secret = self.secret()?;
        Ok(Some(NodeOptions {
            node,
            nodes,
            rendezvous,
            secret,
        }))
    }

    /// Returns the job's secret as text.
    fn secret(&self) -> Result<String> {
        let (text, place) = match &self.secret_file {
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| CommandError::System {
                    what: format!("reading {}", file.display()),
                    error,
                })?;
                (text, file.display().to_string())
            }
            None => {
                let text = std::env::var("SYMMEM_SECRET").unwrap_or_default();
                (text, "SYMMEM_SECRET".into())
            }
        };
        let text = text.trim();
        if text.is_empty() {
            return Err(CommandError::Said(format!(
                "several nodes need a secret, the same on all, and {place} has none; make one by `openssl rand -hex 32`, \
                 and pass it by --secret-file FILE or SYMMEM_SECRET"
            )));
        }
        // The value is not repeated in the error: it may be almost right.
        match Secret::from_hex(text) {
            Some(_) => Ok(text.to_owned()),
            None => Err(CommandError::Said(format!(
                "{place} has {} characters that are not a secret; write 64 hexadecimal digits",
                text.chars().count()
            ))),
        }
    }
}

/// Fails if there are more ranks on all nodes than a world has.
fn check_world(options: &RunOptions) -> Result<()> {
    let nodes = options.node.as_ref().map_or(1, |node| node.nodes);
    match options.ranks.checked_mul(nodes) {
        Some(world) if world as usize <= MAX_WORLD => Ok(()),
        _ => Err(CommandError::Said(format!(
            "{} ranks on each of {nodes} nodes are more than a world has, {MAX_WORLD}; use fewer",
            options.ranks
        ))),
    }
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
