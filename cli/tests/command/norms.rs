//! Benchmarks of all-reduces with RMSNorm: on the host, and on CUDA over the fakes, beside the fake NCCL.

use super::*;
use symmem_bench::report::norms::{ALL_REDUCE, FUSED, NormOutput, NormPoint, NormResults};

const SMALL: [&str; 8] = [
    "bench", "rms-norm", "--rounds", "2", "--json", "all.json", "--rows", "1,5",
];

/// Returns a benchmark of few rows with its report in `all.json`.
fn bench(directory: &Path, more: &[&str]) -> Command {
    symmem(directory, &[&SMALL[..], more].concat())
}

#[track_caller]
fn section(directory: &Path) -> NormResults {
    let text = std::fs::read_to_string(directory.join("all.json")).unwrap();
    let report = Report::from_json(&text).unwrap();
    assert!(!report.is_wrong());
    report.norms.unwrap()
}

/// The elements that are compared: results and sums with a residual, in a call and in a replay.
fn compared(point: &NormPoint, ranks: usize) -> u64 {
    let matrices = if point.residual { 2 } else { 1 };
    (2 * ranks * matrices * point.elements()) as u64
}

#[test]
fn every_kind_of_result_is_checked_and_stands_beside_the_all_reduce() {
    let directory = directory("norms");
    let outputs = "same,tensor,row,group";
    let arguments = ["--backend", "host", "-n", "3", "--hidden", "128,384"];
    let more = ["--type", "f16", "--output", outputs, "--html", "all.html"];
    let command = bench(&directory, &[&arguments[..], &more].concat());
    let output = text(&succeed(command).stdout);
    for part in [
        "All-reduce with RMSNorm of 3 ranks, host backend",
        "rows of 128 f16, with a residual, results of the same type",
        "rows of 384 f16, with a residual, fp8 results, a scale for each 128 elements",
        "fused (µs)",
        "Graph replay: median of 2 rounds of the slowest rank",
        ", 0 were wrong",
    ] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    let section = section(&directory);
    assert_eq!((section.world, section.points.len()), (3, 4 * 2 * 2));
    assert!(section.baselines.is_empty(), "none on the host");
    for point in &section.points {
        assert_eq!(point.rounds, 2);
        for by in [FUSED, ALL_REDUCE] {
            let results = &point.entry(by).unwrap().results;
            assert!(results.looped.is_some() && results.graph.is_some(), "{by}");
        }
        let checked = point.entry(FUSED).unwrap().results.checked;
        assert_eq!(checked, compared(point, 3), "{point:?}");
    }
    let page = std::fs::read_to_string(directory.join("all.html")).unwrap();
    assert!(page.contains("<h1>All-reduce with RMSNorm</h1>") && page.contains("fused"));
}

#[test]
fn on_cuda_the_all_reduce_of_nccl_takes_part() {
    let directory = directory("norms-cuda");
    let more = ["--backend", "cuda", "-n", "2", "--hidden", "128"];
    let libraries = support::fake_driver_and_libraries();
    let arguments = [&SMALL[..], &more, &["--output", "group"]].concat();
    let mut command = on_fake_driver(&directory, 2, &arguments);
    command
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("NCCL_NVLS_ENABLE", "0");
    let output = text(&succeed(command).stdout);
    for part in ["nccl all-reduce (µs)", "nccl / fused"] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    let section = section(&directory);
    assert!(section.baselines[0].version.is_some());
    for point in &section.points {
        assert_eq!(point.output, NormOutput::Group);
        assert!(point.entry("nccl").unwrap().results.graph.is_some());
    }
}

#[test]
fn an_absent_library_is_told_and_the_rest_is_measured() {
    let directory = directory("norms-absent");
    let more = ["--backend", "host", "-n", "2", "--hidden", "100"];
    let baseline = ["--baseline", "nccl", "--no-residual"];
    let output = succeed(bench(&directory, &[&more[..], &baseline].concat()));
    let output = text(&output.stdout);
    assert!(output.contains("baseline nccl: absent"), "{output}");
    let section = section(&directory);
    assert!(section.baselines[0].absent.is_some());
    let point = &section.points[0];
    assert!(!point.residual && point.entry("nccl").is_none());
}

#[test]
fn a_check_alone_measures_nothing_and_a_measurement_alone_checks_nothing() {
    let directory = directory("norms-parts");
    let common = ["--backend", "host", "-n", "2", "--hidden", "72", "--force"];
    let output = succeed(bench(&directory, &[&common[..], &["-v"]].concat()));
    assert!(text(&output.stdout).contains("checked   wrong"));
    for point in &section(&directory).points {
        let fused = &point.entry(FUSED).unwrap().results;
        assert_eq!(fused.checked, compared(point, 2));
        assert!(fused.graph.is_none() && point.entry(ALL_REDUCE).is_none());
    }
    succeed(bench(&directory, &[&common[..], &["-b"]].concat()));
    for point in &section(&directory).points {
        let fused = &point.entry(FUSED).unwrap().results;
        assert!(fused.checked == 0 && fused.graph.is_some());
    }
}

#[test]
fn rows_longer_than_an_inbox_are_left_out_with_the_reason() {
    let directory = directory("norms-long");
    let more = ["--backend", "host", "-n", "2", "--hidden", "600000", "-v"];
    let output = text(&succeed(bench(&directory, &more)).stdout);
    assert!(output.contains("symmem with 1 rows: "), "{output}");
    let section = section(&directory);
    let fused = section.points[0].entry(FUSED).unwrap();
    assert!(fused.absent.as_ref().unwrap().contains("inboxes"));
}

#[test]
fn groups_that_are_not_whole_are_refused_before_ranks_start() {
    let directory = directory("norms-groups");
    let arguments = ["bench", "rms-norm", "--output", "group", "--hidden", "100"];
    let error = fail(symmem(&directory, &arguments));
    assert!(
        error.contains("a row of 100 has no whole groups"),
        "{error}"
    );
}
