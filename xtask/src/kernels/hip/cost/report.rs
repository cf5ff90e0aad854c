//! Prints the costs, and writes them as a result that is marked as a model.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::calibration;
use super::devices::DEVICES;
use super::mca::Analyzer;
use super::model::Cost;
use crate::error::{Result, at};
use crate::tools;

/// What a run on a device may contradict first.
const ASSUMPTIONS: [&str; 8] = [
    "a compute unit has one block; SIMDs issue one instruction of each wave and unit every four clocks",
    "operands of a GEMM come at the L2's rate after the Infinity Cache's latency, 497 clocks of MI300X",
    "a barrier costs 16 clocks after its last wave, a taken branch 16",
    "HBM gives 4.2 TB/s (MI300X) and 5.65 TB/s (MI355X), as others measured: copies cannot be faster",
    "a load from a peer takes 1500 ns, for which there is no source; a link gives 48 or 53 GB/s",
    "launches are those of backend-hip's tables for large messages, which were never measured",
    "of packets, only the loop that sends them is modeled: half of its bytes are data",
    "TFLOP/s are those of the loop, without the first and last steps of a tile and partly filled rounds",
];

/// Returns the commit of the checkout.
fn commit() -> Result<String> {
    let root = tools::root();
    let output = tools::output(
        Command::new("git")
            .arg("-C")
            .arg(&root)
            .args(["rev-parse", "HEAD"]),
    )?;
    Ok(output.trim().to_owned())
}

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

/// Prints the model beside published times.
pub fn print_calibration() {
    println!("\npublished GEMM    device     side  published  predicted, TFLOP/s  error");
    let rows = calibration::rows();
    for row in &rows {
        let published = &row.published;
        println!(
            "{:16}  {:9}  {:5}  {:9.0}  {:18.0}  {:+4.0} %",
            published.kernel,
            published.product,
            published.side,
            published.published_tflops,
            row.predicted_tflops,
            row.error * 100.0
        );
    }
    let (mean, largest) = calibration::errors(&rows);
    println!(
        "mean error {:.0} %, largest {:.0} %",
        mean * 100.0,
        largest * 100.0
    );
}

/// Writes everything to a file.
pub fn write(path: &Path, analyzer: &Analyzer, costs: &[Cost]) -> Result<()> {
    let rows = calibration::rows();
    let (mean, largest) = calibration::errors(&rows);
    let result = json!({
        "model": true,
        "llvm_mca": analyzer.version()?,
        "what": "cargo xtask kernels cost: expected, not measured; nothing has run on a device",
        "commit": commit()?,
        "assumptions": ASSUMPTIONS,
        "calibration": { "rows": rows, "mean_error": mean, "largest_error": largest },
        "devices": DEVICES,
        "costs": costs,
    });
    let text = format!("{result:#}\n");
    at(path, std::fs::write(path, text))
}
