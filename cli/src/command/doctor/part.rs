//! The parts of the live test.

use serde::{Deserialize, Serialize};
use symmem_bench::collectives;

/// A part of the test, as a task for the ranks.
#[derive(Debug, Serialize, Deserialize)]
pub enum Part {
    /// Set up and finalize this many communicators.
    BringUps(u32),
    /// Measure the collectives.
    Bench(collectives::Options),
}
