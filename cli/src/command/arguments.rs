//! The commands of `symmem`, and the function that runs each.

#[cfg(feature = "cuda")]
use super::doctor;
use super::error::Result;
use super::{bench, compare, completions, info, rank, run, selftest};
use crate::output::Color;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Symmetric memory across the GPUs of a node.
///
/// Without a command, symmem starts one rank per GPU, but at least two, and runs the peer-to-peer benchmark and short
/// benchmarks of the collectives and of all-gather + GEMM. It prints one screen (all tables with --details) and
/// writes a JSON file and an HTML page to symmem-results/ in the current directory, with the time in their names.
#[derive(Debug, Parser)]
#[command(name = "symmem", version)]
pub struct Arguments {
    #[command(flatten)]
    everything: bench::DefaultArguments,
    /// When to color help, errors and log lines
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: Color,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List backends, devices, links and libraries; for a backend that cannot start, say why
    Info(info::Options),
    /// Start a program once per rank: symmem run -n N -- PROGRAM ARGUMENTS
    Run(run::Options),
    /// Benchmark transfers, collectives, GEMMs with a collective, or the time that the host spends in a call
    Bench {
        #[command(subcommand)]
        what: bench::BenchCommand,
    },
    /// Find the fastest algorithms for collectives on this machine and write a tuning table for SYMMEM_TUNING;
    /// for GEMMs use --tune of `bench ag-gemm`, `gemm-rs` and `gemm-ar`
    Tune(bench::Tune),
    /// Compare reports of different machines side by side: symmem compare a.json b.json ...
    Compare(compare::Options),
    /// Run a sample of the conformance suite; --full runs every case, --quick a quarter of the sample
    Selftest(selftest::Options),
    /// Print a shell completion script: symmem completions bash
    Completions(completions::Options),
    /// Check whether a risky feature works on this machine
    #[cfg(feature = "cuda")]
    Doctor {
        #[command(subcommand)]
        what: doctor::DoctorCommand,
    },
    /// One rank of the conformance suite
    #[command(hide = true, name = symmem_conformance::RANK_ARGUMENT)]
    RankSelftest,
    /// The process that starts the ranks of a command
    #[command(hide = true, name = crate::launch::SUPERVISOR_ARGUMENT)]
    Supervise,
    /// One rank that another command started
    #[command(hide = true)]
    Rank {
        /// The task, as JSON
        task: String,
    },
}

impl Arguments {
    /// Runs the command; blocks until it has ended.
    ///
    /// # Errors
    /// One sentence for the user.
    pub fn execute(self) -> Result<ExitCode> {
        match self.command {
            None => bench::everything(self.everything),
            Some(Command::Info(options)) => info::info(&options),
            Some(Command::Run(options)) => run::run(options),
            Some(Command::Bench { what }) => bench::bench(what),
            Some(Command::Tune(options)) => bench::tune(options),
            Some(Command::Compare(options)) => compare::compare(&options),
            Some(Command::Selftest(options)) => selftest::run(&options),
            Some(Command::Completions(options)) => completions::print(&options, &Self::command()),
            #[cfg(feature = "cuda")]
            Some(Command::Doctor { what }) => doctor::doctor(what),
            Some(Command::RankSelftest) => Ok(symmem_conformance::rank_main()),
            Some(Command::Supervise) => run::supervise(),
            Some(Command::Rank { task }) => rank::rank(&task),
        }
    }
}
