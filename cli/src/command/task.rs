//! The task that the launching process hands to its ranks, as JSON.

#[cfg(feature = "cuda")]
use super::doctor::part::Part;
use super::files::Target;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use symmem_bench::report::summary::RunContext;
use symmem_bench::{Effort, ag_gemm, collectives, gemm_reduce, p2p, rms_norm, tune};

/// Deadline of every wait on a peer: much longer than any measurement, much shorter than a night.
pub(super) const DEADLINE: Duration = Duration::from_secs(120);

/// The task of the ranks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The backend, as [`symmem::backends::Selection::parse`] reads it.
    pub backend: String,
    /// The measurement or test.
    pub kind: Kind,
    /// The JSON file that rank 0 writes.
    pub json: Option<Target>,
    /// The HTML page that rank 0 writes.
    pub html: Option<Target>,
    /// Whether standard output is reserved for a result of this process or of the launching one.
    pub keeps_output_for_data: bool,
    /// The user's command, for the report.
    pub command: String,
    /// What the one-screen summary shows besides the measurements; `None` prints all tables instead.
    pub summary: Option<RunContext>,
}

/// The files that `symmem bench ag-gemm`, `gemm-rs` and `gemm-ar` write.
#[derive(Debug, Serialize, Deserialize)]
pub struct Files {
    /// The directory for results.
    pub out: PathBuf,
    /// Whether results replace files of the same name.
    pub force: bool,
    /// The tuning table that gets a row per shape; only of `ag-gemm`.
    pub tune: Option<PathBuf>,
}

/// The kinds of tasks.
#[derive(Debug, Serialize, Deserialize)]
pub enum Kind {
    /// A measurement.
    Measure(Measurement),
    /// A part of the live test of `symmem doctor multicast`.
    #[cfg(feature = "cuda")]
    Doctor(Part),
}

/// A measurement, made in one communicator.
#[derive(Debug, Serialize, Deserialize)]
pub enum Measurement {
    /// `symmem bench p2p`.
    PeerToPeer(p2p::Options),
    /// `symmem bench collectives`.
    Collectives(collectives::Options),
    /// `symmem` without a command.
    Everything(p2p::Options, collectives::Options, ag_gemm::Options),
    /// `symmem bench ag-gemm`, and the files that it writes.
    AllGatherGemm(ag_gemm::Options, Files),
    /// `symmem bench gemm-rs` or `symmem bench gemm-ar`, and the files that it writes.
    GemmReduce(gemm_reduce::Options, Files),
    /// `symmem bench rms-norm`.
    RmsNorm(rms_norm::Options),
    /// `symmem bench enqueue`.
    Enqueue(Effort),
    /// `symmem tune`.
    Tune(tune::Options),
}
