//! Runs of different machines side by side: what each reached, how that stands to the first, and which
//! share it is of the machine's links and of its copy engine.
//!
//! A rate alone says which machine is bigger; a share says how well it is used. What others published
//! for machines that nobody here had stands in columns of its own, marked as published.

mod page;
pub mod published;
mod section;
mod view;

use super::collectives::{Collective, Placement};
use super::schema::{Column, Direction, ReadError, Report, Traffic};
use super::text::{counted, size};
use published::Link;

pub use page::html;
pub use view::terminal;

/// A report and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The file, as it was named.
    pub file: String,
    /// What is in it.
    pub report: Report,
}

/// Why runs cannot be laid side by side.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A file that is not a report, or one of another version.
    #[error("{file}: {error}")]
    Read {
        /// Its name.
        file: String,
        /// What is wrong with it.
        #[source]
        error: ReadError,
    },
    /// Too few runs.
    #[error("{0} run given: comparing takes two or more, of `symmem bench ... --json FILE`")]
    TooFew(usize),
    /// No two runs measured the same.
    #[error(
        "no two of these runs measured the same: {}; run the same `symmem bench` on each machine",
        contents.join("; ")
    )]
    NothingInCommon {
        /// Each file and what it has.
        contents: Vec<String>,
    },
}

impl Run {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`CompareError::Read`].
    pub fn parse(file: &str, text: &str) -> Result<Self, CompareError> {
        let file = file.to_owned();
        match Report::from_json(text) {
            Ok(report) => Ok(Self { file, report }),
            Err(error) => Err(CompareError::Read { file, error }),
        }
    }

    /// Its machine in a line: `4 × NVIDIA H200`, or the processor of a run on the host.
    fn machine(&self) -> String {
        let environment = &self.report.environment;
        match environment.devices.is_empty() || environment.backend == "host" {
            true => {
                let host = &environment.host;
                format!("{}, {} cores", host.cpu, host.cores)
            }
            false => counted(&environment.devices),
        }
    }

    /// The model of its first device.
    fn device(&self) -> &str {
        let devices = &self.report.environment.devices;
        devices.first().map_or("", String::as_str)
    }

    /// What it has, in words.
    fn contents(&self) -> String {
        let report = &self.report;
        let mut parts = Vec::new();
        if !report.points.is_empty() {
            let sizes = report.points.iter().map(|point| point.bytes);
            parts.push(format!(
                "transfers of {} to {}",
                size(sizes.clone().min().unwrap_or_default()),
                size(sizes.max().unwrap_or_default())
            ));
        }
        if !report.latencies.is_empty() {
            parts.push("latencies".to_owned());
        }
        if let Some(section) = &report.collectives {
            let names = section.measured().into_iter().map(Collective::name);
            parts.push(names.collect::<Vec<_>>().join(", "));
        }
        match parts.is_empty() {
            true => format!("{}: nothing that is compared", self.file),
            false => format!("{}: {}", self.file, parts.join(", ")),
        }
    }

    /// The best rate of the copy engine over all sizes, by the slowest pair, GB/s, and its size.
    fn engine(&self, direction: Direction, traffic: Traffic) -> Option<(f64, u64)> {
        let sizes = (self.report.points.iter())
            .filter(|point| point.column == Column::CopyEngine)
            .map(|point| point.bytes);
        let slowest = sizes.filter_map(|bytes| {
            (self.report).slowest(direction, traffic, bytes, Column::CopyEngine)
        });
        (slowest.filter(|point| point.wrong_bytes == 0))
            .map(|point| (point.looped.gbps, point.bytes))
            .max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

/// Runs that have something in common, in the order in which they were given: the first is what the
/// others are held against.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    runs: Vec<Run>,
}

impl Comparison {
    /// Of two or more runs.
    ///
    /// # Errors
    /// [`CompareError::TooFew`], [`CompareError::NothingInCommon`].
    pub fn new(runs: Vec<Run>) -> Result<Self, CompareError> {
        if runs.len() < 2 {
            return Err(CompareError::TooFew(runs.len()));
        }
        let comparison = Self { runs };
        if view::sections(&comparison).is_empty() {
            let contents = comparison.runs.iter().map(Run::contents).collect();
            return Err(CompareError::NothingInCommon { contents });
        }
        Ok(comparison)
    }

    /// `A`, `B`, …; after `Z` numbers.
    fn letter(index: usize) -> String {
        match u8::try_from(index) {
            Ok(index) if index < 26 => char::from(b'A' + index).to_string(),
            _ => (index + 1).to_string(),
        }
    }

    /// The copy engine's best rate of run `index`, GB/s: its own, or where it measured none that of the
    /// first run with the same backend and model of device.
    fn engine(&self, index: usize, direction: Direction, traffic: Traffic) -> Option<f64> {
        self.engine_and_run(index, direction, traffic)
            .map(|(rate, _, _)| rate)
    }

    /// As [`Self::engine`], with the size and whose figure it is.
    fn engine_and_run(
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
    fn collective_engine(&self, index: usize, world: u32) -> Option<f64> {
        let link = self.link(index)?;
        let pair = (Direction::ALL.into_iter())
            .filter_map(|direction| self.engine(index, direction, Traffic::BothWays))
            .reduce(f64::max)?;
        Some(pair * link.to_peers(world) / link.pair)
    }

    /// How the links of run `index` are rated, where that is known.
    fn link(&self, index: usize) -> Option<&'static Link> {
        Link::of(self.runs[index].device())
    }

    /// busbw of run `index` for each size of a collective, and the time, ns.
    fn collective(&self, index: usize, collective: Collective) -> Vec<section::Value> {
        let Some(section) = &self.runs[index].report.collectives else {
            return Vec::new();
        };
        let ours = (section.points.iter())
            .filter(|point| point.collective == collective && point.by == super::collectives::OURS);
        ours.filter_map(|point| {
            let placed = point.placed(Placement::OutOfPlace)?;
            if placed.wrong != 0 {
                return Some(section::Value::wrong(point.bytes, placed.wrong));
            }
            let ns = section.headline(placed)?.ns;
            let (_, busbw) = point.bandwidths(section.world, ns);
            Some(section::Value::right(point.bytes, busbw, ns))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
