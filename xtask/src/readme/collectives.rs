//! The texts about a recorded benchmark of collectives, for the book and the README.

use super::{SOURCE, head, origin, size, times, word};
use serde_json::Value;
use std::fmt::Write;

/// Columns of baselines: header, and names in reports, of which the faster counts.
const BASELINES: [(&str, &[&str]); 7] = [
    ("NCCL, µs", &["nccl"]),
    ("NCCL windows, µs", &["nccl windows"]),
    ("RCCL, µs", &["rccl"]),
    ("RCCL windows, µs", &["rccl windows"]),
    (
        "PyTorch, faster of one-shot and two-shot, µs",
        &["torch one-shot", "torch two-shot"],
    ),
    ("Open MPI, µs", &["mpi"]),
    ("gloo, µs", &["gloo"]),
];

/// Returns the method and a table per operation: out-of-place graph replays, with every baseline.
pub fn section(report: &Value, name: &str) -> String {
    let measured = &report["collectives"];
    let points = array(&measured["points"]);
    let environment = &report["environment"];
    let origin = origin(report, name, SOURCE);
    let mut text = format!(
        "Driver {}; multicast (NVLS): {}; {}. Times are of one call, replayed from a graph (in a loop of calls if the \
         library cannot be replayed), out of place (in place if the library offers nothing else): the slowest rank's, \
         median of interleaved rounds, every result checked. The last column is the time of the best baseline divided \
         by symmem's: above 1, symmem is faster. busbw is nccl-tests'.\n",
        word(&environment["driver"]),
        word(&environment["multicast"]),
        versions(measured).join(", "),
    );
    for operation in operations(points) {
        let here = |point: &&Value| point["collective"] == operation;
        let mean = mean_ratio(points, |point| point["collective"] == operation);
        let mean = mean.map_or(String::new(), |mean| {
            format!(" (geometric mean of the last column: {mean:.2}×)")
        });
        let _ = writeln!(
            text,
            "\n**{operation}:** time of a call in bf16{mean}, {origin}.\n"
        );
        let timed = |names: &[&str]| {
            let of = |point: &&Value| names.contains(&word(&point["by"]));
            points.iter().filter(here).any(|point| of(&point))
        };
        let baselines: Vec<_> = BASELINES
            .into_iter()
            .filter(|(_, names)| timed(names))
            .collect();
        let mut numbers = vec!["size", "symmem, µs", "symmem's busbw, GB/s"];
        numbers.extend(baselines.iter().map(|(title, _)| title));
        numbers.push("best ÷ symmem");
        text += &head(&[], &numbers);
        let of = |names: &[&str], bytes: &Value| {
            let times = points
                .iter()
                .filter(here)
                .filter(|point| point["bytes"] == *bytes);
            let times = times.filter(|point| names.contains(&word(&point["by"])));
            times.filter_map(nanoseconds).reduce(f64::min)
        };
        let ours = points
            .iter()
            .filter(here)
            .filter(|point| point["by"] == "symmem");
        for bytes in ours.map(|point| &point["bytes"]) {
            let microseconds =
                |ns: Option<f64>| ns.map_or("–".into(), |ns| format!("{:.1}", ns / 1e3));
            let own = of(&["symmem"], bytes);
            let world = measured["world"].as_f64().unwrap_or(1.0);
            let busbw = own.zip(bytes.as_f64()).map_or("–".into(), |(ns, bytes)| {
                format!("{:.1}", bytes / ns * factor(operation, world))
            });
            let _ = write!(
                text,
                "| {} | {} | {busbw} |",
                size(bytes.as_u64().unwrap_or_default()),
                microseconds(own)
            );
            for (_, names) in &baselines {
                let _ = write!(text, " {} |", microseconds(of(names, bytes)));
            }
            let ratio = ratio(points, operation, bytes);
            let _ = writeln!(text, " {} |", times(ratio));
        }
    }
    if let Some(all) = mean_ratio(points, |_| true) {
        let _ = writeln!(
            text,
            "\nThe geometric mean of the last column over all operations and sizes is {all:.2}×."
        );
    }
    if let Some(ns) = measured["barrier"]["graph"]["ns"].as_f64() {
        let _ = writeln!(
            text,
            "A barrier replayed from a graph takes {:.2} µs.",
            ns / 1e3
        );
    }
    text
}

