//! The arguments of `symmem bench ag-gemm`, and the files that it reads and writes.

use super::common::{MEASUREMENT, RESULTS, effort};
use super::error::{CommandError, Result};
use super::files::Written;
use clap::Args;
use std::path::{Path, PathBuf};
use symmem::tuning::gemm_algorithm;
use symmem_bench::ag_gemm::{ALL_TRANSPORTS, Options};
use symmem_bench::report::ag_gemm::{ALGORITHMS, AgGemmResults, GemmProblem};
use symmem_bench::report::{Report, page};

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Arguments {
    /// GEMM shapes: a JSON list of {"m", "n", "k", "dtype": float16 or bfloat16, "sharding": rows or columns,
    /// "b_order": row-major or column-major, "bias"}; may be given more than once
    #[arg(long, value_name = "FILE", required = true, help_heading = MEASUREMENT)]
    config: Vec<PathBuf>,
    /// Measure only these algorithms of symmem: baseline, pipeline, pull, push, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named, default_value = "all", help_heading = MEASUREMENT)]
    algorithm: Vec<String>,
    /// Transport of the shards, for algorithms with a choice: get or put (copy engines), vendor (NCCL or RCCL),
    /// kernel, or all, which adds every other transport of pipeline and push [default: each algorithm's default]
    #[arg(long, value_name = "NAME", value_parser = ["get", "put", "vendor", "kernel", ALL_TRANSPORTS], help_heading = MEASUREMENT)]
    transport: Option<String>,
    /// Compare every algorithm's C with a reference [default: both --validate and --benchmark]
    #[arg(short, long, help_heading = MEASUREMENT)]
    validate: bool,
    /// Measure the time
    #[arg(short, long, help_heading = MEASUREMENT)]
    benchmark: bool,
    /// Print each rank's plan: streams, peers, chunks, waits. Without -v or -b, run nothing
    #[arg(long, help_heading = MEASUREMENT)]
    explain: bool,
    /// Also measure as DDLB does for its published results: no barrier, mean of 50 calls on rank 0
    #[arg(long, help_heading = MEASUREMENT)]
    ddlb: bool,
    /// Program to compare with: pytorch or none [default: pytorch on GPUs, none on the host]
    #[arg(long, value_name = "BASELINE", value_parser = [PYTORCH, NONE], help_heading = MEASUREMENT)]
    baseline: Option<String>,
    /// Measure 3 rounds instead of 9
    #[arg(long, help_heading = MEASUREMENT)]
    quick: bool,
    /// Number of rounds; the result is their median [default: 9, --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = MEASUREMENT)]
    rounds: Option<u32>,
    /// Directory for the results: one JSON file per shape, and ag-gemm.html
    #[arg(long, value_name = "DIR", default_value = "results", help_heading = RESULTS)]
    pub out: PathBuf,
    /// Tuning table for SYMMEM_TUNING: add a row per shape with symmem's fastest algorithm and its cuBLASLt or
    /// hipBLASLt heuristic candidates; other rows stay. Needs all algorithms, implies -v and -b, and writes nothing
    /// if a result is wrong
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub tune: Option<PathBuf>,
}

const ALL: &str = "all";
const PYTORCH: &str = "pytorch";
const NONE: &str = "none";
/// The page of all shapes.
const PAGE: &str = "ag-gemm.html";

fn named(text: &str) -> std::result::Result<String, String> {
    match text == ALL || gemm_algorithm(text).is_some() {
        true => Ok(text.into()),
        false => Err(format!(
            "not an algorithm; write {} or {ALL}",
            ALGORITHMS.join(", ")
        )),
    }
}

impl Arguments {
    /// Reads the shapes and returns the benchmark's options.
    pub fn options(self) -> Result<Options> {
        let mut problems = Vec::new();
        for file in &self.config {
            problems.extend(read(file)?);
        }
        if self.tune.is_some() {
            self.check_all_take_part()?;
        }
        let neither = !self.validate && !self.benchmark && !self.explain;
        let all = self.algorithm.iter().any(|name| name == ALL);
        Ok(Options {
            effort: effort(self.quick, false),
            problems,
            algorithms: if all { Vec::new() } else { self.algorithm },
            transport: self.transport,
            // A tuning table must not name an algorithm that computes wrong results.
            validate: self.validate || neither || self.tune.is_some(),
            benchmark: self.benchmark || neither || self.tune.is_some(),
            explain: self.explain,
            ddlb: self.ddlb,
            torch: self.baseline.map(|name| name == PYTORCH),
            rounds: self.rounds,
        })
    }
}

impl Arguments {
    /// Fails if `--algorithm` or `--transport` excludes an algorithm from the tuning.
    fn check_all_take_part(&self) -> Result<()> {
        let left_out =
            |option: &str, value: String| Err(CommandError::TunePart(format!("{option} {value}")));
        if !self.algorithm.iter().any(|name| name == ALL) {
            return left_out("--algorithm", self.algorithm.join(","));
        }
        match &self.transport {
            Some(one) if one != ALL_TRANSPORTS => left_out("--transport", one.clone()),
            _ => Ok(()),
        }
    }
}

/// Reads a file's list of shapes.
fn read(file: &Path) -> Result<Vec<GemmProblem>> {
    let text = std::fs::read_to_string(file).map_err(|error| CommandError::System {
        what: format!("reading {}", file.display()),
        error,
    })?;
    let wrong = |what: String| CommandError::Said(format!("{}: {what}", file.display()));
    let problems: Vec<GemmProblem> =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if problems.is_empty() {
        return Err(wrong("no shapes in the list; add at least one".into()));
    }
    match problems
        .iter()
        .find(|problem| problem.m * problem.n * problem.k == 0)
    {
        Some(problem) => Err(wrong(format!(
            "{} has no elements; m, n and k must be at least 1",
            problem.shape()
        ))),
        None => Ok(problems),
    }
}

/// Writes one JSON file per shape, and the page of all.
pub fn write(directory: &Path, report: &Report, written: &mut Written) -> Result<()> {
    let Some(section) = &report.ag_gemm else {
        return Ok(());
    };
    std::fs::create_dir_all(directory).map_err(|error| CommandError::System {
        what: format!("creating {}", directory.display()),
        error,
    })?;
    let unwritable = |error: &dyn std::fmt::Display| CommandError::Said(format!("report: {error}"));
    for measured in &section.products {
        let mut only = AgGemmResults {
            products: vec![measured.clone()],
            ..section.clone()
        };
        only.worst_choice = only.find_worst_choice();
        let one = Report {
            ag_gemm: Some(only),
            ..report.clone()
        };
        let name = measured.problem.file_name();
        let file = directory.join(format!("ag-gemm-{name}-{}-ranks.json", section.world));
        written.write(&file, &one.to_json().map_err(|error| unwritable(&error))?)?;
    }
    let page = page::html(report).map_err(|error| unwritable(&error))?;
    written.write(&directory.join(PAGE), &page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_algorithm_is_told_which_there_are() {
        assert!(named("ring").unwrap_err().contains("pipeline"));
        assert_eq!(named("all").unwrap(), "all");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let error = read(Path::new("/no/such/file.json")).unwrap_err();
        assert!(error.to_string().contains("/no/such/file.json"));
    }
}
