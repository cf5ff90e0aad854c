//! The text about a recorded benchmark of all-gather + GEMM, for the book.

use super::{SOURCE, figure, head, origin, times, word};
use serde_json::Value;
use std::fmt::Write;

/// Returns the bf16 shapes of a report with this sharding of A.
fn products<'a>(report: &'a Value, sharding: &'a str) -> impl Iterator<Item = &'a Value> {
    let measured = report["ag_gemm"]["products"].as_array();
    measured.into_iter().flatten().filter(move |measured| {
        measured["product"]["sharding"] == sharding && measured["product"]["dtype"] == "bfloat16"
    })
}

/// Returns a table with a row per shape, and how far the selector's choice was behind symmem's fastest algorithm.
pub fn section(report: &Value, name: &str, sharding: &str) -> String {
    let libraries = report["ag_gemm"]["baselines"].as_array();
    let versions: Vec<&str> = libraries
        .into_iter()
        .flatten()
        .filter_map(|one| one["version"].as_str())
        .collect();
    // The second one names NCCL's version too.
    let versions = versions.last().copied().unwrap_or("no baseline");
    let versions = versions.split(", Transformer").next().unwrap_or_default();
    let mut text = format!(
        "**A sharded by {sharding}:** all-gather + GEMM in bf16 beside {versions}, {}.\n\n",
        origin(report, name, SOURCE)
    );
    let of_the_time = match sharding {
        "rows" => ["rate per GPU, TFLOP/s", "share of the ideal, %"],
        _ => ["time, µs", "GEMM alone, µs"],
    };
    let numbers: Vec<&str> = of_the_time
        .into_iter()
        .chain([
            "NCCL, then GEMM ÷ symmem",
            "NCCL windows, then GEMM ÷ symmem",
            "PyTorch ÷ symmem",
        ])
        .collect();
    text += &head(&["M×N×K", "selector's choice"], &numbers);
    let mut behind: f64 = 0.0;
    for measured in products(report, sharding) {
        let product = &measured["product"];
        let side = |key: &str| product[key].as_u64().unwrap_or_default();
        let (m, n, k) = (side("m"), side("n"), side("k"));
        let bias = if product["bias"] == true {
            ", bias"
        } else {
            ""
        };
        let order = match word(&product["b_order"]) {
            "column-major" => ", B column-major",
            _ => "",
        };
        let chosen = chosen(measured);
        let over = |by: &str| over(entry(measured, by)?, chosen?);
        let ns = chosen.and_then(headline);
        let [first, second] = match sharding {
            "rows" => [
                // 2·M·N·K operations over nanoseconds are 10⁹ of them per second.
                ns.map(|ns| figure(2.0 * (m * n * k) as f64 / ns / 1e3)),
                over("gemm")
                    .zip(over("gather"))
                    .map(|(gemm, gather)| format!("{:.0}", 100.0 * gemm.max(gather))),
            ],
            _ => [ns, entry(measured, "gemm").and_then(headline)]
                .map(|ns| ns.map(|ns| format!("{:.1}", ns / 1e3))),
        }
        .map(|cell| cell.unwrap_or("–".into()));
        // Without NCCL the algorithm `Baseline` gathers by symmem's own collective.
        let by_nccl = entry(measured, "baseline").is_some_and(|entry| entry["how"] == "vendor");
        let torch = [over("torch"), over("torch fused")];
        let torch = torch.into_iter().flatten().reduce(f64::min);
        let _ = writeln!(
            text,
            "| {m}×{n}×{k}{order}{bias} | {} | {first} | {second} | {} | {} | {} |",
            word(&measured["chosen"]),
            times(over("baseline").filter(|_| by_nccl)),
            times(over("baseline windows")),
            times(torch)
        );
        let here = measured["choice"]["behind_percent"].as_f64();
        behind = behind.max(here.unwrap_or_default());
    }
    text += &match behind {
        0.0..0.05 => {
            "\nThe selector's choice was the fastest algorithm of symmem in every row.\n".into()
        }
        _ => format!(
            "\nThe selector's choice took at most {behind:.1} % longer than the fastest algorithm of symmem.\n"
        ),
    };
    text
}

fn entry<'a>(measured: &'a Value, by: &str) -> Option<&'a Value> {
    let mut entries = measured["entries"].as_array()?.iter();
    entries.find(|entry| entry["by"] == by && entry["wrong"] == 0)
}

/// Returns the entry of the selector's choice. Earlier reports name it without the transport.
fn chosen(measured: &Value) -> Option<&Value> {
    let chosen = word(&measured["chosen"]);
    let mut entries = measured["entries"].as_array()?.iter();
    entries.find(|entry| {
        let (by, how) = (word(&entry["by"]), word(&entry["how"]));
        let named = match by {
            "automatic" => how == chosen,
            _ => by == chosen || format!("{by} {how}") == chosen,
        };
        named && entry["wrong"] == 0
    })
}

/// Returns the time of a replay, or else of single calls.
fn headline(entry: &Value) -> Option<f64> {
    let times = [&entry["graph"]["ns"], &entry["time"]["ns"]];
    times.into_iter().find_map(Value::as_f64)
}

/// Returns the ratio of two times: of replays, or else of single calls.
fn over(one: &Value, other: &Value) -> Option<f64> {
    let of = |by: &str| Some(one[by]["ns"].as_f64()? / other[by]["ns"].as_f64()?);
    of("graph").or_else(|| of("time"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_is_the_selectors_choice_beside_the_faster_of_pytorchs_and_no_time_of_what_was_wrong() {
        let entry = |by, how, ns: f64, wrong| json!({"by": by, "how": how, "time": {"ns": ns}, "wrong": wrong});
        let report = json!({"environment": {"devices": ["made up"]}, "ag_gemm": {"world": 2, "products": [{
            "product": {"m": 1000, "n": 1000, "k": 1000, "dtype": "bfloat16", "sharding": "rows"},
            "chosen": "push put", "choice": {"behind_percent": 25.0},
            "entries": [
                entry("gemm", "", 2e6, 0), entry("gather", "", 3e6, 0),
                entry("pull", "kernel", 3.2e6, 0), entry("push", "put", 4e6, 0),
                entry("baseline", "vendor", 5e6, 0), entry("baseline windows", "vendor", 5e6, 7),
                entry("torch", "", 6e6, 0), entry("torch fused", "", 8e6, 0)]}]}});
        let text = section(&report, "x.json", "rows");
        let row = "| 1000×1000×1000 | push put | 0.50 | 75 | 1.25× | – | 1.50× |";
        assert!(text.contains(row), "{row}\n{text}");
        assert!(text.contains("at most 25.0 % longer"), "{text}");
        assert!(!section(&report, "x.json", "columns").contains(row));
    }
}
