//! What the doctor found out, for machines.

use super::coming::Coming;
use super::machine::Machine;
use serde::{Deserialize, Serialize};

/// The schema that this version writes.
pub const SCHEMA: &str = "symmem-doctor/1";

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of symmem.
    pub version: String,
    /// What is known without a test.
    pub machine: Machine,
    /// The live test, where it was asked for.
    pub trial: Option<Trial>,
}

/// The live test's parts; what comes after one that failed is not there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trial {
    /// How many ranks.
    pub ranks: u32,
    /// Why it failed; `None` if all of it passed.
    pub trouble: Option<String>,
    /// The first communicator, whose steps were told.
    pub set_up: Vec<Coming>,
    /// The conformance cases.
    pub conformance: Option<symmem_conformance::Report>,
    /// Communicators that came and went.
    pub comings: Vec<Coming>,
    /// What was measured.
    pub bench: Option<symmem_bench::report::Report>,
}

impl Report {
    /// Of a machine, without a test so far.
    pub fn new(machine: Machine) -> Self {
        Self {
            schema: SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            machine,
            trial: None,
        }
    }
}
