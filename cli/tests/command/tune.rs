//! `symmem tune`: measures and writes the selector's table.

use super::*;
use rstest::rstest;
use symmem::Algorithm;
use symmem::tuning::Table;

#[test]
fn tuning_writes_a_table_and_keeps_rows_of_other_operations() {
    let directory = directory("tune");
    let tune = |operation: &str, rest: &[&str]| {
        let mut arguments = vec![
            "tune",
            "--backend",
            "host",
            "-n",
            "2",
            "--quick",
            "--op",
            operation,
        ];
        arguments.extend(rest);
        text(&succeed(symmem(&directory, &arguments)).stdout)
    };
    let written = |operation: &str| {
        tune(operation, &["--max-bytes", "4K", "--out", "t.json"]);
        let text = std::fs::read_to_string(directory.join("t.json")).unwrap();
        Table::from_json(&text).unwrap().rows
    };
    let first = written("all_reduce");
    assert!(!first.is_empty() && first.iter().all(|row| row.world == 2));
    assert_eq!(first.last().unwrap().bytes, u64::MAX);
    let both = written("all_gather");
    let count = |name: &str| both.iter().filter(|row| row.operation == name).count();
    assert_eq!(count("all_reduce"), first.len());
    assert!(count("all_gather") > 0);
    let rust = tune("broadcast", &["--max-bytes", "1K", "--rust"]);
    assert!(
        rust.contains("CollectiveOperationCode::BROADCAST, world: 2"),
        "{rust}"
    );
}

#[test]
fn on_cuda_the_vendors_library_is_tried_beside_ours_and_the_table_can_be_gone_by() {
    if too_long() {
        return;
    }
    let directory = directory("tune-cuda");
    let libraries = support::fake_driver_and_libraries();
    let on_cuda = |arguments: &[&str]| {
        let mut command = on_fake_driver(&directory, 2, arguments);
        command
            .env("SYMMEM_LIBRARY_PATH", libraries)
            .env("LD_LIBRARY_PATH", libraries)
            .env("NCCL_NVLS_ENABLE", "0");
        command
    };
    let sizes = [
        "--op",
        "all_reduce",
        "--min-bytes",
        "1K",
        "--max-bytes",
        "1K",
    ];
    let tune = [
        &["tune", "-n", "2", "--quick", "--out", "t.json"],
        &sizes[..],
    ]
    .concat();
    let mut tune = on_cuda(&tune);
    tune.env("SYMMEM_LOG", "symmem_bench=debug");
    let log = text(&succeed(tune).stderr);
    let tried = |algorithm: &str| {
        (log.lines()).any(|line| line.contains("tried") && line.contains(algorithm))
    };
    assert!(tried("VENDOR") && tried("PACKETS"), "{log}");
    let written = std::fs::read_to_string(directory.join("t.json")).unwrap();
    let table = Table::from_json(&written).unwrap();
    assert_eq!(table.to_json().unwrap(), written);
    // The table also has an algorithm of symmem, for programs that do not open NCCL.
    assert!(table.rows.iter().any(|row| row.algorithm != "vendor"));
    let bench = [
        "bench",
        "collectives",
        "-n",
        "2",
        "--quick",
        "--rounds",
        "1",
        "--baseline",
        "none",
    ];
    let mut bench = on_cuda(&[&bench[..], &sizes].concat());
    bench.env("SYMMEM_TUNING", directory.join("t.json"));
    succeed(bench);
}

/// Tunes an all-reduce of 1 KiB over the fake driver, which has a switch. Returns the log and the table.
fn tuned_beside_a_switch(name: &str, rest: &[&str]) -> (String, Table) {
    let directory = directory(name);
    let arguments = [
        "tune",
        "-n",
        "2",
        "--quick",
        "--op",
        "all_reduce",
        "--min-bytes",
        "1K",
        "--max-bytes",
        "1K",
        "--out",
        "t.json",
    ];
    let mut tune = on_fake_driver(&directory, 2, &[&arguments[..], rest].concat());
    tune.env("FAKE_CUDA_MULTICAST_HARDWARE", "1")
        .env("SYMMEM_MULTICAST", "1")
        .env("SYMMEM_LOG", "symmem_bench=debug");
    let log = text(&succeed(tune).stderr);
    let written = std::fs::read_to_string(directory.join("t.json")).unwrap();
    (log, Table::from_json(&written).unwrap())
}

#[rstest]
#[case("bf16", true)]
#[case("i8", false)]
// The fake device has no multicast kernel for fp8.
#[case("e4m3", false)]
fn what_a_switch_does_not_reduce_is_not_timed_under_its_name(
    #[case] element: &str,
    #[case] by_switch: bool,
) {
    if !support::permitted() {
        return;
    }
    let (log, table) = tuned_beside_a_switch(&format!("tune-{element}"), &["--type", element]);
    let mut lines = (log.lines())
        .filter(|line| line.contains("algorithm=\"MULTICAST"))
        .peekable();
    assert!(lines.peek().is_some(), "{log}");
    for line in lines {
        assert_eq!(
            !line.contains("another algorithm would be used"),
            by_switch,
            "{line}"
        );
    }
    let rows = table.rows;
    let named = rows
        .iter()
        .any(|row| row.algorithm.starts_with("multicast"));
    assert!(by_switch || !named, "{rows:?}");
}

#[test]
fn where_there_is_a_switch_its_kernels_are_tried_and_something_serves_without_it() {
    if !support::permitted() {
        return;
    }
    let (log, table) = tuned_beside_a_switch("tune-multicast", &[]);
    // Independent of their speed on the fake.
    for algorithm in [Algorithm::Multicast, Algorithm::MulticastOneShot] {
        let name = format!("algorithm={:?}", algorithm.name());
        assert!(log.contains(&name), "{name}: {log}");
    }
    assert!(
        table
            .rows
            .iter()
            .any(|row| !row.algorithm.starts_with("multicast"))
    );
}
