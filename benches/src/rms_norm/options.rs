//! Options of the benchmark of all-reduces with RMSNorm.

use crate::report::norms::{NormOutput, NormPoint, RowElement};
use crate::sizes::Effort;
use serde::{Deserialize, Serialize};

/// Options of [`super::run`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Determines the default sizes and the number of rounds.
    pub effort: Effort,
    /// Elements of a row; empty for the defaults.
    pub hidden: Vec<usize>,
    /// Numbers of rows; empty for the defaults.
    pub rows: Vec<usize>,
    /// Type of the rows.
    pub element: RowElement,
    /// Types of the results.
    pub outputs: Vec<NormOutput>,
    /// Whether a residual is added.
    pub residual: bool,
    /// Whether each rank has its own rows of the residual only.
    #[serde(default)]
    pub sharded: bool,
    /// Whether to compare results with a reference.
    pub validate: bool,
    /// Whether to time.
    pub benchmark: bool,
    /// Whether to measure NCCL or RCCL; `None` for the default: yes, except on the host backend.
    pub vendor: Option<bool>,
    /// Number of rounds.
    pub rounds: Option<u32>,
}

impl Options {
    /// Checks that the benchmark can make every point.
    ///
    /// # Errors
    /// The reason why it cannot, as text.
    pub fn check(&self) -> Result<(), String> {
        if self.sharded && (self.outputs.iter()).any(|output| *output != NormOutput::Same) {
            return Err(
                "--sharded-residual serves results of the rows' type; leave out --output".into(),
            );
        }
        let has_groups = self.outputs.contains(&NormOutput::Group);
        let partial = (self.hidden.iter()).find(|hidden| !hidden.is_multiple_of(NormOutput::GROUP));
        match partial {
            Some(hidden) if has_groups => Err(format!(
                "--output group has a scale for each {} elements, and a row of {hidden} has no whole groups; give --hidden a \
                 multiple",
                NormOutput::GROUP
            )),
            _ => Ok(()),
        }
    }

    /// Returns the points to measure, without results.
    pub(super) fn points(&self, on_host: bool) -> Vec<NormPoint> {
        let or = |asked: &[usize], usual: &[usize]| match asked.is_empty() {
            true => usual.to_vec(),
            false => asked.to_vec(),
        };
        let (hidden, rows): (&[usize], &[usize]) = match (on_host, self.effort) {
            (true, _) => (&[1024], &[1, 16]),
            (false, Effort::Quick) => (&[8192], &[1, 16, 256]),
            (false, _) => (&[4096, 8192], &[1, 4, 16, 64, 256, 1024]),
        };
        let (hidden, rows) = (or(&self.hidden, hidden), or(&self.rows, rows));
        let mut points = Vec::new();
        for &output in &self.outputs {
            for &hidden in &hidden {
                points.extend(rows.iter().map(|&rows| NormPoint {
                    rows,
                    hidden,
                    element: self.element,
                    output,
                    residual: self.residual,
                    sharded: self.sharded,
                    entries: Vec::new(),
                    rounds: 0,
                }));
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(hidden: &[usize], outputs: &[NormOutput]) -> Options {
        Options {
            effort: Effort::Standard,
            hidden: hidden.into(),
            rows: vec![1, 7],
            element: RowElement::Bf16,
            outputs: outputs.into(),
            residual: true,
            sharded: false,
            validate: true,
            benchmark: true,
            vendor: None,
            rounds: None,
        }
    }

    #[test]
    fn each_output_has_every_length_with_every_number_of_rows() {
        let asked = options(&[128, 256], &[NormOutput::Same, NormOutput::Group]);
        let points = asked.points(false);
        assert_eq!(points.len(), 2 * 2 * 2);
        let sizes: Vec<_> = points.iter().map(|one| (one.hidden, one.rows)).collect();
        assert_eq!(sizes[..4], [(128, 1), (128, 7), (256, 1), (256, 7)]);
        assert_eq!(points[4].output, NormOutput::Group);
    }

    #[test]
    fn groups_of_a_row_must_be_whole() {
        let partial = options(&[128, 100], &[NormOutput::Group]);
        assert!(partial.check().unwrap_err().contains("a row of 100"));
        assert_eq!(options(&[100], &[NormOutput::Row]).check(), Ok(()));
    }
}
