//! Collectives in a report: measurements in nccl-tests' terms, and derived figures.
//!
//! Sizes, counts, algbw and busbw are defined as in nccl-tests (its `doc/PERFORMANCE.md`), so that lines
//! of both can be compared.

use super::statistics::SingleShot;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[cfg(test)]
mod fixture;
mod page;
mod plot;
#[cfg(test)]
mod tests;
mod view;

#[cfg(test)]
pub(super) use fixture::collectives as example;
pub(super) use page::{beside, section};
pub(super) use view::{baselines, views};

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the sum of all ranks' elements.
    AllReduce,
    /// Every rank gets the elements of all ranks.
    AllGather,
    /// Every rank gets its part of the sum.
    ReduceScatter,
    /// Every rank sends one part to every rank.
    AllToAll,
    /// Every rank gets the root's elements.
    Broadcast,
    /// The root gets the sum.
    Reduce,
    /// The root gets the elements of all ranks.
    Gather,
    /// Every rank gets its part of the root's elements.
    Scatter,
}

impl Collective {
    /// All operations, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Broadcast,
        Self::Reduce,
        Self::Gather,
        Self::Scatter,
    ];

    /// Returns the name in commands and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
        }
    }

    /// Returns the operation with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|collective| collective.name() == name)
    }

    /// Whether the operation reduces elements.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether the operation has a root.
    pub fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter
        )
    }

    /// Whether nccl-tests' size is that of a buffer with one part per rank, and its count that of one
    /// part.
    pub fn has_parts(self) -> bool {
        matches!(
            self,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Gather | Self::Scatter
        )
    }

    /// Returns busbw divided by algbw for `world` ranks: the share of the data that crosses a link, times
    /// the number of crossings.
    pub fn bus_factor(self, world: u32) -> f64 {
        let world = f64::from(world);
        match self {
            Self::AllReduce => 2.0 * (world - 1.0) / world,
            Self::Broadcast | Self::Reduce => 1.0,
            _ => (world - 1.0) / world,
        }
    }
}

/// All measurements of collectives in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CollectiveResults {
    /// World size.
    pub world: u32,
    /// Number of nodes; `None` for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// The baselines, available or not.
    pub baselines: Vec<BaselineState>,
    /// The measurements.
    pub points: Vec<CollectivePoint>,
    /// Barriers of all ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barrier: Option<PlacementResults>,
    /// The kernel in front of each call of a loop, if there was one; looped and replayed times include it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<BetweenCalls>,
    /// Whether symmem and FlashInfer launched all calls plainly, without programmatic dependent launch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// Figures derived from the points, for readers of the JSON; the tables compute them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// Ratios of the best baseline's time to symmem's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// One ratio per operation, size and placement.
    pub ratios: Vec<Ratio>,
    /// Geometric means by operation, and of all under `all`.
    pub means: BTreeMap<String, f64>,
}

/// A [`Comparison`] with its operation, size and placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The operation.
    pub collective: Collective,
    /// nccl-tests' size, in bytes.
    pub bytes: u64,
    /// Out of place or in place.
    pub placement: Placement,
    /// The best baseline's time divided by symmem's; above 1, symmem is faster.
    pub ratio: f64,
    /// Name of the best baseline.
    pub best: String,
}

/// The kernel between calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BetweenCalls {
    /// The kernel and its size.
    pub kernel: String,
    /// Its times without calls, in loops like theirs.
    pub alone: PlacementResults,
    /// The same in external programs, which launch the kernel themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_programs: Vec<BetweenInProgram>,
}

/// The kernel between calls in an external program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BetweenInProgram {
    /// The program: `flashinfer`.
    pub program: String,
    /// Its times without calls, in loops like theirs.
    pub alone: PlacementResults,
}

