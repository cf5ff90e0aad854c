//! The text about a recorded benchmark of transfers between two ranks, for the book.

use super::{SOURCE, figure, head, origin, size, times, word};
use serde_json::Value;
use std::fmt::Write;

/// The shown columns: name in the report, and header.
const COLUMNS: [(&str, &str); 5] = [
    ("block128", "one block of 128 threads, GB/s"),
    ("nvshmem", "NVSHMEM, the same block, GB/s"),
    ("block_best", "best single block, GB/s"),
    ("grid_best", "best kernel, ≤ 16 blocks, GB/s"),
    ("copy_engine", "copy engine, GB/s"),
];

/// Returns the method, a table per direction, and one of latencies.
pub fn section(report: &Value, name: &str) -> String {
    let environment = &report["environment"];
    let libraries = &environment["libraries"];
    let origin = origin(report, name, SOURCE);
    let mut text = format!(
        "Driver {}, NVSHMEM {}; multicast: {}. GB/s are 10⁹ bytes per second of each rank while both ranks transfer at \
         once: 10 warm-up launches, then up to 50 launches back to back. A cell is the slower rank's median over 9 \
         rounds, which alternate with NVSHMEM's. The data are random, and every result was checked. Below 64 KiB the \
         host's launch rate limits the bandwidths. The last column is symmem's rate divided by NVSHMEM's, for the same \
         block: above 1, symmem is faster.\n",
        word(&libraries["libcuda.so.1"])
            .rsplit("libcuda.so.")
            .next()
            .unwrap_or_default(),
        word(&libraries["nvshmem"]),
        word(&environment["multicast"]),
    );
    for (direction, verb) in [("push", "puts to"), ("pull", "gets from")] {
        let _ = writeln!(
            text,
            "\n**{}:** bandwidth of a rank that {verb} the other one, {origin}.\n",
            capital(direction)
        );
        let mut numbers: Vec<&str> = vec!["size"];
        numbers.extend(COLUMNS.map(|(_, label)| label));
        numbers.push("one block ÷ NVSHMEM");
        text += &head(&[], &numbers);
        for bytes in sizes(report, direction) {
            let rates = COLUMNS.map(|(column, _)| rate(report, direction, bytes, column));
            let _ = write!(text, "| {} |", size(bytes));
            for rate in rates {
                let _ = write!(text, " {} |", rate.map_or("–".into(), figure));
            }
            let ratio = rates[0].zip(rates[1]).map(|(ours, theirs)| ours / theirs);
            let _ = writeln!(text, " {} |", times(ratio));
        }
    }
    let _ = writeln!(
        text,
        "\n**Latency:** median time of a message one way, {origin}.\n"
    );
    text += &head(&["message"], &["symmem, µs", "NVSHMEM, µs"]);
    for latency in report["latencies"].as_array().into_iter().flatten() {
        let median = |spread: &Value| {
            spread["median"]
                .as_f64()
                .map(|ns| format!("{:.3}", ns / 1e3))
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            word(&latency["name"]),
            median(&latency["one_way_ns"]).unwrap_or("–".into()),
            median(&latency["baseline"]["one_way_ns"]).unwrap_or("–".into()),
        );
    }
    text.push_str(
        "\nsymmem's latency kernels put from registers, NVSHMEM's from memory. Each message is one of many round trips \
         inside one kernel, except in the last line, which times host calls.\n",
    );
    text
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn points<'a>(report: &'a Value, direction: &'a str) -> impl Iterator<Item = &'a Value> {
    report["points"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(move |point| {
            point["direction"] == direction
                && point["traffic"] == "both_ways"
                && point["wrong_bytes"] == 0
        })
}

fn sizes(report: &Value, direction: &str) -> Vec<u64> {
    let mut sizes: Vec<u64> = points(report, direction)
        .filter_map(|point| point["bytes"].as_u64())
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns the slowest rank's looped rate.
fn rate(report: &Value, direction: &str, bytes: u64, column: &str) -> Option<f64> {
    points(report, direction)
        .filter(|point| point["bytes"] == bytes && point["column"] == column)
        .filter_map(|point| point["looped"]["gbps"].as_f64())
        .reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_section_shows_the_slowest_rank_and_leaves_wrong_points_out() {
        let point = |rank, column, gbps, wrong| {
            json!({"direction": "push", "traffic": "both_ways", "rank": rank, "bytes": 2048,
                   "column": column, "looped": {"gbps": gbps}, "wrong_bytes": wrong})
        };
        let report = json!({"environment": {"devices": ["made up"]}, "points": [
            point(0, "block128", 4.0, 0), point(1, "block128", 3.0, 0),
            point(0, "nvshmem", 1.5, 0), point(0, "copy_engine", 9.0, 1)]});
        let text = section(&report, "x.json");
        assert!(
            text.contains("| 2 KiB | 3.00 | 1.50 | – | – | – | 2.00× |"),
            "{text}"
        );
    }
}
