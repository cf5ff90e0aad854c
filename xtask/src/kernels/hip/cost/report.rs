//! Prints the costs, and writes them as a result that is marked as a model.

use std::path::Path;

use serde_json::json;

use super::devices::DEVICES;
use super::mca::Analyzer;
use super::model::Cost;
use crate::error::{Result, at};

/// Prints a table of GEMMs and one of copies and reductions.
pub fn print(costs: &[Cost]) {
    println!("a model, not a measurement: nothing here has run on a device");
    let width = costs
        .iter()
        .map(|cost| cost.kernel.len())
        .max()
        .unwrap_or(0);
    let (products, others): (Vec<&Cost>, Vec<&Cost>) =
        costs.iter().partition(|cost| cost.tflops.is_some());
    if !products.is_empty() {
        println!(
            "\n{:width$}  target  clocks  MFMA busy  LDS busy  conflicts  TFLOP/s, at the peak clock",
            "GEMM"
        );
    }
    for cost in products {
        let conflicts = cost
            .conflict_clocks
            .map_or_else(|| "unknown".to_owned(), |clocks| clocks.to_string());
        println!(
            "{:width$}  {}  {:6.0}  {:9.2}  {:8.2}  {conflicts:>9}  {:7.0}  {:7.0}",
            cost.kernel,
            cost.target,
            cost.clocks,
            cost.matrix_busy,
            cost.shared_busy,
            cost.tflops.unwrap_or(0.0),
            cost.tflops_at_peak_clock.unwrap_or(0.0)
        );
    }
    if !others.is_empty() {
        println!(
            "\n{:width$}  target  route  clocks  bytes in flight  needed    GB/s  of the route's",
            "copy, reduction, packets"
        );
    }
    for cost in others {
        println!(
            "{:width$}  {}  {:5}  {:6.0}  {:15}  {:6}  {:6.0}  {:6.0}",
            cost.kernel,
            cost.target,
            cost.route,
            cost.clocks,
            cost.in_flight,
            cost.needed,
            cost.gigabytes.unwrap_or(0.0),
            cost.route_gigabytes
        );
    }
}

/// Writes everything to a file.
pub fn write(path: &Path, analyzer: &Analyzer, costs: &[Cost]) -> Result<()> {
    let result = json!({
        "model": true,
        "llvm_mca": analyzer.version()?,
        "devices": DEVICES,
        "costs": costs,
    });
    let text = format!("{result:#}\n");
    at(path, std::fs::write(path, text))
}
