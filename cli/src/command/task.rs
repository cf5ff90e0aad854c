//! What ranks are started for, as the process that starts them tells them.

#[cfg(feature = "cuda")]
use super::doctor::part::Part;
use super::files::Target;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use symmem_bench::report::summary::Circumstances;
use symmem_bench::{Effort, ag_gemm, collectives, p2p, tune};

/// Bound of every wait on a peer: much longer than any measurement, much shorter than a night.
pub(super) const DEADLINE: Duration = Duration::from_secs(120);

/// What the ranks are to do, as the launching process tells them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The backend, as [`symmem::backends::Selection::parse`] reads it.
    pub backend: String,
    /// What it is.
    pub kind: Kind,
    /// Where rank 0 writes JSON.
    pub json: Option<Target>,
    /// Where rank 0 writes the page.
    pub html: Option<Target>,
    /// Whether standard output is for a result alone, of this process or of the launching one.
    pub keeps_output_for_data: bool,
    /// The user's command, for the report.
    pub command: String,
    /// One screen is printed in place of all tables, with what this knows.
    pub summary: Option<Circumstances>,
}

/// Where files of `symmem bench ag-gemm` go.
#[derive(Debug, Serialize, Deserialize)]
pub struct Files {
    /// A directory for results.
    pub out: PathBuf,
    /// The table that gets a row for each product.
    pub tune: Option<PathBuf>,
}

/// What ranks are started for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Kind {
    /// A measurement.
    Measure(Measurement),
    /// A part of the live test of `symmem doctor multicast`.
    #[cfg(feature = "cuda")]
    Doctor(Part),
}

/// What can be measured, in one communicator.
#[derive(Debug, Serialize, Deserialize)]
pub enum Measurement {
    /// `symmem bench p2p`.
    PeerToPeer(p2p::Options),
    /// `symmem bench collectives`.
    Collectives(collectives::Options),
    /// `symmem`: all of them.
    Everything(p2p::Options, collectives::Options, ag_gemm::Options),
    /// `symmem bench ag-gemm`, and where its files go.
    AllGatherGemm(ag_gemm::Options, Files),
    /// `symmem bench enqueue`.
    Enqueue(Effort),
    /// `symmem tune`.
    Tune(tune::Options),
}
