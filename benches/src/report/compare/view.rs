//! A comparison as tables.

use super::published::{Link, Subject};
use super::section::{Section, Side, Value};
use super::{Comparison, Run};
use crate::report::collectives::Collective;
use crate::report::schema::{Column, Direction, Traffic};
use crate::report::table;
use crate::report::text::{capital, fine_microseconds, rate, size};
use crate::report::view::{Cell, View, heading};
use std::collections::BTreeSet;

/// The means of transfer that are compared: what published tables measure, and the best of each kind.
const COLUMNS: [Column; 3] = [Column::Block128, Column::GridBest, Column::CopyEngine];

/// Everything that two runs or more have in common.
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

/// What is laid side by side.
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

/// The tables in a terminal: machines first, then what was measured, each table as
/// [`super::super::table::terminal`] draws its own.
pub fn terminal(comparison: &Comparison) -> String {
    let mut text = String::new();
    for view in views(comparison) {
        table::draw(&mut text, &view);
    }
    text
}

/// Every table.
pub(super) fn views(comparison: &Comparison) -> Vec<View> {
    let found = sections(comparison);
    let mut views = vec![machines(comparison)];
    views.extend(found.transfers.iter().map(Section::view));
    views.extend(found.latencies.clone());
    views.extend(found.collectives.iter().map(Section::view));
    views.extend(means(comparison));
    views
}

/// How every table is to be read; said once, below the machines.
const READING: [&str; 4] = [
    "GB/s is 10⁹ bytes a second: between pairs of each moving rank, looped, of the slowest pair; of a collective \
     busbw, out of place, replayed from a graph where the run did so. Latencies are medians, one way, in µs.",
    "Ratios are to the first machine of a table: above 1 the first is slower.",
    "of link: the share of what the links are rated at, one way: between pairs those of a pair, in a collective those \
     that a device has to its peers.",
    "of engine: the share of the best rate of the machine's own copy engine, between pairs moving alike; in a \
     collective both ways at once, times the links that a device has to its peers, where those are known.",
];

/// Who is A, who is B, and what each could reach.
fn machines(comparison: &Comparison) -> View {
    let mut caption: Vec<String> = READING.iter().map(|line| (*line).to_owned()).collect();
    let mut rows = Vec::new();
    for (index, run) in comparison.runs.iter().enumerate() {
        let environment = &run.report.environment;
        let letter = Comparison::letter(index);
        let text = |text: &str| match text {
            "" => Cell::Absent,
            text => Cell::Figure(text.into()),
        };
        let date = environment.date.split('T').next().unwrap_or_default();
        let link = comparison.link(index);
        let rated = |rate: fn(&Link) -> f64| {
            link.map_or(Cell::Absent, |link| Cell::Figure(rate(link).to_string()))
        };
        let mut row = vec![
            Cell::Name(letter.clone()),
            text(&run.machine()),
            text(&environment.backend),
            text(date),
            text(&environment.commit.chars().take(12).collect::<String>()),
            rated(|link| link.pair),
            rated(|link| link.device),
        ];
        let mut sources = vec![format!("{letter}: {}", run.file)];
        for direction in Direction::ALL {
            let found = comparison.engine_and_run(index, direction, Traffic::OneWay);
            row.push(found.map_or(Cell::Absent, |(gbps, _, _)| {
                Cell::Figure(rate(gbps).trim_end().into())
            }));
            sources.extend(found.map(|(_, bytes, whose)| {
                let whose = match whose == index {
                    true => String::new(),
                    false => format!(" in {}, the same device", Comparison::letter(whose)),
                };
                format!("engine, {}, at {}{whose}", direction.label(), size(bytes))
            }));
        }
        sources.extend(link.map(|link| format!("links by {}", link.source)));
        caption.push(sources.join("; ") + ".");
        rows.push(row);
    }
    View {
        title: "Machines".to_owned(),
        caption,
        headings: [
            "",
            "machine",
            "backend",
            "date",
            "commit",
            "link of\na pair",
            "links of\na device",
            "engine,\npush",
            "engine,\npull",
        ]
        .map(heading)
        .into(),
        rows,
    }
}

/// One way of moving bytes between pairs; `None` if no two runs have it.
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
            // Of itself it would say nothing.
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

/// Messages that two runs or more sent; `None` if there are none.
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
    headings.extend(letters.iter().map(|letter| heading(letter.as_str())));
    headings
        .extend((letters.iter().skip(1)).map(|letter| heading(format!("{}/{letter}", letters[0]))));
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

/// How each run stands to the best library beside it; `None` unless two runs had one.
fn means(comparison: &Comparison) -> Option<View> {
    let mean = |run: &Run, collective: Option<Collective>| {
        run.report.collectives.as_ref()?.geometric_mean(collective)
    };
    let compared = (comparison.runs.iter()).filter(|run| mean(run, None).is_some());
    if compared.count() < 2 {
        return None;
    }
    let operations = (Collective::ALL.into_iter().map(Some)).chain([None]);
    let rows = operations.filter_map(|collective| {
        let means: Vec<Option<f64>> = (comparison.runs.iter())
            .map(|run| mean(run, collective))
            .collect();
        means.iter().any(Option::is_some).then(|| {
            let name = Cell::Name(collective.map_or("all", Collective::name).to_owned());
            let cell = |mean: Option<f64>| mean.map_or(Cell::Absent, Cell::Ratio);
            std::iter::once(name)
                .chain(means.into_iter().map(cell))
                .collect()
        })
    });
    let mut headings = vec![heading("operation")];
    headings.extend((0..comparison.runs.len()).map(|run| heading(Comparison::letter(run))));
    let beside = comparison
        .runs
        .iter()
        .enumerate()
        .filter_map(|(index, run)| {
            let section = run.report.collectives.as_ref()?;
            let took_part = section
                .baselines
                .iter()
                .filter(|baseline| baseline.absent.is_none());
            let names = took_part.map(|baseline| match &baseline.version {
                Some(version) => format!("{} {version}", baseline.name),
                None => baseline.name.clone(),
            });
            Some(format!(
                "{}: beside {}.",
                Comparison::letter(index),
                names.collect::<Vec<_>>().join(", ")
            ))
        });
    let mut caption = vec![
        "The best other library's time over ours on the same machine, geometric mean over the sizes and \
         placements of that run: above 1 ours is faster."
            .to_owned(),
    ];
    caption.extend(beside);
    Some(View {
        title: "Collectives beside each machine's own libraries".to_owned(),
        caption,
        headings,
        rows: rows.collect(),
    })
}
