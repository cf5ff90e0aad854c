//! `symmem doctor multicast`: what is known, what the live test would do and, where the machine's owner says so,
//! the test. Its parts are ranks of their own; the process that the user started opens no device.

pub mod part;
mod ranks;
mod trial;

pub use ranks::rank;

use super::collectives::{Operations, chosen, operation, size};
use super::common::{Backend, RANKS, RESULTS, effort, ranks};
use super::error::{CommandError, Result};
use super::files::{Target, Written};
use crate::doctor::{Machine, Report, Steps};
use crate::output;
use clap::{Args, Subcommand};
use std::process::ExitCode;
use symmem::backends::{self as select, Selection};
use symmem_bench::{Effort, collectives};

/// The only backend that has multicast.
const CUDA: &str = "cuda";

#[derive(Debug, Subcommand)]
pub enum What {
    /// Multicast by a switch (NVLS), which is off unless SYMMEM_MULTICAST=1 asks for it
    ///
    /// Prints what is known of this machine, what a live test would do step by step, what can go wrong and how to
    /// recover. Touches no more than `symmem info` does.
    Multicast(Arguments),
}

/// A heading in the help.
const LIVE_TEST: &str = "Live test";

/// What the test understands.
#[derive(Debug, Args)]
pub struct Arguments {
    /// cuda, or path:FILE of it as a plugin [default: SYMMEM_BACKEND, else cuda]
    #[arg(long, value_name = "BACKEND", help_heading = RANKS)]
    backend: Option<String>,
    /// Ranks of the live test, each with a GPU of its own [default: one per GPU]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks::<2>, help_heading = RANKS)]
    ranks: Option<u32>,
    /// Run the live test. A set-up that fails can put all GPUs of this machine out of service
    #[arg(long, help_heading = LIVE_TEST)]
    i_own_this_machine: bool,
    /// Operations that are measured [default: all_reduce,reduce_scatter,all_gather,broadcast]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = operation, help_heading = LIVE_TEST)]
    op: Vec<Operations>,
    /// The largest size that is measured [default: 64M, --quick 1M, --full 1G]
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = LIVE_TEST)]
    max_bytes: Option<u64>,
    /// A quarter of a sample of the cases, 2 communicators, sizes up to 1 MiB
    #[arg(long, conflicts_with = "full", help_heading = LIVE_TEST)]
    quick: bool,
    /// Every case, more communicators than a switch has slots, sizes up to 1 GiB
    #[arg(long, help_heading = LIVE_TEST)]
    full: bool,
    /// Write all that was found out as JSON; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    json: Option<Target>,
}

/// Looks, tells, and tests where it may.
pub fn doctor(What::Multicast(arguments): What) -> Result<ExitCode> {
    arguments.json.as_ref().map(Target::check).transpose()?;
    let backend = Backend {
        backend: arguments.backend.clone(),
    };
    let selection = selection(&backend)?;
    if arguments.i_own_this_machine {
        // Before the driver is even opened.
        let forbidding = Machine::forbidding(&Machine::switches());
        if !forbidding.is_empty() {
            return Err(CommandError::Said(format!(
                "{} forbids multicast here, and nothing was tried; the test runs where none of these variables \
                 forbids it, once whoever set them agrees",
                forbidding.join(" and ")
            )));
        }
    }
    let effort = effort(arguments.quick, arguments.full);
    let bench = arguments.bench(effort);
    let largest = bench.max_bytes.unwrap_or_default();
    let bytes = Steps::bytes(effort, largest).map_err(CommandError::Said)?;
    let machine = machine(&selection)?;
    output::text(&machine)?;
    let steps = Steps {
        ranks: arguments.ranks.unwrap_or(machine.devices.len() as u32),
        bytes,
        comings: Steps::comings(effort),
        operations: bench.collectives.clone(),
        largest,
    };
    let absent = machine.absent.is_some();
    let mut report = Report::new(machine);
    let code = match (arguments.i_own_this_machine, absent) {
        (false, true) => ExitCode::SUCCESS,
        (true, true) => ExitCode::FAILURE,
        (false, false) => {
            output::text(format_args!("\n{steps}\n"))?;
            ExitCode::SUCCESS
        }
        (true, false) => {
            let trial = trial::run(&selection, effort, &steps, bench)?;
            let passed = trial.trouble.is_none();
            report.trial = Some(trial);
            match passed {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
    };
    if let Some(file) = &arguments.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| CommandError::Said(format!("report: {error}")))?;
        let mut written = Written::default();
        written.write_to(file, &(json + "\n"))?;
        written.tell()?;
    }
    Ok(code)
}

/// CUDA, linked or from a file.
fn selection(backend: &Backend) -> Result<Selection> {
    match backend.selection()? {
        Selection::Auto => Ok(Selection::Named(CUDA.into())),
        Selection::Named(name) if name != CUDA => Err(no_multicast(&name)),
        named => Ok(named),
    }
}

/// What is known of the machine. Where CUDA cannot start that is known of it; a file that is none is an error.
fn machine(selection: &Selection) -> Result<Machine> {
    Backend::check(selection)?;
    match select::choose(selection) {
        Ok(chosen) if chosen.name == CUDA => Ok(Machine::look(&chosen)),
        Ok(chosen) => Err(no_multicast(&chosen.name)),
        Err(error) if matches!(selection, Selection::Plugin(_)) => {
            Err(Backend::why(selection, error))
        }
        Err(error) => Ok(Machine::without_cuda(error.to_string())),
    }
}

/// What is said of any other backend.
fn no_multicast(name: &str) -> CommandError {
    CommandError::Said(format!(
        "the backend {name} has no multicast; leave --backend and SYMMEM_BACKEND out, or name {CUDA}"
    ))
}

impl Arguments {
    /// What is measured: multicast, beside every algorithm that goes by the peers' own addresses and NCCL.
    fn bench(&self, effort: Effort) -> collectives::Options {
        use symmem_bench::report::Collective as C;
        let baselines = [
            "multicast_one_shot",
            "packets",
            "packets_two_shot",
            "one_shot",
            "two_shot",
            "push",
            "pull",
            "copy_engine",
            "nccl",
            "nccl-windows",
        ];
        let largest = match effort {
            Effort::Quick => 1 << 20,
            Effort::Standard => 64 << 20,
            Effort::Full => 1 << 30,
        };
        let usual = vec![C::AllReduce, C::ReduceScatter, C::AllGather, C::Broadcast];
        collectives::Options {
            effort,
            collectives: chosen(&self.op, usual),
            max_bytes: Some(self.max_bytes.unwrap_or(largest)),
            baselines: Some(baselines.map(str::to_owned).into()),
            algorithm: Some("multicast".into()),
            ..collectives::Options::default()
        }
    }
}
