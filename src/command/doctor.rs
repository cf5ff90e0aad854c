//! `symmem doctor multicast`: what is known, what the live test would do and, where the machine's owner says so,
//! the test. Its parts are ranks of their own; the process that the user started opens no device.

mod trial;

use super::collectives::{Operations, operation, size};
use super::rank::{DEADLINE, Task, with_bar};
use super::{CommandError, Common, Result, output};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::time::Duration;
use symmem::Builder;
use symmem::bench::{Effort, collectives, environment};
use symmem::doctor::{Machine, Report, Steps, come_and_go};
use symmem::report::table;
use symmem::select::{self, Selection};

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
    let machine = Machine::look(&selection);
    print!("{machine}");
    let ranks = common.ranks.unwrap_or(machine.devices.len() as u32);
    let absent = machine.absent.is_some();
    let mut report = Report::new(machine);
    let code = match (arguments.i_own_this_machine, absent) {
        (false, true) => ExitCode::SUCCESS,
        (true, true) => ExitCode::FAILURE,
        (false, false) => {
            println!("\n{}", arguments.steps(common.effort(), ranks));
            ExitCode::SUCCESS
        }
        (true, false) => {
            let trial = trial::run(common, &arguments, &selection, ranks)?;
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

/// CUDA, linked or from a file: no other backend has multicast.
fn selection(common: &Common) -> Result<Selection> {
    match common.selection()? {
        Selection::Auto => Ok(Selection::Named("cuda".into())),
        Selection::Named(name) if name != "cuda" => Err(CommandError::Said(format!(
            "the backend {name} has no multicast; leave --backend and SYMMEM_BACKEND out, or name cuda"
        ))),
        named => Ok(named),
    }
}

impl Arguments {
    /// How the parts are sized.
    fn steps(&self, effort: Effort, ranks: u32) -> Steps {
        let options = self.bench(effort);
        let largest = options.max_bytes.unwrap_or_default();
        Steps {
            ranks,
            bytes: Steps::bytes(largest),
            comings: match effort {
                Effort::Quick => 2,
                Effort::Standard => 8,
                // One more than a switch can hold would do.
                Effort::Full => symmem::doctor::SLOTS + 2,
            },
            largest,
        }
    }

    /// What is measured: multicast, beside every algorithm that goes by the peers' own addresses and NCCL.
    fn bench(&self, effort: Effort) -> collectives::Options {
        use symmem::report::Collective as C;
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
        let asked: Vec<C> = self
            .op
            .iter()
            .flat_map(|operations| operations.0.clone())
            .collect();
        collectives::Options {
            effort,
            collectives: match asked.is_empty() {
                true => vec![C::AllReduce, C::ReduceScatter, C::AllGather, C::Broadcast],
                false => asked,
            },
            max_bytes: Some(self.max_bytes.unwrap_or(largest)),
            baselines: Some(baselines.map(str::to_owned).into()),
            algorithm: Some("multicast".into()),
            ..collectives::Options::default()
        }
    }
}

/// Does this rank's part; rank 0 leaves what was found out in the task's file.
pub fn rank(task: &Task, part: &Part) -> Result<ExitCode> {
    let selection = Selection::parse(&task.backend)?;
    let (found, clean) = match part {
        Part::Comings(count) => {
            let first = std::env::var("SYMMEM_RANK").is_ok_and(|rank| rank == "0");
            let mut number = 0;
            let all = come_and_go(&selection, SETUP_DEADLINE, *count, &mut |coming| {
                number += 1;
                if first {
                    println!(
                        "  communicator {number} of {count}: {}, up in {:.0} ms, gone in {:.0} ms",
                        coming.trouble().unwrap_or_else(|| "by multicast".into()),
                        coming.up_ms,
                        coming.down_ms
                    );
                }
            })?;
            let left: u64 = all.iter().map(|coming| coming.left).sum();
            if left > 0 {
                eprintln!("symmem doctor: {left} buffers were not given up by this rank");
            }
            let clean = left == 0;
            (first.then(|| serde_json::to_string(&all)), clean)
        }
        Part::Bench(options) => {
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
            communicator.finalize()?;
            if first {
                print!("{}", table::terminal(&report));
            }
            (first.then(|| serde_json::to_string(&report)), true)
        }
    };
    if let (Some(found), Some(file)) = (found, &task.json) {
        let found = found.map_err(|error| CommandError::Said(format!("result: {error}")))?;
        std::fs::write(file, found).map_err(|error| CommandError::System {
            what: format!("writing {}", file.display()),
            error,
        })?;
    }
    Ok(match clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
