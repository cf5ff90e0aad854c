//! Runs with measurements in common.

use super::published::Link;
use super::run::Run;
use super::value::Value;
use crate::report::collectives::{self, Collective, Placement};
use crate::report::schema::{Direction, Traffic};

/// Runs with measurements in common, in the given order; the others are compared with the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub(super) runs: Vec<Run>,
}

impl Comparison {
    /// Returns `A`, `B`, …; after `Z`, numbers from 27.
    pub(super) fn letter(index: usize) -> String {
        match u8::try_from(index) {
            Ok(index) if index < 26 => char::from(b'A' + index).to_string(),
            _ => (index + 1).to_string(),
        }
    }

    /// Returns the best copy engine rate of run `index` in GB/s. If the run has none, uses the first run
    /// with the same backend and device model.
    pub(super) fn engine(
        &self,
        index: usize,
        direction: Direction,
        traffic: Traffic,
    ) -> Option<f64> {
        self.engine_and_run(index, direction, traffic)
            .map(|(rate, _, _)| rate)
    }

    /// Like [`Self::engine`], with the transfer size and the run that measured the rate.
    pub(super) fn engine_and_run(
        &self,
        index: usize,
        direction: Direction,
        traffic: Traffic,
    ) -> Option<(f64, u64, usize)> {
        let run = &self.runs[index];
        let alike = |other: &Run| {
            other.device() == run.device()
                && other.report.environment.backend == run.report.environment.backend
        };
        let own = std::iter::once(index);
        let others = (0..self.runs.len()).filter(|&other| alike(&self.runs[other]));
        own.chain(others).find_map(|whose| {
            let (rate, bytes) = self.runs[whose].engine(direction, traffic)?;
            Some((rate, bytes, whose))
        })
    }

    /// Returns the rate in GB/s that the copy engine of run `index` could reach in a collective: its rate
    /// between a pair, both ways at once, scaled by the links from a device to its peers. `None` if the
    /// links are unknown, since a mesh has more links than one pair shows, and a switch does not.
    pub(super) fn collective_engine(&self, index: usize, world: u32) -> Option<f64> {
        let link = self.link(index)?;
        let pair = (Direction::ALL.into_iter())
            .filter_map(|direction| self.engine(index, direction, Traffic::BothWays))
            .reduce(f64::max)?;
        Some(pair * link.to_peers(world) / link.pair)
    }

    /// Returns the link ratings of run `index`, if known.
    pub(super) fn link(&self, index: usize) -> Option<&'static Link> {
        Link::of(self.runs[index].device())
    }

    /// Returns busbw and time of run `index` for each size of a collective, out of place.
    pub(super) fn collective(&self, index: usize, collective: Collective) -> Vec<Value> {
        let Some(section) = &self.runs[index].report.collectives else {
            return Vec::new();
        };
        let ours = (section.points.iter())
            .filter(|point| point.collective == collective && point.by == collectives::OURS);
        ours.filter_map(|point| {
            let placed = point.placed(Placement::OutOfPlace)?;
            if placed.wrong != 0 {
                return Some(Value::wrong(point.bytes, placed.wrong));
            }
            let ns = section.headline(placed)?.ns;
            let (_, busbw) = point.bandwidths(section.world, ns);
            Some(Value::right(point.bytes, busbw, ns))
        })
        .collect()
    }
}
