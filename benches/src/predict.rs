//! Predicts times of collectives on machines of many nodes, by [`symmem::cost`]. Needs no device and no other rank.

use crate::collectives;
use crate::report::collectives::{CollectivePoint, OURS};
use crate::report::prediction::{
    FitSummary, PredictedPoint, Prediction, PredictionConstant, SCHEMA,
};
use crate::report::{Collective, Report};
use crate::sizes::Effort;
use crate::{BenchError, Result};
use symmem::CollectiveOperation;
use symmem::cost::{
    Constant, Fit, Hierarchical, Machine, Measurement, Preset, fastest_chunks, fit,
};

/// Most nodes of a prediction.
pub const MOST_NODES: u32 = 4096;

/// Options of [`run`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of nodes, each 2 to [`MOST_NODES`].
    pub nodes: Vec<u32>,
    /// The machine.
    pub machine: Preset,
    /// Ranks of each node; `None` for the machine's.
    pub ranks_per_node: Option<u32>,
    /// Operations and sizes; the others of these options do not matter.
    pub which: collectives::Options,
    /// A report of `symmem bench collectives` to which the constants are fitted, with its name.
    pub fit: Option<(String, Report)>,
}

/// Returns times and bytes of every algorithm; those of a call in order of time.
///
/// # Errors
/// [`BenchError::Prediction`] if a number of nodes is out of range or the report has nothing to fit to;
/// [`BenchError::World`] if the smallest size is larger than the largest.
pub fn run(options: &Options) -> Result<Prediction> {
    let wrong = |message: String| BenchError::Prediction { message };
    if let Some(nodes) = options
        .nodes
        .iter()
        .find(|nodes| !(2..=MOST_NODES).contains(*nodes))
    {
        return Err(wrong(format!("{nodes} nodes; predict 2 to {MOST_NODES}")));
    }
    let mut machine = options.machine.machine;
    if let Some(ranks) = options.ranks_per_node {
        machine.ranks_per_node = ranks;
    }
    machine.rails = machine.rails.min(machine.ranks_per_node);
    let fitted = match &options.fit {
        None => None,
        Some((file, report)) => {
            let fit = fit(&machine, &measurements(&machine, report)).ok_or_else(|| {
                wrong(format!(
                    "{file} has no times of symmem's collectives to fit to; name a report of `symmem bench collectives --json`"
                ))
            })?;
            machine = Machine {
                nodes: machine.nodes,
                ranks_per_node: machine.ranks_per_node,
                rails: machine.rails,
                ..fit.machine
            };
            Some((file, fit))
        }
    };
    let which = collectives::Options {
        effort: match options.which.effort {
            Effort::Quick => Effort::Quick,
            // Large machines have large calls, and a prediction takes no time.
            _ => Effort::Full,
        },
        ..options.which.clone()
    };
    let sizes = which.sizes(0, u64::MAX)?;
    let mut points = Vec::new();
    for &nodes in &options.nodes {
        let machine = Machine { nodes, ..machine };
        for &collective in &which.collectives {
            for &bytes in &sizes {
                points.extend(call(&machine, collective, bytes));
            }
        }
    }
    if points.is_empty() {
        return Err(wrong(format!(
            "no size has a byte for each of {} ranks; give a larger --max-bytes",
            u64::from(machine.ranks_per_node)
                * u64::from(options.nodes.iter().copied().min().unwrap_or(2))
        )));
    }
    Ok(Prediction {
        schema: SCHEMA.into(),
        notes: notes(
            &options.machine,
            fitted.as_ref().map(|(file, fit)| (file.as_str(), fit)),
        ),
        machine: format!("{} ({})", options.machine.name, options.machine.description),
        ranks_per_node: machine.ranks_per_node,
        rails: machine.rails,
        constants: Constant::ALL
            .into_iter()
            .map(|constant| {
                described(
                    &options.machine,
                    &machine,
                    fitted.as_ref().map(|(file, fit)| (file.as_str(), fit)),
                    constant,
                )
            })
            .collect(),
        fit: fitted.map(|(file, fit)| FitSummary {
            file: file.clone(),
            calls: fit.used,
            mean_error: fit.mean_error,
            largest_error: fit.largest_error,
        }),
        points,
    })
}

