//! The outcome of a case.

use serde::{Deserialize, Serialize};

/// The outcome of a case, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub enum Outcome {
    /// Every rank found what it expected.
    Passed,
    /// The device does not support the case; holds the reason.
    Skipped(String),
    /// A rank found wrong data, or a call failed; names the rank and the finding.
    Failed(String),
}
