//! The arguments of `symmem bench gemm-rs` and `symmem bench gemm-ar`, and the files that they read and write.

use super::common::{MEASUREMENT, RESULTS, effort};
use super::error::{CommandError, Result};
use super::files::{Target, Written};
use super::gemm_shapes::{self, extent, word};
use super::task::Files;
use clap::Args;
use std::path::PathBuf;
use symmem_bench::gemm_reduce::{Options, shapes};
use symmem_bench::report::ag_gemm::{MatrixElement, MatrixOrder};
use symmem_bench::report::gemm_reduce::{
    ALGORITHMS, GemmCollective, GemmReduceProblem, GemmReduceResults, TRANSPORTS,
};
use symmem_bench::report::{Report, page};

/// Arguments of the benchmarks.
#[derive(Debug, Args)]
pub struct Arguments {
    /// GEMM shapes: a JSON list of {"m", "n", "k", "dtype": float16 or bfloat16, "b_order": row-major or column-major,
    /// "bias"}, where k is a rank's part; may be given more than once
    #[arg(long, value_name = "FILE", help_heading = MEASUREMENT)]
    config: Vec<PathBuf>,
    #[command(flatten)]
    shapes: Shapes,
    /// Measure only these algorithms of symmem: automatic (the selector's choice), baseline (one GEMM, then the
    /// collective), pipeline, push (one kernel), packets (one kernel, for few rows), or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of(&ALGORITHMS), default_value = ALL, help_heading = MEASUREMENT)]
    algorithm: Vec<String>,
    /// Transports of pipelines: put (copy engines), kernel (GEMMs store to the next rank), or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = one_of(&TRANSPORTS), default_value = ALL, help_heading = MEASUREMENT)]
    transport: Vec<String>,
    /// Numbers of streams of pipelines [default: 1,2]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count, help_heading = MEASUREMENT)]
    streams: Vec<usize>,
    /// Numbers of chunks into which pipelines cut each rank's rows [default: 1,2,4]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count, help_heading = MEASUREMENT)]
    chunks: Vec<usize>,
    /// Compare every algorithm's C with a reference [default: both --validate and --benchmark]
    #[arg(short, long, help_heading = MEASUREMENT)]
    validate: bool,
    /// Measure the time
    #[arg(short, long, help_heading = MEASUREMENT)]
    benchmark: bool,
    /// Print each rank's plan: streams, peers, chunks, waits. Without -v or -b, run nothing
    #[arg(long, help_heading = MEASUREMENT)]
    explain: bool,
    /// Measure 3 rounds instead of 9
    #[arg(long, help_heading = MEASUREMENT)]
    quick: bool,
    /// Number of rounds; the result is their median [default: 9, --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = MEASUREMENT)]
    rounds: Option<u32>,
    /// Directory for the results: one JSON file per shape, and an HTML page
    /// [default: symmem-results/, the command's name and the time]
    #[arg(long, value_name = "DIR", help_heading = RESULTS)]
    pub out: Option<PathBuf>,
}

/// A heading in the help.
const SHAPES: &str = "Shapes instead of --config";

/// The shapes of every m, n and k.
#[derive(Debug, Args)]
struct Shapes {
    /// Rows of A and of the sum; one number or several, as 16,64
    #[arg(short, long, value_name = "M", value_delimiter = ',', allow_negative_numbers = true, value_parser = extent, help_heading = SHAPES)]
    m: Vec<usize>,
    /// Columns of B and of the sum. The number of ranks is --ranks
    #[arg(short, long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true, value_parser = extent, help_heading = SHAPES)]
    n: Vec<usize>,
    /// Columns of each rank's A, rows of its B
    #[arg(short, long, value_name = "K", value_delimiter = ',', allow_negative_numbers = true, value_parser = extent, help_heading = SHAPES)]
    k: Vec<usize>,
    /// Element type: bf16 or f16 [default: bf16]
    #[arg(long, value_name = "TYPE", value_parser = word::<MatrixElement>, help_heading = SHAPES)]
    element: Option<MatrixElement>,
    /// Storage order of B: row-major or column-major [default: row-major]
    #[arg(long, value_name = "ORDER", value_parser = word::<MatrixOrder>, help_heading = SHAPES)]
    b_order: Option<MatrixOrder>,
    /// Add a bias to each row of the sum
    #[arg(long, help_heading = SHAPES)]
    bias: bool,
}

