//! What the command line offers, and who does it.

use super::common::Common;
#[cfg(feature = "cuda")]
use super::doctor;
use super::error::Result;
use super::{bench, collectives, compare, info, rank, run, selftest};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
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
    common: Common,
    /// Print all tables in place of one screen
    #[arg(long)]
    details: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Backends and why each can or cannot start, devices, links, libraries
    Info,
    /// Start a program once for each rank: symmem run -n N -- program arguments
    Run {
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<std::ffi::OsString>,
        /// Do not put the rank before each line of output
        #[arg(long)]
        plain: bool,
    },
    /// Measure
    Bench {
        #[command(subcommand)]
        what: bench::What,
    },
    /// Measure which algorithm is best for collectives here, and write the table that SYMMEM_TUNING names;
    /// `bench ag-gemm --tune` does so for products
    Tune {
        #[command(flatten)]
        arguments: collectives::TuneArguments,
    },
    /// Lay reports of different machines side by side: symmem compare a.json b.json ...
    Compare {
        /// What `symmem bench` wrote with --json, or `symmem` by itself; ratios are to the first
        #[arg(required = true, num_args = 2.., value_name = "REPORT")]
        reports: Vec<PathBuf>,
    },
    /// Run the conformance suite: --full for all cases in place of a sample, --quick for fewer
    Selftest(selftest::Options),
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
        let common = self.common;
        match self.command {
            None => bench::everything(common, self.details),
            Some(Command::Info) => info::info(&common),
            Some(Command::Run { program, plain }) => run::run(&common, program, plain),
            Some(Command::Bench { what }) => bench::bench(common, what),
            Some(Command::Tune { arguments }) => bench::tune(common, arguments),
            Some(Command::Compare { reports }) => compare::compare(&common, &reports),
            Some(Command::Selftest(options)) => selftest::run(&common, &options),
            #[cfg(feature = "cuda")]
            Some(Command::Doctor { what }) => doctor::doctor(&common, what),
            Some(Command::RankSelftest) => Ok(symmem_conformance::rank_main()),
            Some(Command::Rank { task }) => rank::rank(&task),
        }
    }
}
