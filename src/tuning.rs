//! Tuning tables as files: `symmem tune` and `symmem bench` of GEMMs with `--tune` write them, `SYMMEM_TUNING` names
//! one.

use crate::backend::abi::{AlgorithmCode, CollectiveRow};
use crate::base::names::CollectiveOperation;
use crate::{GemmReduceRow, GemmRow};
use serde::{Deserialize, Serialize};

mod checked;
mod gemm_reduce_problem;
mod gemm_reduce_rows;
mod gemm_rows;
mod problem;

pub use gemm_reduce_problem::{GemmReduceProblem, gemm_reduce_algorithm};
pub use gemm_reduce_rows::StoredGemmReduceRow;
pub use gemm_rows::{GemmCandidate, StoredGemmRow};
pub use problem::{GemmProblem, MatrixElement, gemm_algorithm, gemm_transport};

/// The file format's version that this program writes and reads.
pub const VERSION: u32 = 1;

/// A tuning table: the selectors' rows of one machine.
///
/// ```
/// use symmem::tuning::Table;
/// let text = r#"{
///     "version": 1,
///     "rows": [
///         {"operation": "all_reduce", "world": 8, "bytes": 65536, "algorithm": "packets", "blocks": 8, "threads": 512}
///     ]
/// }"#;
/// let rows = Table::from_json(text)?.rows()?; // for `Builder::tuning`
/// assert_eq!(rows[0].bytes, 65536);
/// # Ok::<(), symmem::tuning::TableError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the device on which the rows of collectives were measured.
    #[serde(default)]
    pub device: String,
    /// The rows of collectives; the first that fits a call applies.
    pub rows: Vec<Row>,
    /// The rows of all-gather + GEMM, each for its device. Older files have none.
    #[serde(rename = "products", default, deserialize_with = "checked::checked")]
    pub gemm: Vec<StoredGemmRow>,
    /// The rows of GEMM + reduce-scatter and GEMM + all-reduce, each for its device. Older files have none.
    #[serde(default, deserialize_with = "checked::checked")]
    pub gemm_reduce: Vec<StoredGemmReduceRow>,
}

/// A [`CollectiveRow`] with names in place of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// `all_reduce`, …
    pub operation: String,
    /// The largest group that the row applies to, in ranks.
    pub world: u32,
    /// The largest size that the row applies to, in bytes as nccl-tests counts them.
    pub bytes: u64,
    /// `packets`, …
    pub algorithm: String,
    /// Blocks of the grid; 0 if no kernel takes part.
    #[serde(default)]
    pub blocks: u32,
    /// Threads of a block.
    #[serde(default)]
    pub threads: u32,
    /// Copies under way at once. 0 starts all of a kernel's copies at once, and lets the size decide with the
    /// copy engine.
    #[serde(default)]
    pub concurrent: u32,
}

/// The reason why a text is not a valid table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The text is not JSON, or not a table.
    #[error("not a tuning table: {0}; expected what `symmem tune` writes")]
    Json(#[from] serde_json::Error),
    /// The table has another version.
    #[error("the tuning table has version {found}, this program reads {VERSION}; tune again")]
    Version {
        /// The value found.
        found: u32,
    },
    /// An invalid row of all-gather + GEMM.
    #[error("row {row} of the tuning table's `products` (all-gather + GEMM): {reason}")]
    GemmRow {
        /// The row, counted from 0.
        row: usize,
        /// The fault.
        reason: String,
    },
    /// An invalid row of GEMM + reduce-scatter or GEMM + all-reduce.
    #[error("row {row} of the tuning table's `gemm_reduce`: {reason}")]
    GemmReduceRow {
        /// The row, counted from 0.
        row: usize,
        /// The fault.
        reason: String,
    },
    /// An unknown name.
    #[error("row {row} of the tuning table: unknown {what} `{name}`")]
    Name {
        /// The row, counted from 0.
        row: usize,
        /// The kind of name: operation or algorithm.
        what: &'static str,
        /// The value found.
        name: String,
    },
}

impl Default for Table {
    fn default() -> Self {
        Self {
            version: VERSION,
            device: String::new(),
            rows: Vec::new(),
            gemm: Vec::new(),
            gemm_reduce: Vec::new(),
        }
    }
}

