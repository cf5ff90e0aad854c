//! Finds the measurements that two or more runs have in common.

use super::comparison::Comparison;
use super::error::CompareError;
use super::published::Subject;
use super::run::Run;
use super::section::{Section, Side};
use super::value::Value;
use crate::report::collectives::Collective;
use crate::report::schema::{Column, Direction, Traffic};
use crate::report::text::capital;
use crate::report::text::fine_microseconds;
use crate::report::view::{Cell, View, heading};
use std::collections::BTreeSet;

/// The columns of transfers that are compared: the one of published tables, the best grid, and the copy engine.
const COLUMNS: [Column; 3] = [Column::Block128, Column::GridBest, Column::CopyEngine];

/// All measurements that two or more runs have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sections {
    pub transfers: Vec<Section>,
    pub latencies: Option<View>,
    pub collectives: Vec<Section>,
}

impl Sections {
    pub fn is_empty(&self) -> bool {
        self.transfers.is_empty() && self.latencies.is_none() && self.collectives.is_empty()
    }
}

impl Comparison {
    /// Compares two or more runs.
    ///
    /// # Errors
    /// [`CompareError::TooFew`], [`CompareError::NothingInCommon`].
    pub fn new(runs: Vec<Run>) -> Result<Self, CompareError> {
        if runs.len() < 2 {
            return Err(CompareError::TooFew(runs.len()));
        }
        let comparison = Self { runs };
        if sections(&comparison).is_empty() {
            let contents = comparison.runs.iter().map(Run::contents).collect();
            return Err(CompareError::NothingInCommon { contents });
        }
        Ok(comparison)
    }
}

/// Returns all measurements in common.
pub(super) fn sections(comparison: &Comparison) -> Sections {
    let mut transfers = Vec::new();
    for column in COLUMNS {
        for traffic in Traffic::ALL {
            for direction in Direction::ALL {
                transfers.extend(pairs(comparison, direction, traffic, column));
            }
        }
    }
    Sections {
        transfers,
        latencies: latencies(comparison),
        collectives: (Collective::ALL.into_iter())
            .filter_map(|collective| collective_section(comparison, collective))
            .collect(),
    }
}

/// Returns one column of transfers between pairs; `None` if no two runs have it.
fn pairs(
    comparison: &Comparison,
    direction: Direction,
    traffic: Traffic,
    column: Column,
) -> Option<Section> {
    let side = |(index, run): (usize, &Run)| {
        let sizes: BTreeSet<u64> = run.report.points.iter().map(|point| point.bytes).collect();
        let values = sizes.into_iter().filter_map(|bytes| {
            let point = run.report.slowest(direction, traffic, bytes, column)?;
            Some(match point.wrong_bytes {
                0 => Value::right(bytes, point.looped.gbps, point.looped.ns),
                wrong => Value::wrong(bytes, wrong),
            })
        });
        Side {
            run: index,
            values: values.map(|value| (value.bytes, value)).collect(),
            link: comparison.link(index).map(|link| link.pair),
            // The copy engine's share of itself would say nothing.
            engine: (column != Column::CopyEngine)
                .then(|| comparison.engine(index, direction, traffic))
                .flatten(),
        }
    };
    let title = format!(
        "{}, {}: {}",
        capital(direction.label()),
        traffic.label(),
        column.label()
    );
    let sides = comparison.runs.iter().enumerate().map(side).collect();
    Section::of(title, Subject::Pairs(direction, traffic, column), sides)
}

fn collective_section(comparison: &Comparison, collective: Collective) -> Option<Section> {
    let side = |(index, run): (usize, &Run)| {
        let world = (run.report.collectives.as_ref()).map_or(1, |section| section.world);
        let values = comparison.collective(index, collective).into_iter();
        Side {
            run: index,
            values: values.map(|value| (value.bytes, value)).collect(),
            link: comparison.link(index).map(|link| link.to_peers(world)),
            engine: comparison.collective_engine(index, world),
        }
    };
    let sides = comparison.runs.iter().enumerate().map(side).collect();
    Section::of(
        collective.name().into(),
        Subject::Collective(collective),
        sides,
    )
}

/// Returns the latencies that two or more runs have in common; `None` if there are none.
fn latencies(comparison: &Comparison) -> Option<View> {
    let mut names: Vec<&str> = Vec::new();
    for latency in comparison.runs.iter().flat_map(|run| &run.report.latencies) {
        if !names.contains(&latency.name.as_str()) {
            names.push(&latency.name);
        }
    }
    let median = |run: &Run, name: &str| {
        let latency = run
            .report
            .latencies
            .iter()
            .find(|latency| latency.name == name)?;
        Some(latency.one_way_ns.median)
    };
    let mut headings = vec![heading("message")];
    let letters: Vec<String> = (0..comparison.runs.len()).map(Comparison::letter).collect();
    headings.extend(
        letters
            .iter()
            .map(|letter| heading(letter.as_str()).of("µs")),
    );
    headings.extend(
        (letters.iter().skip(1)).map(|letter| heading(format!("{}/{letter}", letters[0])).of("×")),
    );
    let mut rows = Vec::new();
    for name in names {
        let medians: Vec<Option<f64>> = (comparison.runs.iter())
            .map(|run| median(run, name))
            .collect();
        if medians.iter().flatten().count() < 2 {
            continue;
        }
        let mut row = vec![Cell::Name(name.to_owned())];
        row.extend(
            (medians.iter()).map(|median| {
                median.map_or(Cell::Absent, |ns| Cell::Figure(fine_microseconds(ns)))
            }),
        );
        row.extend(
            medians
                .iter()
                .skip(1)
                .map(|median| match (medians[0], median) {
                    (Some(first), Some(median)) => Cell::Ratio(first / median),
                    _ => Cell::Absent,
                }),
        );
        rows.push(row);
    }
    (!rows.is_empty()).then(|| View {
        title: "Latency".to_owned(),
        caption: Vec::new(),
        headings,
        rows,
    })
}
