//! Runs that have something in common.

use super::published::Link;
use super::run::Run;
use super::value::Value;
use crate::report::collectives::{self, Collective, Placement};
use crate::report::schema::{Direction, Traffic};

/// Runs that have something in common, in the order in which they were given: the first is what the
/// others are held against.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub(super) runs: Vec<Run>,
}

impl Comparison {
    /// `A`, `B`, …; after `Z` numbers.
    pub(super) fn letter(index: usize) -> String {
        match u8::try_from(index) {
            Ok(index) if index < 26 => char::from(b'A' + index).to_string(),
            _ => (index + 1).to_string(),
        }
    }

    /// The copy engine's best rate of run `index`, GB/s: its own, or where it measured none that of the
    /// first run with the same backend and model of device.
    pub(super) fn engine(
        &self,
        index: usize,
        direction: Direction,
        traffic: Traffic,
    ) -> Option<f64> {
        self.engine_and_run(index, direction, traffic)
            .map(|(rate, _, _)| rate)
    }

    /// As [`Self::engine`], with the size and whose figure it is.
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

    /// What run `index`'s copy engine would give a collective, GB/s: its rate between a pair, both ways at
    /// once, times the links that the ranks have between them. `None` where the links are not known, since
    /// a pair's rate says all there is behind a switch and a part of it in a mesh.
    pub(super) fn collective_engine(&self, index: usize, world: u32) -> Option<f64> {
        let link = self.link(index)?;
        let pair = (Direction::ALL.into_iter())
            .filter_map(|direction| self.engine(index, direction, Traffic::BothWays))
            .reduce(f64::max)?;
        Some(pair * link.to_peers(world) / link.pair)
    }

    /// How the links of run `index` are rated, where that is known.
    pub(super) fn link(&self, index: usize) -> Option<&'static Link> {
        Link::of(self.runs[index].device())
    }

    /// busbw of run `index` for each size of a collective, and the time, ns.
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
