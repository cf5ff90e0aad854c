//! `symmem doctor multicast`: describes the machine and the live test and, if the machine's owner asks for it, runs
//! the test. Each part of the test runs in ranks of its own; the process that the user started opens no device.

pub mod part;
mod ranks;
mod trial;

pub use ranks::rank;

use super::collectives::{Operations, chosen, operation, size};
use super::common::{Backend, Force, RANKS, RESULTS, effort, ranks};
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
pub enum DoctorCommand {
    /// Check NVLS multicast, which symmem uses only with SYMMEM_MULTICAST=1
    ///
    /// Describes this machine, each step of the live test, what can go wrong and how to recover. Without
    /// --i-own-this-machine it touches no more than `symmem info` does.
    Multicast(Arguments),
}

/// A heading in the help.
const LIVE_TEST: &str = "Live test";

/// The arguments of `symmem doctor multicast`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Backend: cuda, or path:FILE for it as a plugin [default: SYMMEM_BACKEND, else cuda]
    #[arg(long, value_name = "BACKEND", help_heading = RANKS)]
    backend: Option<String>,
    /// Number of ranks of the live test, one GPU each [default: one per GPU]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks::<2>, help_heading = RANKS)]
    ranks: Option<u32>,
    /// Run the live test. A failed setup can put all GPUs of this machine out of service
    #[arg(long, help_heading = LIVE_TEST)]
    i_own_this_machine: bool,
    /// Operations to measure [default: all_reduce,reduce_scatter,all_gather,broadcast]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = operation, help_heading = LIVE_TEST)]
    op: Vec<Operations>,
    /// Largest size to measure [default: 64M, --quick 1M, --full 1G]
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = LIVE_TEST)]
    max_bytes: Option<u64>,
    /// Run a quarter of the sample of conformance cases, set up 2 communicators, measure sizes up to 1 MiB
    #[arg(long, conflicts_with = "full", help_heading = LIVE_TEST)]
    quick: bool,
    /// Run every case, set up more communicators than the switch has multicast slots, measure sizes up to 1 GiB
    #[arg(long, help_heading = LIVE_TEST)]
    full: bool,
    /// Write all findings as JSON; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    json: Option<Target>,
    #[command(flatten)]
    force: Force,
}

/// Describes the machine and the test, and runs the test with `--i-own-this-machine`; blocks until it has ended.
pub fn doctor(DoctorCommand::Multicast(arguments): DoctorCommand) -> Result<ExitCode> {
    let json = arguments.force.checked(arguments.json.clone())?;
    let backend = Backend {
        backend: arguments.backend.clone(),
    };
    let selection = selection(&backend)?;
    if arguments.i_own_this_machine {
        // Checked before the driver is opened.
        let forbidding = Machine::forbidding(&Machine::switches());
        if !forbidding.is_empty() {
            return Err(CommandError::Said(format!(
                "{} forbids multicast, so nothing was tested; unset it if the administrator who set it agrees",
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
        bring_ups: Steps::bring_ups(effort),
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
            let passed = trial.failure.is_none();
            report.trial = Some(trial);
            match passed {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
    };
    if let Some(file) = &json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| CommandError::Said(format!("report: {error}")))?;
        let mut written = Written::default();
        written.write_to(file, &(text + "\n"))?;
        written.tell()?;
    }
    Ok(code)
}

/// Returns the selection of CUDA, linked or as a plugin file.
fn selection(backend: &Backend) -> Result<Selection> {
    match backend.selection()? {
        Selection::Auto => Ok(Selection::Named(CUDA.into())),
        Selection::Named(name) if name != CUDA => Err(no_multicast(&name)),
        named => Ok(named),
    }
}

/// Describes the machine. A linked CUDA backend that cannot start is part of the description; a plugin file that
/// cannot be loaded is an error.
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

/// Returns the error for any other backend.
fn no_multicast(name: &str) -> CommandError {
    CommandError::Said(format!(
        "the backend {name} has no multicast; leave --backend and SYMMEM_BACKEND out, or name {CUDA}"
    ))
}

impl Arguments {
    /// Returns what to measure: multicast, compared with symmem's peer-to-peer algorithms and NCCL.
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
            Effort::Overview | Effort::Standard => 64 << 20,
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
