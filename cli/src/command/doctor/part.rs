//! The parts of the live test.

use serde::{Deserialize, Serialize};
use symmem_bench::collectives;

/// A part of the test, as ranks do it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Part {
    /// Communicators that come and go, so many.
    Comings(u32),
    /// What is measured.
    Bench(collectives::Options),
}
