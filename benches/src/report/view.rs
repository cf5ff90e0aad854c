//! A report as tables of text, before a terminal or a page gives them a form.

use std::collections::{BTreeMap, BTreeSet};

use super::ratio::Ratio;
use super::schema::{Column, Direction, Matrix, Point, Report, Traffic};
use super::text::{capital, fine_microseconds, microseconds, range, rate, size};

/// A table: every row has a cell for each heading, the first heading names the rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct View {
    pub title: String,
    /// What the figures are, in sentences.
    pub caption: Vec<String>,
    pub headings: Vec<Heading>,
    pub rows: Vec<Vec<Cell>>,
}

/// The head of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Heading {
    pub text: String,
    /// Of the figures below, where the text does not say it.
    pub unit: &'static str,
    /// How it was done: method, geometry, bytes in flight.
    pub detail: Option<String>,
}

/// A cell and what it is, so that a page can set it apart.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// Names the row.
    Name(String),
    /// A figure.
    Figure(String),
    /// A figure over its baseline.
    Ratio(f64),
    /// A ratio that is noise.
    NoDifference(f64),
    /// Not measured.
    Absent,
    /// Measured, and the bytes were wrong.
    Wrong(u64),
}

impl Cell {
    /// Returns the cell of a ratio that is a figure only if it is no noise.
    pub fn compared(ratio: Option<Ratio>) -> Self {
        match ratio {
            Some(ratio) if ratio.noise => Self::NoDifference(ratio.value),
            Some(ratio) => Self::Ratio(ratio.value),
            None => Self::Absent,
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::Name(text) | Self::Figure(text) => text.clone(),
            Self::Ratio(ratio) => format!("{ratio:.2}×"),
            Self::NoDifference(_) => "no difference".to_owned(),
            Self::Absent => "–".to_owned(),
            Self::Wrong(_) => "wrong".to_owned(),
        }
    }
}

pub(super) fn heading(text: impl Into<String>) -> Heading {
    Heading {
        text: text.into(),
        unit: "",
        detail: None,
    }
}

impl Heading {
    /// The same with a unit.
    pub fn of(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }
}

/// The points of one table, by size and column: each the slowest of its pairs.
struct Grid<'a> {
    cells: BTreeMap<(u64, Column), &'a Point>,
    sizes: BTreeSet<u64>,
    columns: BTreeSet<Column>,
    pairs: usize,
    rounds: BTreeSet<u32>,
}

impl<'a> Grid<'a> {
    /// `None` if nothing was measured.
    fn of(report: &'a Report, direction: Direction, traffic: Traffic) -> Option<Self> {
        let points = || {
            (report.points.iter())
                .filter(move |point| point.direction == direction && point.traffic == traffic)
        };
        points().next()?;
        let sizes: BTreeSet<u64> = points().map(|point| point.bytes).collect();
        let columns: BTreeSet<Column> = points().map(|point| point.column).collect();
        let mut cells = BTreeMap::new();
        for &bytes in &sizes {
            for &column in &columns {
                if let Some(point) = report.slowest(direction, traffic, bytes, column) {
                    cells.insert((bytes, column), point);
                }
            }
        }
        Some(Self {
            cells,
            sizes,
            columns,
            pairs: points()
                .map(|point| point.rank)
                .collect::<BTreeSet<_>>()
                .len(),
            rounds: points().map(|point| point.rounds).collect(),
        })
    }

    /// Our column that is compared, and the baseline that it is compared with.
    fn compared(&self) -> Option<(Column, Column)> {
        let ours = self.columns.iter().find(|column| !column.is_baseline())?;
        let baseline = self.columns.iter().find(|column| column.is_baseline())?;
        Some((*ours, *baseline))
    }

