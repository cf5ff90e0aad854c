//! Benchmarks of all-gather + GEMM: on the host, on CUDA over the fakes, and with a stand-in for PyTorch.

use super::*;
use symmem::tuning::{StoredGemmRow, Table};
use symmem_bench::report::ag_gemm::{
    ALGORITHMS, AUTOMATIC, GATHER, GEMM, Measured, OWN_GEMM, TOGETHER, TORCH, TORCH_FUSED,
    VARIANTS, WINDOWS,
};

/// Small shapes, since the host multiplies slowly, with a remainder in every dimension.
const SHAPES: &str = r#"[
    {"m": 35, "n": 24, "k": 18, "dtype": "bfloat16"},
    {"m": 6, "n": 10, "k": 21, "dtype": "float16", "sharding": "columns", "b_order": "column-major",
     "bias": true}
]"#;

/// The backend, with its number of ranks.
enum On {
    Host(u32),
    /// The fake driver, NCCL and cuBLASLt; without PyTorch.
    Cuda(u32),
}

/// Returns a benchmark of the shapes with its report in `all.json`.
fn bench(directory: &Path, on: On, shapes: &str, more: &[&str]) -> Command {
    std::fs::write(directory.join("shapes.json"), shapes).unwrap();
    let (On::Host(ranks) | On::Cuda(ranks)) = on;
    let ranks = ranks.to_string();
    let (config, json) = (
        ["--config", "shapes.json"],
        ["--json", "all.json", "--force"],
    );
    let common = ["bench", "ag-gemm", "--rounds", "2", "--ranks", &ranks];
    let common = [&common[..], &config, &json].concat();
    match on {
        On::Host(_) => {
            let on_host = ["--backend", "host"];
            symmem(directory, &[&common, &on_host[..], more].concat())
        }
        On::Cuda(devices) => {
            let libraries = support::fake_driver_and_libraries();
            let on_cuda = ["--backend", "cuda", "--baseline", "none"];
            let arguments = [&common, &on_cuda[..], more].concat();
            let mut command = on_fake_driver(directory, devices, &arguments);
            command
                .env("SYMMEM_LIBRARY_PATH", libraries)
                .env("LD_LIBRARY_PATH", libraries)
                .env("NCCL_NVLS_ENABLE", "0");
            command
        }
    }
}

#[track_caller]
fn products(directory: &Path) -> Vec<Measured> {
    let report = report(&directory.join("all.json"));
    report.ag_gemm.unwrap().products
}

#[test]
fn every_algorithm_is_checked_and_stands_beside_its_parts() {
    let directory = directory("products");
    let command = bench(&directory, On::Host(2), SHAPES, &["--ddlb"]);
    let output = text(&succeed(command).stdout);
    for part in [
        "All-gather + GEMM of 2 ranks, host backend",
        "barrier before each call",
        "graph replay",
        "35x24x18",
        "f16 columns, B column-major, bias",
        "DDLB's method",
        "of 2 shapes. Worst: ",
        "baseline windows is absent",
    ] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    for measured in products(&directory) {
        let shape = measured.problem.shape();
        for by in [GEMM, OWN_GEMM, GATHER].into_iter().chain(ALGORITHMS) {
            let entry = measured.entry(by).unwrap();
            assert!(
                entry.time.is_some() && entry.graph.is_some(),
                "{shape} {by}"
            );
            assert!(entry.ddlb_ns.is_some(), "{shape} {by}");
        }
        for by in [OWN_GEMM].into_iter().chain(ALGORITHMS) {
            // All of C, in a call and in a graph replay, on both ranks.
            let all = 2 * 2 * measured.problem.m * measured.problem.n;
            assert_eq!(
                measured.entry(by).unwrap().checked,
                all as u64,
                "{shape} {by}"
            );
        }
        assert_eq!(measured.rounds, 2);
        assert_eq!(measured.derived.len(), 6);
        let choice = measured.choice.as_ref().unwrap();
        assert_eq!(Some(&choice.chosen), measured.chosen.as_ref());
        assert!(choice.behind_percent >= 0.0, "{choice:?}");
    }
    // One file per shape, and one page.
    let results = only_result(&directory, "");
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
    // Too many rows for graph replays, and not a multiple of the three ranks.
    let shapes = r#"[{"m": 1100, "n": 16, "k": 24, "dtype": "bfloat16"}]"#;
    let command = bench(&directory, On::Cuda(3), shapes, &[]);
    let output = text(&succeed(command).stdout);
    assert!(
        output.contains("collectives library: NCCL 2.28.9"),
        "{output}"
    );
    let measured = &products(&directory)[0];
    assert_eq!(measured.entry("baseline").unwrap().how, "vendor");
    let gathered = &measured.entry(GATHER).unwrap().how;
    assert!(
        gathered.starts_with("own ") || gathered == "nccl windows",
        "{gathered}"
    );
    let parts = [GEMM, OWN_GEMM, GATHER, TOGETHER, WINDOWS];
    for by in parts.into_iter().chain(ALGORITHMS) {
        let entry = measured.entry(by).unwrap();
        assert!(entry.time.is_some() && entry.graph.is_none(), "{by}");
    }
    for by in [OWN_GEMM, WINDOWS].into_iter().chain(ALGORITHMS) {
        // All of this small C, on each rank.
        assert_eq!(measured.entry(by).unwrap().checked, 3 * 1100 * 16, "{by}");
    }
}

