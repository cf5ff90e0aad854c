//! The selector's table, measured and written.

use super::*;
use symmem::tuning::Table;

#[test]
fn tuning_writes_a_table_and_keeps_rows_of_other_operations() {
    let directory = directory("tune");
    let tune = |operation: &str| {
        let arguments = [
            "tune",
            "--backend",
            "host",
            "-n",
            "2",
            "--quick",
            "--op",
            operation,
            "--max-bytes",
            "4K",
            "--out",
            "t.json",
        ];
        succeed(symmem(&directory, &arguments));
        let text = std::fs::read_to_string(directory.join("t.json")).unwrap();
        Table::from_json(&text).unwrap().rows
    };
    let first = tune("all_reduce");
    assert!(!first.is_empty() && first.iter().all(|row| row.world == 2));
    assert_eq!(first.last().unwrap().bytes, u64::MAX);
    let both = tune("all_gather");
    let count = |name: &str| both.iter().filter(|row| row.operation == name).count();
    assert_eq!(count("all_reduce"), first.len());
    assert!(count("all_gather") > 0);
    let arguments = [
        "tune",
        "--backend",
        "host",
        "-n",
        "2",
        "--quick",
        "--op",
        "broadcast",
        "--max-bytes",
        "1K",
        "--rust",
    ];
    let rust = text(&succeed(symmem(&directory, &arguments)).stdout);
    assert!(
        rust.contains("CollectiveOperation::BROADCAST, world: 2"),
        "{rust}"
    );
}
