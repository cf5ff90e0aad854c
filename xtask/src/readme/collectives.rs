//! The texts about a recorded benchmark of collectives, for the book and the README.

use super::{SOURCE, commit, day, size, word};
use serde_json::Value;
use std::fmt::Write;

/// Returns the environment and a table per operation: out-of-place graph replays, with every baseline. `None` for a
/// report without collectives.
pub fn section(report: &Value, name: &str) -> Option<String> {
    let measured = &report["collectives"];
    let points = measured["points"].as_array()?;
    let environment = &report["environment"];
    let mut baselines = Vec::new();
    let mut versions = Vec::new();
    for baseline in measured["baselines"].as_array().into_iter().flatten() {
        let name = word(&baseline["name"]);
        match baseline["version"].as_str() {
            Some(version) => {
                baselines.push(name);
                versions.push(format!("{name}: {version}"));
            }
            None => versions.push(format!("{name}: absent")),
        }
    }
    let mut text = format!(
        "{} ranks on {}, {}, driver {}, commit {}; multicast (NVLS): {}; {}. Raw: \
         [`benches/results/{name}`]({SOURCE}benches/results/{name}).\n\n\
         Time of a call in µs, replayed from a graph (in a loop of calls if the library cannot be replayed), out of \
         place (in place if the library offers nothing else): the slowest rank's, median of interleaved rounds, every \
         result checked. best/ours is the time of the best baseline divided by symmem's: above 1, symmem is faster.\n",
        measured["world"],
        word(&environment["devices"][0]),
        day(environment),
        word(&environment["driver"]),
        commit(environment),
        word(&environment["multicast"]),
        versions.join(", "),
    );
    for operation in operations(points) {
        let mean = measured["summary"]["means"][operation].as_f64();
        let mean = mean.map_or(String::new(), |mean| format!(", geometric mean {mean:.2}×"));
        let _ = writeln!(text, "\n**{operation}**{mean}\n");
        let _ = writeln!(
            text,
            "| size | symmem | busbw, GB/s | {} | best/ours |\n|---:|---:|---:|{}---:|",
            baselines.join(" | "),
            "---:|".repeat(baselines.len())
        );
        let of = |by: &str, bytes: &Value| {
            let here = |point: &&Value| {
                point["collective"] == operation && point["by"] == by && point["bytes"] == *bytes
            };
            points.iter().find(here).and_then(nanoseconds)
        };
        let ours = points
            .iter()
            .filter(|point| point["collective"] == operation && point["by"] == "symmem");
        for bytes in ours.map(|point| &point["bytes"]) {
            let microseconds =
                |ns: Option<f64>| ns.map_or("–".into(), |ns| format!("{:.1}", ns / 1e3));
            let own = of("symmem", bytes);
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
            for baseline in &baselines {
                let _ = write!(text, " {} |", microseconds(of(baseline, bytes)));
            }
            let ratios = measured["summary"]["ratios"].as_array();
            let ratio = ratios.into_iter().flatten().find(|ratio| {
                ratio["collective"] == operation
                    && ratio["bytes"] == *bytes
                    && ratio["placement"] == "out_of_place"
            });
            let ratio = ratio.and_then(|ratio| ratio["ratio"].as_f64());
            let ratio = ratio.map_or("–".into(), |ratio| format!("{ratio:.2}×"));
            let _ = writeln!(text, " {ratio} |");
        }
    }
    if let Some(all) = measured["summary"]["means"]["all"].as_f64() {
        let _ = writeln!(text, "\nOver all operations and sizes: {all:.2}×.");
    }
    if let Some(ns) = measured["barrier"]["graph"]["ns"].as_f64() {
        let _ = writeln!(text, "A barrier in a graph: {:.2} µs.", ns / 1e3);
    }
    Some(text)
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
    let environment = &report["environment"];
    let entries = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let points = entries(&measured["points"]);
    let ratios = entries(&measured["summary"]["ratios"]);
    let versions: Vec<String> = entries(&measured["baselines"])
        .iter()
        .filter_map(|one| {
            Some(format!(
                "{} ({})",
                word(&one["name"]),
                one["version"].as_str()?
            ))
        })
        .collect();
    let mut text = format!(
        "{} ranks on {}, {}, commit {}, multicast (NVLS) {}. Time of a call in µs, and in parentheses the time of the \
         best baseline divided by it: above 1, symmem is faster. Baselines: {}. All sizes: [results]\
         (docs/src/results.md); raw: [`{name}`](benches/results/{name}).\n\n| bf16, out of place |",
        measured["world"],
        word(&environment["devices"][0]),
        day(environment),
        commit(environment),
        word(&environment["multicast"]),
        versions.join(", "),
    );
    let _ = SUMMARY_SIZES
        .iter()
        .try_for_each(|&bytes| write!(text, " {} |", size(bytes)));
    text.push_str(" geometric mean of the ratios |\n|---|");
    text.push_str(&"---:|".repeat(SUMMARY_SIZES.len() + 1));
    text.push('\n');
    for operation in operations(&points) {
        let _ = write!(text, "| {operation} |");
        for bytes in SUMMARY_SIZES {
            let here = |value: &&Value| value["collective"] == operation && value["bytes"] == bytes;
            let point = points
                .iter()
                .filter(here)
                .find(|point| point["by"] == "symmem");
            let ratio = ratios
                .iter()
                .filter(here)
                .find(|one| one["placement"] == "out_of_place");
            let ratio = ratio.and_then(|ratio| ratio["ratio"].as_f64());
            let ratio = ratio.map_or(String::new(), |ratio| format!(" ({ratio:.2}×)"));
            let _ = match point.and_then(nanoseconds) {
                Some(ns) => write!(text, " {:.1}{ratio} |", ns / 1e3),
                None => write!(text, " – |"),
            };
        }
        let mean = measured["summary"]["means"][operation].as_f64();
        let _ = writeln!(
            text,
            " {} |",
            mean.map_or("–".into(), |mean| format!("{mean:.2}×"))
        );
    }
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
            "baselines": [{"name": "nccl", "version": "0"}, {"name": "mpi", "absent": "why"}],
            "points": [
                point("symmem", 1024, 4000.0, 0), point("nccl", 1024, 8000.0, 0),
                point("symmem", 1048576, 16000.0, 0), point("nccl", 1048576, 20000.0, 3)],
            "summary": {"means": {"all_reduce": 2.0, "all": 2.0}, "ratios": [
                {"collective": "all_reduce", "bytes": 1024, "placement": "out_of_place", "ratio": 2.0}]}}});
        let text = section(&report, "x.json").unwrap();
        for line in [
            "| size | symmem | busbw, GB/s | nccl | best/ours |",
            "| 1 KiB | 4.0 | 0.4 | 8.0 | 2.00× |",
            "| 1 MiB | 16.0 | 114.7 | – | – |",
            "**all_reduce**, geometric mean 2.00×",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.contains("mpi: absent"), "{text}");
        assert_eq!(section(&json!({}), "x.json"), None);
        let row = "| all_reduce | – | 16.0 | – | – | 2.00× |";
        let text = summary(&report, "x.json");
        assert!(text.contains(row), "{row}\n{text}");
    }
}
