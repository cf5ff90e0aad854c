//! The doctor's findings, as JSON.

use super::bring_up::BringUp;
use super::machine::Machine;
use serde::{Deserialize, Serialize};

/// The schema that this version writes.
pub const SCHEMA: &str = "symmem-doctor/1";

/// The doctor's findings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of symmem.
    pub version: String,
    /// What is known without the live test.
    pub machine: Machine,
    /// The live test, if it ran.
    pub trial: Option<Trial>,
}

/// The results of the live test. Parts after the first failure are empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trial {
    /// Number of ranks.
    pub ranks: u32,
    /// Why the test failed; `None` if all parts passed.
    #[serde(rename = "trouble")]
    pub failure: Option<String>,
    /// The first communicator, whose setup steps were logged.
    pub set_up: Vec<BringUp>,
    /// The conformance cases.
    pub conformance: Option<symmem_conformance::Report>,
    /// Communicators that were set up and finalized one after the other.
    #[serde(rename = "comings")]
    pub bring_ups: Vec<BringUp>,
    /// The measurements.
    pub bench: Option<symmem_bench::report::Report>,
}

impl Report {
    /// Returns a report about a machine, without a live test.
    pub fn new(machine: Machine) -> Self {
        Self {
            schema: SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            machine,
            trial: None,
        }
    }
}
