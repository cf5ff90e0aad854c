//! GEMM + reduce-scatter or GEMM + all-reduce in a report: shapes, contenders, times and derived figures.
//!
//! Times are of one call on the slowest rank, each call after a barrier of all ranks. Rates are per device: 2·M·N·K
//! operations over the time, where K counts the rows of B on that device.

use super::collectives::BaselineState;
use super::{Choice, Entry};
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod fixture;
mod page;
mod problem;
mod view;

pub(super) use page::section;
pub(super) use view::views;

pub use problem::{GemmCollective, GemmReduceProblem};

/// All measurements of GEMM + reduce-scatter or GEMM + all-reduce in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GemmReduceResults {
    /// The collective.
    pub collective: GemmCollective,
    /// World size.
    pub world: u32,
    /// The shape for which the selector's choice is slowest relative to symmem's fastest algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_choice: Option<WorstReduceChoice>,
    /// The other libraries, available or not.
    pub baselines: Vec<BaselineState>,
    /// The measured shapes.
    pub products: Vec<MeasuredReduce>,
}

/// One shape, measured with every contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredReduce {
    /// The shape.
    #[serde(rename = "product")]
    pub problem: GemmReduceProblem,
    /// The algorithm that the selector would choose, with its transport, chunks and streams.
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
    pub derived: Vec<DerivedReduce>,
}

/// A [`Choice`] and its shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstReduceChoice {
    /// The shape.
    #[serde(rename = "product")]
    pub problem: GemmReduceProblem,
    /// The choice.
    #[serde(flatten)]
    pub choice: Choice,
}

/// The GEMM alone, by cuBLASLt or hipBLASLt.
pub const GEMM: &str = "gemm";
/// The collective alone, by symmem, between symmetric buffers. Its entry names the algorithm.
pub const COLLECTIVE: &str = "collective";
/// The GEMM, then symmem's collective.
pub const GEMM_THEN_SYMMEM: &str = "gemm then symmem";
/// The GEMM, then the collective by NCCL or RCCL.
pub const GEMM_THEN_NCCL: &str = "gemm then nccl";
/// The selector's choice. Its entry names it.
pub const AUTOMATIC: &str = "automatic";
/// Symmem's algorithm `Baseline`: one GEMM, then the collective.
pub const BASELINE: &str = "baseline";
/// Symmem's algorithm `Pipeline`. Names of contenders go on with transport, chunks and streams.
pub const PIPELINE: &str = "pipeline";
/// Symmem's algorithm `Push`: one kernel. Its name goes on with `f32` if parts of the sum are sent in f32.
pub const PUSH: &str = "push";
/// Symmem's algorithm `Packets`: one kernel, for few rows. Its name goes on as that of [`PUSH`].
pub const PACKETS: &str = "packets";
/// Symmem's algorithms, as the command names them.
pub const ALGORITHMS: [&str; 5] = [AUTOMATIC, BASELINE, PIPELINE, PUSH, PACKETS];
/// The transports of a pipeline, as the command names them.
pub const TRANSPORTS: [&str; 2] = ["put", "kernel"];
/// The contenders with which symmem is compared: a GEMM, then a collective.
const BASELINES: [&str; 3] = [GEMM_THEN_NCCL, GEMM_THEN_SYMMEM, BASELINE];

/// Figures derived from a contender's time and the times of others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DerivedReduce {
    /// The contender.
    pub by: String,
    /// TFLOP/s per device.
    pub teraflops: f64,
    /// Time of the GEMM alone, divided by the contender's time: the efficiency of the overlap.
    pub overlap: Option<f64>,
    /// The longer of GEMM and collective alone, divided by the contender's time.
    pub of_ideal: Option<f64>,
    /// Time of the fastest of the baselines (a GEMM, then a collective), divided by the contender's time; above 1, the
    /// contender is faster.
    pub over_best_baseline: Option<f64>,
}

