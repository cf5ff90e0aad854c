//! The examples run as a user would start them, with one process per rank.

#[allow(dead_code, reason = "these tests use the fakes only")]
mod support;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use support::hip::{Release, fake_hip};

/// Returns the path of an example, which `cargo test` builds beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: cargo build --examples",
        path.display()
    );
    path
}

/// Runs an example and returns each rank's output in rank order.
fn run(name: &str, world: u32) -> Vec<String> {
    run_with(name, world, &[("SYMMEM_BACKEND", "host".into())])
}

/// Runs an example on CUDA over the fake driver, with libraries from more directories.
fn run_on_cuda(name: &str, world: u32, directories: &[PathBuf]) -> Vec<String> {
    let driver = support::fake_driver();
    let libraries = directories.iter().map(PathBuf::as_path).chain([driver]);
    let environment = [
        ("SYMMEM_BACKEND", "cuda".into()),
        (
            "SYMMEM_LIBRARY_PATH",
            std::env::join_paths(libraries).unwrap(),
        ),
        ("LD_LIBRARY_PATH", driver.into()),
        ("FAKE_DEVICE_COUNT", world.to_string().into()),
    ];
    run_with(name, world, &environment)
}

fn run_with(name: &str, world: u32, environment: &[(&str, OsString)]) -> Vec<String> {
    // Several tests run examples of the same name concurrently.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let job = format!("test-{name}-{number}-{}", std::process::id());
    let ranks: Vec<_> = (0..world)
        .map(|rank| {
            Command::new(example(name))
                .envs(environment.iter().map(|(name, value)| (name, value)))
                .env("SYMMEM_RANK", rank.to_string())
                .env("SYMMEM_WORLD", world.to_string())
                .env("SYMMEM_JOB", &job)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    ranks
        .into_iter()
        .map(|rank| {
            let output = rank.wait_with_output().unwrap();
            assert!(output.status.success(), "{name}: {}", output.status);
            String::from_utf8(output.stdout).unwrap()
        })
        .collect()
}

#[test]
fn ring_hands_every_message_on() {
    for world in [1, 2, 3, 4] {
        for (rank, text) in run("ring", world).iter().enumerate() {
            // Eleven steps: one eager, ten in the graph.
            let origin = (rank as u32 + 11 * (world - 1)) % world;
            let expected =
                format!("rank {rank} of {world}: 10 laps, now holding what rank {origin} sent");
            assert_eq!(text.trim_end(), expected);
        }
    }
}

#[test]
fn threads_gather_in_one_process() {
    let text = run("threads", 1).concat();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    let expected: Vec<_> = (0..4)
        .map(|rank| format!("rank {rank} of 4: gathered 4000 elements"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_stream_of_the_application_carries_transfers() {
    for (rank, text) in run("own_stream", 2).iter().enumerate() {
        assert_eq!(
            text.trim_end(),
            format!("rank {rank} of 2: received from rank {}", 1 - rank)
        );
    }
}

#[test]
fn products_whose_a_is_gathered_by_pull_and_by_push_are_right() {
    // Three ranks do not divide 50 rows or columns.
    for world in [1, 2, 3] {
        for (rank, text) in run("all_gather_gemm_pull", world).iter().enumerate() {
            let expected = format!("rank {rank} of {world}: C[20, 24] is right");
            assert_eq!(text.trim_end(), expected);
        }
        for (rank, text) in run("all_gather_gemm_push", world).iter().enumerate() {
            let expected = format!("rank {rank} of {world}: C[50, 24] is right, 3 times");
            assert_eq!(text.trim_end(), expected);
        }
    }
}

#[test]
fn a_layer_of_a_transformer_is_what_one_rank_computes() {
    for world in [1, 2, 3] {
        for (rank, text) in run("transformer_layer", world).iter().enumerate() {
            let rows = 8 * world;
            let expected =
                format!("rank {rank} of {world}: a layer of {rows} rows, as on one rank");
            assert_eq!(text.trim_end(), expected);
        }
    }
}

fn assert_handed_on(texts: &[String]) {
    let world = texts.len();
    for (rank, text) in texts.iter().enumerate() {
        assert_eq!(
            text.trim_end(),
            format!("rank {rank} of {world}: the kernel handed on 10000 words three times")
        );
    }
}

/// Runs an example on HIP over the fake runtime with devices of this architecture.
fn run_on_hip(name: &str, world: u32, release: Release, architecture: &str) -> Vec<String> {
    let environment = [
        ("SYMMEM_BACKEND", "hip".into()),
        ("SYMMEM_LIBRARY_PATH", fake_hip(release).into()),
        ("LD_LIBRARY_PATH", fake_hip(release).into()),
        ("FAKE_DEVICE_COUNT", world.to_string().into()),
        ("FAKE_HIP_ARCHITECTURE", architecture.into()),
    ];
    run_with(name, world, &environment)
}

const ARCHITECTURES: [&str; 3] = ["gfx90a", "gfx942", "gfx950"];

#[test]
fn a_kernel_compiled_ahead_of_time_puts_signals_and_waits() {
    for world in [1, 2, 3] {
        assert_handed_on(&run_on_cuda("user_kernel_ahead", world, &[]));
    }
    for architecture in ARCHITECTURES {
        let texts = run_on_hip("user_kernel_ahead", 2, Release::Seven, architecture);
        assert_handed_on(&texts);
    }
}

#[test]
fn a_kernel_compiled_by_hiprtc_puts_signals_and_waits() {
    if Command::new("clang-22").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI installs clang-22");
        support::skipped("no clang-22, with which the fake hiprtc compiles");
        return;
    }
    for (release, architecture) in [(Release::Seven, "gfx942"), (Release::Six, "gfx90a")] {
        let texts = run_on_hip("user_kernel_at_run_time", 2, release, architecture);
        assert_handed_on(&texts);
    }
}

/// Returns the directory where CI installs NVRTC.
fn nvrtc_directory() -> Option<PathBuf> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/venv/lib");
    let pythons = std::fs::read_dir(lib).ok()?;
    pythons
        .map_while(Result::ok)
        .map(|python| python.path().join("site-packages/nvidia/cuda_nvrtc/lib"))
        .find(|directory| directory.join("libnvrtc.so.12").is_file())
}

#[test]
fn a_kernel_compiled_by_nvrtc_puts_signals_and_waits_where_nvrtc_is_installed() {
    let directory = nvrtc_directory();
    let texts = run_on_cuda("user_kernel_at_run_time", 2, directory.as_slice());
    let skipped = |text: &String| text.trim_end() == "NVRTC is not installed: skipped";
    if directory.is_none() && texts.iter().all(skipped) {
        println!("NVRTC is not installed: only that the example says so was tested");
        return;
    }
    assert_handed_on(&texts);
}

#[test]
fn examples_with_kernels_say_where_there_is_no_gpu() {
    for name in ["user_kernel_ahead", "user_kernel_at_run_time"] {
        for text in run(name, 2) {
            assert_eq!(
                text.trim_end(),
                "kernels need a GPU, and this backend has none: skipped"
            );
        }
    }
}
