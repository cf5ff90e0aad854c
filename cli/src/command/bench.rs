//! `symmem bench`: chooses backend and number of ranks, and starts this program again once per rank. The process
//! that the user started opens no device.

use super::ag_gemm;
use super::collectives::{Arguments, TuneArguments};
use super::common::{
    Backend, Force, MEASUREMENT, RANKS, RESULTS, Ranks, RanksByName, Results, effort, ranks,
};
use super::error::{CommandError, Result};
use super::files::{DIRECTORY, Target, check_directory, check_table, default_name};
use super::gemm_reduce;
use super::nodes::RanksOfNodes;
use super::predict;
use super::processors;
use super::rms_norm;
use super::run::default_ranks;
use super::start::{command_line, start_ranks};
use super::task::{Files, Kind, Measurement, Task};
use crate::launch::NodeOptions;
use crate::output::is_kept_for_data;
use clap::{Args, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use symmem::backends::{Chosen, Selection};
use symmem_bench::report::gemm_reduce::GemmCollective;
use symmem_bench::report::summary::RunContext;
use symmem_bench::{Effort, collectives, p2p};

/// The arguments of `symmem` without a command.
#[derive(Debug, Args)]
pub struct DefaultArguments {
    #[command(flatten)]
    ranks: Ranks,
    #[command(flatten)]
    transfers: TransferSizes,
    #[command(flatten)]
    results: Results,
    /// Print all tables instead of one screen
    #[arg(long, help_heading = MEASUREMENT)]
    details: bool,
}

/// The options that limit the sizes of transfers.
#[derive(Debug, Args)]
struct TransferSizes {
    /// Measure transfers of four sizes up to 4 MiB, 3 rounds instead of 9
    #[arg(long, conflicts_with = "full", help_heading = MEASUREMENT)]
    quick: bool,
    /// Measure transfers up to 1 GiB [default: up to 64 MiB]
    #[arg(long, help_heading = MEASUREMENT)]
    full: bool,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Bandwidth and latency of one-sided transfers between pairs of ranks
    P2p(P2pArguments),
    /// Collectives, in the columns of nccl-tests
    Collectives(Box<CollectivesArguments>),
    /// All-gather + GEMM by every algorithm, checked, beside gather alone, GEMM alone and PyTorch
    #[command(name = "ag-gemm")]
    AllGatherGemm(AgGemmArguments),
    /// GEMM + reduce-scatter by every algorithm, checked, beside GEMM alone, reduce-scatter alone and NCCL
    #[command(name = "gemm-rs")]
    GemmReduceScatter(Box<GemmReduceArguments>),
    /// GEMM + all-reduce by every algorithm, checked, beside GEMM alone, all-reduce alone and NCCL
    #[command(name = "gemm-ar")]
    GemmAllReduce(Box<GemmReduceArguments>),
    /// All-reduce with residual and RMSNorm in one kernel, checked, beside the all-reduce alone
    RmsNorm(RmsNormArguments),
    /// Time that the host spends in a call
    Enqueue(EnqueueArguments),
}

/// The arguments of `symmem bench p2p`.
#[derive(Debug, Args)]
pub struct P2pArguments {
    #[command(flatten)]
    ranks: RanksOfNodes,
    #[command(flatten)]
    sizes: TransferSizes,
    /// Pairs of ranks to measure
    #[arg(long, value_enum, default_value_t, help_heading = MEASUREMENT)]
    pairs: Pairs,
    /// Measure NVSHMEM too: nvshmem, or nvshmem=PROGRAM (benches/baselines/build.sh builds it)
    /// [default: SYMMEM_NVSHMEM_BASELINE, if it is set]
    #[arg(long, value_name = "BASELINE", help_heading = MEASUREMENT)]
    baseline: Option<String>,
    #[command(flatten)]
    results: Results,
}

/// The arguments of `symmem bench collectives`.
#[derive(Debug, Args)]
pub struct CollectivesArguments {
    #[command(flatten)]
    ranks: RanksOfNodes,
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    prediction: predict::PredictArguments,
    #[command(flatten)]
    results: Results,
}

/// The arguments of `symmem bench ag-gemm`.
#[derive(Debug, Args)]
pub struct AgGemmArguments {
    #[command(flatten)]
    ranks: RanksByName,
    #[command(flatten)]
    arguments: ag_gemm::Arguments,
    #[command(flatten)]
    results: Results,
}

/// The arguments of `symmem bench gemm-rs` and `symmem bench gemm-ar`.
#[derive(Debug, Args)]
pub struct GemmReduceArguments {
    #[command(flatten)]
    ranks: RanksByName,
    #[command(flatten)]
    arguments: gemm_reduce::Arguments,
    #[command(flatten)]
    results: Results,
}

/// The arguments of `symmem bench rms-norm`.
#[derive(Debug, Args)]
pub struct RmsNormArguments {
    #[command(flatten)]
    ranks: Ranks,
    #[command(flatten)]
    arguments: rms_norm::Arguments,
    #[command(flatten)]
    results: Results,
}

/// The arguments of `symmem bench enqueue`.
#[derive(Debug, Args)]
pub struct EnqueueArguments {
    #[command(flatten)]
    backend: Backend,
    /// Number of ranks; only rank 0 is measured [default: 2]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks::<1>, help_heading = RANKS)]
    ranks: Option<u32>,
    /// Time 1,400 calls of each kind instead of 10,200
    #[arg(long, help_heading = MEASUREMENT)]
    quick: bool,
    /// Write the result as JSON; `-` for standard output
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    json: Option<Target>,
    #[command(flatten)]
    force: Force,
}

/// The arguments of `symmem tune`.
#[derive(Debug, Args)]
pub struct Tune {
    #[command(flatten)]
    ranks: Ranks,
    #[command(flatten)]
    arguments: TuneArguments,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Pairs {
    /// Each rank r with rank r xor 1, all pairs at once
    #[default]
    #[value(alias = "neighbours")]
    Neighbors,
    /// Every pair of ranks, one pair at a time, as a matrix
    All,
    /// Each rank with the rank of the same number on another node, all pairs at once, beside ucx_perftest
    Nodes,
}

impl From<Pairs> for p2p::Pairs {
    fn from(pairs: Pairs) -> Self {
        match pairs {
            Pairs::Neighbors => Self::Neighbors,
            Pairs::All => Self::All,
            Pairs::Nodes => Self::Nodes,
        }
    }
}

/// Runs `symmem` without a command: the peer-to-peer benchmark and short benchmarks of the collectives and of
/// all-gather + GEMM. Writes their files to `symmem-results/` in the current directory.
pub fn everything(asked: DefaultArguments) -> Result<ExitCode> {
    let results = default_files(asked.results.checked()?)?;
    let pairs = p2p::Options {
        effort: match asked.transfers.effort() {
            // What is not on the screen is measured by `symmem bench p2p`.
            Effort::Standard => Effort::Overview,
            asked => asked,
        },
        pairs: p2p::Pairs::Neighbors,
        baseline: find_baseline(None)?,
    };
    let measurement = Measurement::Everything(
        pairs,
        collectives::Options::short(),
        symmem_bench::ag_gemm::Options::short(),
    );
    let summary = (!asked.details).then(run_context);
    start(asked.ranks, results, measurement, summary)
}

/// Names the files that the user did not name.
fn default_files(mut results: Results) -> Result<Results> {
    if results.json.is_some() && results.html.is_some() {
        return Ok(results);
    }
    check_directory(
        Path::new(DIRECTORY),
        "change to another directory, or name files: --json FILE --html FILE",
    )?;
    let both = |name: &Path| ["json", "html"].map(|extension| named(name, extension));
    let name = default_name(EVERYTHING, |name| {
        both(name).iter().any(|file| file.exists())
    });
    let [json, html] = both(&name).map(Target::New);
    results.json.get_or_insert(json);
    results.html.get_or_insert(html);
    Ok(results)
}

/// The name of `symmem` without a command, in file names.
const EVERYTHING: &str = "symmem";

fn named(name: &Path, extension: &str) -> PathBuf {
    let mut file = name.as_os_str().to_owned();
    file.push(format!(".{extension}"));
    file.into()
}

/// Returns what the one-screen summary shows besides the measurements.
fn run_context() -> RunContext {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split_whitespace().next()?.parse().ok());
    RunContext {
        chosen: None,
        load,
        busy: processors::busy(),
        hints: vec!["all tables: symmem --details; single benchmarks: symmem bench --help".into()],
    }
}

/// Returns why `auto` chose the host backend.
fn why(selection: &Selection, chosen: &Chosen) -> Option<String> {
    let chosen_here = matches!(selection, Selection::Auto);
    (chosen_here && chosen.name == "host").then(|| "no GPU was found; see symmem info".into())
}

/// Launches the ranks of a benchmark; blocks until they have ended.
pub fn bench(what: BenchCommand) -> Result<ExitCode> {
    match what {
        BenchCommand::P2p(asked) => {
            let measurement = Measurement::PeerToPeer(p2p::Options {
                effort: asked.sizes.effort(),
                pairs: asked.pairs.into(),
                baseline: find_baseline(asked.baseline)?,
            });
            start_over_nodes(asked.ranks, asked.results.checked()?, measurement)
        }
        BenchCommand::Collectives(asked) if asked.prediction.is_asked() => {
            let asked = *asked;
            let json = asked.results.checked()?.json;
            let which = asked.arguments.options();
            predict::predict(asked.prediction, asked.ranks.ranks, which, json.as_ref())
        }
        BenchCommand::Collectives(asked) => {
            let measurement = Measurement::Collectives(asked.arguments.options());
            start_over_nodes(asked.ranks, asked.results.checked()?, measurement)
        }
        BenchCommand::AllGatherGemm(asked) => {
            let results = asked.results.checked()?;
            let files = files(
                asked.arguments.out.clone(),
                ag_gemm::NAME,
                &results,
                asked.arguments.tune.clone(),
            )?;
            if let Some(file) = &files.tune {
                check_table(file)?;
            }
            let measurement = Measurement::AllGatherGemm(asked.arguments.options()?, files);
            start(asked.ranks.into(), results, measurement, None)
        }
        BenchCommand::GemmReduceScatter(asked) => {
            start_gemm_reduce(asked, GemmCollective::ReduceScatter)
        }
        BenchCommand::GemmAllReduce(asked) => start_gemm_reduce(asked, GemmCollective::AllReduce),
        BenchCommand::RmsNorm(asked) => {
            let measurement = Measurement::RmsNorm(asked.arguments.options()?);
            start(asked.ranks, asked.results.checked()?, measurement, None)
        }
        BenchCommand::Enqueue(asked) => {
            let ranks = Ranks {
                backend: asked.backend,
                // Only one rank is measured.
                ranks: asked.ranks.or(Some(2)),
            };
            let results = Results {
                json: asked.force.checked(asked.json)?,
                ..Results::default()
            };
            let measurement = Measurement::Enqueue(effort(asked.quick, false));
            start(ranks, results, measurement, None)
        }
    }
}

fn start_gemm_reduce(
    asked: Box<GemmReduceArguments>,
    collective: GemmCollective,
) -> Result<ExitCode> {
    let results = asked.results.checked()?;
    let out = asked.arguments.out.clone();
    let tune = asked.arguments.tune.clone();
    let files = files(out, collective.command(), &results, tune)?;
    if let Some(file) = &files.tune {
        check_table(file)?;
    }
    let measurement = Measurement::GemmReduce(asked.arguments.options(collective)?, files);
    start(asked.ranks.into(), results, measurement, None)
}

/// Returns the files of a benchmark with a directory of results: `out`, or a new one with the command's name.
fn files(
    out: Option<PathBuf>,
    command: &str,
    results: &Results,
    tune: Option<PathBuf>,
) -> Result<Files> {
    let out = out.unwrap_or_else(|| default_name(command, |directory| directory.exists()));
    check_directory(&out, "name a writable directory: --out DIR")?;
    Ok(Files {
        out,
        force: results.force.force,
        tune,
    })
}

/// Launches the ranks that find the fastest algorithms; blocks until they have ended.
pub fn tune(mut asked: Tune) -> Result<ExitCode> {
    check_table(&asked.arguments.out)?;
    let options = asked.arguments.options();
    let measurement = Measurement::Tune(options);
    start(asked.ranks, Results::default(), measurement, None)
}

impl TransferSizes {
    fn effort(&self) -> Effort {
        effort(self.quick, self.full)
    }
}

/// Starts a measurement on this node, and on as many others as are asked for.
fn start_over_nodes(
    asked: RanksOfNodes,
    results: Results,
    measurement: Measurement,
) -> Result<ExitCode> {
    let node = asked.nodes.across()?;
    if asked.ranks == Some(1) && node.as_ref().is_none_or(|node| node.nodes < 2) {
        return Err(CommandError::Said(
            "a benchmark needs 2 ranks; write --ranks 2, or --nodes 2 for one on each of two nodes"
                .into(),
        ));
    }
    let ranks = Ranks {
        backend: asked.backend,
        ranks: asked.ranks,
    };
    start_on(node, ranks, results, measurement, None)
}

fn start(
    asked: Ranks,
    results: Results,
    measurement: Measurement,
    summary: Option<RunContext>,
) -> Result<ExitCode> {
    start_on(None, asked, results, measurement, summary)
}

fn start_on(
    node: Option<NodeOptions>,
    asked: Ranks,
    results: Results,
    measurement: Measurement,
    mut summary: Option<RunContext>,
) -> Result<ExitCode> {
    let selection = asked.backend.selection()?;
    let chosen = Backend::choose(&selection)?;
    if let Some(summary) = &mut summary {
        summary.chosen = why(&selection, &chosen);
    }
    let ranks = asked.ranks.unwrap_or_else(|| default_ranks(&chosen));
    let task = Task {
        backend: match selection {
            Selection::Plugin(_) => selection.to_string(),
            // Every rank uses the backend that was found here.
            _ => chosen.name,
        },
        kind: Kind::Measure(measurement),
        json: results.json,
        html: results.html,
        keeps_output_for_data: is_kept_for_data(),
        command: command_line(),
        summary,
    };
    start_ranks(&task, ranks, node, Vec::new())
}

/// Returns the NVSHMEM program: named by `asked`, built on request, or from `SYMMEM_NVSHMEM_BASELINE`.
fn find_baseline(asked: Option<String>) -> Result<Option<PathBuf>> {
    let variable = std::env::var_os("SYMMEM_NVSHMEM_BASELINE").map(PathBuf::from);
    let program = match asked.as_deref() {
        None => variable,
        Some("nvshmem") => Some(variable.map_or_else(build_baseline, Ok)?),
        Some(text) => match text.strip_prefix("nvshmem=") {
            Some(path) if !path.is_empty() => Some(path.into()),
            _ => {
                return Err(CommandError::Said(format!(
                    "`{text}` is not a baseline; write nvshmem or nvshmem=PROGRAM"
                )));
            }
        },
    };
    // Ranks run in the same directory; the absolute path is for error messages.
    program
        .map(|path| {
            path.canonicalize().map_err(|error| CommandError::System {
                what: format!("baseline {}", path.display()),
                error,
            })
        })
        .transpose()
}

fn build_baseline() -> Result<PathBuf> {
    let script = Path::new("benches/baselines/build.sh");
    let failed = |error| CommandError::System {
        what: format!(
            "{} (run this in the repository, or name the program: --baseline nvshmem=PROGRAM)",
            script.display()
        ),
        error,
    };
    let out = Path::new("target/baselines");
    let status = Command::new("sh")
        .arg(script.canonicalize().map_err(failed)?)
        .arg(out)
        .stdin(Stdio::null())
        .status()
        .map_err(failed)?;
    if !status.success() {
        return Err(CommandError::Said(format!(
            "building the NVSHMEM baseline failed ({status}); the reason is above"
        )));
    }
    Ok(out.join("nvshmem_p2p"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_that_is_not_there_or_not_known_is_an_error_that_names_it() {
        let error = |text: &str| find_baseline(Some(text.into())).unwrap_err().to_string();
        assert!(error("nvshmem=/no/such/file").contains("/no/such/file"));
        assert!(error("mpi").contains("`mpi`"));
        assert!(error("nvshmem=").contains("nvshmem=PROGRAM"));
    }
}