impl MeasuredReduce {
    /// Returns a contender's entry.
    pub fn entry(&self, by: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.by == by)
    }

    /// Returns a contender's main time ([`Entry::headline`]) in nanoseconds.
    pub fn ns(&self, by: &str) -> Option<f64> {
        Some(self.entry(by)?.headline()?.ns)
    }

    /// Returns the time of `one` divided by the time of `other`, as [`Entry::over`].
    pub fn over(&self, one: &str, other: &str) -> Option<f64> {
        self.entry(one)?.over(self.entry(other)?)
    }

    /// Returns the entries of symmem's algorithms.
    pub fn ours(&self) -> impl Iterator<Item = &Entry> {
        let is_ours = |entry: &&Entry| {
            let word = entry.by.split(' ').next().unwrap_or_default();
            ALGORITHMS.contains(&word)
        };
        self.entries.iter().filter(is_ours)
    }

    /// Returns the contender that stands for symmem: the selector's choice, or the fastest algorithm if the choice was
    /// not timed.
    pub fn symmem(&self) -> Option<&str> {
        match self.ns(AUTOMATIC) {
            Some(_) => Some(AUTOMATIC),
            None => self.fastest(self.ours()),
        }
    }

    /// Returns symmem's fastest algorithm. If the selector's choice was also timed under its own name, that entry counts.
    pub fn best(&self) -> Option<&str> {
        let twin = self.chosen_entry().map(|entry| entry.by.as_str());
        let is_counted = |entry: &&Entry| entry.by != AUTOMATIC || twin == Some(AUTOMATIC);
        self.fastest(self.ours().filter(is_counted))
    }

    fn fastest<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Option<&'a str> {
        let timed = entries.filter_map(|entry| Some((entry.by.as_str(), entry.headline()?.ns)));
        let fastest = timed.min_by(|a, b| a.1.total_cmp(&b.1));
        fastest.map(|(by, _)| by)
    }

    /// Returns the entry of the algorithm that the selector chose: under its own name, or else [`AUTOMATIC`].
    fn chosen_entry(&self) -> Option<&Entry> {
        let named = self.entry(self.chosen.as_deref()?);
        named.or_else(|| self.entry(AUTOMATIC))
    }

    /// Compares the selector's choice with symmem's fastest algorithm; `None` if the choice was not measured or either
    /// has no time.
    pub fn choose(&self) -> Option<Choice> {
        let fastest = self.best()?;
        let behind = self.chosen_entry()?.over(self.entry(fastest)?)? - 1.0;
        Some(Choice {
            chosen: self.chosen.clone()?,
            fastest: fastest.into(),
            behind_percent: behind * 100.0,
        })
    }

    /// Returns the longer of the times of GEMM and collective alone, divided by a contender's time.
    pub fn of_ideal(&self, by: &str) -> Option<f64> {
        Some(self.over(GEMM, by)?.max(self.over(COLLECTIVE, by)?))
    }

    /// Returns the time of the fastest baseline, divided by a contender's time.
    pub fn over_best_baseline(&self, by: &str) -> Option<f64> {
        let ratios = BASELINES.into_iter().filter_map(|one| self.over(one, by));
        ratios.min_by(f64::total_cmp)
    }

    /// Returns the derived figures of a contender; `None` if it has no time.
    pub fn derive(&self, by: &str) -> Option<DerivedReduce> {
        Some(DerivedReduce {
            by: by.into(),
            teraflops: self.problem.teraflops(self.ns(by)?),
            overlap: self.over(GEMM, by),
            of_ideal: self.of_ideal(by),
            over_best_baseline: self.over_best_baseline(by),
        })
    }

    /// Returns the derived figures of every contender that multiplies.
    pub fn derive_all(&self) -> Vec<DerivedReduce> {
        let products = self.entries.iter().filter(|entry| entry.by != COLLECTIVE);
        products
            .filter_map(|entry| self.derive(&entry.by))
            .collect()
    }
}

impl GemmReduceResults {
    /// Returns the choice that is slowest relative to symmem's fastest algorithm.
    pub fn find_worst_choice(&self) -> Option<WorstReduceChoice> {
        let choices = self.products.iter().filter_map(|measured| {
            Some(WorstReduceChoice {
                problem: measured.problem,
                choice: measured.choose()?,
            })
        });
        let behind = |worst: &WorstReduceChoice| worst.choice.behind_percent;
        choices.max_by(|a, b| behind(a).total_cmp(&behind(b)))
    }

    /// Returns the contenders with wrong elements, and their shapes.
    pub fn wrong(&self) -> impl Iterator<Item = (&GemmReduceProblem, &Entry)> {
        self.products.iter().flat_map(|measured| {
            let wrong = measured.entries.iter().filter(|entry| entry.wrong != 0);
            wrong.map(|entry| (&measured.problem, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::example;
    use super::*;

    #[test]
    fn ratios_are_those_of_the_parts_in_the_same_run() {
        let measured = &example().products[0];
        // 2 * 8192 * 8192 * 4096 operations in 1 ms.
        let ours = measured.derive(AUTOMATIC).unwrap();
        assert!((ours.teraflops - 549.8).abs() < 0.1, "{ours:?}");
        assert_eq!(ours.overlap, Some(0.9));
        assert_eq!(ours.of_ideal, Some(0.9), "the GEMM is longer");
        assert_eq!(ours.over_best_baseline, Some(1.2), "symmem's own");
        assert_eq!(measured.derive(GEMM_THEN_NCCL), None, "absent");
        assert_eq!(measured.symmem(), Some(AUTOMATIC));
    }

    #[test]
    fn the_choice_is_compared_by_the_entry_with_its_name() {
        let mut section = example();
        let large = &section.products[0];
        // The automatic choice took 1.0 ms as such, and 1.01 ms under its name.
        let choice = large.choose().unwrap();
        assert_eq!(choice.chosen, "pipeline put, 2 chunks, 2 streams");
        assert_eq!(choice.fastest, "pipeline kernel, 2 chunks, 2 streams");
        assert!((choice.behind_percent - 1.0).abs() < 1e-9, "{choice:?}");
        // Without an entry of that name, the automatic one counts, also as the fastest.
        let small = &mut section.products[1];
        small.entries.retain(|entry| entry.by != BASELINE);
        let choice = small.choose().unwrap();
        assert_eq!(
            (choice.fastest.as_str(), choice.behind_percent),
            (AUTOMATIC, 0.0)
        );
        assert_eq!(
            section.find_worst_choice().unwrap().problem,
            section.products[0].problem
        );
    }

    #[test]
    fn what_was_wrong_has_no_time() {
        let mut section = example();
        let automatic = &mut section.products[0].entries;
        let automatic = automatic.iter_mut().find(|entry| entry.by == AUTOMATIC);
        automatic.unwrap().wrong = 1;
        let measured = &section.products[0];
        assert_eq!(measured.derive(AUTOMATIC), None);
        assert_eq!(
            measured.symmem(),
            Some("pipeline kernel, 2 chunks, 2 streams")
        );
        assert_eq!(section.wrong().count(), 1);
    }
}