    fn of_column(&self, column: Column) -> impl Iterator<Item = &'a Point> {
        (self.cells.iter())
            .filter(move |((_, at), _)| *at == column)
            .map(|(_, point)| *point)
    }

    fn name(&self, column: Column) -> &'static str {
        name(self.of_column(column), column)
    }

    fn heading(&self, column: Column) -> Heading {
        Heading {
            text: self.name(column).to_owned(),
            unit: "GB/s",
            detail: Some(self.how(column)).filter(|how| !how.is_empty()),
        }
    }

    /// Method, geometry and bytes in flight of a column, over its sizes.
    fn how(&self, column: Column) -> String {
        let mut parts: Vec<String> = Vec::new();
        for point in self.of_column(column) {
            // A method that says no more than the column's name is left out.
            if point.method.replace('_', " ") != self.name(column) && !parts.contains(&point.method)
            {
                parts.push(point.method.clone());
            }
        }
        // 0 stands for "no kernel" and "not ours to say".
        let known = |of: fn(&Point) -> u64| -> Vec<u64> {
            (self.of_column(column).map(of))
                .filter(|value| *value != 0)
                .collect()
        };
        let blocks = range(&known(|point| point.blocks.into()), |n| n.to_string());
        let threads = range(&known(|point| point.threads.into()), |n| n.to_string());
        if !blocks.is_empty() {
            let plural = if blocks == "1" { "block" } else { "blocks" };
            parts.push(format!("{blocks} {plural} of {threads} threads"));
        }
        let flight = range(&known(|point| point.bytes_in_flight), size);
        if !flight.is_empty() {
            parts.push(format!("{flight} in flight"));
        }
        parts.join(", ")
    }

    fn wrong_and_notes(&self, caption: &mut Vec<String>) {
        for ((bytes, column), point) in &self.cells {
            let at = || format!("{} at {}", self.name(*column), size(*bytes));
            if point.wrong_bytes != 0 {
                caption.push(format!(
                    "WRONG: {} had {} wrong bytes on ranks {} and {}; its rate is not shown.",
                    at(),
                    point.wrong_bytes,
                    point.rank,
                    point.peer
                ));
            }
            if let Some(note) = &point.note {
                caption.push(format!("{}: {note}", at()));
            }
        }
    }

    /// `median of 9 rounds`, and whose figure it is where there are several.
    fn statistics(&self) -> String {
        let rounds: Vec<u64> = self.rounds.iter().map(|n| u64::from(*n)).collect();
        let rounds = range(&rounds, |n| n.to_string());
        let mut text = format!("median of {rounds} rounds");
        if self.pairs > 1 {
            text += &format!(", of the slowest of {} pairs", self.pairs);
        }
        text
    }
}

/// Returns the name of a column; columns of blocks are `symmem` if no kernel ran, as on the host.
pub(super) fn name<'a>(
    points: impl IntoIterator<Item = &'a Point>,
    column: Column,
) -> &'static str {
    let is_block = matches!(
        column,
        Column::Block128 | Column::BlockBest | Column::GridBest
    );
    match is_block && points.into_iter().all(|point| point.blocks == 0) {
        true => "symmem",
        false => column.label(),
    }
}

/// For each size and column the point that stands for all pairs, in the order of size.
pub(super) fn slowest_points(
    report: &Report,
    direction: Direction,
    traffic: Traffic,
) -> Vec<&Point> {
    Grid::of(report, direction, traffic)
        .map(|grid| grid.cells.into_values().collect())
        .unwrap_or_default()
}

/// Looped rates, a row for each size; `None` if nothing was measured.
pub(super) fn rates(report: &Report, direction: Direction, traffic: Traffic) -> Option<View> {
    let grid = Grid::of(report, direction, traffic)?;
    let compared = grid.compared();
    let mut caption = vec![format!(
        "GB/s (10⁹ bytes a second) per rank that moves data; looped, {}.",
        grid.statistics()
    )];
    // What is compared stands side by side; the rest follows in its order.
    let first: Vec<Column> = compared.map_or(vec![], |(ours, baseline)| vec![ours, baseline]);
    let rest: Vec<Column> = (grid.columns.iter().copied())
        .filter(|column| !first.contains(column))
        .collect();
    let mut headings = vec![heading("bytes")];
    headings.extend(first.iter().map(|column| grid.heading(*column)));
    if let Some((ours, baseline)) = compared {
        headings.push(heading("ratio").of("×"));
        caption.push(format!(
            "ratio: {}'s rate divided by {}'s; above 1, symmem is faster.",
            grid.name(ours),
            grid.name(baseline)
        ));
    }
    headings.extend(rest.iter().map(|column| grid.heading(*column)));
    let rows = (grid.sizes.iter())
        .map(|&bytes| {
            let cell = |column: &Column| figure(grid.cells.get(&(bytes, *column)).copied());
            let mut row = vec![Cell::Name(size(bytes))];
            row.extend(first.iter().map(cell));
            if let Some((ours, baseline)) = compared {
                let ratio = report.ratio(direction, traffic, bytes, ours, baseline);
                row.push(ratio.map_or(Cell::Absent, Cell::Ratio));
            }
            row.extend(rest.iter().map(cell));
            row
        })
        .collect();
    grid.wrong_and_notes(&mut caption);
    Some(View {
        title: format!("{}, {}", capital(direction.label()), traffic.label()),
        caption,
        headings,
        rows,
    })
}