#[test]
fn columns_between_windows_are_put_where_they_belong_and_replayed() {
    let directory = directory("products-windows");
    let shapes = r#"[
        {"m": 16, "n": 16, "k": 256, "dtype": "bfloat16", "sharding": "columns", "bias": true},
        {"m": 4, "n": 16, "k": 18, "dtype": "float16", "sharding": "columns"}
    ]"#;
    succeed(bench(&directory, On::Cuda(2), shapes, &[]));
    let measured = products(&directory);
    let windows = measured[0].entry(WINDOWS).unwrap();
    assert!(windows.time.is_some() && windows.graph.is_some());
    // A call and a graph replay, all of C, two ranks.
    assert_eq!((windows.wrong, windows.checked), (0, 2 * 2 * 16 * 16));
    // A part of 4 times 9 elements is not a multiple of 16 bytes.
    let absent = measured[1].entry(WINDOWS).unwrap().absent.as_ref().unwrap();
    assert!(absent.contains("16 bytes"), "{absent}");
}

/// Returns the rows for all-gather + GEMM in a file.
#[track_caller]
fn rows(file: &Path) -> Vec<StoredGemmRow> {
    let text = std::fs::read_to_string(file).unwrap();
    Table::from_json(&text).unwrap().gemm
}

#[test]
fn what_was_tuned_is_chosen_in_the_stored_way_until_the_library_is_another() {
    if too_long() {
        return;
    }
    let directory = directory("products-tuned");
    let file = directory.join("t.json");
    let collectives = r#"{"version": 1, "device": "X", "rows": [{"operation": "all_reduce", "world": 2,
        "bytes": 64, "algorithm": "one_shot"}]}"#;
    std::fs::write(&file, collectives).unwrap();
    let shapes = r#"[{"m": 64, "n": 16, "k": 64, "dtype": "bfloat16"}]"#;
    let tune = ["--tune", "t.json", "--transport", "all"];
    succeed(bench(&directory, On::Cuda(2), shapes, &tune));
    let kept = Table::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((kept.rows.len(), kept.device.as_str()), (1, "X"));
    let [row] = &rows(&file)[..] else {
        panic!("one product, one row")
    };
    let fastest = products(&directory)[0].choice.clone().unwrap().fastest;
    let (algorithm, moved) = fastest
        .split_once(' ')
        .unwrap_or((&fastest, &row.transport));
    assert_eq!(
        (row.algorithm.as_str(), row.transport.as_str()),
        (algorithm, moved)
    );
    let measured = &products(&directory)[0];
    let own = &measured.entry(OWN_GEMM).unwrap().how;
    assert!(own.ends_with("pull only"), "{own}");
    for by in VARIANTS {
        // The default transport of push for few rows is the kernel, so it is not a variant.
        let Some(entry) = measured.entry(by) else {
            assert_eq!(
                (by, measured.entry("push").unwrap().how.as_str()),
                ("push kernel", "kernel")
            );
            continue;
        };
        assert!(
            entry.time.is_some() && entry.checked > 0 && by.ends_with(&entry.how),
            "{by}"
        );
    }
    // Candidates for the whole GEMM and for a shard's, whichever algorithm was the fastest.
    let mut lengths: Vec<u64> = row
        .candidates
        .iter()
        .map(|candidate| candidate.rows)
        .collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [32, 64]);

    // A row that no rule gives, with a transport that is not an algorithm's default.
    let mut stored = row.clone();
    (stored.algorithm, stored.transport) = ("pipeline".into(), "get".into());
    let chosen = |stored: &StoredGemmRow| {
        let table = Table {
            gemm: vec![stored.clone()],
            ..Table::default()
        };
        std::fs::write(&file, table.to_json().unwrap()).unwrap();
        let mut command = bench(&directory, On::Cuda(2), shapes, &[]);
        command.env("SYMMEM_TUNING", &file);
        let output = succeed(command);
        let measured = products(&directory).remove(0);
        let automatic = measured.entry(AUTOMATIC).unwrap();
        assert_eq!(automatic.how, "pipeline get");
        assert!(automatic.graph.is_some() && automatic.wrong == 0);
        assert_eq!(measured.chosen.as_deref(), Some("pipeline get"));
        text(&output.stderr)
    };
    let note = "stored GEMM candidates belong to another library";
    assert!(!chosen(&stored).contains(note));
    stored.library += "9";
    let told = chosen(&stored);
    assert!(
        told.contains(note) && told.contains(&stored.library),
        "{told}"
    );
}

