//! Benchmarks of GEMM + reduce-scatter and GEMM + all-reduce: on the host, and on CUDA over the fakes.

use super::*;
use rstest::rstest;
use symmem_bench::report::gemm_reduce::{
    AUTOMATIC, BASELINE, COLLECTIVE, GEMM, GEMM_THEN_NCCL, GEMM_THEN_SYMMEM, GemmCollective,
    GemmReduceResults, MeasuredReduce, PACKETS,
};

/// Small shapes, since the host multiplies slowly, with rows for two ranks and a remainder elsewhere.
const SHAPES: &str = r#"[
    {"m": 34, "n": 24, "k": 18, "dtype": "bfloat16"},
    {"m": 6, "n": 10, "k": 21, "dtype": "float16", "b_order": "column-major", "bias": true}
]"#;

/// Returns a benchmark on the host with two ranks, with its report in `all.json`.
fn bench(directory: &Path, command: &str, more: &[&str]) -> Command {
    let common = ["bench", command, "--rounds", "2", "--ranks", "2"];
    let report = ["--backend", "host", "--json", "all.json", "--force"];
    symmem(directory, &[&common[..], &report, more].concat())
}

/// Returns a benchmark on the fake driver, NCCL and cuBLASLt, with its report in `all.json`.
fn on_cuda(directory: &Path, command: &str, ranks: u32, more: &[&str]) -> Command {
    let libraries = support::fake_driver_and_libraries();
    let number = ranks.to_string();
    let common = ["bench", command, "--rounds", "2", "--ranks", &number];
    let report = ["--backend", "cuda", "--json", "all.json", "--force"];
    let arguments = [&common[..], &report, more].concat();
    let mut command = on_fake_driver(directory, ranks, &arguments);
    command
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("NCCL_NVLS_ENABLE", "0");
    command
}

#[track_caller]
fn results(file: &Path) -> GemmReduceResults {
    report(file).gemm_reduce.unwrap()
}

#[track_caller]
fn sums(directory: &Path) -> Vec<MeasuredReduce> {
    results(&directory.join("all.json")).products
}

#[rstest]
#[case("gemm-rs", GemmCollective::ReduceScatter, "reduce-scatter")]
#[case("gemm-ar", GemmCollective::AllReduce, "all-reduce")]
fn every_algorithm_is_checked_and_stands_beside_its_parts(
    #[case] command: &str,
    #[case] collective: GemmCollective,
    #[case] label: &str,
) {
    let directory = directory("sums");
    std::fs::write(directory.join("shapes.json"), SHAPES).unwrap();
    let output = succeed(bench(&directory, command, &["--config", "shapes.json"]));
    let output = text(&output.stdout);
    for part in [
        &format!("GEMM + {label} of 2 ranks, host backend"),
        "34x24x18 bf16",
        "6x10x21 f16, B column-major, bias",
        "ideal",
        "of 2 shapes. Worst: ",
        "gemm then nccl is absent",
    ] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    for measured in sums(&directory) {
        let shape = measured.problem.shape();
        // By default all of them: 12 pipelines, but 4 chunks of 3 rows are 3.
        let pipelines = measured.entries.iter();
        let pipelines = pipelines.filter(|entry| entry.by.starts_with("pipeline "));
        let pipelines: Vec<&str> = pipelines.map(|entry| entry.by.as_str()).collect();
        assert_eq!(pipelines.len(), 12, "{shape}: {pipelines:?}");
        let kernels = ["push", "push f32", "packets", "packets f32"];
        let ours = [AUTOMATIC, BASELINE, GEMM_THEN_SYMMEM].into_iter();
        let ours = ours.chain(kernels);
        let parts = [GEMM, COLLECTIVE];
        for by in (parts.into_iter())
            .chain(ours.clone())
            .chain(pipelines.clone())
        {
            let entry = measured.entry(by).unwrap();
            assert!(
                entry.time.is_some() && entry.graph.is_some(),
                "{shape} {by}"
            );
        }
        for by in ours.chain(pipelines) {
            // All of C, in a call and in a graph replay, on both ranks.
            let rows = 2 * collective.rows(measured.problem.m, 2);
            let all = 2 * rows * measured.problem.n;
            let entry = measured.entry(by).unwrap();
            assert_eq!(entry.checked, all as u64, "{shape} {by}");
        }
        assert_eq!(measured.rounds, 2);
        let chosen = measured.chosen.as_deref();
        assert_eq!(
            Some(&*measured.entry(AUTOMATIC).unwrap().how),
            chosen,
            "{shape}"
        );
        let choice = measured.choice.as_ref().unwrap();
        assert_eq!(Some(&*choice.chosen), chosen);
        assert!(choice.behind_percent >= 0.0, "{choice:?}");
        let derived = measured.derived.iter().find(|one| one.by == AUTOMATIC);
        let derived = derived.unwrap();
        assert!(derived.overlap.is_some() && derived.of_ideal >= derived.overlap);
        assert!(derived.over_best_baseline.is_some());
    }
    // One file per shape, and one page.
    let folder = only_result(&directory, "");
    for name in ["34x24x18-bfloat16", "6x10x21-float16-column-major-bias"] {
        let one = results(&folder.join(format!("{command}-{name}-2-ranks.json")));
        assert_eq!((one.collective, one.products.len()), (collective, 1));
        assert!(one.worst_choice.is_some());
    }
    let page = std::fs::read_to_string(folder.join(format!("{command}.html"))).unwrap();
    let heading = format!("<h1>GEMM + {label}</h1>");
    assert!(page.contains(&heading) && page.contains("34x24x18"));
}