/// Graph replay and single-shot times; `None` if neither was measured.
pub(super) fn single_shots(
    report: &Report,
    direction: Direction,
    traffic: Traffic,
) -> Option<View> {
    let grid = Grid::of(report, direction, traffic)?;
    let timed = |point: &Point| point.graph.is_some() || point.single.is_some();
    let columns: Vec<Column> = (grid.columns.iter().copied())
        .filter(|column| grid.of_column(*column).any(timed))
        .collect();
    if columns.is_empty() {
        return None;
    }
    let mut headings = vec![heading("bytes")];
    headings.extend(columns.iter().map(|column| Heading {
        detail: None,
        unit: "GB/s · µs p50/p99",
        ..grid.heading(*column)
    }));
    let rows = grid
        .sizes
        .iter()
        .map(|bytes| {
            let cell = |column: &Column| match grid.cells.get(&(*bytes, *column)) {
                Some(point) if point.wrong_bytes != 0 => Cell::Wrong(point.wrong_bytes),
                Some(point) if timed(point) => {
                    let graph = point.graph.map_or("–".to_owned(), |graph| rate(graph.gbps));
                    let single = point.single.map_or("–".to_owned(), |single| {
                        format!(
                            "{}/{}",
                            microseconds(single.p50_ns),
                            microseconds(single.p99_ns)
                        )
                    });
                    Cell::Figure(format!("{} · {single}", graph.trim_end()))
                }
                _ => Cell::Absent,
            };
            let name = std::iter::once(Cell::Name(size(*bytes)));
            name.chain(columns.iter().map(cell)).collect()
        })
        .collect();
    Some(View {
        title: format!(
            "{}, {}: graph replay and single shots",
            capital(direction.label()),
            traffic.label()
        ),
        caption: vec![format!(
            "Graph replay in GB/s, {} · one transfer at a time in µs, p50/p99.",
            grid.statistics()
        )],
        headings,
        rows,
    })
}

/// One-way times of single messages; `None` if none was measured.
pub(super) fn latencies(report: &Report) -> Option<View> {
    if report.latencies.is_empty() {
        return None;
    }
    let compared = (report.latencies.iter()).any(|latency| latency.baseline.is_some());
    let mut names = vec!["message", "median", "min", "p99"];
    if compared {
        names.extend(["baseline", "its median", "ratio"]);
    }
    let mut caption = vec!["One way, half of a round trip, µs.".to_owned()];
    if compared {
        caption.push(
            "ratio: the baseline's median divided by symmem's; above 1, symmem is faster."
                .to_owned(),
        );
    }
    let mut rows = Vec::new();
    for latency in &report.latencies {
        let ours = latency.one_way_ns;
        let mut row = vec![
            Cell::Name(latency.name.clone()),
            Cell::Figure(fine_microseconds(ours.median)),
            Cell::Figure(fine_microseconds(ours.min)),
            Cell::Figure(fine_microseconds(ours.p99)),
        ];
        if compared {
            match &latency.baseline {
                Some(baseline) => row.extend([
                    Cell::Figure(baseline.name.clone()),
                    Cell::Figure(fine_microseconds(baseline.one_way_ns.median)),
                    Cell::Ratio(baseline.one_way_ns.median / ours.median),
                ]),
                None => row.extend([Cell::Absent, Cell::Absent, Cell::Absent]),
            }
        }
        rows.push(row);
        if let Some(note) = &latency.note {
            caption.push(format!("{}: {note}", latency.name));
        }
    }
    Some(View {
        title: "Latency".to_owned(),
        caption,
        headings: (names.into_iter())
            .map(|name| match name {
                "message" | "baseline" => heading(name),
                "ratio" => heading(name).of("×"),
                _ => heading(name).of("µs"),
            })
            .collect(),
        rows,
    })
}

