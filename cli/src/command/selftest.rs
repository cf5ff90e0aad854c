//! `symmem selftest`: the conformance suite on this machine.

use super::common::{Backend, Force, RANKS, RESULTS, ranks};
use super::error::{CommandError, Result};
use super::files::{Target, Written};
use super::start::this_program;
use crate::output::{self, Stream, color_argument};
use indicatif::ProgressBar;
use std::process::ExitCode;
use std::time::Duration;
use symmem_conformance::collectives::SoakLoad;
use symmem_conformance::{
    Outcome, RanksPerNode, Report, SelftestOptions, Share, Subject, selftest,
};

/// A heading in the help.
const CASES: &str = "Cases";

/// The arguments of `symmem selftest`.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    backend: Backend,
    /// Number of ranks [default: in turn 1, 2 and one per GPU; 4 on the host]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks::<1>, help_heading = RANKS)]
    ranks: Option<u32>,
    /// Ranks of several nodes, on this machine: 2x2 for two nodes of two ranks, 3+1 for three and one
    #[arg(long, value_name = "NODES", conflicts_with = "ranks", help_heading = RANKS)]
    nodes: Option<RanksPerNode>,
    /// Run a quarter of the sample of cases
    #[arg(long, conflicts_with = "full", help_heading = CASES)]
    quick: bool,
    /// Run every case instead of a sample
    #[arg(long, help_heading = CASES)]
    full: bool,
    /// Run only this part of the suite
    #[arg(long, value_enum, value_name = "PART", help_heading = CASES)]
    only: Option<Part>,
    /// Run the I-th of N equal shares of the cases; 1/4 to 4/4 together are all of them
    #[arg(long, value_name = "I/N", help_heading = CASES)]
    share: Option<Share>,
    /// Run mixed collectives for this many seconds instead of the cases
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["only", "quick", "full", "share"],
        value_parser = clap::value_parser!(u64).range(1..=86400), help_heading = CASES)]
    soak: Option<u64>,
    /// Soak with the largest grids on all channels and two groups, beside a kernel that fills the device
    #[arg(long, requires = "soak", help_heading = CASES)]
    crowded: bool,
    /// Soak with collectives by NCCL or RCCL, which over nodes carries their legs
    #[arg(long, requires = "soak", conflicts_with = "crowded", help_heading = CASES)]
    nccl: bool,
    /// Write every case and its outcome as JSON; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    json: Option<Target>,
    #[command(flatten)]
    force: Force,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    /// Puts, gets, signals, barriers, host copies, refused arguments and registration
    Transfers,
    /// Collectives by every algorithm
    Collectives,
    /// All-gather + GEMM
    Products,
    /// All-reduces of rows with a residual and a norm
    Norms,
    /// GEMM + reduce-scatter and GEMM + all-reduce
    ReducedProducts,
    /// The collectives that use multicast
    Multicast,
}

impl From<Part> for Subject {
    fn from(part: Part) -> Self {
        match part {
            Part::Transfers => Self::Transfers,
            Part::Collectives => Self::Collectives,
            Part::Products => Self::Products,
            Part::Norms => Self::Norms,
            Part::ReducedProducts => Self::ReducedProducts,
            Part::Multicast => Self::Multicast,
        }
    }
}

/// Runs the suite, prints what failed and the counts, and writes the report; blocks until all cases are done.
pub fn run(asked: &Options) -> Result<ExitCode> {
    let json = asked.force.checked(asked.json.clone())?;
    let selection = asked.backend.selection()?;
    Backend::check(&selection)?;
    let program = this_program(&[symmem_conformance::RANK_ARGUMENT.into(), color_argument()])?;
    let options = SelftestOptions {
        backend: selection,
        ranks: (asked.nodes.clone().or(asked.ranks.map(RanksPerNode::from)))
            .into_iter()
            .collect(),
        full: asked.full,
        quick: asked.quick,
        only: asked.only.map(Subject::from),
        share: asked.share,
        soak: asked.soak.map(Duration::from_secs),
        load: match (asked.crowded, asked.nccl) {
            (true, _) => SoakLoad::Crowded,
            (_, true) => SoakLoad::Nccl,
            _ => SoakLoad::Mixed,
        },
        program: Some(program.file),
        arguments: program.arguments,
        ..SelftestOptions::default()
    };
    let report = with_bar(&options).map_err(|error| match error {
        CommandError::Symmem(error) => Backend::why(&options.backend, error),
        other => other,
    })?;
    let mut written = Written::default();
    if let Some(file) = &json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| CommandError::Said(format!("report: {error}")))?;
        written.write_to(file, &(text + "\n"))?;
    }
    output::text(text(&report, asked.soak))?;
    written.tell()?;
    Ok(if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the suite, with a progress bar on a terminal.
pub(super) fn with_bar(options: &SelftestOptions) -> Result<Report> {
    let bar = if Stream::Error.is_terminal() {
        ProgressBar::new(0)
    } else {
        ProgressBar::hidden()
    };
    let report = selftest(options, |done, all, _| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    Ok(report)
}

fn text(report: &Report, soak: Option<u64>) -> String {
    let mut lines = Vec::new();
    for world in &report.worlds {
        for case in &world.cases {
            if let Outcome::Failed(reason) = &case.record.outcome {
                lines.push(format!(
                    "FAILED, {} ranks: {}: {reason}",
                    world.ranks_per_node, case.name
                ));
            }
        }
        if let Some(failure) = &world.failure {
            lines.push(format!("FAILED, {} ranks: {failure}", world.ranks_per_node));
        }
    }
    let worlds: Vec<String> = (report.worlds.iter())
        .map(|world| world.ranks_per_node.clone())
        .collect();
    lines.push(format!(
        "{} in worlds of {}, {} (seed {}): {}",
        report.backend,
        worlds.join(", "),
        match (soak, report.full, report.quick) {
            (Some(seconds), ..) => format!("mixed collectives for {seconds} s in all"),
            (_, true, _) => "all cases".into(),
            (_, _, true) => "a quarter of a sample".into(),
            _ => "a sample".into(),
        },
        report.seed,
        report.totals
    ));
    lines.join("\n") + "\n"
}
