//! All-gather with a GEMM, measured: on the host, and beside a stand-in for PyTorch.

use super::*;
use symmem::report::ag_gemm::{ALGORITHMS, GATHER, GEMM, Measured, TOGETHER, TORCH, TORCH_FUSED};

/// Small, since a processor multiplies slowly, and with a tail everywhere.
const SHAPES: &str = r#"[
    {"m": 35, "n": 24, "k": 18, "dtype": "bfloat16"},
    {"m": 6, "n": 10, "k": 21, "dtype": "float16", "sharding": "columns", "b_order": "column-major",
     "bias": true}
]"#;

fn bench(directory: &Path, more: &[&str]) -> Command {
    std::fs::write(directory.join("shapes.json"), SHAPES).unwrap();
    let arguments = [
        "bench",
        "ag-gemm",
        "--backend",
        "host",
        "-n",
        "2",
        "--rounds",
        "2",
        "--config",
        "shapes.json",
    ];
    symmem(directory, &[&arguments, more].concat())
}

#[track_caller]
fn products(directory: &Path) -> Vec<Measured> {
    let report = report(&directory.join("all.json"));
    report.ag_gemm.unwrap().products
}

#[test]
fn every_algorithm_is_checked_and_stands_beside_its_parts() {
    let directory = directory("products");
    let command = bench(&directory, &["--json", "all.json", "--ddlb"]);
    let output = text(&succeed(command).stdout);
    for part in [
        "All-gather + GEMM of 2 ranks, host backend",
        "barrier before each call",
        "graph replay",
        "35x24x18",
        "f16 columns B by columns bias",
        "DDLB's method",
    ] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    for measured in products(&directory) {
        let shape = measured.product.shape();
        for by in [GEMM, GATHER].into_iter().chain(ALGORITHMS) {
            let entry = measured.entry(by).unwrap();
            assert!(
                entry.time.is_some() && entry.graph.is_some(),
                "{shape} {by}"
            );
            assert!(entry.ddlb_ns.is_some(), "{shape} {by}");
        }
        for by in ALGORITHMS {
            // All of C, by a call and by a replay, at both ranks.
            let all = 2 * 2 * measured.product.m * measured.product.n;
            assert_eq!(
                measured.entry(by).unwrap().checked,
                all as u64,
                "{shape} {by}"
            );
        }
        assert_eq!(measured.rounds, 2);
        assert!(measured.chosen.is_some() && measured.derived.len() == 5);
    }
    // One file for each product, and one page.
    let results = directory.join("results");
    for name in [
        "ag-gemm-35x24x18-bfloat16-rows-2-ranks.json",
        "ag-gemm-6x10x21-float16-columns-column-major-bias-2-ranks.json",
    ] {
        assert_eq!(
            report(&results.join(name)).ag_gemm.unwrap().products.len(),
            1
        );
    }
    let page = std::fs::read_to_string(results.join("ag-gemm.html")).unwrap();
    assert!(page.contains("<h1>All-gather + GEMM</h1>") && page.contains("35x24x18"));
}