/// Returns the points of a call in order of time; none if the size has no byte for each rank that has a part.
fn call(machine: &Machine, collective: Collective, bytes: u64) -> Vec<PredictedPoint> {
    let ranks = u64::from(machine.nodes) * u64::from(machine.ranks_per_node);
    if collective.has_parts() && bytes < ranks {
        return Vec::new();
    }
    let mut points: Vec<PredictedPoint> = Hierarchical::all()
        .filter_map(|algorithm| {
            let (chunks, cost) = fastest_chunks(machine, operation(collective), bytes, algorithm)?;
            Some(PredictedPoint {
                nodes: machine.nodes,
                collective,
                bytes,
                node_stage: algorithm.node.name().into(),
                leg: algorithm.leg.name().into(),
                chunks,
                steps: cost.steps,
                seconds: cost.seconds,
                bytes_inside_per_link: cost.bytes_inside_per_link,
                bytes_between_per_rail: cost.bytes_between_per_rail,
            })
        })
        .collect();
    points.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    points
}

/// Returns the library's name of an operation.
fn operation(collective: Collective) -> CollectiveOperation {
    match collective {
        Collective::AllReduce => CollectiveOperation::AllReduce,
        Collective::AllGather => CollectiveOperation::AllGather,
        Collective::ReduceScatter => CollectiveOperation::ReduceScatter,
        Collective::AllToAll => CollectiveOperation::AllToAll,
        Collective::Broadcast => CollectiveOperation::Broadcast,
        Collective::Reduce => CollectiveOperation::Reduce,
        Collective::Gather => CollectiveOperation::Gather,
        Collective::Scatter => CollectiveOperation::Scatter,
    }
}

/// Returns symmem's correct calls of a report: out of place, replayed if they were captured.
fn measurements(machine: &Machine, report: &Report) -> Vec<Measurement> {
    let Some(section) = &report.collectives else {
        return Vec::new();
    };
    let nodes = section.nodes.unwrap_or(1).max(1);
    let ours = |point: &&CollectivePoint| point.by == OURS && !point.is_wrong();
    let measured = |point: &CollectivePoint| {
        let placed = point.out_of_place?;
        let time = placed.graph.or(placed.looped)?;
        Some(Measurement {
            nodes,
            ranks_per_node: section.world / nodes,
            rails: machine.rails.min(section.world / nodes),
            operation: operation(point.collective),
            bytes: point.bytes,
            seconds: time.ns * 1e-9,
            algorithm: None,
            chunks: None,
        })
    };
    section
        .points
        .iter()
        .filter(ours)
        .filter_map(measured)
        .collect()
}

fn described(
    preset: &Preset,
    machine: &Machine,
    fitted: Option<(&str, &Fit)>,
    constant: Constant,
) -> PredictionConstant {
    let (source, detail) = match fitted {
        Some((file, fit)) if fit.fitted.contains(&constant) => ("fitted", file.to_owned()),
        _ => {
            let (source, detail) = preset.origin(constant).parts();
            (source, detail.to_owned())
        }
    };
    PredictionConstant {
        name: constant.name().into(),
        value: machine.constant(constant),
        is_rate: constant.is_rate(),
        source: source.into(),
        detail,
    }
}

/// Returns the sentences above the tables.
fn notes(preset: &Preset, fitted: Option<(&str, &Fit)>) -> Vec<String> {
    let is_fitted = |constant| fitted.is_some_and(|(_, fit)| fit.fitted.contains(&constant));
    let between = [Constant::BetweenLatency, Constant::BetweenBandwidth];
    let mut notes = vec![
        "These times come from a formula (symmem::cost), not from a run. The table at the end says which constants were measured.".into(),
    ];
    if let Some((file, fit)) = fitted {
        notes.push(format!(
            "Fitted to {} calls of {file}: the formula is off by {:.0} % on average and {:.0} % at most.",
            fit.used,
            fit.mean_error * 100.0,
            fit.largest_error * 100.0
        ));
    }
    if !between.into_iter().all(is_fitted) {
        notes.push(format!(
            "No run of several nodes stands behind the links between nodes of `{}`; --fit FILE takes their constants from one.",
            preset.name
        ));
    }
    notes
}
