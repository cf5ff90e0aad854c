//! Predicted times of collectives beyond one node: the JSON schema `symmem-prediction/1`, and tables.

use super::Collective;
use super::table::draw;
use super::text::{capital, decimal, significant, size};
use super::view::{Cell, Heading, View, heading};
use serde::{Deserialize, Serialize};

/// The schema that this version writes.
pub const SCHEMA: &str = "symmem-prediction/1";

/// Times and bytes by the formula of [`symmem::cost`]. Times are in seconds, rates in bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// [`SCHEMA`].
    pub schema: String,
    /// What the figures are, in sentences.
    pub notes: Vec<String>,
    /// The machine's name and what it is.
    pub machine: String,
    /// Ranks of each node.
    pub ranks_per_node: u32,
    /// Network links of each node.
    pub rails: u32,
    /// The constants of the formula.
    pub constants: Vec<PredictionConstant>,
    /// The fit to measured runs, if one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitSummary>,
    /// Every number of nodes, operation, size and algorithm; those of one call in order of time.
    pub points: Vec<PredictedPoint>,
}

/// A constant and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictionConstant {
    /// Its name.
    pub name: String,
    /// Its value, in seconds or bytes per second.
    pub value: f64,
    /// Whether it is a rate in bytes per second.
    pub is_rate: bool,
    /// `measured`, `data sheet`, `assumed` or `fitted`.
    pub source: String,
    /// The runs, the data sheet or the reason.
    pub detail: String,
}

/// How well the formula meets the runs that it was fitted to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FitSummary {
    /// The report.
    pub file: String,
    /// Number of measured calls.
    pub calls: usize,
    /// Mean of the relative errors' absolute values.
    pub mean_error: f64,
    /// The largest relative error.
    pub largest_error: f64,
}

/// One call by one algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedPoint {
    /// Number of nodes.
    pub nodes: u32,
    /// The operation.
    pub collective: Collective,
    /// nccl-tests' size, in bytes.
    pub bytes: u64,
    /// What the ranks of a node do: `sharded`, `one-shot` or `leader`.
    pub node_stage: String,
    /// What the nodes do: `direct`, `ring`, `tree` or `halving`.
    pub leg: String,
    /// The number of chunks that takes the least time.
    pub chunks: u32,
    /// Steps that depend on each other.
    pub steps: u32,
    /// Time of the call, in seconds.
    pub seconds: f64,
    /// Bytes over the busiest link inside a node, in each stage's busier direction.
    pub bytes_inside_per_link: f64,
    /// Bytes over the busiest rail, in its busier direction.
    pub bytes_between_per_rail: f64,
}

impl Prediction {
    /// Returns the points of each call: all algorithms for a number of nodes, operation and size.
    fn calls(&self) -> impl Iterator<Item = &[PredictedPoint]> {
        self.points
            .chunk_by(|a, b| (a.nodes, a.collective, a.bytes) == (b.nodes, b.collective, b.bytes))
    }
}

/// Returns the prediction as tables of plain text: what it is, the fastest algorithm by size for each operation and
/// number of nodes, then every algorithm at a few sizes, then the constants with their sources.
pub fn terminal(prediction: &Prediction) -> String {
    let mut text = format!(
        "Predicted, not measured: {}; {} ranks and {} rails a node\n",
        prediction.machine, prediction.ranks_per_node, prediction.rails
    );
    for note in &prediction.notes {
        text.push_str(note);
        text.push('\n');
    }
    text.push('\n');
    let calls: Vec<&[PredictedPoint]> = prediction.calls().collect();
    let tables =
        || calls.chunk_by(|a, b| (a[0].nodes, a[0].collective) == (b[0].nodes, b[0].collective));
    for of_operation in tables() {
        let fastest = of_operation.iter().map(|call| row(&call[0])).collect();
        draw(
            &mut text,
            &table(&of_operation[0][0], "fastest algorithm", fastest),
        );
    }
    for of_operation in tables() {
        let some = of_operation.iter().step_by(EVERY);
        let all = some.flat_map(|call| call.iter().map(row)).collect();
        draw(
            &mut text,
            &table(&of_operation[0][0], "every algorithm", all),
        );
    }
    draw(&mut text, &constants(prediction));
    text
}

/// Every fifth power of two has all its algorithms in the tables; the JSON has those of all sizes.
const EVERY: usize = 5;

fn table(point: &PredictedPoint, what: &str, rows: Vec<Vec<Cell>>) -> View {
    let name = capital(&point.collective.name().replace('_', "-"));
    let columns: [Heading; 7] = [
        heading("size"),
        heading("algorithm"),
        heading("chunks"),
        heading("steps"),
        heading("time, µs"),
        heading("a link inside"),
        heading("a rail"),
    ];
    View {
        title: format!("{name} on {} nodes, {what} (predicted)", point.nodes),
        caption: Vec::new(),
        headings: columns.into(),
        rows,
    }
}

fn row(point: &PredictedPoint) -> Vec<Cell> {
    vec![
        Cell::Name(size(point.bytes)),
        Cell::Figure(format!("{} {}", point.node_stage, point.leg)),
        Cell::Figure(point.chunks.to_string()),
        Cell::Figure(point.steps.to_string()),
        Cell::Figure(decimal(point.seconds * 1e6)),
        Cell::Figure(amount(point.bytes_inside_per_link)),
        Cell::Figure(amount(point.bytes_between_per_rail)),
    ]
}

/// Formats bytes that need not be a whole number, with three significant digits.
fn amount(bytes: f64) -> String {
    let units = [
        (1_u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    match units.into_iter().find(|(unit, _)| bytes >= *unit as f64) {
        Some((unit, name)) => format!("{} {name}", significant(bytes / unit as f64)),
        None => format!("{bytes:.0} B"),
    }
}

fn constants(prediction: &Prediction) -> View {
    let row = |constant: &PredictionConstant| {
        let value = match constant.is_rate {
            true => format!("{} GB/s", significant(constant.value / 1e9)),
            false => format!("{} µs", significant(constant.value * 1e6)),
        };
        vec![
            Cell::Name(constant.name.clone()),
            Cell::Figure(value),
            Cell::Figure(constant.source.clone()),
            Cell::Figure(constant.detail.clone()),
        ]
    };
    View {
        title: "Constants of the formula".into(),
        caption: Vec::new(),
        headings: ["constant", "value", "source", "detail"]
            .map(heading)
            .into(),
        rows: prediction.constants.iter().map(row).collect(),
    }
}