#[test]
fn on_cuda_the_vendors_libraries_take_part_and_both_parts_run_at_once() {
    let directory = directory("products-cuda");
    let libraries = support::fake_driver_and_libraries();
    // Rows enough that nothing is replayed, three ranks that do not divide them.
    let shapes = r#"[{"m": 1100, "n": 16, "k": 24, "dtype": "bfloat16"}]"#;
    std::fs::write(directory.join("shapes.json"), shapes).unwrap();
    let arguments = [
        "bench",
        "ag-gemm",
        "--backend",
        "cuda",
        "--rounds",
        "2",
        "--config",
        "shapes.json",
        "--baseline",
        "none",
        "--json",
        "all.json",
    ];
    let mut command = on_fake_driver(&directory, 3, &arguments);
    command
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("NCCL_NVLS_ENABLE", "0");
    let output = text(&succeed(command).stdout);
    assert!(
        output.contains("vendor's collectives: NCCL 2.28.9"),
        "{output}"
    );
    let measured = &products(&directory)[0];
    assert_eq!(measured.entry("baseline").unwrap().how, "vendor");
    for by in [GEMM, GATHER, TOGETHER].into_iter().chain(ALGORITHMS) {
        let entry = measured.entry(by).unwrap();
        assert!(entry.time.is_some() && entry.graph.is_none(), "{by}");
    }
    for by in ALGORITHMS {
        // All of so small a C, at each rank.
        assert_eq!(measured.entry(by).unwrap().checked, 3 * 1100 * 16, "{by}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_done() {
    let directory = directory("products-validated");
    let only = [
        "-v",
        "--algorithm",
        "pull,push",
        "--json",
        "all.json",
        "--out",
        "here",
    ];
    succeed(bench(&directory, &only));
    for measured in products(&directory) {
        let names: Vec<&str> = measured
            .entries
            .iter()
            .map(|entry| entry.by.as_str())
            .collect();
        assert_eq!(names, ["pull", "push"]);
        assert!(
            measured
                .entries
                .iter()
                .all(|entry| entry.checked > 0 && entry.time.is_none())
        );
    }
    assert!(directory.join("here/ag-gemm.html").exists());

    let output = succeed(bench(&directory, &["--explain", "--algorithm", "pipeline"]));
    let output = text(&output.stdout);
    for part in [
        "rank 0 of 2: C[35, 24]",
        "rank 1 of 2: C[6, 10]",
        "shard of rank (1 + i) mod 2 comes",
        "copy stream 0: signal to rank 0",
    ] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    assert!(!directory.join("results").exists(), "nothing was run");
}

#[test]
fn what_cannot_be_measured_is_said_in_a_sentence() {
    let directory = directory("products-refused");
    let refused = |text: &str, arguments: &[&str]| {
        std::fs::write(directory.join("s.json"), text).unwrap();
        let command = [
            "bench",
            "ag-gemm",
            "--backend",
            "host",
            "--config",
            "s.json",
        ];
        fail(symmem(&directory, &[&command, arguments].concat()))
    };
    for (text, part) in [
        ("[]", "no shapes"),
        ("{", "s.json"),
        (
            r#"[{"m": 0, "n": 1, "k": 1, "dtype": "bf16"}]"#,
            "0x1x1 has no elements",
        ),
        (r#"[{"m": 1, "n": 1, "k": 1, "dtype": "f32"}]"#, "bfloat16"),
        (
            r#"[{"m": 1, "n": 1, "k": 1, "dtype": "bf16", "stride": 1}]"#,
            "stride",
        ),
    ] {
        let error = refused(text, &[]);
        assert!(error.contains(part), "{text}: {error}");
    }
    assert!(refused(SHAPES, &["--algorithm", "ring"]).contains("pipeline"));
    assert!(refused(SHAPES, &["-n", "1"]).contains("--ranks 2"));
}

/// A stand-in for Python with PyTorch: speaks the protocol, multiplies nothing, has no fused operator and
/// no graphs. Breaks off after `limit` commands; `wrong` is what it says of its results.
fn stand_in_for_torch(directory: &Path, limit: u32, wrong: u32) -> PathBuf {
    let script = format!(
        r#"#!/bin/sh
echo $$ >> pids
rank=$4
if [ "$rank" = 0 ]; then echo "port 7"; else read -r word port; [ "$port" = 7 ] || exit 1; fi
echo "ready PyTorch 0.0.1"
left={limit}
while read -r command way calls rest; do
    [ "$left" -gt 0 ] || exit 1
    left=$((left - 1))
    case "$command $way" in
    shape\ *) echo "shaped" ;;
    check\ plain) echo "wrong {wrong} 100" ;;
    time\ plain)
        line=times
        while [ "$calls" -gt 0 ]; do line="$line $((1000 + rank))"; calls=$((calls - 1)); done
        echo "$line" ;;
    quit*) exit 0 ;;
    *) echo "absent a stand-in has no such thing" ;;
    esac
done
"#
    );
    program(directory, &script)
}

#[test]
fn pytorch_takes_its_turn_and_what_it_lacks_is_said() {
    let directory = directory("products-torch");
    let python = stand_in_for_torch(&directory, 1_000_000, 0);
    let more = [
        "--json",
        "all.json",
        "--baseline",
        "pytorch",
        "--algorithm",
        "baseline",
    ];
    let mut command = bench(&directory, &more);
    command.env("SYMMEM_PYTHON", &python);
    let output = text(&succeed(command).stdout);
    assert!(
        output.contains("baseline pytorch: PyTorch 0.0.1"),
        "{output}"
    );
    assert!(
        output.contains("torch fused is absent: a stand-in has no such thing"),
        "{output}"
    );
    for measured in products(&directory) {
        let theirs = measured.entry(TORCH).unwrap();
        assert_eq!(theirs.time.unwrap().ns, 1001.0, "of the slower rank");
        assert_eq!((theirs.graph, theirs.checked), (None, 200));
        assert!(measured.entry(TORCH_FUSED).unwrap().absent.is_some());
    }
    have_ended(&directory);
}

#[test]
fn wrong_elements_fail_the_command_and_show_no_time() {
    let directory = directory("products-wrong");
    let python = stand_in_for_torch(&directory, 1_000_000, 3);
    let mut command = bench(
        &directory,
        &["--baseline", "pytorch", "--algorithm", "baseline"],
    );
    let output = command.env("SYMMEM_PYTHON", &python).output().unwrap();
    assert!(!output.status.success());
    let output = text(&output.stdout);
    assert!(
        output.contains("WRONG: torch of 35x24x18 had 6 wrong elements"),
        "{output}"
    );
}

#[test]
fn pytorch_that_breaks_off_ends_its_part_and_not_the_run() {
    let directory = directory("products-broken-torch");
    let python = stand_in_for_torch(&directory, 4, 0);
    let more = [
        "--json",
        "all.json",
        "--baseline",
        "pytorch",
        "--algorithm",
        "pull",
    ];
    let mut command = bench(&directory, &more);
    command.env("SYMMEM_PYTHON", &python);
    let output = text(&succeed(command).stdout);
    assert!(
        output.contains("note: baseline pytorch broke off"),
        "{output}"
    );
    for measured in products(&directory) {
        assert!(measured.entry("pull").unwrap().time.is_some());
    }
    have_ended(&directory);
}
