//! All-gather + GEMM in a report: shapes, contenders, times and derived figures.
//!
//! Times are of one call on the slowest rank, each call after a barrier of all ranks. Rates are per device:
//! 2·M·N·K operations over the time, where N counts the columns of B on that device.

use super::collectives::BaselineState;
pub use super::contenders::{Choice, Entry};
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod fixture;
mod kind;
mod page;
mod plot;
mod ratios;
mod view;

#[cfg(test)]
pub(super) use fixture::products as example;
pub(super) use page::section;
pub(super) use view::views;

pub use symmem::tuning::{GemmProblem, MatrixElement};
pub use symmem::{MatrixOrder, Sharding};

/// All measurements of all-gather + GEMM in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgGemmResults {
    /// World size.
    pub world: u32,
    /// The shape for which the selector's choice is slowest relative to symmem's fastest algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_choice: Option<WorstChoice>,
    /// The other libraries, available or not.
    pub baselines: Vec<BaselineState>,
    /// The measured shapes.
    pub products: Vec<Measured>,
}

/// One shape, measured with every contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The shape.
    #[serde(rename = "product")]
    pub problem: GemmProblem,
    /// Name of the algorithm that the selector would choose, and of its transport for A.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// The selector's choice compared with symmem's fastest algorithm; `None` if the choice was not timed, which
    /// happens if only some algorithms were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// The contenders' measurements.
    pub entries: Vec<Entry>,
    /// Number of rounds, in each of which all contenders took turns; 0 if nothing was timed.
    pub rounds: u32,
    /// Figures derived from the times, for readers of the JSON; the tables compute them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derived: Vec<Derived>,
}

/// A [`Choice`] and its shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstChoice {
    /// The shape.
    #[serde(rename = "product")]
    pub problem: GemmProblem,
    /// The choice.
    #[serde(flatten)]
    pub choice: Choice,
}

/// The GEMM alone, by cuBLASLt or hipBLASLt, with all of A already local.
pub const GEMM: &str = "gemm";
/// The GEMM alone, by the kernel that `pull` and `push` use. For small M, `push` may use another kernel; its entry
/// says so.
pub const OWN_GEMM: &str = "own gemm";
/// The all-gather alone, by the selector's choice for collectives, which its entry names.
pub const GATHER: &str = "gather";
/// GEMM and all-gather at once on two streams, without a dependency: a limit for overlap.
pub const TOGETHER: &str = "together";
/// Symmem's algorithm `Baseline`: the all-gather, then the GEMM. [`AgGemmResults::baselines`] are other programs.
pub const BASELINE: &str = "baseline";
/// Symmem's algorithms, in the order in which they are shown.
pub const ALGORITHMS: [&str; 4] = [BASELINE, "pipeline", "pull", "push"];
/// Symmem's algorithms with a transport that is not their default.
pub const VARIANTS: [&str; 4] = ["pipeline get", "pipeline vendor", "push put", "push kernel"];
/// The selector's choice, if it is not among the other contenders.
pub const AUTOMATIC: &str = "automatic";
/// The all-gather by NCCL or RCCL between symmetric windows, then the GEMM.
pub const WINDOWS: &str = "baseline windows";
/// PyTorch's all-gather, then its GEMM.
pub const TORCH: &str = "torch";
/// PyTorch's `fused_all_gather_matmul`.
pub const TORCH_FUSED: &str = "torch fused";
/// Transformer Engine's linear layer, which overlaps the all-gather with its GEMMs.
pub const TRANSFORMER_ENGINE: &str = "transformer engine";

/// Figures derived from a contender's time and the times of the parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// The contender.
    pub by: String,
    /// TFLOP/s per device.
    pub teraflops: f64,
    /// The longer of GEMM and gather alone, divided by the contender's time.
    pub of_ideal: Option<f64>,
    /// Time of the GEMM alone, divided by the contender's time: the efficiency of the overlap.
    pub overlap: Option<f64>,
    /// Time of [`TOGETHER`], divided by the contender's time.
    pub of_together: Option<f64>,
    /// Time of [`BASELINE`], divided by the contender's time; above 1, the contender is faster.
    pub over_baseline: Option<f64>,
}