/// Returns the measured baselines with their versions.
fn versions(measured: &Value) -> Vec<String> {
    let baselines = array(&measured["baselines"]).iter();
    let baselines = baselines.filter(|one| !is_ours(&one["name"]));
    let version = |one: &Value| {
        Some(format!(
            "{} ({})",
            word(&one["name"]),
            one["version"].as_str()?
        ))
    };
    baselines.filter_map(version).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether a point or a baseline is of symmem itself: what the selector picks, or a named algorithm or kind of memory.
fn is_ours(name: &Value) -> bool {
    word(name).starts_with("symmem")
}

/// Returns the time of the best library other than symmem divided by symmem's.
fn ratio(points: &[Value], operation: &str, bytes: &Value) -> Option<f64> {
    let here = |point: &&Value| point["collective"] == operation && point["bytes"] == *bytes;
    let others = points.iter().filter(here);
    let others = others.filter(|point| !is_ours(&point["by"]));
    let best = others.filter_map(nanoseconds).reduce(f64::min)?;
    let mut ours = points.iter().filter(here);
    let ours = ours.find(|point| point["by"] == "symmem")?;
    Some(best / nanoseconds(ours)?)
}

/// Returns the geometric mean of the ratios of some points.
fn mean_ratio(points: &[Value], wanted: impl Fn(&Value) -> bool) -> Option<f64> {
    let ours = points
        .iter()
        .filter(|point| point["by"] == "symmem" && wanted(point));
    let ratios =
        ours.filter_map(|point| ratio(points, word(&point["collective"]), &point["bytes"]));
    let logarithms: Vec<f64> = ratios.map(f64::ln).collect();
    let sum: f64 = logarithms.iter().sum();
    (!logarithms.is_empty()).then(|| (sum / logarithms.len() as f64).exp())
}

/// Returns the distinct operations of the points, in their order.
fn operations(points: &[Value]) -> Vec<&str> {
    let mut operations: Vec<&str> = Vec::new();
    for operation in points.iter().map(|point| word(&point["collective"])) {
        if !operations.contains(&operation) {
            operations.push(operation);
        }
    }
    operations
}

/// The sizes that the summary shows.
const SUMMARY_SIZES: [u64; 4] = [8 << 10, 1 << 20, 64 << 20, 1 << 30];

/// Returns a table with a row per operation: symmem's time at a few sizes, and its ratio to the best baseline.
pub fn summary(report: &Value, name: &str) -> String {
    let measured = &report["collectives"];
    let points = array(&measured["points"]);
    let mut text = format!(
        "symmem's time of a call in bf16, and in parentheses the best baseline's time divided by symmem's (above 1, \
         symmem is faster), {}.\n\n",
        origin(report, name, "")
    );
    let titles = SUMMARY_SIZES.map(|bytes| format!("{}, µs", size(bytes)));
    let mut numbers: Vec<&str> = titles.iter().map(String::as_str).collect();
    let sizes = || points.iter().filter_map(|point| point["bytes"].as_u64());
    let mean = format!(
        "geometric mean of the ratios, {} to {}",
        size(sizes().min().unwrap_or_default()),
        size(sizes().max().unwrap_or_default())
    );
    numbers.push(&mean);
    text += &head(&["operation"], &numbers);
    for operation in operations(points) {
        let _ = write!(text, "| {operation} |");
        for bytes in SUMMARY_SIZES {
            let mut here = points
                .iter()
                .filter(|value| value["collective"] == operation && value["bytes"] == bytes);
            let point = here.find(|point| point["by"] == "symmem");
            let ratio = ratio(points, operation, &Value::from(bytes));
            let ratio = ratio.map_or(String::new(), |ratio| format!(" ({ratio:.2}×)"));
            let _ = match point.and_then(nanoseconds) {
                Some(ns) => write!(text, " {:.1}{ratio} |", ns / 1e3),
                None => write!(text, " – |"),
            };
        }
        let mean = mean_ratio(points, |point| point["collective"] == operation);
        let _ = writeln!(text, " {} |", times(mean));
    }
    let _ = writeln!(
        text,
        "\nThe baselines, with which symmem is compared: {}. Multicast (NVLS): {}.",
        versions(measured).join(", "),
        word(&report["environment"]["multicast"])
    );
    text
}

/// Returns a point's time, if its results were right.
fn nanoseconds(point: &Value) -> Option<f64> {
    let placed = match &point["out_of_place"] {
        Value::Null => &point["in_place"],
        placed => placed,
    };
    let times = [&placed["graph"]["ns"], &placed["looped"]["ns"]];
    let found = times.into_iter().find_map(Value::as_f64);
    found.filter(|_| placed["wrong"] == 0)
}

/// Returns the ratio busbw / algbw of nccl-tests.
fn factor(operation: &str, world: f64) -> f64 {
    match operation {
        "all_reduce" => 2.0 * (world - 1.0) / world,
        "broadcast" | "reduce" => 1.0,
        _ => (world - 1.0) / world,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_has_every_baseline_and_no_time_of_what_was_wrong() {
        let point = |by, bytes, ns: f64, wrong| {
            json!({"collective": "all_reduce", "by": by, "bytes": bytes,
                   "out_of_place": {"graph": {"ns": ns}, "wrong": wrong}})
        };
        let report = json!({"environment": {"devices": ["made up"]}, "collectives": {
            "world": 8,
            "baselines": [{"name": "nccl", "version": "0"}],
            "points": [
                point("symmem", 1024, 4000.0, 0), point("nccl", 1024, 8000.0, 0),
                // No baseline, since it is symmem's too.
                point("symmem own memory", 1024, 4000.0, 0),
                point("symmem", 1048576, 16000.0, 0), point("nccl", 1048576, 20000.0, 3)]}});
        let text = section(&report, "x.json");
        for line in [
            "| size | symmem, µs | symmem's busbw, GB/s | NCCL, µs | best ÷ symmem |",
            "| 1 KiB | 4.0 | 0.4 | 8.0 | 2.00× |",
            "| 1 MiB | 16.0 | 114.7 | – | – |",
            "**all_reduce:** time of a call in bf16 (geometric mean of the last column: 2.00×), 8 × made up",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let row = "| all_reduce | – | 16.0 | – | – | 2.00× |";
        let text = summary(&report, "x.json");
        assert!(text.contains(row), "{row}\n{text}");
    }
}
