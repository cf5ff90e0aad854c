//! All-gather and GEMM in a report: what was multiplied, by whom and how fast, and what follows from it.
//!
//! Times are of one call, of the slowest rank, each call after a barrier of all ranks. Rates are those of
//! one device: 2·M·N·K operations over the time, where N is what the device itself has of B.

use super::collectives::{BaselineState, Time};
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod fixture;
mod page;
mod plot;
mod view;

#[cfg(test)]
pub(super) use fixture::products as example;
pub(super) use page::section;
pub(super) use view::views;

pub use symmem::tuning::{MatrixElement, Order, Product, Sharded};

/// Everything measured of all-gather and GEMM in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Products {
    /// Ranks that took part.
    pub world: u32,
    /// Where the selector's choice is furthest behind our fastest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_choice: Option<WorstChoice>,
    /// What was beside us, and what could not be.
    pub baselines: Vec<BaselineState>,
    /// What was multiplied.
    pub products: Vec<Measured>,
}

/// One product, by everybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was multiplied.
    pub product: Product,
    /// The algorithm that the selector would choose, by its name here, and what moves A then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// How far behind our fastest that is, where both were timed: of a choice among some algorithms only it may be
    /// neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// By whom.
    pub entries: Vec<Entry>,
    /// Rounds of measuring, in which all took turns; 0 where nothing was timed.
    pub rounds: u32,
    /// What follows from the times, for readers of JSON; the tables compute it themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derived: Vec<Derived>,
}

/// The selector's choice beside our fastest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// What the selector chose.
    pub chosen: String,
    /// The fastest of ours.
    pub fastest: String,
    /// By how much the choice took longer, in percent.
    pub behind_percent: f64,
}

/// A choice, and of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstChoice {
    /// What was multiplied.
    pub product: Product,
    /// How it was chosen.
    #[serde(flatten)]
    pub choice: Choice,
}

/// What one contender did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// [`GEMM`], [`GATHER`], an algorithm of ours, or a baseline's name.
    pub by: String,
    /// How: what moved the shards, which of the library's ways.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub how: String,
    /// Calls one by one, a barrier of all ranks before each, by events on the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Calls captured in a graph and replayed, a barrier before the replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Time>,
    /// DDLB's method: mean of 50 calls back to back at rank 0 after 5 that are not timed, without any
    /// barrier, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ddlb_ns: Option<f64>,
    /// Elements of C that were wrong, at all ranks together.
    #[serde(default)]
    pub wrong: u64,
    /// Elements of C that were compared.
    #[serde(default)]
    pub checked: u64,
    /// Why it took no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// The GEMM alone, by the vendor's library, of an A that is already here.
pub const GEMM: &str = "gemm";
/// The same by our own kernel, that of pull and push; for few rows push may have another one, as its entry says.
pub const OWN_GEMM: &str = "own gemm";
/// The gather alone, by what the selector of collectives takes, as its entry says.
pub const GATHER: &str = "gather";
/// GEMM and gather at once on two streams, neither waiting for the other: what overlap can reach.
pub const TOGETHER: &str = "together";
/// The gather first and then the GEMM, by ours.
pub const BASELINE: &str = "baseline";
/// Our algorithms, in the order in which they are shown.
pub const ALGORITHMS: [&str; 4] = [BASELINE, "pipeline", "pull", "push"];
/// The same by transports that are not their usual ones, where those were asked for.
pub const VARIANTS: [&str; 4] = ["pipeline get", "pipeline vendor", "push put", "push kernel"];
/// What the selector chooses, where it is none of those that take part.
pub const AUTOMATIC: &str = "automatic";
/// The gather by the vendor's library between symmetric windows, and then the GEMM.
pub const WINDOWS: &str = "baseline windows";
/// PyTorch's gather, then its product.
pub const TORCH: &str = "torch";
/// PyTorch's `fused_all_gather_matmul`.
pub const TORCH_FUSED: &str = "torch fused";
/// Transformer Engine's linear layer, which gathers under its GEMMs.
pub const TRANSFORMER_ENGINE: &str = "transformer engine";

/// What follows from a contender's time and those of the parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// The contender.
    pub by: String,
    /// TFLOP/s of one device.
    pub teraflops: f64,
    /// The longer of GEMM and gather alone, over its time.
    pub of_ideal: Option<f64>,
    /// GEMM alone over its time: the overlap's efficiency.
    pub overlap: Option<f64>,
    /// GEMM and gather at once, without a dependency, over its time.
    pub of_together: Option<f64>,
    /// The baseline's time over its own: above 1 it is faster.
    pub over_baseline: Option<f64>,
}

