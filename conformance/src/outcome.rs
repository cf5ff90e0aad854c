//! What became of a case.

use serde::{Deserialize, Serialize};

/// What became of a case, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub enum Outcome {
    /// Every rank saw what it should.
    Passed,
    /// The device cannot do this; why.
    Skipped(String),
    /// A rank saw something else, or a call failed; which and what.
    Failed(String),
}
