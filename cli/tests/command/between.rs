//! `symmem bench collectives --between`: a kernel in front of each call of a loop.

use super::*;
use rstest::rstest;

const BENCH: [&str; 13] = [
    "bench",
    "collectives",
    "-n",
    "2",
    "--op",
    "all_reduce",
    "--max-bytes",
    "1K",
    "--rounds",
    "2",
    "--json",
    "c.json",
    "--between",
];

#[test]
fn a_kernel_stands_before_each_call_of_a_loop_and_the_table_names_it() {
    let directory = directory("between-copy");
    let more = [
        "copy",
        "--backend",
        "host",
        "--baseline",
        "two_shot,mpi,gloo",
    ];
    let output = succeed(symmem(&directory, &[&BENCH[..], &more].concat()));
    let output = text(&output.stdout);
    let told = "Before each looped or replayed call: copy of 16 MiB, ";
    assert!(output.contains(told), "{output}");
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    let between = section.between.as_ref().unwrap();
    assert_eq!(between.kernel, "copy of 16 MiB");
    // No processor copies 800 GB/s.
    let least = 20_000.0;
    assert!(between.alone.graph.unwrap().ns > least);
    for by in [OURS, "symmem two_shot"] {
        let mut points = section.points.iter().filter(|point| point.by == by);
        let placed = points.next().unwrap().out_of_place.unwrap();
        assert!(placed.looped.unwrap().ns > least && placed.graph.unwrap().ns > least);
        assert!(placed.checked > 0 && placed.wrong == 0);
    }
    for baseline in &section.baselines[1..] {
        let absent = baseline.absent.as_deref().unwrap();
        assert!(absent.contains("--between leaves out programs"), "{absent}");
    }
}

#[rstest]
#[case("gemv")]
#[case("gemm")]
fn the_host_which_has_no_cublaslt_names_the_kernel_that_it_has(#[case] kernel: &str) {
    let directory = directory(&format!("between-host-{kernel}"));
    let more = [kernel, "--backend", "host", "--baseline", "none"];
    let error = fail(symmem(&directory, &[&BENCH[..], &more].concat()));
    assert!(error.contains("use --between copy"), "{error}");
}

#[test]
fn on_cuda_a_product_needs_cublaslt_and_its_absence_is_an_error() {
    if !support::permitted() {
        return;
    }
    let directory = directory("between-no-library");
    let more = ["gemv", "--backend", "cuda", "--baseline", "none"];
    let error = fail(on_fake_driver(&directory, 2, &[&BENCH[..], &more].concat()));
    assert!(error.contains("GEMM between calls"), "{error}");
    assert!(error.contains("cublasLt"), "{error}");
}

#[rstest]
#[case("copy", "copy of 16 MiB")]
#[case("gemv", "gemv of 1×4096×4096 in bf16")]
fn on_cuda_nccl_and_flashinfer_have_the_same_kernel_before_their_calls(
    #[case] kernel: &str,
    #[case] told: &str,
) {
    if too_long() {
        return;
    }
    let directory = directory(&format!("between-cuda-{kernel}"));
    let more = [kernel, "--backend", "cuda", "--baseline", "nccl,vllm"];
    let program = flashinfer::stand_in(&directory, flashinfer::HANDLE, 1_000_000);
    let libraries = support::fake_driver_and_libraries();
    let mut command = symmem(&directory, &[&BENCH[..], &more].concat());
    command
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("SYMMEM_FLASHINFER_BASELINE", program)
        .env("NCCL_NVLS_ENABLE", "0")
        .env("FAKE_DEVICE_COUNT", "2");
    succeed(command);
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    assert_eq!(section.between.as_ref().unwrap().kernel, told);
    let options = flashinfer::options(&directory, 1);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    match options.as_slice() {
        ["--copy", "16777216", "264", "512"] => assert_eq!(kernel, "copy"),
        ["--gemm", "1", "4096", "4096", file] => {
            assert_eq!(kernel, "gemv");
            assert!(Path::new(file).is_file(), "{file}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(section.between.as_ref().unwrap().in_programs.len(), 1);
    for by in [OURS, "nccl", "vllm"] {
        let mut points = section.points.iter().filter(|point| point.by == by);
        let placed = points.next().unwrap().out_of_place.unwrap();
        assert!(placed.graph.is_some() && placed.wrong == 0, "{by}");
    }
}
