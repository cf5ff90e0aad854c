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

/// Returns all tables as plain text: the machines, then the measurements, in the layout of
/// [`super::super::table::terminal`].
pub fn terminal(comparison: &Comparison) -> String {
    let mut text = String::new();
    for view in views(comparison) {
        table::draw(&mut text, &view);
    }
    text
}

/// Returns every table.
pub(super) fn views(comparison: &Comparison) -> Vec<View> {
    let found = sections(comparison);
    let mut views = vec![machines(comparison)];
    views.extend(found.transfers.iter().map(Section::view));
    views.extend(found.latencies.clone());
    views.extend(found.collectives.iter().map(Section::view));
    views.extend(means(comparison));
    views
}

/// Explanation of all tables, shown once, below the machines.
const READING: [&str; 4] = [
    "GB/s is 10⁹ bytes per second. Transfers: looped rate of each rank that moves bytes, for the slowest pair. \
     Collectives: busbw, out of place, by graph replay if the run has it. Latencies: medians, one way, in µs.",
    "Ratios compare with the first machine of a table: above 1, the first machine is slower.",
    "of link: share of the rated one-way link bandwidth, of a pair for transfers, and of a device to its peers for \
     collectives.",
    "of engine: share of the machine's best copy engine rate in the same direction and traffic; for collectives both \
     ways at once, scaled by the links of a device to its peers, if known.",
];

/// The table of machines: letter, device, backend, date, commit, link ratings and copy engine rates.
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
            "pair link\n(GB/s)",
            "all links\n(GB/s)",
            "engine push\n(GB/s)",
            "engine pull\n(GB/s)",
        ]
        .map(|text| {
            let is_rate = text.contains("link") || text.contains("engine");
            heading(text).of(if is_rate { "GB/s" } else { "" })
        })
        .into(),
        rows,
    }
}

/// The table that compares each run with the best baseline on its machine; `None` unless two runs have baselines.
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
                "{}: compared with {}.",
                Comparison::letter(index),
                names.collect::<Vec<_>>().join(", ")
            ))
        });
    let mut caption = vec![
        "Geometric mean, over the sizes and placements of a run, of the best baseline's time divided by symmem's \
         on the same machine; above 1, symmem is faster."
            .to_owned(),
    ];
    caption.extend(beside);
    Some(View {
        title: "Collectives compared with the libraries of each machine".to_owned(),
        caption,
        headings,
        rows: rows.collect(),
    })
}
