//! What the command line offers, and who does it.

#[cfg(feature = "cuda")]
use super::doctor;
use super::error::Result;
use super::{bench, compare, completions, info, rank, run, selftest};
use crate::output::Color;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Symmetric memory across the GPUs of a node.
///
/// Without a command: one rank per GPU, or two on the host, run the peer-to-peer benchmark and short
/// ones of collectives and of all-gather with a GEMM; it prints one screen (all tables with --details) and writes
/// symmem-p2p.json and symmem-p2p.html.
#[derive(Debug, Parser)]
#[command(name = "symmem", version)]
pub struct Arguments {
    #[command(flatten)]
    everything: bench::Everything,
    /// Colours in help, errors and log lines
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: Color,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Backends and why each can or cannot start, devices, links, libraries
    Info(info::Options),
    /// Start a program once for each rank: symmem run -n N -- program arguments
    Run(run::Options),
    /// Measure
    Bench {
        #[command(subcommand)]
        what: bench::What,
    },
    /// Measure which algorithm is best for collectives here, and write the table that SYMMEM_TUNING names;
    /// `bench ag-gemm --tune` does so for products
    Tune(bench::Tune),
    /// Lay reports of different machines side by side: symmem compare a.json b.json ...
    Compare(compare::Options),
    /// Run the conformance suite: --full for all cases in place of a sample, --quick for fewer
    Selftest(selftest::Options),
    /// Print a script that completes this command's words: symmem completions bash
    Completions(completions::Options),
    /// What this machine's owner wants to know before something risky is used
    #[cfg(feature = "cuda")]
    Doctor {
        #[command(subcommand)]
        what: doctor::What,
    },
    /// One rank of the conformance suite
    #[command(hide = true, name = symmem_conformance::RANK_ARGUMENT)]
    RankSelftest,
    /// One rank of a job that another command started
    #[command(hide = true)]
    Rank {
        /// What to do, as the launching command wrote it
        task: String,
    },
}

impl Arguments {
    /// Does what was asked for.
    ///
    /// # Errors
    /// A sentence for the user.
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
            Some(Command::Rank { task }) => rank::rank(&task),
        }
    }
}
