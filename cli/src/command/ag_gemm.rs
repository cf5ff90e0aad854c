//! The arguments of `symmem bench ag-gemm`, and the files that it reads and writes.

use super::common::{MEASUREMENT, RESULTS, effort};
use super::error::{CommandError, Result};
use super::files::{Target, Written};
use super::gemm_shapes::{self, SHAPE, extent, word};
use super::task::Files;
use clap::Args;
use std::path::PathBuf;
use symmem::GemmTile;
use symmem::tuning::gemm_algorithm;
use symmem_bench::ag_gemm::{ALL_TRANSPORTS, Options, shapes};
use symmem_bench::report::ag_gemm::{
    ALGORITHMS, AgGemmResults, GemmProblem, MatrixElement, MatrixOrder, Sharding,
};
use symmem_bench::report::{Report, page};

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Arguments {
    /// GEMM shapes: a JSON list of {"m", "n", "k", "dtype": float16, bfloat16, float32 or float8_e4m3fn,
    /// "sharding": rows or columns, "b_order": row-major or column-major, "bias"}; may be given more than once
    #[arg(long, value_name = "FILE", help_heading = MEASUREMENT)]
    config: Vec<PathBuf>,
    #[command(flatten)]
    shape: Shape,
    /// Measure only these algorithms of symmem: baseline (gather all of A, then one GEMM), pipeline, pull, push, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named, default_value = "all", help_heading = MEASUREMENT)]
    algorithm: Vec<String>,
    /// Transport of the shards, for algorithms with a choice: get or put (copy engines), vendor (NCCL or RCCL), or
    /// kernel (blocks of symmem's kernel). all adds the other transports of pipeline and push
    /// [default: each algorithm's default]
    #[arg(long, value_name = "NAME", value_parser = ["get", "put", "vendor", "kernel", ALL_TRANSPORTS], help_heading = MEASUREMENT)]
    transport: Option<String>,
    /// Tile of the kernels of pull and push, as rows x columns of C: 256x128; auto for the backend's choice. An algorithm
    /// whose kernel has no such tile on this device is left out, with the reason
    #[arg(long, value_name = "TILE", value_parser = tile, default_value = AUTO, help_heading = MEASUREMENT)]
    tile: Tile,
    /// Compare every algorithm's C with a reference [default: both --validate and --benchmark]
    #[arg(short, long, help_heading = MEASUREMENT)]
    validate: bool,
    /// Measure the time
    #[arg(short, long, help_heading = MEASUREMENT)]
    benchmark: bool,
    /// Print each rank's plan: streams, peers, chunks, waits. Without -v or -b, run nothing
    #[arg(long, help_heading = MEASUREMENT)]
    explain: bool,
    /// Also measure by the method of DDLB's published results: mean of 50 calls on rank 0, without a barrier
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
    /// [default: symmem-results/ag-gemm- and the time]
    #[arg(long, value_name = "DIR", help_heading = RESULTS)]
    pub out: Option<PathBuf>,
    /// Tuning table for SYMMEM_TUNING: add a row per shape with symmem's fastest algorithm and its cuBLASLt or
    /// hipBLASLt heuristic candidates; other rows stay. Needs all algorithms and implies -v and -b. The table stays
    /// unchanged if a result is wrong
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub tune: Option<PathBuf>,
}

/// One shape.
#[derive(Debug, Args)]
struct Shape {
    /// Rows of A and C
    #[arg(short, long, value_name = "M", allow_negative_numbers = true, value_parser = extent, help_heading = SHAPE)]
    m: Option<usize>,
    /// Columns of B and C on each rank. The number of ranks is --ranks
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = extent, help_heading = SHAPE)]
    n: Option<usize>,
    /// Columns of A, rows of B
    #[arg(short, long, value_name = "K", allow_negative_numbers = true, value_parser = extent, help_heading = SHAPE)]
    k: Option<usize>,
    /// Element type: float16, bfloat16, float32 or float8_e4m3fn, also as f16, bf16, f32 and f8e4m3. float32 has no kernel
    /// for pull and push on GPUs. Of 8-bit floats, C and the bias are of bfloat16, and GPUs take a column-major B only
    /// [default: bfloat16]
    #[arg(long, value_name = "TYPE", value_parser = word::<MatrixElement>, help_heading = SHAPE)]
    r#type: Option<MatrixElement>,
    /// Dimension by which A is sharded among the ranks: rows or columns [default: rows]
    #[arg(long, value_name = "DIVISION", value_parser = word::<Sharding>, help_heading = SHAPE)]
    sharding: Option<Sharding>,
    /// Storage order of B: row-major or column-major [default: row-major; column-major for 8-bit floats]
    #[arg(long, value_name = "ORDER", value_parser = word::<MatrixOrder>, help_heading = SHAPE)]
    b_order: Option<MatrixOrder>,
    /// Add a bias to each row of C
    #[arg(long, help_heading = SHAPE)]
    bias: bool,
}

