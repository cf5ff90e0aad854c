//! Collectives in a report: what was measured, in nccl-tests' terms, and what follows from it.
//!
//! Sizes, counts, algbw and busbw are those of nccl-tests (`doc/PERFORMANCE.md` there), so that a line
//! of ours can be held against a line of theirs.

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

/// A collective operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the sum of all.
    AllReduce,
    /// Every rank gets the elements of all.
    AllGather,
    /// Every rank gets its part of the sum.
    ReduceScatter,
    /// A part from each to each.
    AllToAll,
    /// The root's elements to all.
    Broadcast,
    /// The sum to the root.
    Reduce,
    /// The elements of all to the root.
    Gather,
    /// A part of the root's elements to each.
    Scatter,
}

impl Collective {
    /// Every operation, in the order they are shown.
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

    /// Its name in commands and JSON.
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

    /// The operation of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|collective| collective.name() == name)
    }

    /// Whether elements are reduced, and not only moved.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether one rank is the root.
    pub fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter
        )
    }

    /// Whether nccl-tests' size is that of a buffer with a part for each rank, whose count is that of
    /// one part.
    pub fn has_parts(self) -> bool {
        matches!(
            self,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Gather | Self::Scatter
        )
    }

    /// busbw over algbw among `world` ranks: the share of the data that has to cross a link, times how
    /// often.
    pub fn bus_factor(self, world: u32) -> f64 {
        let world = f64::from(world);
        match self {
            Self::AllReduce => 2.0 * (world - 1.0) / world,
            Self::Broadcast | Self::Reduce => 1.0,
            _ => (world - 1.0) / world,
        }
    }
}

/// Everything measured of collectives in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Collectives {
    /// Ranks that took part.
    pub world: u32,
    /// What was beside us, and what could not be.
    pub baselines: Vec<BaselineState>,
    /// What was measured.
    pub points: Vec<CollectivePoint>,
    /// Barriers of all ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barrier: Option<Placed>,
    /// What follows from the points, for readers of JSON; the tables compute it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// Ours against the best baseline, everywhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// At each size and placement.
    pub ratios: Vec<Ratio>,
    /// Geometric means by operation, and of `all`.
    pub means: BTreeMap<String, f64>,
}

/// A [`Comparison`] and where it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// What was done.
    pub collective: Collective,
    /// nccl-tests' size.
    pub bytes: u64,
    /// From buffer to buffer or within one.
    pub placement: Placement,
    /// The best baseline's time over ours: above 1 ours is faster.
    pub ratio: f64,
    /// The baseline.
    pub best: String,
}

/// A baseline that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineState {
    /// Its name, as its points have it.
    pub name: String,
    /// Its version, where it took part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// One operation at one size by one library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectivePoint {
    /// What was done.
    pub collective: Collective,
    /// nccl-tests' size: of an all-reduce, broadcast and reduce one rank's elements, else the buffer
    /// that holds a part for each rank.
    pub bytes: u64,
    /// nccl-tests' count: elements of that buffer, or of one part of it.
    pub count: u64,
    /// The elements, by nccl-tests' name: `bfloat16`, …
    pub element: String,
    /// The root, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<u32>,
    /// By whom: [`OURS`], or the name of a baseline.
    pub by: String,
    /// The algorithm, where it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub algorithm: String,
    /// Blocks of its grid; 0 where there is none or it is not known.
    #[serde(default)]
    pub blocks: u32,
    /// Threads of a block, likewise.
    #[serde(default)]
    pub threads: u32,
    /// The algorithm in place, where it is another one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub in_place_algorithm: String,
    /// From one buffer to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_place: Option<Placed>,
    /// Within one buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<Placed>,
    /// Rounds of measuring, interleaved with the other libraries'.
    pub rounds: u32,
}

/// Our own points are by this name.
pub const OURS: &str = "symmem";

/// Where the result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// From one buffer to another.
    OutOfPlace,
    /// Within one buffer.
    InPlace,
}

impl Placement {
    /// Both, in nccl-tests' order.
    pub const ALL: [Self; 2] = [Self::OutOfPlace, Self::InPlace];

    /// How it reads in a heading.
    pub fn label(self) -> &'static str {
        match self {
            Self::OutOfPlace => "out of place",
            Self::InPlace => "in place",
        }
    }
}

/// What was measured in one placement. Times are of one call, of the slowest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// Calls back to back on a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looped: Option<Time>,
    /// Calls captured in a graph and replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Time>,
    /// One call at a time, from the call to its end on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single: Option<SingleShot>,
    /// Elements that were wrong, at all ranks together, guards included.
    pub wrong: u64,
    /// Elements that were looked at.
    pub checked: u64,
}

/// A time over rounds, nanoseconds.
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
    /// From the time of each round; `None` without rounds or if one is not a positive, finite time.
    pub fn from_rounds(ns: &[f64]) -> Option<Self> {
        // Rates of a transfer of one byte are the reciprocals.
        let timing = super::Timing::from_rounds(1, ns)?;
        Some(Self {
            ns: timing.ns,
            min: 1.0 / timing.max,
            max: 1.0 / timing.min,
        })
    }
}

impl CollectivePoint {
    /// What was measured in a placement.
    pub fn placed(&self, placement: Placement) -> Option<&Placed> {
        match placement {
            Placement::OutOfPlace => self.out_of_place.as_ref(),
            Placement::InPlace => self.in_place.as_ref(),
        }
    }

    /// algbw and busbw at a time, GB/s (10⁹ bytes a second).
    pub fn bandwidths(&self, world: u32, ns: f64) -> (f64, f64) {
        let algbw = self.bytes as f64 / ns;
        (algbw, algbw * self.collective.bus_factor(world))
    }

    /// Whether anything was wrong.
    pub fn is_wrong(&self) -> bool {
        let wrong = |placed: &Option<Placed>| placed.is_some_and(|placed| placed.wrong != 0);
        wrong(&self.out_of_place) || wrong(&self.in_place)
    }
}

/// A time of ours beside the best baseline's.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison<'a> {
    /// The best baseline's time over ours: above 1 ours is faster.
    pub ratio: f64,
    /// The baseline.
    pub best: &'a str,
}

impl Collectives {
    /// Whether replays stand for what was measured, in place of loops: everywhere but beside baselines
    /// none of which can be replayed.
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

    /// The time that stands for a placement: of the replay, or where there is none looped.
    pub fn headline(&self, placed: &Placed) -> Option<Time> {
        match self.is_replayed() {
            true => placed.graph.or(placed.looped),
            false => placed.looped,
        }
    }

    /// Ours against the best baseline, in one placement.
    ///
    /// Replay is compared with replay where the baseline was replayed, else looped with looped. A
    /// baseline that knows only one placement stands in both, but a placement that no baseline knows
    /// (NCCL has no all-to-all in place) is not compared. What was wrong takes no part.
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
        let baselines = || here().filter(|point| point.by != OURS);
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

    /// Geometric mean of the ratios to the best baseline over all sizes and placements, of one
    /// operation or of all; `None` if there is nothing to compare.
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

    /// The ratios and their means; `None` if there is nothing to compare.
    pub fn summarise(&self) -> Option<Summary> {
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

    /// Points with wrong elements.
    pub fn wrong_points(&self) -> impl Iterator<Item = &CollectivePoint> {
        self.points.iter().filter(|point| point.is_wrong())
    }

    /// The operations that were measured, in the order they are shown.
    pub fn measured(&self) -> Vec<Collective> {
        let measured = |collective: &Collective| {
            (self.points.iter()).any(|point| point.collective == *collective)
        };
        Collective::ALL.into_iter().filter(measured).collect()
    }
}
