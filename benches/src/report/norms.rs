//! All-reduces of rows with a residual and RMSNorm: the results. `view` draws their tables.

use super::collectives::{BaselineState, PlacementResults, Time};
use serde::{Deserialize, Serialize};

mod view;

pub(super) use view::{section, views};

/// The fused call, in [`NormEntry::by`].
pub const FUSED: &str = "symmem";
/// symmem's all-reduce of the same rows alone, in [`NormEntry::by`].
pub const ALL_REDUCE: &str = "symmem all_reduce";

/// A type of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowElement {
    /// bf16.
    #[serde(rename = "bfloat16")]
    Bf16,
    /// f16.
    #[serde(rename = "float16")]
    F16,
    /// f32.
    #[serde(rename = "float")]
    F32,
}

impl RowElement {
    /// Returns the bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }
}

/// The type of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormOutput {
    /// The type of the rows.
    Same,
    /// fp8 (E4M3) with one scale.
    Tensor,
    /// fp8 with a scale for each row.
    Row,
    /// fp8 with a scale for each 128 elements.
    Group,
}

impl NormOutput {
    /// Elements of a group.
    pub const GROUP: usize = 128;

    fn label(self) -> &'static str {
        match self {
            Self::Same => "results of the same type",
            Self::Tensor => "fp8 results, one scale",
            Self::Row => "fp8 results, a scale for each row",
            Self::Group => "fp8 results, a scale for each 128 elements",
        }
    }
}

/// The measurements of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NormResults {
    /// World size, in ranks.
    pub world: u32,
    /// NCCL or RCCL, if it was asked for.
    #[serde(default)]
    pub baselines: Vec<BaselineState>,
    /// One point for each output, row length and number of rows.
    pub points: Vec<NormPoint>,
}

/// One call with every contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormPoint {
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub hidden: usize,
    /// Type of the rows.
    pub element: RowElement,
    /// Type of the results.
    pub output: NormOutput,
    /// Whether a residual is added.
    pub residual: bool,
    /// Whether each rank has its own rows of the residual only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sharded: bool,
    /// The contenders.
    pub entries: Vec<NormEntry>,
    /// Number of rounds; 0 if nothing was timed.
    pub rounds: u32,
}

/// The measurements of one contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormEntry {
    /// [`FUSED`], [`ALL_REDUCE`], or `nccl` or `rccl` for the all-reduce of that library alone.
    pub by: String,
    /// Why it did not make the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// The times, and the counts of wrong and of checked elements. Only the fused call is checked.
    #[serde(flatten)]
    pub results: PlacementResults,
}

impl NormPoint {
    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.rows * self.hidden
    }

    /// Returns the rows of the residual that a rank of `world` has.
    pub(crate) fn residual_of(&self, rank: usize, world: usize) -> std::ops::Range<usize> {
        if !self.sharded {
            return 0..self.rows;
        }
        let each = self.rows.div_ceil(world);
        (rank * each).min(self.rows)..((rank + 1) * each).min(self.rows)
    }

    /// Returns the scales that a row has, or shares with others.
    pub(crate) fn scales_of_row(&self) -> usize {
        match self.output {
            NormOutput::Group => self.hidden / NormOutput::GROUP,
            _ => 1,
        }
    }

    /// Returns the number of scales, 1 if the results have none.
    pub(crate) fn scales(&self) -> usize {
        match self.output {
            NormOutput::Same | NormOutput::Tensor => 1,
            NormOutput::Row | NormOutput::Group => self.rows * self.scales_of_row(),
        }
    }

    /// Returns a contender's measurements.
    pub fn entry(&self, by: &str) -> Option<&NormEntry> {
        self.entries.iter().find(|entry| entry.by == by)
    }

    /// Returns the wrong and the checked elements.
    fn counts(&self) -> (u64, u64) {
        let results = self.entries.iter().map(|entry| &entry.results);
        results.fold((0, 0), |(wrong, checked), one| {
            (wrong + one.wrong, checked + one.checked)
        })
    }
}

impl NormEntry {
    /// Returns the time of a graph replay, or of calls back to back if there are no replays.
    fn time(&self) -> Option<Time> {
        self.results.graph.or(self.results.looped)
    }
}

impl NormResults {
    /// Returns the points with wrong elements.
    pub fn wrong(&self) -> impl Iterator<Item = &NormPoint> {
        self.points.iter().filter(|point| point.counts().0 != 0)
    }

    /// The other contender that was measured: NCCL or RCCL.
    fn vendor(&self) -> Option<&str> {
        let entries = self.points.iter().flat_map(|point| &point.entries);
        let mut others = entries.filter(|entry| ![FUSED, ALL_REDUCE].contains(&&*entry.by));
        others.next().map(|entry| &*entry.by)
    }
}