impl Row {
    /// Makes a row with names from the selector's row.
    pub fn new(row: &CollectiveRow) -> Self {
        Self {
            operation: row.operation.name().to_lowercase(),
            world: row.world,
            bytes: row.bytes,
            algorithm: row.algorithm.name().to_lowercase(),
            blocks: row.blocks,
            threads: row.threads,
            concurrent: row.concurrent,
        }
    }
}

impl Table {
    /// Parses the text that [`Table::to_json`] writes.
    ///
    /// # Errors
    /// [`TableError`] names the first fault.
    pub fn from_json(text: &str) -> Result<Self, TableError> {
        let table: Self = serde_json::from_str(text)?;
        if table.version != VERSION {
            return Err(TableError::Version {
                found: table.version,
            });
        }
        table.rows()?;
        Ok(table)
    }

    /// Returns the table as JSON, with one row per line.
    ///
    /// # Errors
    /// Never with these types; the signature is serde's.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = format!(
            "{{\n  \"version\": {},\n  \"device\": {},\n  \"rows\": {}",
            self.version,
            serde_json::to_string(&self.device)?,
            lines(&self.rows)?
        );
        if !self.gemm.is_empty() {
            let gemm = lines(&self.gemm)?;
            text += &format!(",\n  \"products\": {gemm}");
        }
        if !self.gemm_reduce.is_empty() {
            let rows = lines(&self.gemm_reduce)?;
            text += &format!(",\n  \"gemm_reduce\": {rows}");
        }
        Ok(text + "\n}\n")
    }

    /// Returns the rows of collectives as the selector takes them.
    ///
    /// # Errors
    /// [`TableError::Name`] for an unknown name.
    pub fn rows(&self) -> Result<Vec<CollectiveRow>, TableError> {
        let unknown = |row, what, name: &str| TableError::Name {
            row,
            what,
            name: name.to_owned(),
        };
        (self.rows.iter().enumerate())
            .map(|(index, row)| {
                Ok(CollectiveRow {
                    operation: operation(&row.operation)
                        .ok_or_else(|| unknown(index, "operation", &row.operation))?
                        .into(),
                    world: row.world,
                    bytes: row.bytes,
                    algorithm: algorithm(&row.algorithm)
                        .ok_or_else(|| unknown(index, "algorithm", &row.algorithm))?,
                    blocks: row.blocks,
                    threads: row.threads,
                    concurrent: row.concurrent,
                })
            })
            .collect()
    }

    /// Returns the rows of all-gather + GEMM as [`crate::Builder::gemm_tuning`] takes them.
    ///
    /// # Errors
    /// [`TableError::GemmRow`] for an invalid row.
    pub fn gemm_rows(&self) -> Result<Vec<GemmRow>, TableError> {
        let row = |(row, stored): (usize, &StoredGemmRow)| {
            let made = stored.row();
            made.map_err(|reason| TableError::GemmRow { row, reason })
        };
        self.gemm.iter().enumerate().map(row).collect()
    }

    /// Returns the rows of GEMM + reduce-scatter and GEMM + all-reduce as [`crate::Builder::gemm_reduce_tuning`] takes them.
    ///
    /// # Errors
    /// [`TableError::GemmReduceRow`] for an invalid row.
    pub fn gemm_reduce_rows(&self) -> Result<Vec<GemmReduceRow>, TableError> {
        let row = |(row, stored): (usize, &StoredGemmReduceRow)| {
            let made = stored.row();
            made.map_err(|reason| TableError::GemmReduceRow { row, reason })
        };
        self.gemm_reduce.iter().enumerate().map(row).collect()
    }

    /// Adds to these rows those of `before`, for the operations and world sizes that these rows do not cover;
    /// likewise for GEMMs. Sorts them as the selector requires: by operation, then world size, then
    /// size, ascending.
    pub fn over(mut self, before: Self) -> Self {
        if self.rows.is_empty() && !before.rows.is_empty() {
            self.device = before.device;
        }
        let known: Vec<StoredGemmRow> = self.gemm.clone();
        let spoken_of = |row: &StoredGemmRow| known.iter().any(|known| known.key() == row.key());
        let kept = before.gemm.into_iter();
        self.gemm.extend(kept.filter(|row| !spoken_of(row)));
        self.gemm.sort_by(|a, b| a.key().cmp(&b.key()));
        let known = self.gemm_reduce.clone();
        let replaced =
            |row: &StoredGemmReduceRow| known.iter().any(|known| known.key() == row.key());
        let kept = before.gemm_reduce.into_iter();
        self.gemm_reduce.extend(kept.filter(|row| !replaced(row)));
        self.gemm_reduce.sort_by(|a, b| a.key().cmp(&b.key()));
        let spoken: Vec<(String, u32)> = (self.rows.iter())
            .map(|row| (row.operation.clone(), row.world))
            .collect();
        let kept = before.rows.into_iter();
        self.rows
            .extend(kept.filter(|row| !spoken.contains(&(row.operation.clone(), row.world))));
        // The sort is stable: of rows with equal keys the earlier one stays first.
        self.rows.sort_by(|a, b| {
            (&a.operation, a.world, a.bytes).cmp(&(&b.operation, b.world, b.bytes))
        });
        self
    }

    /// Returns the rows of collectives as Rust source, for a backend's own table.
    pub fn to_rust(&self) -> String {
        let line = |row: &Row| {
            let bytes = match row.bytes {
                u64::MAX => "u64::MAX".to_owned(),
                bytes => bytes.to_string(),
            };
            format!(
                "    CollectiveRow {{ operation: CollectiveOperationCode::{}, world: {}, bytes: {bytes}, \
                 algorithm: AlgorithmCode::{}, blocks: {}, threads: {}, concurrent: {} }},\n",
                row.operation.to_uppercase(),
                row.world,
                row.algorithm.to_uppercase(),
                row.blocks,
                row.threads,
                row.concurrent
            )
        };
        let rows: String = self.rows.iter().map(line).collect();
        format!("// Measured on {}.\n&[\n{rows}]\n", self.device)
    }
}