#[test]
fn a_choice_among_some_ways_only_is_not_credited_with_the_time_of_another_one() {
    let directory = directory("products-chosen");
    let shapes = r#"[{"m": 64, "n": 16, "k": 64, "dtype": "bfloat16"}]"#;
    let some = ["--algorithm", "push", "--transport", "put"];
    let output = succeed(bench(&directory, On::Cuda(2), shapes, &some));
    let measured = &products(&directory)[0];
    assert_eq!(measured.entry("push").unwrap().how, "put");
    assert_eq!(measured.chosen.as_deref(), Some("push kernel"));
    assert_eq!(measured.choice, None);
    let output = text(&output.stdout);
    assert!(output.contains("was not among the algorithms"), "{output}");
    // If all algorithms are measured, so is the selector's choice.
    succeed(bench(&directory, On::Cuda(2), shapes, &some[2..]));
    let measured = &products(&directory)[0];
    assert_eq!(measured.entry(AUTOMATIC).unwrap().how, "push kernel");
    assert_eq!(measured.choice.as_ref().unwrap().chosen, "push kernel");
}

#[test]
fn a_wrong_file_of_rows_is_named_with_the_line() {
    let directory = directory("products-untuned");
    let text = "{\"version\": 1, \"rows\": [],\n\"products\": [\n{\"device\": 3}\n]}";
    std::fs::write(directory.join("t.json"), text).unwrap();
    let mut read = bench(&directory, On::Host(2), SHAPES, &["-v"]);
    read.env("SYMMEM_TUNING", "t.json");
    // A table that would be overwritten is read before anything is measured.
    let written = bench(&directory, On::Host(2), SHAPES, &["--tune", "t.json"]);
    for command in [read, written] {
        let error = fail(command);
        assert!(
            error.contains("t.json") && error.contains("line 3"),
            "{error}"
        );
    }
    assert!(!directory.join("all.json").exists(), "nothing was measured");
}

