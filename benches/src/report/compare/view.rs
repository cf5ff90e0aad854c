//! A comparison as tables.

use super::comparison::Comparison;
use super::published::Link;
use super::run::Run;
use super::section::Section;
use super::sections::sections;
use crate::report::Collective;
use crate::report::schema::{Direction, Traffic};
use crate::report::table;
use crate::report::text::{rate, size};
use crate::report::view::{Cell, View, heading};

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
        .map(|text| {
            let is_rate = text.contains("link") || text.contains("engine");
            heading(text).of(if is_rate { "GB/s" } else { "" })
        })
        .into(),
        rows,
    }
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
    headings.extend((0..comparison.runs.len()).map(|run| heading(Comparison::letter(run)).of("×")));
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
