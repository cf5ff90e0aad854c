//! What the command line offers, and who does it.

mod ag_gemm;
mod bench;
mod collectives;
mod compare;
#[cfg(feature = "cuda")]
mod doctor;
mod info;
mod output;
mod rank;
mod run;
mod selftest;

use clap::{Args, Parser, Subcommand};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use symmem::backends::Selection;
use symmem_bench::report::compare::CompareError;
use symmem_bench::{BenchError, Effort};

/// Symmetric memory across the GPUs of a node.
///
/// Without a command: one rank per GPU, or two on the host, run the peer-to-peer benchmark and short
/// ones of collectives and of all-gather with a GEMM; it prints tables and writes symmem-p2p.json and symmem-p2p.html.
#[derive(Debug, Parser)]
#[command(name = "symmem", version)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What several commands understand.
#[derive(Debug, Default, Args)]
pub struct Common {
    /// auto, host, cuda, hip or path:FILE [default: SYMMEM_BACKEND, else auto]
    #[arg(long, global = true, value_name = "BACKEND")]
    backend: Option<String>,
    /// How many ranks [default: one per GPU, at least 2]
    #[arg(short = 'n', long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Write the result as JSON
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as one self-contained HTML page
    #[arg(long, global = true, value_name = "FILE")]
    html: Option<PathBuf>,
    /// A handful of sizes, few rounds
    #[arg(long, global = true, conflicts_with = "full")]
    quick: bool,
    /// Sizes up to 1 GiB
    #[arg(long, global = true)]
    full: bool,
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

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// What the library failed with.
    #[error(transparent)]
    Symmem(#[from] symmem::Error),
    /// What a benchmark failed with.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// Why reports cannot be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// A file or process.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The operating system's answer.
        error: std::io::Error,
    },
    /// A tuning that not all ways take part in.
    #[error(
        "--tune stores the fastest of all of ours, and {0} leaves some out: leave that option out, or say \
         --transport all"
    )]
    TunePart(String),
    /// Anything that needs no more than a sentence.
    #[error("{0}")]
    Said(String),
}

type Result<T> = std::result::Result<T, CommandError>;

impl Arguments {
    /// Does what was asked for.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn execute(self) -> Result<ExitCode> {
        let common = self.common;
        match self.command {
            None => bench::everything(common),
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

impl Common {
    fn selection(&self) -> Result<Selection> {
        Ok(match &self.backend {
            Some(text) => Selection::parse(text)?,
            None => Selection::from_environment()?,
        })
    }

    fn effort(&self) -> Effort {
        match (self.quick, self.full) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Full,
            _ => Effort::Standard,
        }
    }
}

/// Sends log lines to standard error: warnings, or what `SYMMEM_LOG` asks for (`debug`,
/// `symmem_core=trace`, …).
pub fn logging() {
    use tracing_subscriber::EnvFilter;
    let filter = std::env::var("SYMMEM_LOG").unwrap_or_default();
    let filter = EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
        .parse_lossy(filter);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