/// A requested baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineState {
    /// Its name, as in [`CollectivePoint::by`].
    pub name: String,
    /// Its version, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// One operation at one size with one library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectivePoint {
    /// The operation.
    pub collective: Collective,
    /// nccl-tests' size, in bytes: of one rank's elements for all-reduce, broadcast and reduce, otherwise
    /// of the buffer with one part per rank.
    pub bytes: u64,
    /// nccl-tests' count: elements of that buffer, or of one part of it.
    pub count: u64,
    /// Element type, by nccl-tests' name: `bfloat16`, …
    pub element: String,
    /// The root, if the operation has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<u32>,
    /// The library: [`OURS`], or the name of a baseline.
    pub by: String,
    /// The algorithm, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub algorithm: String,
    /// Blocks of the grid; 0 if there is no grid or it is unknown.
    #[serde(default)]
    pub blocks: u32,
    /// Threads per block; 0 if there is no grid or it is unknown.
    #[serde(default)]
    pub threads: u32,
    /// The algorithm of in-place calls, if it is another one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub in_place_algorithm: String,
    /// Out-of-place calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_place: Option<PlacementResults>,
    /// In-place calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<PlacementResults>,
    /// Number of rounds, interleaved with those of the other libraries.
    pub rounds: u32,
}

/// The value of [`CollectivePoint::by`] for symmem.
pub const OURS: &str = "symmem";

/// Whether source and destination are the same buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Two buffers.
    OutOfPlace,
    /// One buffer.
    InPlace,
}

impl Placement {
    /// Both, in nccl-tests' order.
    pub const ALL: [Self; 2] = [Self::OutOfPlace, Self::InPlace];

    /// Returns the text for headings.
    pub fn label(self) -> &'static str {
        match self {
            Self::OutOfPlace => "out of place",
            Self::InPlace => "in place",
        }
    }
}

/// The measurements of one placement. Times are of one call on the slowest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlacementResults {
    /// Calls back to back on a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looped: Option<Time>,
    /// Calls captured in a graph and replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Time>,
    /// Single calls, timed on the host from the call to its completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single: Option<SingleShot>,
    /// Bytes that rank 0's host sent to other nodes in each call of a loop, with the headers of frames; `None` in a world
    /// of one node, or if the kernel does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_bytes: Option<f64>,
    /// Wrong elements, guards included, summed over all ranks.
    pub wrong: u64,
    /// Checked elements.
    pub checked: u64,
}

/// A time over several rounds, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Median.
    pub ns: f64,
    /// Fastest round.
    pub min: f64,
    /// Slowest round.
    pub max: f64,
}

impl Time {
    /// Summarizes the times of all rounds, in nanoseconds; `None` without rounds, or if a time is not
    /// positive and finite.
    pub fn from_rounds(ns: &[f64]) -> Option<Self> {
        // For one byte, the rates are the reciprocals of the times.
        let timing = super::Timing::from_rounds(1, ns)?;
        Some(Self {
            ns: timing.ns,
            min: 1.0 / timing.max,
            max: 1.0 / timing.min,
        })
    }
}

impl CollectivePoint {
    /// Returns the measurements of a placement.
    pub fn placed(&self, placement: Placement) -> Option<&PlacementResults> {
        match placement {
            Placement::OutOfPlace => self.out_of_place.as_ref(),
            Placement::InPlace => self.in_place.as_ref(),
        }
    }

    /// Returns algbw and busbw in GB/s (10⁹ bytes per second) for a time in nanoseconds.
    pub fn bandwidths(&self, world: u32, ns: f64) -> (f64, f64) {
        let algbw = self.bytes as f64 / ns;
        (algbw, algbw * self.collective.bus_factor(world))
    }

    /// Whether any element was wrong.
    pub fn is_wrong(&self) -> bool {
        let wrong =
            |placed: &Option<PlacementResults>| placed.is_some_and(|placed| placed.wrong != 0);
        wrong(&self.out_of_place) || wrong(&self.in_place)
    }
}

/// A time of symmem compared with the best baseline's.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison<'a> {
    /// The best baseline's time divided by symmem's; above 1, symmem is faster.
    pub ratio: f64,
    /// Name of the best baseline.
    pub best: &'a str,
}

impl CollectiveResults {
    /// Whether the main times are those of graph replays instead of loops. False only if there are
    /// baselines and none was replayed.
    pub fn is_replayed(&self) -> bool {
        let replayed = |point: &CollectivePoint| {
            [point.out_of_place, point.in_place]
                .into_iter()
                .flatten()
                .any(|placed| placed.graph.is_some())
        };
        let baselines = || self.points.iter().filter(|point| point.by != OURS);
        baselines().next().is_none() || baselines().any(replayed)
    }