/// Returns a JSON array with one element per line.
fn lines<T: Serialize>(rows: &[T]) -> Result<String, serde_json::Error> {
    let rows: Vec<String> = (rows.iter())
        .map(|row| Ok(format!("    {}", serde_json::to_string(row)?)))
        .collect::<Result<_, serde_json::Error>>()?;
    Ok(match rows.is_empty() {
        true => "[]".into(),
        false => format!("[\n{}\n  ]", rows.join(",\n")),
    })
}

/// The name of an unknown number.
const UNKNOWN: &str = "unknown";

/// Returns the operation of this name, in upper or lower case.
pub fn operation(name: &str) -> Option<CollectiveOperation> {
    CollectiveOperation::ALL
        .iter()
        .copied()
        .find(|known| known.name().eq_ignore_ascii_case(name))
}

/// Returns the algorithm of this name, in upper or lower case; `None` for [`AlgorithmCode::AUTOMATIC`].
pub fn algorithm(name: &str) -> Option<AlgorithmCode> {
    (1..64)
        .map(AlgorithmCode)
        .find(|known| known.name() != UNKNOWN && known.name().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(
        operation: CollectiveOperation,
        world: u32,
        bytes: u64,
        algorithm: AlgorithmCode,
    ) -> Row {
        Row::new(&CollectiveRow {
            operation: operation.into(),
            world,
            bytes,
            algorithm,
            blocks: 8,
            threads: 512,
            concurrent: 0,
        })
    }

    fn table(rows: Vec<Row>) -> Table {
        Table {
            device: "Example \"GPU\"".into(),
            rows,
            ..Table::default()
        }
    }

    const REDUCE: CollectiveOperation = CollectiveOperation::AllReduce;
    const GATHER: CollectiveOperation = CollectiveOperation::AllGather;

    #[test]
    fn a_table_survives_its_file_and_has_a_row_on_each_line() {
        let table = table(vec![
            row(REDUCE, 8, 8192, AlgorithmCode::PACKETS),
            row(REDUCE, 8, u64::MAX, AlgorithmCode::TWO_SHOT),
        ]);
        let text = table.to_json().unwrap();
        assert_eq!(Table::from_json(&text).unwrap(), table);
        let line = r#"    {"operation":"all_reduce","world":8,"bytes":8192,"algorithm":"packets","blocks":8,"threads":512,"concurrent":0},"#;
        assert!(text.lines().any(|found| found == line), "{text}");
        let rows = table.rows().unwrap();
        assert_eq!(rows[1].algorithm, AlgorithmCode::TWO_SHOT);
        assert_eq!((rows[0].operation, rows[0].bytes), (REDUCE.into(), 8192));
    }

    #[test]
    fn a_wrong_version_or_name_is_an_error_that_says_which() {
        let error = |text: &str| Table::from_json(text).unwrap_err().to_string();
        assert!(error(r#"{"version": 2, "rows": []}"#).contains("version 2"));
        assert!(error("{}").contains("symmem tune"));
        let unknown = |operation, algorithm| {
            error(&format!(
                r#"{{"version": 1, "rows": [{{"operation": "{operation}", "world": 2, "bytes": 1, "algorithm": "{algorithm}"}}]}}"#
            ))
        };
        assert!(unknown("allreduce", "packets").contains("unknown operation `allreduce`"));
        assert!(unknown("all_reduce", "ring").contains("unknown algorithm `ring`"));
        assert!(unknown("all_reduce", "automatic").contains("automatic"));
        assert!(unknown("unknown", "packets").contains("unknown"));
    }

    #[test]
    fn new_rows_replace_those_of_their_operation_and_world_only() {
        let before = table(vec![
            row(REDUCE, 8, 1024, AlgorithmCode::ONE_SHOT),
            row(GATHER, 8, 1024, AlgorithmCode::PUSH),
            row(REDUCE, 4, 1024, AlgorithmCode::ONE_SHOT),
        ]);
        let after = table(vec![
            row(REDUCE, 8, 4096, AlgorithmCode::TWO_SHOT),
            row(REDUCE, 8, 512, AlgorithmCode::PACKETS),
        ]);
        let all = after.over(before);
        let short: Vec<(&str, u32, u64)> = (all.rows.iter())
            .map(|row| (row.operation.as_str(), row.world, row.bytes))
            .collect();
        assert_eq!(
            short,
            [
                ("all_gather", 8, 1024),
                ("all_reduce", 4, 1024),
                ("all_reduce", 8, 512),
                ("all_reduce", 8, 4096)
            ]
        );
    }

    #[test]
    fn products_stay_beside_new_rows_and_are_replaced_one_by_one() {
        let product = |world, algorithm: &str| {
            let row = GemmRow {
                device: "Example".into(),
                world,
                shape: crate::GemmShape::new(4, 8, 16),
                element: crate::ElementType::F16,
                algorithm: super::gemm_algorithm(algorithm).unwrap(),
                transport: Default::default(),
                library: String::new(),
                candidates: Vec::new(),
            };
            StoredGemmRow::new(&row).unwrap()
        };
        let of_products = |gemm| Table {
            device: "another".into(),
            gemm,
            ..Table::default()
        };
        let before = Table {
            gemm: vec![product(2, "pull"), product(4, "pull")],
            ..table(vec![row(REDUCE, 8, 1024, AlgorithmCode::ONE_SHOT)])
        };
        let all = of_products(vec![product(2, "push")]).over(before.clone());
        assert_eq!(all.gemm, [product(2, "push"), product(4, "pull")]);
        assert_eq!((&all.rows, &all.device), (&before.rows, &before.device));
        let later = table(vec![row(REDUCE, 8, 64, AlgorithmCode::PACKETS)]).over(all.clone());
        assert_eq!(later.gemm, all.gemm);
        let without = table(Vec::new()).to_json().unwrap();
        assert!(!without.contains("products"), "as before: {without}");
    }

    #[test]
    fn as_rust_a_row_names_constants() {
        let text = table(vec![row(REDUCE, 8, u64::MAX, AlgorithmCode::TWO_SHOT)]).to_rust();
        assert!(text.contains("CollectiveOperationCode::ALL_REDUCE, world: 8, bytes: u64::MAX"));
        assert!(text.contains("AlgorithmCode::TWO_SHOT, blocks: 8, threads: 512, concurrent: 0"));
    }
}
