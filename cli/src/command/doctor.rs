//! `symmem doctor multicast`: what is known, what the live test would do and, where the machine's owner says so,
//! the test. Its parts are ranks of their own; the process that the user started opens no device.

mod trial;

use super::collectives::{Operations, chosen, operation, size};
use super::rank::{DEADLINE, Task, with_bar};
use super::{CommandError, Common, Result, output};
use crate::doctor::{Machine, Report, Steps, come_and_go};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::time::Duration;
use symmem::Builder;
use symmem::backends::{self as select, Selection};
use symmem_bench::report::table;
use symmem_bench::{Effort, collectives, environment};

/// The only backend that has multicast.
const CUDA: &str = "cuda";

/// Bound of every step of a set-up, and of every wait beside it.
const SETUP_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Subcommand)]
pub enum What {
    /// Multicast by a switch (NVLS), which is off unless SYMMEM_MULTICAST=1 asks for it
    ///
    /// Prints what is known of this machine, what a live test would do step by step, what can go wrong and how to
    /// recover. Touches no more than `symmem info` does. --quick, --full and --json are for the test.
    Multicast(Arguments),
}

/// What the test understands besides what all commands do.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Run the live test. A set-up that fails can put all GPUs of this machine out of service
    #[arg(long)]
    i_own_this_machine: bool,
    /// Operations that are measured [default: all_reduce,reduce_scatter,all_gather,broadcast]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = operation)]
    op: Vec<Operations>,
    /// The largest size that is measured [default: 64M, --quick 1M, --full 1G]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    max_bytes: Option<u64>,
}

/// A part of the test, as ranks do it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Part {
    /// Communicators that come and go, so many.
    Comings(u32),
    /// What is measured.
    Bench(collectives::Options),
}

/// Looks, tells, and tests where it may.
pub fn doctor(common: &Common, What::Multicast(arguments): What) -> Result<ExitCode> {
    if common.html.is_some() {
        return Err(CommandError::Said(
            "doctor writes no HTML; --json writes all that was found out".into(),
        ));
    }
    if let Some(file) = &common.json {
        output::check_writable(file)?;
    }
    let selection = selection(common)?;
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
    let effort = common.effort();
    let bench = arguments.bench(effort);
    let largest = bench.max_bytes.unwrap_or_default();
    let bytes = Steps::bytes(effort, largest).map_err(CommandError::Said)?;
    let machine = machine(&selection)?;
    print!("{machine}");
    let steps = Steps {
        ranks: common.ranks.unwrap_or(machine.devices.len() as u32),
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
            println!("\n{steps}");
            ExitCode::SUCCESS
        }
        (true, false) => {
            let trial = trial::run(&selection, effort, &steps, bench);
            let passed = trial.trouble.is_none();
            report.trial = Some(trial);
            match passed {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
    };
    if let Some(file) = &common.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| CommandError::Said(format!("report: {error}")))?;
        output::write(file, &(json + "\n"))?;
    }
    Ok(code)
}

/// CUDA, linked or from a file.
fn selection(common: &Common) -> Result<Selection> {
    match common.selection()? {
        Selection::Auto => Ok(Selection::Named(CUDA.into())),
        Selection::Named(name) if name != CUDA => Err(no_multicast(&name)),
        named => Ok(named),
    }
}

/// What is known of the machine. Where CUDA cannot start that is known of it; a file that is none is an error.
fn machine(selection: &Selection) -> Result<Machine> {
    match select::choose(selection) {
        Ok(chosen) if chosen.name == CUDA => Ok(Machine::look(&chosen)),
        Ok(chosen) => Err(no_multicast(&chosen.name)),
        Err(error) if matches!(selection, Selection::Plugin(_)) => Err(error.into()),
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

/// Does this rank's part; rank 0 leaves what was found out in the task's file, as far as it came.
pub fn rank(task: &Task, part: &Part) -> Result<ExitCode> {
    let selection = Selection::parse(&task.backend)?;
    let left = match part {
        Part::Comings(count) => come(task, selection, *count)?,
        Part::Bench(options) => measure(task, selection, options)?,
    };
    if left > 0 {
        eprintln!("symmem doctor: {left} buffers were not given up by this rank");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes communicators and gives them up; how many buffers were not given up.
fn come(task: &Task, selection: Selection, count: u32) -> Result<u64> {
    let first = std::env::var("SYMMEM_RANK").is_ok_and(|rank| rank == "0");
    let mut kept = Ok(());
    let all = come_and_go(&selection, SETUP_DEADLINE, count, &mut |all| {
        if let (true, Some(coming)) = (first, all.last()) {
            println!(
                "  communicator {} of {count}: {}, up in {:.0} ms, gone in {:.0} ms",
                all.len(),
                coming.trouble().unwrap_or_else(|| "by multicast".into()),
                coming.up_ms,
                coming.down_ms
            );
            kept = keep(task, all);
        }
    })?;
    kept?;
    Ok(all.iter().map(|coming| coming.left).sum())
}

/// Measures in one communicator; how many buffers were not given up.
fn measure(task: &Task, selection: Selection, options: &collectives::Options) -> Result<u64> {
    let chosen = select::choose(&selection)?;
    let communicator = Builder::new()
        .backend(selection)
        .deadline(DEADLINE)
        .setup_deadline(SETUP_DEADLINE)
        .build()?;
    let first = communicator.rank() == 0;
    let environment = match first {
        true => environment::collect(&chosen, task.command.clone()),
        false => Default::default(),
    };
    let report = with_bar(&communicator, |progress| {
        collectives::run(&communicator, options, environment, progress)
    })?;
    if first {
        print!("{}", table::terminal(&report));
        keep(task, &report)?;
    }
    Ok(communicator.finalize()?.count() as u64)
}

/// Leaves what has been found out so far in the task's file, which is whole whenever this rank ends.
fn keep(task: &Task, found: &(impl Serialize + ?Sized)) -> Result<()> {
    let Some(file) = &task.json else {
        return Ok(());
    };
    let found = serde_json::to_string(found)
        .map_err(|error| CommandError::Said(format!("result: {error}")))?;
    let unfinished = file.with_extension("unfinished");
    let written = std::fs::write(&unfinished, found);
    written
        .and_then(|()| std::fs::rename(&unfinished, file))
        .map_err(|error| CommandError::System {
            what: format!("writing {}", file.display()),
            error,
        })
}
