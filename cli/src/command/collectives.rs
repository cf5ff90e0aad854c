//! The arguments of `symmem bench collectives` and `symmem tune`.

use super::common::{MEASUREMENT, RESULTS, effort};
use clap::Args;
use std::path::PathBuf;
use symmem_bench::collectives::Between;
use symmem_bench::report::Collective;
use symmem_bench::{collectives, tune};

/// Arguments of the benchmark.
#[derive(Debug, Default, Args)]
pub struct Arguments {
    #[command(flatten)]
    which: CaseArguments,
    /// Baselines: nccl or rccl, nccl-windows or rccl-windows (symmetric windows), torch, nccl-torch, gloo, mpi,
    /// flashinfer (TensorRT-LLM's all-reduces) and vllm of the program in SYMMEM_FLASHINFER_BASELINE, own_memory (symmem on memory of the caller's own), an algorithm of
    /// symmem as in --algorithm, or none [default: NCCL or RCCL with and without windows and torch on GPUs; mpi,gloo on
    /// the host]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = baseline, help_heading = MEASUREMENT)]
    baseline: Vec<String>,
    /// Algorithm of symmem to measure: packets (LL), packets_two_shot (LL twice), lamport, lamport_two_shot, pieces, one_shot, two_shot,
    /// push, pull, swap, copy_engine, multicast, multicast_one_shot [default: the selector's choice]
    #[arg(long, value_name = "NAME", value_parser = algorithm, help_heading = MEASUREMENT)]
    algorithm: Option<String>,
    /// Number of concurrent copies, for symmem's algorithms that copy. 0 starts all copies of a kernel at once; with
    /// the copy engine, 0 lets the size decide
    /// [default: the selector's choice]
    #[arg(long, value_name = "N", help_heading = MEASUREMENT)]
    concurrent: Option<u32>,
    /// Number of rounds; the result is their median [default: 9, --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = MEASUREMENT)]
    rounds: Option<u32>,
    /// Put a kernel in front of each call of a loop, as a model has: copy (16 MiB), gemv or gemm (cuBLASLt or
    /// hipBLASLt). Times are of the whole loop; external programs other than FlashInfer's are left out
    #[arg(long, value_name = "KERNEL", value_parser = between, help_heading = MEASUREMENT)]
    between: Option<Between>,
    /// Launch all calls of symmem and FlashInfer plainly, without programmatic dependent launch
    #[arg(long, help_heading = MEASUREMENT)]
    plain: bool,
    /// Command that starts the ranks of the baseline mpi, with its options, as in 'mpirun --host a:2,b:2'; needed for
    /// several nodes [default: mpirun --oversubscribe]
    #[arg(long, value_name = "COMMAND", help_heading = MEASUREMENT)]
    mpirun: Option<String>,
}

/// Arguments that benchmark and tuning share: operations, sizes and element type.
#[derive(Debug, Default, Args)]
struct CaseArguments {
    /// Measure every fifth power of two up to 1 MiB; with --max-bytes, every power of two up to it. 3 rounds
    /// instead of 9
    #[arg(long, conflicts_with = "full", help_heading = MEASUREMENT)]
    quick: bool,
    /// Measure sizes up to 1 GiB [default: up to 64 MiB]
    #[arg(long, help_heading = MEASUREMENT)]
    full: bool,
    /// Operations: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather,
    /// scatter, or all [default: the first four]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = operation, help_heading = MEASUREMENT)]
    op: Vec<Operations>,
    /// Smallest size, written as 1024, 1K or 1KiB [default: 1K]
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = MEASUREMENT)]
    min_bytes: Option<u64>,
    /// Largest size [default: 64M, --quick 1M, --full 1G]
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = MEASUREMENT)]
    max_bytes: Option<u64>,
    /// Element type: bf16, f16, f32, f64, e4m3, e5m2, i8 … u64, or a name of nccl-tests
    /// [default: bf16; on the host f32]
    #[arg(long, value_name = "TYPE", value_parser = element, help_heading = MEASUREMENT)]
    r#type: Option<String>,
}

/// Arguments of the tuning.
#[derive(Debug, Default, Args)]
pub struct TuneArguments {
    #[command(flatten)]
    which: CaseArguments,
    /// Tuning table to write; rows that the file has for other operations and world sizes stay
    #[arg(long, value_name = "FILE", default_value = "tuning.json", help_heading = RESULTS)]
    pub out: PathBuf,
    /// Print the table as Rust source, for a backend's built-in table
    #[arg(long, help_heading = RESULTS)]
    rust: bool,
}

/// One operation, or all.
#[derive(Clone, Debug)]
pub struct Operations(pub Vec<Collective>);

impl Arguments {
    pub fn options(self) -> collectives::Options {
        let named = |name: &String| name != NONE;
        let baselines = match self.baseline.is_empty() {
            true => None,
            false => Some(self.baseline.into_iter().filter(named).collect()),
        };
        collectives::Options {
            baselines,
            algorithm: self.algorithm,
            concurrent: self.concurrent,
            rounds: self.rounds,
            between: self.between,
            plain: self.plain,
            mpirun: self.mpirun,
            ..self.which.options()
        }
    }
}