#[test]
fn the_table_that_is_to_be_written_need_not_be_there_and_any_other_one_has_to() {
    let directory = directory("products-new-table");
    let new = |tune: &[&str]| {
        let mut command = bench(&directory, On::Host(2), SHAPES, tune);
        command.env("SYMMEM_TUNING", "./new.json");
        command
    };
    let error = fail(new(&[]));
    assert!(
        error.contains("new.json") && error.contains("unset SYMMEM_TUNING"),
        "{error}"
    );
    // --tune compares results even without --validate.
    succeed(new(&["--benchmark", "--tune", "new.json"]));
    let kept = rows(&directory.join("new.json"));
    assert_eq!(kept.len(), 2);
    // The host's GEMM has no heuristic candidates.
    assert!(kept.iter().all(|row| row.candidates.is_empty()), "{kept:?}");
    for measured in products(&directory) {
        assert!(measured.entry("baseline").unwrap().checked > 0);
    }
    // The table is used from then on; a row that cannot run is reported.
    let file = directory.join("new.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut table = Table::from_json(&text).unwrap();
    (table.gemm[0].algorithm, table.gemm[0].transport) = ("pipeline".into(), "vendor".into());
    std::fs::write(&file, table.to_json().unwrap()).unwrap();
    let told = super::text(&succeed(new(&["-v"])).stderr);
    assert!(
        told.contains("cannot run a stored tuning row") && told.contains("Pipeline"),
        "{told}"
    );
}

#[test]
fn nothing_is_stored_of_some_ways_only_or_where_results_were_wrong() {
    let directory = directory("products-not-stored");
    for (more, told) in [
        (["--algorithm", "pull,push"], "--algorithm pull,push"),
        (["--transport", "get"], "--transport get"),
    ] {
        let arguments = [&more[..], &["--tune", "t.json"]].concat();
        let error = fail(bench(&directory, On::Host(2), SHAPES, &arguments));
        assert!(
            error.contains(told) && error.contains("--transport all"),
            "{error}"
        );
    }
    let python = stand_in_for_torch(&directory, 1_000_000, 3);
    let more = ["--baseline", "pytorch", "--tune", "t.json"];
    let mut command = bench(&directory, On::Host(2), SHAPES, &more);
    let output = command.env("SYMMEM_PYTHON", &python).output().unwrap();
    assert!(!output.status.success());
    let error = text(&output.stderr);
    assert!(error.contains("nothing is stored"), "{error}");
    assert!(directory.join("all.json").exists() && !directory.join("t.json").exists());
}

#[test]
fn one_shape_needs_no_file_and_names_that_are_taken_get_a_number() {
    let directory = directory("products-one-shape");
    let mut arguments = vec!["bench", "ag-gemm", "--backend", "host", "--rounds", "1"];
    arguments.extend(["--algorithm", "baseline", "--out", "here"]);
    arguments.extend([
        "-m", "6", "-n", "10", "-k", "21", "--type", "float16", "--bias",
    ]);
    arguments.extend(["--sharding", "columns", "--b-order", "column-major"]);
    succeed(symmem(&directory, &arguments));
    succeed(symmem(&directory, &arguments));
    let name = "ag-gemm-6x10x21-float16-columns-column-major-bias-2-ranks";
    for file in [format!("here/{name}.json"), format!("here/{name}-2.json")] {
        let report = report(&directory.join(file));
        assert_eq!(report.ag_gemm.unwrap().products.len(), 1);
    }
    assert!(directory.join("here/ag-gemm-2.html").exists());
    arguments.push("--force");
    succeed(symmem(&directory, &arguments));
    assert!(!directory.join("here/ag-gemm-3.html").exists());
}

#[test]
fn what_is_not_asked_for_is_not_done() {
    let directory = directory("products-validated");
    let only = ["-v", "--algorithm", "pull,push", "--out", "here"];
    succeed(bench(&directory, On::Host(2), SHAPES, &only));
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

    let explain = ["--explain", "--algorithm", "pipeline"];
    let output = succeed(bench(&directory, On::Host(2), SHAPES, &explain));
    let output = text(&output.stdout);
    for part in [
        "rank 0 of 2: C[35, 24]",
        "rank 1 of 2: C[6, 10]",
        "shard of rank (1 + i) mod 2 arrives",
        "copy stream 0: signal rank 0",
    ] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    assert!(
        !directory.join("symmem-results").exists(),
        "nothing was run"
    );
}

#[test]
fn what_cannot_be_measured_is_said_in_a_sentence() {
    let directory = directory("products-refused");
    let refused = |on, text: &str, more: &[&str]| fail(bench(&directory, on, text, more));
    for (text, part) in [
        ("[]", "no shapes"),
        ("{", "shapes.json"),
        (
            r#"[{"m": 0, "n": 1, "k": 1, "dtype": "bf16"}]"#,
            "0x1x1 has no elements",
        ),
        (r#"[{"m": 1, "n": 1, "k": 1, "dtype": "f64"}]"#, "bfloat16"),
        (
            r#"[{"m": 1, "n": 1, "k": 1, "dtype": "bf16", "stride": 1}]"#,
            "stride",
        ),
    ] {
        let error = refused(On::Host(2), text, &[]);
        assert!(error.contains(part), "{text}: {error}");
    }
    let ring = ["--algorithm", "ring"];
    assert!(refused(On::Host(2), SHAPES, &ring).contains("pipeline"));
    assert!(refused(On::Host(1), SHAPES, &[]).contains("--ranks 2"));
}

/// A stand-in for Python with PyTorch that speaks the protocol, multiplies nothing, and has no fused operator and no
/// graphs. It exits after `limit` commands and reports `wrong` wrong elements.
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
    let more = ["--baseline", "pytorch", "--algorithm", "baseline"];
    let mut command = bench(&directory, On::Host(2), SHAPES, &more);
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
    let more = ["--baseline", "pytorch", "--algorithm", "baseline"];
    let mut command = bench(&directory, On::Host(2), SHAPES, &more);
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
    let more = ["--baseline", "pytorch", "--algorithm", "pull"];
    let mut command = bench(&directory, On::Host(2), SHAPES, &more);
    command.env("SYMMEM_PYTHON", &python);
    let output = text(&succeed(command).stdout);
    assert!(output.contains("note: baseline pytorch failed"), "{output}");
    for measured in products(&directory) {
        assert!(measured.entry("pull").unwrap().time.is_some());
    }
    have_ended(&directory);
}

/// Pull and push have no kernel for f32 on GPUs, and a report says so; the host multiplies it by every algorithm.
#[test]
fn matrices_of_f32_are_measured_by_what_multiplies_them() {
    let shapes = r#"[{"m": 35, "n": 24, "k": 18, "dtype": "f32"}]"#;
    for (name, on, algorithms) in [
        ("f32-host", On::Host(2), &ALGORITHMS[..]),
        ("f32-cuda", On::Cuda(2), &ALGORITHMS[..2]),
    ] {
        let directory = directory(name);
        succeed(bench(&directory, on, shapes, &[]));
        let products = products(&directory);
        let (kind, measured) = (products[0].problem.file_name(), &products[0]);
        assert_eq!(kind, "35x24x18-float32-rows");
        for algorithm in ALGORITHMS {
            let entry = measured.entry(algorithm).expect("measured or absent");
            let absent = entry.absent.as_deref().unwrap_or_default();
            match algorithms.contains(&algorithm) {
                true => assert!(entry.checked > 0 && entry.wrong == 0, "{entry:?}"),
                false => assert!(
                    absent.contains("no fused kernel here takes these matrices of F32"),
                    "{entry:?}"
                ),
            }
        }
    }
}

/// GPUs multiply 8-bit floats by cuBLASLt and hipBLASLt, and for CUDA there is no fused kernel; the host has every algorithm.
#[test]
fn matrices_of_8_bit_floats_are_measured_by_what_multiplies_them() {
    let shapes = r#"[
        {"m": 64, "n": 32, "k": 96, "dtype": "f8e4m3", "b_order": "column-major", "bias": true},
        {"m": 64, "n": 32, "k": 96, "dtype": "f8e4m3"}
    ]"#;
    for (name, on) in [("f8-host", On::Host(2)), ("f8-cuda", On::Cuda(2))] {
        let directory = directory(name);
        succeed(bench(&directory, on, shapes, &[]));
        let products = products(&directory);
        for measured in &products {
            let kind = measured.problem.file_name();
            let is_by_columns = kind == "64x32x96-float8_e4m3fn-rows-column-major-bias";
            assert!(
                is_by_columns || kind == "64x32x96-float8_e4m3fn-rows",
                "{kind}"
            );
            for (index, algorithm) in ALGORITHMS.into_iter().enumerate() {
                let entry = measured.entry(algorithm).expect("measured or absent");
                let absent = entry.absent.as_deref().unwrap_or_default();
                let told = match (name, is_by_columns, index) {
                    ("f8-host", ..) | (_, true, ..2) => {
                        assert!(entry.checked > 0 && entry.wrong == 0, "{entry:?}");
                        continue;
                    }
                    (_, true, _) => "no fused kernel here takes these matrices of F8_E4M3",
                    (_, false, ..2) => "store B by columns",
                    _ => "use `Pipeline` or `Baseline`",
                };
                assert!(absent.contains(told), "{entry:?}");
            }
        }
        assert_eq!(products.len(), 2);
    }
}

