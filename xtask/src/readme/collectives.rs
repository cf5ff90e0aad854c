//! A recorded benchmark of collectives, as the README shows it.

use super::{size, word};
use serde_json::Value;
use std::fmt::Write;

/// A heading, what it was beside and with what, and a table for each operation: graph replays, out of
/// place, beside every baseline; `None` for a report without collectives.
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
         [`benches/results/{name}`](benches/results/{name}).\n\n\
         µs of a call replayed from a graph, looped where there is no replay, out of place (in place \
         where a library knows nothing else); the slowest rank, median of interleaved rounds, every point \
         checked. best/ours: the best baseline's time over ours, above 1 ours is faster.\n",
        measured["world"],
        word(&environment["devices"][0]),
        word(&environment["date"])
            .split('T')
            .next()
            .unwrap_or_default(),
        word(&environment["driver"]),
        word(&environment["commit"])
            .chars()
            .take(12)
            .collect::<String>(),
        word(&environment["multicast"]),
        versions.join(", "),
    );
    let mut operations: Vec<&str> = Vec::new();
    for point in points {
        let operation = word(&point["collective"]);
        if !operations.contains(&operation) {
            operations.push(operation);
        }
    }
    for operation in operations {
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

/// A point's time: of what was right only.
fn nanoseconds(point: &Value) -> Option<f64> {
    let placed = match &point["out_of_place"] {
        Value::Null => &point["in_place"],
        placed => placed,
    };
    let times = [&placed["graph"]["ns"], &placed["looped"]["ns"]];
    let found = times.into_iter().find_map(Value::as_f64);
    found.filter(|_| placed["wrong"] == 0)
}

/// nccl-tests' busbw over algbw.
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
    }
}
