//! The contenders of a benchmark of an operation with a GEMM, and the selector's choice among symmem's.

use super::collectives::Time;
use serde::{Deserialize, Serialize};

/// The measurements of one contender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The contender: a part alone, an algorithm of symmem, or a method of another library.
    pub by: String,
    /// Details: the transport, the algorithm that was chosen, or the heuristic of cuBLASLt or hipBLASLt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub how: String,
    /// Time of single calls, each after a barrier of all ranks, measured by events on the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Time of calls captured in a graph and replayed, with one barrier before the replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Time>,
    /// Time by DDLB's method, in nanoseconds: mean of 50 calls back to back at rank 0, after 5 untimed calls,
    /// without a barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ddlb_ns: Option<f64>,
    /// Wrong elements of C, summed over all ranks.
    #[serde(default)]
    pub wrong: u64,
    /// Checked elements of C, summed over all ranks.
    #[serde(default)]
    pub checked: u64,
    /// Why the contender was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

impl Entry {
    /// Returns the contender's main time: of graph replays, or of single calls if there are no replays; `None` if
    /// results were wrong.
    pub fn headline(&self) -> Option<Time> {
        match self.wrong {
            0 => self.graph.or(self.time),
            _ => None,
        }
    }

    /// Returns the time of this contender divided by the time of `other`; above 1, `other` is faster. Compares graph
    /// replays if both have them, otherwise single calls. `None` if results were wrong, or there are no such times.
    pub fn over(&self, other: &Self) -> Option<f64> {
        if self.wrong != 0 || other.wrong != 0 {
            return None;
        }
        match (self.graph, other.graph) {
            (Some(one), Some(other)) => Some(one.ns / other.ns),
            _ => Some(self.time?.ns / other.time?.ns),
        }
    }
}

/// The selector's choice compared with symmem's fastest algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The selector's choice.
    pub chosen: String,
    /// Symmem's fastest algorithm.
    pub fastest: String,
    /// By how much the choice is slower than the fastest, in percent of the fastest's time.
    pub behind_percent: f64,
}