impl Entry {
    /// The time that stands for it: of the replay, or where there is none one by one. What was wrong has
    /// none.
    pub fn headline(&self) -> Option<Time> {
        match self.wrong {
            0 => self.graph.or(self.time),
            _ => None,
        }
    }
}

impl Measured {
    /// A contender's entry.
    pub fn entry(&self, by: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.by == by)
    }

    /// The time that stands for a contender, nanoseconds.
    pub fn ns(&self, by: &str) -> Option<f64> {
        Some(self.entry(by)?.headline()?.ns)
    }

    /// One contender's time over another's: above 1 the other is faster. A replay is compared with a
    /// replay, else calls one by one with calls one by one.
    pub fn over(&self, one: &str, other: &str) -> Option<f64> {
        let right = |by: &str| self.entry(by).filter(|entry| entry.wrong == 0);
        let (one, other) = (right(one)?, right(other)?);
        match (one.graph, other.graph) {
            (Some(one), Some(other)) => Some(one.ns / other.ns),
            _ => Some(one.time?.ns / other.time?.ns),
        }
    }

    /// The longer of GEMM and gather alone, nanoseconds.
    pub fn ideal(&self) -> Option<f64> {
        Some(self.ns(GEMM)?.max(self.ns(GATHER)?))
    }

    /// What follows for a contender; `None` if it has no time.
    pub fn derive(&self, by: &str) -> Option<Derived> {
        let ns = self.ns(by)?;
        let gemm = self.over(GEMM, by);
        let gather = self.over(GATHER, by);
        Some(Derived {
            by: by.into(),
            teraflops: self.product.teraflops(ns),
            of_ideal: gemm.zip(gather).map(|(gemm, gather)| gemm.max(gather)),
            overlap: gemm,
            of_together: self.over(TOGETHER, by),
            over_baseline: self.over(BASELINE, by),
        })
    }

    /// The same of everybody who multiplies.
    pub fn derive_all(&self) -> Vec<Derived> {
        let part = |entry: &&Entry| entry.by != GATHER && entry.by != TOGETHER;
        let products = self.entries.iter().filter(part);
        products
            .filter_map(|entry| self.derive(&entry.by))
            .collect()
    }

    /// Our fastest algorithm.
    pub fn best(&self) -> Option<&'static str> {
        let all = ALGORITHMS.into_iter().chain(VARIANTS).chain([AUTOMATIC]);
        let timed = all.filter_map(|by| Some((by, self.ns(by)?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(by, _)| by)
    }

    /// How far behind our fastest the selector's choice is; `None` if either has no time, or it took no part.
    pub fn choose(&self) -> Option<Choice> {
        let fastest = self.best()?;
        let chosen = self.chosen.as_deref()?;
        let is_chosen = |entry: &&Entry| match entry.by.as_str() {
            AUTOMATIC => entry.how == chosen,
            // Reports of earlier versions do not say what moves A then.
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

    /// Whether anything was wrong.
    pub fn is_wrong(&self) -> bool {
        self.entries.iter().any(|entry| entry.wrong != 0)
    }
}

impl Products {
    /// The choice that is furthest behind our fastest.
    pub fn find_worst_choice(&self) -> Option<WorstChoice> {
        let choices = self.products.iter().filter_map(|measured| {
            Some(WorstChoice {
                product: measured.product,
                choice: measured.choose()?,
            })
        });
        choices.max_by(|a, b| {
            let behind = |worst: &WorstChoice| worst.choice.behind_percent;
            behind(a).total_cmp(&behind(b))
        })
    }

    /// Contenders with wrong elements, and where.
    pub fn wrong(&self) -> impl Iterator<Item = (&Product, &Entry)> {
        self.products.iter().flat_map(|measured| {
            let wrong = measured.entries.iter().filter(|entry| entry.wrong != 0);
            wrong.map(|entry| (&measured.product, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_with_what_is_usual_left_out_and_an_unknown_field_refused() {
        let read = serde_json::from_str::<Product>;
        let short = read(r#"{"m": 8, "n": 16, "k": 32, "dtype": "bf16"}"#).unwrap();
        assert_eq!(short.sharding, Sharded::Rows);
        assert_eq!((short.b_order, short.bias), (Order::RowMajor, false));
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
