//! The arguments of `symmem bench rms-norm`.

use super::common::{MEASUREMENT, effort};
use super::error::{CommandError, Result};
use clap::Args;
use symmem_bench::report::norms::{NormOutput, RowElement};
use symmem_bench::rms_norm::Options;

/// Arguments of the benchmark.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Elements of a row [default: 4096,8192; --quick 8192; on the host 1024]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count, help_heading = MEASUREMENT)]
    hidden: Vec<usize>,
    /// Numbers of rows [default: 1,4,16,64,256,1024; --quick 1,16,256; on the host 1,16]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count, help_heading = MEASUREMENT)]
    rows: Vec<usize>,
    /// Element type: bf16, f16 or f32
    #[arg(long, value_name = "TYPE", value_parser = element, default_value = "bf16", help_heading = MEASUREMENT)]
    r#type: RowElement,
    /// Types of the results: same, or fp8 with one scale (tensor), a scale for each row (row) or for each 128 elements (group)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = output, default_value = "same", help_heading = MEASUREMENT)]
    output: Vec<NormOutput>,
    /// Leave out the residual
    #[arg(long, help_heading = MEASUREMENT)]
    no_residual: bool,
    /// Divide the residual: each rank has its own rows only
    #[arg(long, conflicts_with = "no_residual", help_heading = MEASUREMENT)]
    sharded_residual: bool,
    /// Compare sampled rows with a reference [default: both --validate and --benchmark]
    #[arg(short, long, help_heading = MEASUREMENT)]
    validate: bool,
    /// Measure the time
    #[arg(short, long, help_heading = MEASUREMENT)]
    benchmark: bool,
    /// Library whose all-reduce is measured too: nccl, rccl or none; nccl and rccl both mean the library of the backend
    /// [default: nccl on GPUs, none on the host]
    #[arg(long, value_name = "BASELINE", value_parser = [NCCL, RCCL, NONE], help_heading = MEASUREMENT)]
    baseline: Option<String>,
    /// Number of rounds; the result is their median [default: 9, --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = MEASUREMENT)]
    rounds: Option<u32>,
    /// Measure few sizes and 3 rounds instead of 9
    #[arg(long, help_heading = MEASUREMENT)]
    quick: bool,
}

const NCCL: &str = "nccl";
const RCCL: &str = "rccl";
const NONE: &str = "none";

/// The most elements of a row, and rows.
const MOST: usize = 1 << 24;

/// Parses a number of rows or of elements of a row.
fn count(text: &str) -> std::result::Result<usize, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=MOST).contains(number))
        .ok_or_else(|| format!("not a number from 1 to {MOST}"))
}

fn element(text: &str) -> std::result::Result<RowElement, String> {
    match text {
        "bf16" | "bfloat16" => Ok(RowElement::Bf16),
        "f16" | "float16" | "half" => Ok(RowElement::F16),
        "f32" | "float" => Ok(RowElement::F32),
        _ => Err("not a type of rows; write bf16, f16 or f32".into()),
    }
}

fn output(text: &str) -> std::result::Result<NormOutput, String> {
    match text {
        "same" => Ok(NormOutput::Same),
        "tensor" => Ok(NormOutput::Tensor),
        "row" => Ok(NormOutput::Row),
        "group" => Ok(NormOutput::Group),
        _ => Err("not a type of results; write same, tensor, row or group".into()),
    }
}

impl Arguments {
    /// Returns the benchmark's options.
    pub fn options(self) -> Result<Options> {
        let neither = !self.validate && !self.benchmark;
        let options = Options {
            effort: effort(self.quick, false),
            hidden: self.hidden,
            rows: self.rows,
            element: self.r#type,
            outputs: self.output,
            residual: !self.no_residual,
            sharded: self.sharded_residual,
            validate: self.validate || neither,
            benchmark: self.benchmark || neither,
            vendor: self.baseline.map(|name| name != NONE),
            rounds: self.rounds,
        };
        options
            .check()
            .map(|()| options)
            .map_err(CommandError::Said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_short_names_and_those_of_nccl_tests() {
        assert_eq!(element("bf16"), element("bfloat16"));
        assert_eq!(element("f32"), Ok(RowElement::F32));
        assert!(element("i8").unwrap_err().contains("bf16"));
        assert!(output("fp8").unwrap_err().contains("group"));
        for wrong in ["0", "-1", "16777217", "x"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }
}
