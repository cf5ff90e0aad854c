//! Tuning files, which `SYMMEM_TUNING` names.

use crate::fuzzing::heap;
use crate::tuning::{StoredGemmReduceRow, StoredGemmRow, Table};

/// Checks `bytes` as a tuning file.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    // The shortest row of a table takes 60 bytes there and 100 in memory, and a growing list up to twice its room.
    let table = match heap::within(16 * text.len() + 4096, || Table::from_json(text)) {
        Ok(table) => table,
        Err(error) => {
            let text = error.to_string();
            let place = ["line ", "row ", "version "];
            assert!(place.iter().any(|place| text.contains(place)), "{text}");
            return;
        }
    };
    let written = table.to_json().expect("a table is always JSON");
    assert_eq!(Table::from_json(&written).unwrap(), table);
    assert_eq!(table.rows().unwrap().len(), table.rows.len());
    for (row, stored) in table.gemm_rows().unwrap().iter().zip(&table.gemm) {
        let again = StoredGemmRow::new(row).expect("a row of a file has no gaps");
        assert_eq!(again.row().as_ref(), Ok(row), "{stored:?}");
    }
    let reduced = table.gemm_reduce_rows().unwrap();
    for (row, stored) in reduced.iter().zip(&table.gemm_reduce) {
        let again = StoredGemmReduceRow::new(row).expect("a row of a file has no gaps");
        assert_eq!(again.row().as_ref(), Ok(row), "{stored:?}");
    }
    // Every row of a table covers its own operation or shape, so the table replaces itself.
    let merged = table.clone().over(table.clone());
    assert_eq!(merged.rows.len(), table.rows.len());
    assert_eq!(merged.gemm.len(), table.gemm.len());
    assert_eq!(merged.gemm_reduce.len(), table.gemm_reduce.len());
    assert!(
        merged
            .rows
            .is_sorted_by_key(|row| (row.operation.clone(), row.world, row.bytes))
    );
    assert!(!table.to_rust().is_empty());
}
