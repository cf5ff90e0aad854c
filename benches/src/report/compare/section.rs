//! One measurement of all runs that have it, as a table.

use super::comparison::Comparison;
use super::published::{REFERENCES, Reference, Subject};
use super::value::Value;
use crate::report::text::{decimal, rate, size};
use crate::report::view::{Cell, View, heading};
use std::collections::{BTreeMap, BTreeSet};

/// A run's part of a section.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Side {
    /// Index of the run.
    pub run: usize,
    /// Values by size.
    pub values: BTreeMap<u64, Value>,
    /// Rated link bandwidth, GB/s.
    pub link: Option<f64>,
    /// Best copy engine rate, GB/s.
    pub engine: Option<f64>,
}

impl Side {
    fn letter(&self) -> String {
        Comparison::letter(self.run)
    }
}

/// The reference of a share: its name, and its value for a side.
type Whole = (&'static str, fn(&Side) -> Option<f64>);

/// The shares that are shown.
const WHOLES: [Whole; 2] = [
    ("of link", |side| side.link),
    ("of engine", |side| side.engine),
];

/// A measurement that at least two runs have at the same sizes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Section {
    pub title: String,
    /// The measurement.
    subject: Subject,
    pub sides: Vec<Side>,
    /// Sizes that at least two runs have.
    pub sizes: BTreeSet<u64>,
    /// Published figures for some of the sizes.
    pub references: Vec<&'static Reference>,
}

impl Section {
    /// Creates a section; `None` if no two sides have a size in common.
    pub fn of(title: String, subject: Subject, mut sides: Vec<Side>) -> Option<Self> {
        sides.retain(|side| !side.values.is_empty());
        let mut owners: BTreeMap<u64, usize> = BTreeMap::new();
        for bytes in sides.iter().flat_map(|side| side.values.keys()) {
            *owners.entry(*bytes).or_default() += 1;
        }
        let sizes: BTreeSet<u64> = (owners.into_iter())
            .filter_map(|(bytes, owners)| (owners >= 2).then_some(bytes))
            .collect();
        let published = |reference: &&Reference| {
            let known = reference
                .rates
                .iter()
                .any(|(bytes, _)| sizes.contains(bytes));
            reference.subject == subject && known
        };
        let references = REFERENCES.iter().filter(published).collect();
        (!sizes.is_empty()).then_some(Self {
            title,
            subject,
            sides,
            sizes,
            references,
        })
    }

    /// Returns the table: rates, ratios to the first run, shares, published figures.
    pub fn view(&self) -> View {
        let mut headings = vec![heading("size")];
        let mut rows: Vec<Vec<Cell>> = (self.sizes.iter())
            .map(|bytes| vec![Cell::Name(size(*bytes))])
            .collect();
        for (text, cells) in self.columns() {
            let unit = match text.split('\n').next_back() {
                Some("µs" | "GB/s") => "",
                _ if text.contains('/') && !text.starts_with("published") => "×",
                _ if text.starts_with("published") => "GB/s · share",
                _ => "",
            };
            headings.push(heading(text).of(unit));
            for (row, cell) in rows.iter_mut().zip(cells) {
                row.push(cell);
            }
        }
        let caption = self.references.iter().map(|reference| {
            format!(
                "published: {}, {} × {}, with its share of the link; not measured here. {}.",
                reference.by, reference.world, reference.device, reference.source
            )
        });
        View {
            title: self.title.clone(),
            caption: caption.collect(),
            headings,
            rows,
        }
    }

    /// Returns the heading of each column and its cells, one per size.
    fn columns(&self) -> Vec<(String, Vec<Cell>)> {
        let over = |side: &Side, show: &dyn Fn(&Value) -> Cell| -> Vec<Cell> {
            let values = self.sizes.iter().map(|bytes| side.values.get(bytes));
            values.map(|value| shown(value, show)).collect()
        };
        let mut columns = Vec::new();
        if matches!(self.subject, Subject::Collective(_)) {
            columns.extend(self.sides.iter().map(|side| {
                let cells = over(side, &|value| Cell::Figure(decimal(value.ns / 1e3)));
                (format!("{}\nµs", side.letter()), cells)
            }));
        }
        columns.extend(self.sides.iter().map(|side| {
            let cells = over(side, &|value| Cell::Figure(rate(value.gbps)));
            (format!("{}\nGB/s", side.letter()), cells)
        }));
        let first = &self.sides[0];
        columns.extend(self.sides.iter().skip(1).map(|side| {
            let ratio = |value: &Value| match first.values.get(&value.bytes) {
                Some(first) if first.wrong == 0 => Cell::Ratio(value.gbps / first.gbps),
                _ => Cell::Absent,
            };
            let name = format!("{}/{}", side.letter(), first.letter());
            (name, over(side, &ratio))
        }));
        for (name, whole) in WHOLES {
            columns.extend(self.sides.iter().filter_map(|side| {
                let whole = whole(side)?;
                let cells = over(side, &|value| Cell::Figure(share(value.gbps, whole)));
                Some((format!("{}\n{name}", side.letter()), cells))
            }));
        }
        columns.extend(self.references.iter().map(|reference| {
            let device = reference.device.trim_start_matches("AMD Instinct ");
            let name = format!(
                "published:\n{}\n{} × {device}",
                reference.by, reference.world
            );
            let cells = self.sizes.iter().map(|bytes| published(reference, *bytes));
            (name, cells.collect())
        }));
        columns
    }
}

/// Returns the cell of a value: absent, wrong, or the figure.
fn shown(value: Option<&Value>, show: &dyn Fn(&Value) -> Cell) -> Cell {
    match value {
        None => Cell::Absent,
        Some(value) if value.wrong != 0 => Cell::Wrong(value.wrong),
        Some(value) => show(value),
    }
}

fn share(gbps: f64, whole: f64) -> String {
    format!("{:.1} %", 100.0 * gbps / whole)
}

/// A published figure with its share of the link.
fn published(reference: &Reference, bytes: u64) -> Cell {
    let found = reference.rates.iter().find(|(known, _)| *known == bytes);
    found.map_or(Cell::Absent, |(_, gbps)| {
        let of_link = reference
            .link()
            .map(|link| format!(" · {}", share(*gbps, link)));
        Cell::Figure(format!("{gbps:.2}{}", of_link.unwrap_or_default()))
    })
}
