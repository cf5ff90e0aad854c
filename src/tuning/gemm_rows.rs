//! Rows of all-gather + GEMM, which `symmem bench ag-gemm --tune` writes.

use crate::GemmRow;
use crate::tuning::checked::CheckedRow;
use crate::tuning::problem::{GemmProblem, MatrixElement, gemm_algorithm, stored_transport};
use serde::{Deserialize, Serialize};

/// A [`GemmRow`] with names in place of numbers, of matrices without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredGemmRow {
    /// The device's name.
    pub device: String,
    /// The world size.
    pub world: u32,
    /// The shape.
    #[serde(rename = "product")]
    pub problem: GemmProblem,
    /// `baseline`, `pipeline`, `pull` or `push`.
    pub algorithm: String,
    /// `get`, `put`, `vendor` or `kernel`; `automatic` for the algorithm's default.
    pub transport: String,
    /// The library that the heuristic candidates belong to: cuBLASLt or hipBLASLt with its version and symmem's
    /// request revision; empty for none.
    pub library: String,
    /// The library's heuristic candidate for each GEMM.
    #[serde(rename = "ways")]
    pub candidates: Vec<GemmCandidate>,
}

/// The library's heuristic candidate for GEMMs with this many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GemmCandidate {
    /// Rows of A in the GEMM.
    pub rows: u64,
    /// Index into the library's list of heuristic candidates, from 0.
    #[serde(rename = "way")]
    pub candidate: u32,
}

impl StoredGemmRow {
    /// Makes a row with names; `None` for a shape that files cannot describe: with gaps between lines, or of
    /// another element type.
    pub fn new(row: &GemmRow) -> Option<Self> {
        let crate::GemmShape { m, n, k, bias, .. } = row.shape;
        let problem = GemmProblem {
            m,
            n,
            k,
            dtype: MatrixElement::of(row.element)?,
            sharding: row.shape.sharding,
            b_order: row.shape.b_order,
            bias,
        };
        let candidates = row.candidates.iter();
        (problem.gemm_shape() == row.shape).then(|| Self {
            device: row.device.clone(),
            world: row.world as u32,
            problem,
            algorithm: format!("{:?}", row.algorithm).to_lowercase(),
            transport: row.transport.name().into(),
            library: row.library.clone(),
            candidates: candidates
                .map(|&(rows, candidate)| GemmCandidate { rows, candidate })
                .collect(),
        })
    }

    /// Returns the row as the library takes it.
    ///
    /// # Errors
    /// The first fault, as text.
    pub fn row(&self) -> Result<GemmRow, String> {
        let unknown = |what, name: &str| format!("unknown all-gather + GEMM {what} `{name}`");
        let row = GemmRow {
            device: self.device.clone(),
            world: self.world as usize,
            shape: self.problem.gemm_shape(),
            element: self.problem.dtype.element(),
            algorithm: gemm_algorithm(&self.algorithm)
                .ok_or_else(|| unknown("algorithm", &self.algorithm))?,
            transport: stored_transport(&self.transport)
                .ok_or_else(|| unknown("transport", &self.transport))?,
            library: self.library.clone(),
            candidates: (self.candidates.iter())
                .map(|one| (one.rows, one.candidate))
                .collect(),
        };
        row.check().map(|()| row)
    }

    /// Returns the key of the row: of rows with equal keys, one applies.
    pub(super) fn key(&self) -> (&str, u32, GemmProblem) {
        (&self.device, self.world, self.problem)
    }
}

impl CheckedRow for StoredGemmRow {
    const WHAT: &str = "a row of all-gather + GEMM";

    fn check(&self) -> Result<(), String> {
        self.row().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;
    use crate::base::names::{MatrixOrder, Sharding};

    const AUTOMATIC: &str = "automatic";

    pub(in super::super) fn row(m: usize, algorithm: &str) -> StoredGemmRow {
        StoredGemmRow {
            device: "Example GPU".into(),
            world: 2,
            problem: GemmProblem {
                m,
                n: 8,
                k: 16,
                dtype: MatrixElement::Bf16,
                sharding: Sharding::Columns,
                b_order: MatrixOrder::Columns,
                bias: true,
            },
            algorithm: algorithm.into(),
            transport: AUTOMATIC.into(),
            library: "blas 7".into(),
            candidates: vec![GemmCandidate {
                rows: 64,
                candidate: 2,
            }],
        }
    }

    fn table(gemm: Vec<StoredGemmRow>) -> Table {
        Table {
            gemm,
            ..Table::default()
        }
    }

    #[test]
    fn a_product_survives_its_file_and_what_the_library_makes_of_it() {
        let mut moved = row(32, "push");
        moved.transport = "kernel".into();
        let table = table(vec![row(64, "pipeline"), moved]);
        let text = table.to_json().unwrap();
        assert_eq!(Table::from_json(&text).unwrap(), table);
        let line = r#"    {"device":"Example GPU","world":2,"product":{"m":64,"n":8,"k":16,"dtype":"bfloat16","sharding":"columns","b_order":"column-major","bias":true},"algorithm":"pipeline","transport":"automatic","library":"blas 7","ways":[{"rows":64,"way":2}]},"#;
        assert!(text.lines().any(|found| found == line), "{text}");
        for one in &table.gemm {
            let row = one.row().unwrap();
            assert_eq!(StoredGemmRow::new(&row).as_ref(), Some(one));
            let mut gaps = row;
            gaps.shape.c_stride = Some(9);
            assert_eq!(StoredGemmRow::new(&gaps), None);
        }
    }

    #[test]
    fn what_is_wrong_with_a_row_is_told_with_its_line() {
        let good = table(vec![row(64, "pull"), row(32, "push")])
            .to_json()
            .unwrap();
        let line = good.lines().position(|line| line.contains("push")).unwrap() + 1;
        for (right, wrong, told) in [
            ("\"push\"", "\"ring\"", "`ring`"),
            ("\"m\":32", "\"m\":0", "no elements"),
            (
                "\"world\":2,\"product\":{\"m\":32",
                "\"product\":{\"m\":32",
                "world",
            ),
        ] {
            let text = good.replace(right, wrong);
            assert_ne!(text, good, "{right}");
            let error = Table::from_json(&text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert!(error.contains(&format!("line {line} ")), "{error}");
        }
        let mut odd = row(64, "pull");
        odd.transport = "put".into();
        let error = Table::from_json(&table(vec![odd]).to_json().unwrap());
        assert!(error.unwrap_err().to_string().contains("Pull has no"));
    }
}