impl CaseArguments {
    fn options(self) -> collectives::Options {
        let defaults = collectives::Options::default();
        collectives::Options {
            effort: effort(self.quick, self.full),
            collectives: chosen(&self.op, defaults.collectives),
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            element: self.r#type,
            baselines: None,
            algorithm: None,
            concurrent: None,
            rounds: None,
            between: None,
            plain: false,
            mpirun: None,
        }
    }
}

impl TuneArguments {
    pub fn options(&mut self) -> tune::Options {
        tune::Options {
            which: std::mem::take(&mut self.which).options(),
            out: self.out.clone(),
            rust: self.rust,
        }
    }
}

/// Returns each named operation once, or `usual` if none was named.
pub fn chosen(named: &[Operations], usual: Vec<Collective>) -> Vec<Collective> {
    let mut chosen = Vec::new();
    for collective in named.iter().flat_map(|operations| &operations.0) {
        if !chosen.contains(collective) {
            chosen.push(*collective);
        }
    }
    match chosen.is_empty() {
        true => usual,
        false => chosen,
    }
}

/// The value of `--baseline` for no baseline.
const NONE: &str = "none";

pub fn operation(text: &str) -> Result<Operations, String> {
    if text == "all" {
        return Ok(Operations(Collective::ALL.into()));
    }
    Collective::parse(text)
        .map(|collective| Operations(vec![collective]))
        .ok_or_else(|| {
            let names: Vec<&str> = Collective::ALL.iter().map(|one| one.name()).collect();
            format!("not an operation; write {} or all", names.join(", "))
        })
}

fn baseline(text: &str) -> Result<String, String> {
    match text == NONE || collectives::is_baseline(text) {
        true => Ok(text.into()),
        false => Err(format!(
            "not a baseline; write {} or {NONE}",
            collectives::baseline_names()
        )),
    }
}

fn between(text: &str) -> Result<Between, String> {
    Between::parse(text).ok_or_else(|| {
        let names = Between::ALL.map(Between::name);
        format!("not a kernel; write {}", names.join(", "))
    })
}

fn algorithm(text: &str) -> Result<String, String> {
    match collectives::algorithm(text) {
        Some(_) => Ok(text.into()),
        None => Err("not an algorithm of symmem; the help lists them".into()),
    }
}

fn element(text: &str) -> Result<String, String> {
    collectives::nccl_name(text)
        .map(str::to_owned)
        .ok_or_else(|| {
            "not an element type; write bf16, f16, f32, f64, e4m3, e5m2, i8 … u64".into()
        })
}

/// Parses a number of bytes, with an optional unit: K, M or G (powers of 1024), optionally followed by B or iB.
pub fn size(text: &str) -> Result<u64, String> {
    let short = text.trim_end_matches(['B', 'b']).trim_end_matches('i');
    let (digits, shift) = match short.char_indices().last() {
        Some((at, 'K' | 'k')) => (&short[..at], 10),
        Some((at, 'M' | 'm')) => (&short[..at], 20),
        Some((at, 'G' | 'g')) => (&short[..at], 30),
        _ => (short, 0),
    };
    let bytes = digits.parse::<u64>().ok().filter(|bytes| *bytes != 0);
    bytes
        .and_then(|bytes| bytes.checked_mul(1 << shift))
        .ok_or_else(|| "not a size; write bytes, or 64K, 1M, 1G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("8", 8),
            ("1K", 1024),
            ("64KiB", 65536),
            ("2m", 2 << 20),
            ("1GB", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "0", "1T", "1.5M", "-1", "99999999999G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_unknown_name_is_told_what_there_is() {
        assert!(operation("allreduce").unwrap_err().contains("all_reduce"));
        assert!(baseline("openmpi").unwrap_err().contains("mpi"));
        assert!(element("float8").is_err() && algorithm("ring").is_err());
        assert!(algorithm("multicast").is_ok() && algorithm("multicast_one_shot").is_ok());
        assert_eq!(element("bf16").unwrap(), "bfloat16");
        assert_eq!(operation("all").unwrap().0.len(), 8);
    }

    #[test]
    fn an_operation_that_is_named_twice_is_measured_once() {
        let named = ["broadcast", "all", "broadcast"].map(|name| operation(name).unwrap());
        let all = chosen(&named, Vec::new());
        assert_eq!((all[0], all.len()), (Collective::Broadcast, 8));
        let usual = vec![Collective::Reduce];
        assert_eq!(chosen(&[], usual.clone()), usual);
    }

    #[test]
    fn none_is_no_baseline_and_nothing_said_is_the_usual_ones() {
        let with = |names: &[&str]| Arguments {
            baseline: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Arguments::default()
        };
        assert_eq!(with(&[]).options().baselines, None);
        assert_eq!(with(&["none"]).options().baselines, Some(vec![]));
        let named = with(&["nccl", "torch"]).options().baselines.unwrap();
        assert_eq!(named, ["nccl", "torch"]);
    }
}