impl Shape {
    /// Returns the shape; `None` if no option of a shape was given.
    fn problem(&self) -> Result<Option<GemmProblem>> {
        let sizes = [("-m", self.m), ("-n", self.n), ("-k", self.k)];
        let extra = [
            ("--type", self.r#type.is_some()),
            ("--sharding", self.sharding.is_some()),
            ("--b-order", self.b_order.is_some()),
            ("--bias", self.bias),
        ];
        gemm_shapes::check_given(sizes.map(|(name, size)| (name, size.is_some())), &extra)?;
        let [(_, Some(m)), (_, Some(n)), (_, Some(k))] = sizes else {
            return Ok(None);
        };
        let dtype = self.r#type.unwrap_or(MatrixElement::Bf16);
        let problem = GemmProblem {
            m,
            n,
            k,
            dtype,
            sharding: self.sharding.unwrap_or_default(),
            b_order: self.b_order.unwrap_or(match dtype {
                MatrixElement::F8E4M3 => MatrixOrder::Columns,
                _ => MatrixOrder::Rows,
            }),
            bias: self.bias,
        };
        shapes::check(&problem).map_err(CommandError::Said)?;
        Ok(Some(problem))
    }
}

const ALL: &str = "all";
const AUTO: &str = "auto";
const PYTORCH: &str = "pytorch";
const NONE: &str = "none";
/// The benchmark's name in file names.
pub const NAME: &str = "ag-gemm";
/// The page of all shapes.
const PAGE: &str = "ag-gemm.html";

/// The tile of the kernels; `None` for the backend's choice.
#[derive(Clone, Copy, Debug)]
struct Tile(Option<GemmTile>);

fn tile(text: &str) -> std::result::Result<Tile, String> {
    match text == AUTO {
        true => Ok(Tile(None)),
        false => text
            .parse()
            .map(Some)
            .map(Tile)
            .map_err(|error: String| format!("{error}, or {AUTO}")),
    }
}

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
        let problems = self.problems()?;
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
            tile: self
                .tile
                .0
                .map(|GemmTile { rows, columns }| (rows, columns)),
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
    /// Returns the shapes of the files, or the one shape of the command line.
    fn problems(&self) -> Result<Vec<GemmProblem>> {
        let shape = self.shape.problem()?.into_iter().collect();
        gemm_shapes::problems(shape, &self.config, shapes::parse)
    }

    /// Fails if `--algorithm` or `--transport` excludes an algorithm from the tuning.
    fn check_all_take_part(&self) -> Result<()> {
        let left_out =
            |option: &str, value: String| Err(CommandError::TunePart(format!("{option} {value}")));
        if !self.algorithm.iter().any(|name| name == ALL) {
            return left_out("--algorithm", self.algorithm.join(","));
        }
        if let Some(tile) = self.tile.0 {
            return left_out("--tile", tile.to_string());
        }
        match &self.transport {
            Some(one) if one != ALL_TRANSPORTS => left_out("--transport", one.clone()),
            _ => Ok(()),
        }
    }
}

/// Writes one JSON file per shape, and the page of all.
pub fn write(files: &Files, report: &Report, written: &mut Written) -> Result<()> {
    let target = |name: &str| Target::file(files.out.join(name), files.force);
    let Some(section) = &report.ag_gemm else {
        return Ok(());
    };
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
        let file = target(&format!("{NAME}-{name}-{}-ranks.json", section.world));
        written.write_to(&file, &one.to_json().map_err(|error| unwritable(&error))?)?;
    }
    let page = page::html(report).map_err(|error| unwritable(&error))?;
    written.write_to(&target(PAGE), &page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_algorithm_is_told_which_there_are() {
        assert!(named("ring").unwrap_err().contains("pipeline"));
        assert_eq!(named("all").unwrap(), "all");
    }
}