impl Measured {
    /// Returns a contender's entry.
    pub fn entry(&self, by: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.by == by)
    }

    /// Returns a contender's main time ([`Entry::headline`]) in nanoseconds.
    pub fn ns(&self, by: &str) -> Option<f64> {
        Some(self.entry(by)?.headline()?.ns)
    }

    /// Returns the time of `one` divided by the time of `other`; above 1, `other` is faster. Compares graph replays
    /// if both have them, otherwise single calls.
    pub fn over(&self, one: &str, other: &str) -> Option<f64> {
        self.entry(one)?.over(self.entry(other)?)
    }

    /// Returns the longer of the times of GEMM and gather alone, in nanoseconds.
    pub fn ideal(&self) -> Option<f64> {
        Some(self.ns(GEMM)?.max(self.ns(GATHER)?))
    }

    /// Returns the derived figures of a contender; `None` if it has no time.
    pub fn derive(&self, by: &str) -> Option<Derived> {
        let ns = self.ns(by)?;
        let gemm = self.over(GEMM, by);
        let gather = self.over(GATHER, by);
        Some(Derived {
            by: by.into(),
            teraflops: self.problem.teraflops(ns),
            of_ideal: gemm.zip(gather).map(|(gemm, gather)| gemm.max(gather)),
            overlap: gemm,
            of_together: self.over(TOGETHER, by),
            over_baseline: self.over(BASELINE, by),
        })
    }

    /// Returns the derived figures of every contender that multiplies alone.
    pub fn derive_all(&self) -> Vec<Derived> {
        let part = |entry: &&Entry| entry.by != GATHER && entry.by != TOGETHER;
        let products = self.entries.iter().filter(part);
        products
            .filter_map(|entry| self.derive(&entry.by))
            .collect()
    }

    /// Returns symmem's fastest algorithm.
    pub fn best(&self) -> Option<&'static str> {
        let all = ALGORITHMS.into_iter().chain(VARIANTS).chain([AUTOMATIC]);
        let timed = all.filter_map(|by| Some((by, self.ns(by)?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(by, _)| by)
    }

    /// Compares the selector's choice with symmem's fastest algorithm; `None` if the choice was not measured or
    /// either has no time.
    pub fn choose(&self) -> Option<Choice> {
        let fastest = self.best()?;
        let chosen = self.chosen.as_deref()?;
        let is_chosen = |entry: &&Entry| match entry.by.as_str() {
            AUTOMATIC => entry.how == chosen,
            // Reports of earlier versions do not name the transport.
            by => by == chosen || format!("{by} {}", entry.how) == chosen,
        };
        let by = &self.entries.iter().find(is_chosen)?.by;
        let behind = self.over(by, fastest)? - 1.0;
        Some(Choice {
            chosen: chosen.into(),
            fastest: fastest.into(),
            behind_percent: behind * 100.0,
        })
    }

    /// Whether any contender had wrong elements.
    pub fn is_wrong(&self) -> bool {
        self.entries.iter().any(|entry| entry.wrong != 0)
    }
}

impl AgGemmResults {
    /// Returns the choice that is slowest relative to symmem's fastest algorithm.
    pub fn find_worst_choice(&self) -> Option<WorstChoice> {
        let choices = self.products.iter().filter_map(|measured| {
            Some(WorstChoice {
                problem: measured.problem,
                choice: measured.choose()?,
            })
        });
        choices.max_by(|a, b| {
            let behind = |worst: &WorstChoice| worst.choice.behind_percent;
            behind(a).total_cmp(&behind(b))
        })
    }

    /// Returns the contenders with wrong elements, and their shapes.
    pub fn wrong(&self) -> impl Iterator<Item = (&GemmProblem, &Entry)> {
        self.products.iter().flat_map(|measured| {
            let wrong = measured.entries.iter().filter(|entry| entry.wrong != 0);
            wrong.map(|entry| (&measured.problem, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_with_what_is_usual_left_out_and_an_unknown_field_refused() {
        let read = serde_json::from_str::<GemmProblem>;
        let short = read(r#"{"m": 8, "n": 16, "k": 32, "dtype": "bf16"}"#).unwrap();
        assert_eq!(short.sharding, Sharding::Rows);
        assert_eq!((short.b_order, short.bias), (MatrixOrder::Rows, false));
        assert_eq!(short.file_name(), "8x16x32-bfloat16-rows");
        let long = r#"{"m": 8, "n": 16, "k": 32, "dtype": "float16", "sharding": "columns",
            "b_order": "column-major", "bias": true}"#;
        let long = read(long).unwrap();
        assert_eq!(
            long.file_name(),
            "8x16x32-float16-columns-column-major-bias"
        );
        let error = read(r#"{"m": 8, "n": 16, "k": 32, "dtype": "bf16", "split": "rows"}"#);
        assert!(error.unwrap_err().to_string().contains("split"));
    }

    #[test]
    fn rates_and_ratios_are_those_of_the_parts_in_the_same_run() {
        let measured = &example().products[0];
        // 2 * 32768 * 8192 * 16384 operations in 13 ms.
        let push = measured.derive("push").unwrap();
        assert!((push.teraflops - 676.6).abs() < 0.1, "{push:?}");
        assert_eq!(measured.ideal(), Some(12.5e6), "the GEMM is longer");
        assert_eq!(push.of_ideal, Some(12.5 / 13.0));
        assert_eq!(push.of_ideal, push.overlap);
        assert_eq!(push.of_together, Some(12.8 / 13.0));
        assert_eq!(push.over_baseline, Some(15.0 / 13.0));
        assert_eq!(measured.best(), Some("push"));
        assert_eq!(measured.derive("torch"), None, "absent");
    }

    #[test]
    fn a_replay_is_not_compared_with_calls_one_by_one() {
        let mut measured = example().products[1].clone();
        assert_eq!(measured.over(BASELINE, "pull"), Some(27.0 / 21.0));
        let baseline = measured
            .entries
            .iter_mut()
            .find(|entry| entry.by == BASELINE);
        baseline.unwrap().graph = None;
        assert_eq!(
            measured.over(BASELINE, "pull"),
            Some(54.0 / 42.0),
            "both one by one"
        );
        let pull = measured.entries.iter_mut().find(|entry| entry.by == "pull");
        pull.unwrap().time = None;
        assert_eq!(measured.over(BASELINE, "pull"), None);
    }

    #[test]
    fn what_was_wrong_has_no_time() {
        let mut measured = example().products[0].clone();
        let push = measured.entries.iter_mut().find(|entry| entry.by == "push");
        push.unwrap().wrong = 1;
        assert!(measured.is_wrong() && measured.derive("push").is_none());
        assert_eq!(measured.best(), Some("pipeline"));
    }
}