/// Bandwidth between every two ranks, a table for each means.
pub(super) fn matrices(report: &Report) -> impl Iterator<Item = View> {
    report.matrices.iter().map(matrix)
}

fn matrix(matrix: &Matrix) -> View {
    let width = matrix.gbps.iter().map(Vec::len).max().unwrap_or(0);
    let mut headings = vec![heading("rank \\ peer")];
    headings.extend((0..width).map(|peer| heading(peer.to_string()).of("GB/s")));
    let rows = (matrix.gbps.iter().enumerate())
        .map(|(rank, row)| {
            let cell = |peer: usize| {
                (row.get(peer).copied().flatten())
                    .map_or(Cell::Absent, |gbps| Cell::Figure(format!("{gbps:.1}")))
            };
            let name = std::iter::once(Cell::Name(rank.to_string()));
            name.chain((0..width).map(cell)).collect()
        })
        .collect();
    View {
        title: "Every pair".to_owned(),
        caption: vec![format!(
            "GB/s, {} of {} by {}.",
            matrix.direction.label(),
            size(matrix.bytes),
            matrix.column.label()
        )],
        headings,
        rows,
    }
}

fn figure(point: Option<&Point>) -> Cell {
    match point {
        None => Cell::Absent,
        Some(point) if point.wrong_bytes != 0 => Cell::Wrong(point.wrong_bytes),
        Some(point) => Cell::Figure(rate(point.looped.gbps)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn texts(view: &View) -> Vec<&str> {
        view.headings.iter().map(|h| h.text.as_str()).collect()
    }

    #[test]
    fn what_is_compared_stands_side_by_side() {
        let view = rates(&fixture::cuda(), Direction::Push, Traffic::BothWays).unwrap();
        assert_eq!(
            texts(&view),
            [
                "bytes",
                "block128",
                "nvshmem",
                "ratio",
                "block best",
                "grid best",
                "copy engine",
                "unrolled"
            ]
        );
        for row in &view.rows {
            assert_eq!(row.len(), view.headings.len());
        }
    }

    #[test]
    fn without_a_baseline_there_is_no_ratio() {
        let mut report = fixture::cuda();
        report.points.retain(|point| !point.column.is_baseline());
        let view = rates(&report, Direction::Push, Traffic::BothWays).unwrap();
        assert!(!texts(&view).contains(&"ratio"));
    }

    #[test]
    fn the_host_backend_is_compared_with_memcpy() {
        let view = rates(&fixture::host(), Direction::Pull, Traffic::OneWay).unwrap();
        assert_eq!(texts(&view), ["bytes", "symmem", "memcpy", "ratio"]);
    }

    #[test]
    fn what_was_not_measured_has_no_table() {
        let report = fixture::host();
        assert_eq!(rates(&report, Direction::Push, Traffic::BothWays), None);
        assert_eq!(matrices(&report).count(), 0);
        let mut looped_only = report;
        looped_only.latencies.clear();
        for point in &mut looped_only.points {
            (point.graph, point.single) = (None, None);
        }
        assert_eq!(latencies(&looped_only), None);
        assert_eq!(
            single_shots(&looped_only, Direction::Push, Traffic::OneWay),
            None
        );
    }

    #[test]
    fn a_wrong_result_is_called_wrong_and_shows_no_rate() {
        let mut report = fixture::cuda();
        report.points[0].wrong_bytes = 3;
        let view = rates(&report, Direction::Push, Traffic::BothWays).unwrap();
        assert_eq!(view.rows[0][1], Cell::Wrong(3));
        assert_eq!(view.rows[0][3], Cell::Absent);
        assert!(view.caption.iter().any(|line| line.contains("WRONG")));
    }

    #[test]
    fn a_column_says_its_geometry_and_bytes_in_flight() {
        let view = rates(&fixture::cuda(), Direction::Push, Traffic::BothWays).unwrap();
        let detail = |name: &str| {
            let heading = view.headings.iter().find(|h| h.text == name).unwrap();
            heading.detail.as_deref()
        };
        assert_eq!(
            detail("block128"),
            Some("bulk, 1 block of 128 threads, 2 KiB–128 KiB in flight")
        );
        assert_eq!(detail("unrolled"), Some("1 block of 128 threads"));
        assert_eq!(detail("copy engine"), None);
    }
}