/// A shape of the command line has B by columns, as GPUs want it.
#[test]
fn b_of_8_bit_floats_is_column_major_unless_the_command_says_otherwise() {
    let directory = directory("f8-order");
    let mut command = symmem(&directory, &["bench", "ag-gemm", "-m", "16", "-n", "16"]);
    command.args(["-k", "32", "--type", "f8e4m3", "--out", "out", "-v"]);
    command.args([
        "--algorithm",
        "baseline",
        "--ranks",
        "2",
        "--backend",
        "host",
    ]);
    let output = text(&succeed(command).stdout);
    assert!(output.contains("f8e4m3 rows, B column-major"), "{output}");
}

#[test]
fn a_tile_that_no_kernel_has_leaves_its_algorithms_out() {
    let shapes = r#"[{"m": 128, "n": 256, "k": 256, "dtype": "bf16"}]"#;
    // The tile of the tensor kernels on CUDA, and one that none has.
    for (tile, has) in [("128x256", true), ("96x32", false)] {
        let directory = directory(&format!("tile-{tile}"));
        succeed(bench(&directory, On::Cuda(2), shapes, &["--tile", tile]));
        let measured = &products(&directory)[0];
        for algorithm in ["pull", "push"] {
            let entry = measured.entry(algorithm).expect("measured or absent");
            let absent = entry.absent.as_deref().unwrap_or_default();
            assert_eq!(entry.checked > 0, has, "{entry:?}");
            assert!(
                has || absent.contains("no kernel here has tiles of 96x32"),
                "{absent}"
            );
        }
    }
}
