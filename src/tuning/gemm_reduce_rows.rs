//! Rows of GEMM + reduce-scatter and GEMM + all-reduce, which `symmem bench gemm-rs --tune` and `gemm-ar --tune` write.

use crate::GemmReduceRow;
use crate::tuning::checked::CheckedRow;
use crate::tuning::gemm_reduce_problem::{GemmReduceProblem, gemm_reduce_algorithm, reduction};
use crate::tuning::problem::{MatrixElement, stored_transport};
use serde::{Deserialize, Serialize};

/// A [`GemmReduceRow`] with names in place of numbers, of matrices without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredGemmReduceRow {
    /// The device's name.
    pub device: String,
    /// The world size.
    pub world: u32,
    /// `gemm_reduce_scatter` or `gemm_all_reduce`.
    pub operation: String,
    /// The shape.
    #[serde(rename = "product")]
    pub problem: GemmReduceProblem,
    /// The algorithm: `baseline`, `pipeline`, ….
    pub algorithm: String,
    /// A pipeline's transport: `put` or `kernel`; `automatic` for other algorithms.
    pub transport: String,
    /// A pipeline's number of streams for GEMMs.
    pub streams: usize,
    /// Into how many parts a pipeline cuts each rank's rows.
    pub chunks: usize,
}

impl StoredGemmReduceRow {
    /// Makes a row with names; `None` for a shape that files cannot describe: with gaps between lines, or of
    /// another element type.
    pub fn new(row: &GemmReduceRow) -> Option<Self> {
        let crate::GemmReduceShape { m, n, k, bias, .. } = row.shape;
        let problem = GemmReduceProblem {
            m,
            n,
            k,
            dtype: MatrixElement::of(row.element)?,
            b_order: row.shape.b_order,
            bias,
        };
        (problem.gemm_shape() == row.shape).then(|| Self {
            device: row.device.clone(),
            world: row.world as u32,
            operation: row.reduction.name().into(),
            problem,
            algorithm: row.algorithm.name().into(),
            transport: row.transport.name().into(),
            streams: row.streams,
            chunks: row.chunks,
        })
    }

    /// Returns the row as the library takes it.
    ///
    /// # Errors
    /// The first fault, as text.
    pub fn row(&self) -> Result<GemmReduceRow, String> {
        let unknown = |what, name: &str| format!("unknown {what} `{name}` of GEMM + reduce");
        let row = GemmReduceRow {
            device: self.device.clone(),
            world: self.world as usize,
            reduction: reduction(&self.operation)
                .ok_or_else(|| unknown("operation", &self.operation))?,
            shape: self.problem.gemm_shape(),
            element: self.problem.dtype.element(),
            algorithm: gemm_reduce_algorithm(&self.algorithm)
                .ok_or_else(|| unknown("algorithm", &self.algorithm))?,
            transport: stored_transport(&self.transport)
                .ok_or_else(|| unknown("transport", &self.transport))?,
            streams: self.streams,
            chunks: self.chunks,
        };
        row.check().map(|()| row)
    }

    /// Returns the key of the row: of rows with equal keys, one applies.
    pub(super) fn key(&self) -> (&str, u32, &str, GemmReduceProblem) {
        (&self.device, self.world, &self.operation, self.problem)
    }
}

impl CheckedRow for StoredGemmReduceRow {
    const WHAT: &str = "a row of GEMM + reduce-scatter or GEMM + all-reduce";

    fn check(&self) -> Result<(), String> {
        self.row().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;
    use crate::base::names::MatrixOrder;

    const AUTOMATIC: &str = "automatic";

    fn row(m: usize, algorithm: &str, transport: &str) -> StoredGemmReduceRow {
        StoredGemmReduceRow {
            device: "Example GPU".into(),
            world: 2,
            operation: "gemm_all_reduce".into(),
            problem: GemmReduceProblem {
                m,
                n: 8,
                k: 16,
                dtype: MatrixElement::Bf16,
                b_order: MatrixOrder::Columns,
                bias: true,
            },
            algorithm: algorithm.into(),
            transport: transport.into(),
            streams: 1,
            chunks: 2,
        }
    }

    fn table(gemm_reduce: Vec<StoredGemmReduceRow>) -> Table {
        Table {
            gemm_reduce,
            ..Table::default()
        }
    }

    #[test]
    fn a_row_survives_its_file_and_what_the_library_makes_of_it() {
        let table = table(vec![
            row(64, "pipeline", "put"),
            row(32, "baseline", AUTOMATIC),
        ]);
        let text = table.to_json().unwrap();
        assert_eq!(Table::from_json(&text).unwrap(), table);
        let line = r#"    {"device":"Example GPU","world":2,"operation":"gemm_all_reduce","product":{"m":64,"n":8,"k":16,"dtype":"bfloat16","b_order":"column-major","bias":true},"algorithm":"pipeline","transport":"put","streams":1,"chunks":2},"#;
        assert!(text.lines().any(|found| found == line), "{text}");
        for one in &table.gemm_reduce {
            let row = one.row().unwrap();
            assert_eq!(StoredGemmReduceRow::new(&row).as_ref(), Some(one));
            let mut gaps = row;
            gaps.shape.a_stride = Some(17);
            assert_eq!(StoredGemmReduceRow::new(&gaps), None);
        }
    }

    #[test]
    fn what_is_wrong_with_a_row_is_told_with_its_line() {
        let good = table(vec![
            row(64, "baseline", AUTOMATIC),
            row(32, "pipeline", "put"),
        ]);
        let good = good.to_json().unwrap();
        let line = good
            .lines()
            .position(|line| line.contains("pipeline"))
            .unwrap()
            + 1;
        for (right, wrong, told) in [
            ("\"pipeline\"", "\"ring\"", "`ring`"),
            ("\"put\"", "\"get\"", "no transport Get"),
            ("\"m\":32", "\"m\":0", "no elements"),
            ("\"chunks\":2}\n", "\"chunks\":0}\n", "`chunks`"),
        ] {
            let text = good.replace(right, wrong);
            assert_ne!(text, good, "{right}");
            let error = Table::from_json(&text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert!(error.contains(&format!("line {line} ")), "{error}");
        }
    }

    #[test]
    fn a_new_row_replaces_the_one_of_its_operation_and_shape() {
        let mut other = row(64, "baseline", AUTOMATIC);
        other.operation = "gemm_reduce_scatter".into();
        let before = table(vec![row(64, "baseline", AUTOMATIC), other.clone()]);
        let all = table(vec![row(64, "pipeline", "put")]).over(before);
        assert_eq!(all.gemm_reduce, [row(64, "pipeline", "put"), other]);
    }
}