#[rstest]
fn on_cuda_the_vendors_libraries_take_part(#[values("gemm-rs", "gemm-ar")] command: &str) {
    let directory = directory("sums-cuda");
    // Too many rows for graph replays.
    let shape = ["-m", "1026", "-n", "16", "-k", "24", "--chunks", "2"];
    let output = text(&succeed(on_cuda(&directory, command, 3, &shape)).stdout);
    assert!(
        output.contains("collectives library: NCCL 2.28.9"),
        "{output}"
    );
    let measured = &sums(&directory)[0];
    let put = "pipeline put, 2 chunks, 2 streams";
    let kernel = "pipeline kernel, 2 chunks, 1 stream";
    for by in [
        GEMM,
        COLLECTIVE,
        GEMM_THEN_NCCL,
        GEMM_THEN_SYMMEM,
        AUTOMATIC,
        BASELINE,
        put,
        kernel,
    ] {
        let entry = measured.entry(by).unwrap();
        assert!(entry.time.is_some() && entry.graph.is_none(), "{by}");
        assert_eq!(entry.checked == 0, [GEMM, COLLECTIVE].contains(&by), "{by}");
    }
}

#[test]
fn on_cuda_few_rows_are_replayed() {
    let directory = directory("sums-replayed");
    let shape = ["-m", "16", "-n", "16", "-k", "24", "--bias"];
    let some = ["--algorithm", "automatic,pipeline", "--streams", "2"];
    succeed(on_cuda(
        &directory,
        "gemm-ar",
        2,
        &[&shape[..], &some].concat(),
    ));
    let measured = &sums(&directory)[0];
    for entry in measured.entries.iter().filter(|one| one.absent.is_none()) {
        assert!(entry.graph.is_some(), "{entry:?}");
    }
    assert!(measured.entry(BASELINE).is_none());
}

#[test]
fn what_is_not_asked_for_is_not_done() {
    let directory = directory("sums-validated");
    let shape = ["-m", "16", "-n", "8", "-k", "8"];
    let only = [
        "-v",
        "--algorithm",
        "pipeline",
        "--transport",
        "kernel",
        "--streams",
        "3",
        "--chunks",
        "2",
        "--out",
        "here",
    ];
    let output = succeed(bench(&directory, "gemm-rs", &[&shape[..], &only].concat()));
    let measured = &sums(&directory)[0];
    let [entry] = &measured.entries[..] else {
        panic!("one contender: {measured:?}")
    };
    assert_eq!(entry.by, "pipeline kernel, 2 chunks, 3 streams");
    assert!(entry.checked > 0 && entry.time.is_none());
    assert_eq!(measured.chosen.as_deref(), Some(PACKETS));
    assert_eq!(measured.choice, None);
    assert!(
        !text(&output.stdout).contains("slower"),
        "nothing was timed"
    );
    assert!(directory.join("here/gemm-rs.html").exists());

    let explain = ["--explain", "--algorithm", "pipeline", "--chunks", "2"];
    let output = succeed(bench(
        &directory,
        "gemm-ar",
        &[&shape[..], &explain].concat(),
    ));
    let output = text(&output.stdout);
    for part in ["gemm_all_reduce", "rank 1 of 2", "add what arrived"] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    assert!(
        !directory.join("symmem-results").exists(),
        "nothing was run"
    );
}

#[test]
fn several_sizes_are_combined_and_names_that_are_taken_get_a_number() {
    let directory = directory("sums-several");
    let mut more = vec!["-m", "2,6", "-n", "8,4", "-k", "3", "--element", "f16"];
    more.extend(["--algorithm", "baseline", "-v", "--out", "here"]);
    let run = |more: &[&str]| {
        let common = ["bench", "gemm-rs", "--ranks", "2", "--backend", "host"];
        succeed(symmem(&directory, &[&common, more].concat()));
    };
    run(&more);
    run(&more);
    for shape in ["2x8x3", "6x8x3", "2x4x3", "6x4x3"] {
        for end in ["", "-2"] {
            let name = format!("here/gemm-rs-{shape}-float16-2-ranks{end}.json");
            assert_eq!(results(&directory.join(name)).products.len(), 1);
        }
    }
    more.push("--force");
    run(&more);
    assert!(!directory.join("here/gemm-rs-3.html").exists());
}

#[rstest]
#[case("gemm-rs", &["-m", "7", "-n", "8", "-k", "8"], "use an -m that is a multiple of 2")]
#[case("gemm-ar", &["--config", "no.json"], "no.json cannot be read")]
#[case("gemm-ar", &["--config", "shapes.json"], "sharding")]
#[case("gemm-ar", &["-m", "8", "-n", "8", "-k", "8", "--ranks", "1"], "--ranks 2")]
fn what_cannot_be_measured_is_said_in_a_sentence(
    #[case] command: &str,
    #[case] more: &[&str],
    #[case] part: &str,
) {
    let directory = directory(&format!("sums-refused-{}", more.join("-")));
    let shapes = r#"[{"m": 1, "n": 1, "k": 1, "dtype": "bf16", "sharding": "rows"}]"#;
    std::fs::write(directory.join("shapes.json"), shapes).unwrap();
    let common = ["bench", command, "--backend", "host"];
    let mut arguments = [&common[..], more].concat();
    if !more.contains(&"--ranks") {
        arguments.extend(["--ranks", "2"]);
    }
    let error = fail(symmem(&directory, &arguments));
    assert!(error.contains(part), "{error}");
}