    /// Returns the main time of a placement: of graph replays, or of loops if there are no replays or
    /// [`Self::is_replayed`] is false.
    pub fn headline(&self, placed: &PlacementResults) -> Option<Time> {
        match self.is_replayed() {
            true => placed.graph.or(placed.looped),
            false => placed.looped,
        }
    }

    /// Compares symmem with the best baseline in one placement.
    ///
    /// Replays are compared with replays if both have them, otherwise loops with loops. A baseline that
    /// has only one placement counts for both, but a placement that no baseline has (NCCL has no in-place
    /// all-to-all) is not compared. Points with wrong elements are ignored.
    pub fn comparison(
        &self,
        collective: Collective,
        bytes: u64,
        placement: Placement,
    ) -> Option<Comparison<'_>> {
        let here = || {
            (self.points.iter())
                .filter(move |point| (point.collective, point.bytes) == (collective, bytes))
                .filter(|point| !point.is_wrong())
        };
        let ours = here()
            .find(|point| point.by == OURS)?
            .placed(placement)?
            .to_owned();
        // Other algorithms of symmem, or other memory, are baselines only where no other library was measured.
        let is_other = |point: &CollectivePoint| !point.by.starts_with(OURS);
        let has_others = self.points.iter().any(is_other);
        let baselines =
            || here().filter(|point| point.by != OURS && (is_other(point) || !has_others));
        if baselines().all(|point| point.placed(placement).is_none()) {
            return None;
        }
        baselines()
            .filter_map(|point| {
                let only = point.out_of_place.or(point.in_place).as_ref().copied();
                let theirs = point.placed(placement).copied().or(only)?;
                let ratio = match (theirs.graph, ours.graph) {
                    (Some(theirs), Some(ours)) => theirs.ns / ours.ns,
                    _ => theirs.looped?.ns / ours.looped?.ns,
                };
                Some(Comparison {
                    ratio,
                    best: &point.by,
                })
            })
            .min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// Returns the geometric mean of the ratios to the best baseline over all sizes and placements, of
    /// one operation or of all; `None` if there is nothing to compare.
    pub fn geometric_mean(&self, collective: Option<Collective>) -> Option<f64> {
        let mut logarithms = Vec::new();
        for point in self.points.iter().filter(|point| point.by == OURS) {
            if collective.is_none_or(|collective| collective == point.collective) {
                for placement in Placement::ALL {
                    let found = self.comparison(point.collective, point.bytes, placement);
                    logarithms.extend(found.map(|comparison| comparison.ratio.ln()));
                }
            }
        }
        let count = logarithms.len() as f64;
        (count != 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
    }

    /// Returns the ratios and their means; `None` if there is nothing to compare.
    pub fn summarize(&self) -> Option<Summary> {
        let mut summary = Summary::default();
        for point in self.points.iter().filter(|point| point.by == OURS) {
            let (collective, bytes) = (point.collective, point.bytes);
            summary
                .ratios
                .extend(Placement::ALL.into_iter().filter_map(|placement| {
                    let found = self.comparison(collective, bytes, placement)?;
                    Some(Ratio {
                        collective,
                        bytes,
                        placement,
                        ratio: found.ratio,
                        best: found.best.into(),
                    })
                }));
        }
        let all = std::iter::once(None).chain(self.measured().into_iter().map(Some));
        for collective in all {
            let name = collective.map_or("all", Collective::name);
            let mean = self.geometric_mean(collective);
            (summary.means).extend(mean.map(|mean| (name.to_owned(), mean)));
        }
        (!summary.ratios.is_empty()).then_some(summary)
    }

    /// Returns the points with wrong elements.
    pub fn wrong_points(&self) -> impl Iterator<Item = &CollectivePoint> {
        self.points.iter().filter(|point| point.is_wrong())
    }

    /// Returns the measured operations, in the order in which they are shown.
    pub fn measured(&self) -> Vec<Collective> {
        let measured = |collective: &Collective| {
            (self.points.iter()).any(|point| point.collective == *collective)
        };
        Collective::ALL.into_iter().filter(measured).collect()
    }
}
