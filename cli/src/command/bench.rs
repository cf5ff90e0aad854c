//! `symmem bench`: chooses backend and ranks, and starts this program again for each rank. The
//! process that the user started never opens a device.

use super::ag_gemm;
use super::collectives::{Arguments, TuneArguments};
use super::common::Common;
use super::error::{CommandError, Result};
use super::files::{check_table, check_writable};
use super::run::default_ranks;
use super::start::start_ranks;
use super::task::{Files, Kind, Measurement, Task};
use clap::{Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use symmem::backends::{self as select, Selection};
use symmem_bench::{collectives, p2p};

#[derive(Debug, Subcommand)]
pub enum What {
    /// Bandwidth and latency of one-sided transfers between pairs of ranks
    P2p {
        /// Which ranks pair up
        #[arg(long, value_enum, default_value_t)]
        pairs: Pairs,
        /// Run NVSHMEM beside: nvshmem, or nvshmem=PROGRAM (benches/baselines/build.sh makes it)
        /// [default: SYMMEM_NVSHMEM_BASELINE, if it is set]
        #[arg(long, value_name = "BASELINE")]
        baseline: Option<String>,
    },
    /// Operations of all ranks, in nccl-tests' columns
    Collectives {
        #[command(flatten)]
        arguments: Arguments,
    },
    /// All-gather with a GEMM, by every algorithm, checked, beside its parts and PyTorch
    #[command(name = "ag-gemm")]
    AllGatherGemm {
        #[command(flatten)]
        arguments: ag_gemm::Arguments,
    },
    /// What a call costs the host
    Enqueue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Pairs {
    /// Each rank with its neighbour, rank xor 1, all pairs at once
    #[default]
    Neighbours,
    /// Every two ranks, one pair at a time, as a matrix
    All,
}

/// No command: the peer-to-peer benchmark, and short ones of collectives and of all-gather with a GEMM,
/// with their files in the current directory.
pub fn everything(mut common: Common) -> Result<ExitCode> {
    common.json.get_or_insert("symmem-p2p.json".into());
    common.html.get_or_insert("symmem-p2p.html".into());
    let pairs = p2p::Options {
        effort: common.effort(),
        every_pair: false,
        baseline: find_baseline(None)?,
    };
    start(
        common,
        Measurement::Everything(
            pairs,
            collectives::Options::short(),
            symmem_bench::ag_gemm::Options::short(),
        ),
    )
}

/// Launches the ranks of a benchmark.
pub fn bench(common: Common, what: What) -> Result<ExitCode> {
    let effort = common.effort();
    let measurement = match what {
        What::P2p { pairs, baseline } => Measurement::PeerToPeer(p2p::Options {
            effort,
            every_pair: pairs == Pairs::All,
            baseline: find_baseline(baseline)?,
        }),
        What::Collectives { arguments } => Measurement::Collectives(arguments.options(effort)),
        What::AllGatherGemm { arguments } => {
            let files = Files {
                out: arguments.out.clone(),
                tune: arguments.tune.clone(),
            };
            if let Some(file) = &files.tune {
                check_table(file)?;
            }
            Measurement::AllGatherGemm(arguments.options(effort)?, files)
        }
        What::Enqueue => Measurement::Enqueue(effort),
    };
    start(common, measurement)
}

/// Launches the ranks that find the best algorithms.
pub fn tune(common: Common, mut arguments: TuneArguments) -> Result<ExitCode> {
    check_table(&arguments.out)?;
    let options = arguments.options(common.effort());
    start(common, Measurement::Tune(options))
}

/// Starts this program once for each rank.
fn start(common: Common, measurement: Measurement) -> Result<ExitCode> {
    for file in [&common.json, &common.html].into_iter().flatten() {
        check_writable(file)?;
    }
    let selection = common.selection()?;
    let chosen = select::choose(&selection)?;
    let ranks = common.ranks.unwrap_or_else(|| match measurement {
        // Only one rank is measured.
        Measurement::Enqueue(_) => 2,
        _ => default_ranks(&chosen),
    });
    let task = Task {
        backend: match selection {
            Selection::Plugin(_) => selection.to_string(),
            // Every rank takes what was found here.
            _ => chosen.name,
        },
        kind: Kind::Measure(measurement),
        json: common.json,
        html: common.html,
        command: std::env::args().collect::<Vec<_>>().join(" "),
    };
    start_ranks(&task, ranks, Vec::new())
}

/// The baseline's program: named, built on request, or from `SYMMEM_NVSHMEM_BASELINE`.
fn find_baseline(asked: Option<String>) -> Result<Option<PathBuf>> {
    let variable = std::env::var_os("SYMMEM_NVSHMEM_BASELINE").map(PathBuf::from);
    let program = match asked.as_deref() {
        None => variable,
        Some("nvshmem") => Some(variable.map_or_else(build_baseline, Ok)?),
        Some(text) => match text.strip_prefix("nvshmem=") {
            Some(path) if !path.is_empty() => Some(path.into()),
            _ => {
                return Err(CommandError::Said(format!(
                    "no baseline `{text}`; write nvshmem or nvshmem=PROGRAM"
                )));
            }
        },
    };
    // Ranks run in the same directory, but a message with the whole path says more.
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
            "the NVSHMEM baseline could not be built ({status}); the lines above say why"
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
