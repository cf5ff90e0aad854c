//! `cargo xtask readme FILE`: writes the results of a recorded benchmark into the book's page of results, and a summary
//! of collectives into the README, so that nobody copies numbers by hand.

mod collectives;

use crate::book::{SOURCE, between};
use crate::error::{Error, Result, at};
use crate::tools::root;
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;

/// The marks around the results of transfers.
const BEGIN: &str = "<!-- benchmark:begin -->\n";
const END: &str = "<!-- benchmark:end -->";
/// The marks around the results of collectives.
const COLLECTIVES_BEGIN: &str = "<!-- collectives:begin -->\n";
const COLLECTIVES_END: &str = "<!-- collectives:end -->";
/// The marks around the summary of collectives.
const SUMMARY_BEGIN: &str = "<!-- summary:begin -->\n";
const SUMMARY_END: &str = "<!-- summary:end -->";
/// The page of results.
const RESULTS: &str = "docs/src/results.md";
const README: &str = "README.md";

/// The shown columns: name in the report, and header.
const COLUMNS: [(&str, &str); 5] = [
    ("block128", "one block of 128 threads"),
    ("nvshmem", "NVSHMEM, the same block"),
    ("block_best", "best one block"),
    ("grid_best", "best kernel, ≤ 16 blocks"),
    ("copy_engine", "copy engine"),
];

#[derive(clap::Args)]
pub struct Options {
    /// The benchmark's JSON file, in benches/results
    report: PathBuf,
}

pub fn run(options: &Options) -> Result<()> {
    let text = at(&options.report, std::fs::read_to_string(&options.report))?;
    let report: Value = serde_json::from_str(&text).map_err(|source| Error::Manifest {
        path: options.report.clone(),
        source,
    })?;
    let name = options.report.file_name().unwrap_or_default();
    for part in parts(&report, &name.to_string_lossy()) {
        let path = root().join(part.page);
        let page = at(&path, std::fs::read_to_string(&path))?;
        let changed = part.placed_in(&page).ok_or_else(|| Error::Source {
            path: path.clone(),
            what: format!("the marks {}…{} are missing", part.begin, part.end),
        })?;
        at(&path, std::fs::write(&path, changed))?;
    }
    Ok(())
}

/// Generated text of a page.
struct Part {
    page: &'static str,
    begin: &'static str,
    end: &'static str,
    text: String,
}

impl Part {
    /// Returns the page with this text between its marks, or `None` if the marks are missing.
    fn placed_in(&self, page: &str) -> Option<String> {
        between(page, self.begin, self.end, &self.text)
    }
}

/// Returns the texts for a report: the tables of collectives and their summary, or the tables of transfers.
fn parts(report: &Value, name: &str) -> Vec<Part> {
    match collectives::section(report, name) {
        // A report of `symmem` without a command has both, with too few sizes of collectives for these tables.
        Some(text) if report["points"] == serde_json::json!([]) => vec![
            Part {
                page: RESULTS,
                begin: COLLECTIVES_BEGIN,
                end: COLLECTIVES_END,
                text,
            },
            Part {
                page: README,
                begin: SUMMARY_BEGIN,
                end: SUMMARY_END,
                text: collectives::summary(report, name),
            },
        ],
        _ => vec![Part {
            page: RESULTS,
            begin: BEGIN,
            end: END,
            text: section(report, name),
        }],
    }
}

fn section(report: &Value, name: &str) -> String {
    let environment = &report["environment"];
    let libraries = &environment["libraries"];
    let mut text = format!(
        "{} × {}, {}, driver {}, NVSHMEM {}, commit {}; multicast: {}. Raw: [`benches/results/{name}`]({SOURCE}benches/results/{name}).\n\n",
        environment["devices"].as_array().map_or(0, Vec::len),
        word(&environment["devices"][0]),
        day(environment),
        word(&libraries["libcuda.so.1"])
            .rsplit("libcuda.so.")
            .next()
            .unwrap_or_default(),
        word(&libraries["nvshmem"]),
        commit(environment),
        word(&environment["multicast"]),
    );
    text.push_str(
        "GB/s (10⁹ bytes per second) of each rank while both ranks transfer at once: 10 warm-up launches, then up to \
         50 launches back to back. A cell is the slower rank's median over 9 rounds, which alternate with NVSHMEM's. \
         The data are random, and every result was checked.\n",
    );
    for direction in ["push", "pull"] {
        let _ = writeln!(text, "\n**{direction}**\n");
        let _ = write!(text, "| bytes |");
        let _ = COLUMNS
            .iter()
            .try_for_each(|(_, label)| write!(text, " {label} |"));
        let _ = write!(text, " over NVSHMEM |\n|---:|");
        let _ = COLUMNS.iter().try_for_each(|_| write!(text, "---:|"));
        let _ = writeln!(text, "---:|");
        for bytes in sizes(report, direction) {
            let rates = COLUMNS.map(|(column, _)| rate(report, direction, bytes, column));
            let _ = write!(text, "| {} |", size(bytes));
            for rate in rates {
                let _ = write!(text, " {} |", rate.map_or("–".into(), figure));
            }
            let ratio = rates[0].zip(rates[1]).map(|(ours, theirs)| ours / theirs);
            let ratio = ratio.map_or("–".into(), |ratio| format!("{ratio:.2}×"));
            let _ = writeln!(text, " {ratio} |");
        }
    }
    text.push_str("\n| one way, µs | median | NVSHMEM |\n|---|---:|---:|\n");
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
         inside one kernel, except in the last line, which times host calls. Below 64 KiB the host's launch rate \
         limits the bandwidths.\n",
    );
    text
}

/// Returns the day of a run.
fn day(environment: &Value) -> &str {
    word(&environment["date"])
        .split('T')
        .next()
        .unwrap_or_default()
}

/// Returns the abbreviated commit of a run.
fn commit(environment: &Value) -> String {
    word(&environment["commit"]).chars().take(12).collect()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
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

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1048576 => format!("{} KiB", bytes >> 10),
        1048576..1073741824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// Formats a number with three significant digits.
fn figure(rate: f64) -> String {
    match rate {
        rate if rate < 10.0 => format!("{rate:.2}"),
        rate if rate < 100.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
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

    #[test]
    fn the_pages_show_what_the_reports_that_they_name_say() {
        for (page, begin, end) in [
            (RESULTS, BEGIN, END),
            (RESULTS, COLLECTIVES_BEGIN, COLLECTIVES_END),
            (README, SUMMARY_BEGIN, SUMMARY_END),
        ] {
            let text = std::fs::read_to_string(root().join(page)).unwrap();
            let shown = text.split_once(begin).unwrap().1.split_once(end).unwrap().0;
            let name = shown.split_once("benches/results/").unwrap().1;
            let name = &name[..name.find(".json").unwrap() + 5];
            let report = std::fs::read(root().join("benches/results").join(name)).unwrap();
            let report = serde_json::from_slice(&report).unwrap();
            let parts = parts(&report, name);
            let part = parts
                .iter()
                .find(|part| part.page == page && part.begin == begin);
            let part = part.unwrap_or_else(|| panic!("{name} has nothing for {page}"));
            assert!(
                shown == part.text,
                "{page}: run `cargo xtask readme benches/results/{name}`"
            );
        }
    }
}