impl Shapes {
    /// Returns the shapes, with every combination of the sizes; none if no option of a shape was given.
    fn problems(&self) -> Result<Vec<GemmReduceProblem>> {
        let sizes = [("-m", &self.m), ("-n", &self.n), ("-k", &self.k)];
        let extra = [
            ("--element", self.element.is_some()),
            ("--b-order", self.b_order.is_some()),
            ("--bias", self.bias),
        ];
        gemm_shapes::check_given(sizes.map(|(name, all)| (name, !all.is_empty())), &extra)?;
        let mut problems = Vec::new();
        for &k in &self.k {
            for &n in &self.n {
                for &m in &self.m {
                    let problem = GemmReduceProblem {
                        m,
                        n,
                        k,
                        dtype: self.element.unwrap_or(MatrixElement::Bf16),
                        b_order: self.b_order.unwrap_or_default(),
                        bias: self.bias,
                    };
                    shapes::check(&problem).map_err(CommandError::Said)?;
                    problems.push(problem);
                }
            }
        }
        Ok(problems)
    }
}

const ALL: &str = "all";

/// Returns a parser of one of the names or `all`.
fn one_of(
    names: &'static [&'static str],
) -> impl Fn(&str) -> std::result::Result<String, String> + Clone {
    move |text| match text == ALL || names.contains(&text) {
        true => Ok(text.into()),
        false => Err(format!("unknown; write {} or {ALL}", names.join(", "))),
    }
}

/// Parses a number of streams or chunks.
fn count(text: &str) -> std::result::Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number != 0);
    number.ok_or_else(|| "not a number; write 1 or more".into())
}

/// Returns the names, or none if `all` is among them.
fn unless_all(names: Vec<String>) -> Vec<String> {
    match names.iter().any(|name| name == ALL) {
        true => Vec::new(),
        false => names,
    }
}

impl Arguments {
    /// Reads the shapes and returns the benchmark's options.
    pub fn options(self, collective: GemmCollective) -> Result<Options> {
        let problems = gemm_shapes::problems(self.shapes.problems()?, &self.config, shapes::parse)?;
        let neither = !self.validate && !self.benchmark && !self.explain;
        Ok(Options {
            collective,
            effort: effort(self.quick, false),
            problems,
            algorithms: unless_all(self.algorithm),
            transports: unless_all(self.transport),
            streams: self.streams,
            chunks: self.chunks,
            validate: self.validate || neither,
            benchmark: self.benchmark || neither,
            explain: self.explain,
            rounds: self.rounds,
        })
    }
}

/// Writes one JSON file per shape, and the page of all.
pub fn write(files: &Files, report: &Report, written: &mut Written) -> Result<()> {
    let target = |name: &str| Target::file(files.out.join(name), files.force);
    let Some(section) = &report.gemm_reduce else {
        return Ok(());
    };
    let unwritable = |error: &dyn std::fmt::Display| CommandError::Said(format!("report: {error}"));
    let command = section.collective.command();
    for measured in &section.products {
        let mut only = GemmReduceResults {
            products: vec![measured.clone()],
            ..section.clone()
        };
        only.worst_choice = only.find_worst_choice();
        let one = Report {
            gemm_reduce: Some(only),
            ..report.clone()
        };
        let name = measured.problem.file_name();
        let file = target(&format!("{command}-{name}-{}-ranks.json", section.world));
        written.write_to(&file, &one.to_json().map_err(|error| unwritable(&error))?)?;
    }
    let page = page::html(report).map_err(|error| unwritable(&error))?;
    written.write_to(&target(&format!("{command}.html")), &page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_told_which_there_are() {
        let algorithm = one_of(&ALGORITHMS);
        assert!(algorithm("pull").unwrap_err().contains("packets or all"));
        assert_eq!(algorithm("all").unwrap(), "all");
        assert_eq!(
            unless_all(vec!["put".into(), "all".into()]),
            Vec::<String>::new()
        );
    }
}
