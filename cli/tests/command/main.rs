//! Tests the `symmem` command as a program: on the host backend, on CUDA over the fake driver, and with AMD runtimes
//! that do not work.

#[path = "../../../tests/support/mod.rs"]
#[allow(dead_code, reason = "these tests use few of the fakes")]
mod support;

mod between;
mod collectives;
mod compare;
#[cfg(feature = "cuda")]
mod doctor;
mod ends;
mod flashinfer;
mod hip;
mod info;
mod nodes;
mod norms;
mod options;
mod products;
mod results;
mod sums;
mod transfers;
mod tune;
mod wrong_use;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::amount::too_long;
use symmem_bench::report::collectives::OURS;
use symmem_bench::report::{Collective, CollectiveResults, Report};

/// Creates an empty directory for a test.
fn directory(name: &str) -> PathBuf {
    // Cases of one test run side by side, each in a thread with its name.
    let test = std::thread::current();
    let test = test.name().unwrap_or_default();
    let case = test.rsplit("::").next().unwrap_or_default();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("command")
        .join(name)
        .join(case);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn symmem(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symmem"));
    command.args(arguments).current_dir(directory);
    for name in [
        "SYMMEM_BACKEND",
        "SYMMEM_RANK",
        "SYMMEM_NVSHMEM_BASELINE",
        "SYMMEM_FLASHINFER_BASELINE",
    ] {
        command.env_remove(name);
    }
    command
}

fn on_fake_driver(directory: &Path, devices: u32, arguments: &[&str]) -> Command {
    let mut command = symmem(directory, arguments);
    command
        .env("SYMMEM_LIBRARY_PATH", support::fake_driver())
        .env("LD_LIBRARY_PATH", support::fake_driver())
        .env("FAKE_DEVICE_COUNT", devices.to_string());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeed(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    output
}

#[track_caller]
fn fail(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?}");
    text(&output.stderr)
}

#[track_caller]
fn report(file: &Path) -> Report {
    let text = std::fs::read_to_string(file).unwrap();
    let report = Report::from_json(&text).unwrap();
    assert!(!report.is_wrong());
    report
}

/// Returns the collectives of a report. Asserts that every point of symmem has all timings and was checked on all ranks.
#[track_caller]
fn collectives(report: &Report) -> &CollectiveResults {
    let section = report.collectives.as_ref().unwrap();
    for point in section.points.iter().filter(|point| point.by == OURS) {
        let both = [point.out_of_place, point.in_place];
        assert!(both.iter().all(Option::is_some), "{point:?}");
        for placed in both.into_iter().flatten() {
            assert!(placed.looped.is_some() && placed.graph.is_some() && placed.single.is_some());
            // A call and a graph replay, on every rank.
            let output = match point.collective {
                Collective::ReduceScatter => point.count,
                _ => point.bytes / bytes_of(&point.element),
            };
            assert_eq!(placed.checked, 2 * output * u64::from(section.world));
        }
    }
    section
}

fn bytes_of(element: &str) -> u64 {
    match element {
        "int8" => 1,
        "bfloat16" => 2,
        "float" => 4,
        other => panic!("{other} is not among what is measured here"),
    }
}

/// Returns the only result in `symmem-results/` whose name ends like this.
#[track_caller]
fn only_result(directory: &Path, end: &str) -> PathBuf {
    let entries = std::fs::read_dir(directory.join("symmem-results")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| path.to_str().unwrap().ends_with(end))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Writes a script that stands in for another program.
fn program(directory: &Path, script: &str) -> PathBuf {
    let file = directory.join("stand-in");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    file
}

/// Asserts that both processes of the stand-in were started and have ended.
#[track_caller]
fn have_ended(directory: &Path) {
    let pids = std::fs::read_to_string(directory.join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 2);
    for pid in pids.lines() {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!command.contains("stand-in"), "{pid} still runs");
    }
}

#[test]
fn the_cost_of_a_call_stands_beside_what_lies_below_it() {
    let directory = directory("enqueue");
    let arguments = ["bench", "enqueue", "--quick", "--json", "e.json"];
    succeed(on_fake_driver(&directory, 2, &arguments));
    let json = std::fs::read_to_string(directory.join("e.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = value["rows"].as_array().unwrap();
    let put = |row: &&serde_json::Value| row["call"] == "Queue::put, vector";
    let put = rows.iter().find(put).unwrap();
    assert!(put["above"]["call"].as_str().unwrap().contains("launch"));
    assert!(put["ns"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn run_starts_a_program_for_each_rank_and_ends_with_its_code() {
    let directory = directory("run");
    // Rank 1 waits for rank 0, since its failure would end rank 0.
    let script = "echo rank $SYMMEM_RANK of $SYMMEM_WORLD on $SYMMEM_BACKEND; \
                  if [ $SYMMEM_RANK = 0 ]; then touch done; exit 0; fi; \
                  while [ ! -e done ]; do sleep 0.02; done; exit 7";
    let arguments = [
        "run",
        "-n",
        "2",
        "--backend",
        "host",
        "--",
        "sh",
        "-c",
        script,
    ];
    let output = symmem(&directory, &arguments).output().unwrap();
    let lines = text(&output.stdout);
    assert!(lines.contains("[0] rank 0 of 2 on host"), "{lines}");
    assert!(lines.contains("[1] rank 1 of 2 on host"), "{lines}");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn what_cannot_be_done_is_a_sentence_that_says_what_would() {
    let directory = directory("refused");
    for (arguments, part) in [
        (&["--backend", "tpu"][..], "libsymmem_tpu.so"),
        (&["--backend", "host", "-n", "1"], "--ranks 2"),
        (
            &["--json", "no/such/directory/x.json"],
            "a directory that exists",
        ),
        (&["--quick", "--full"], "cannot be used with"),
        (&["-n", "0"], "0 is not a whole number from 2"),
        (&["bench", "p2p", "--baseline", "mpi"], "nvshmem=PROGRAM"),
        (
            &["run", "-n", "2", "--", "no-such-program"],
            "no-such-program",
        ),
        (&["rank", "{}"], "for symmem itself"),
        (&["supervise"], "for symmem itself"),
        (&["bench", "collectives", "--op", "allreduce"], "all_reduce"),
        (&["bench", "collectives", "--baseline", "openmpi"], "nccl"),
        (&["bench", "collectives", "--type", "float8"], "e4m3"),
    ] {
        let error = fail(symmem(&directory, arguments));
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn the_selftest_counts_what_passed_failed_and_was_skipped() {
    if too_long() {
        return;
    }
    let directory = directory("selftest");
    let arguments = [
        "selftest",
        "--backend",
        "host",
        "-n",
        "1",
        "--json",
        "s.json",
    ];
    let output = text(&succeed(symmem(&directory, &arguments)).stdout);
    assert!(output.contains("host in worlds of 1, a sample"), "{output}");
    assert!(output.contains(" 0 failed"), "{output}");
    let json = std::fs::read_to_string(directory.join("s.json")).unwrap();
    let report: symmem_conformance::Report = serde_json::from_str(&json).unwrap();
    assert!(report.is_clean() && report.totals.passed > 0);
}

#[test]
fn a_quick_selftest_of_multicast_counts_what_went_by_its_kernels_and_every_way_did() {
    let directory = directory("selftest-multicast");
    let arguments = [
        "selftest",
        "--backend",
        "cuda",
        "-n",
        "2",
        "--quick",
        "--only",
        "multicast",
        "--json",
        "s.json",
    ];
    let mut command = on_fake_driver(&directory, 2, &arguments);
    command.env("SYMMEM_MULTICAST", "emulate");
    let output = text(&succeed(command).stdout);
    let json = std::fs::read_to_string(directory.join("s.json")).unwrap();
    let report: symmem_conformance::Report = serde_json::from_str(&json).unwrap();
    let (totals, world) = (&report.totals, &report.worlds[0]);
    assert_eq!(world.ways_without_multicast(), []);
    assert_eq!(totals.multicast, totals.passed);
    assert_eq!(totals.by_multicast, world.by_multicast().count());
    let (by_kernels, all) = (totals.by_multicast, totals.multicast);
    assert!(by_kernels * 2 > all && by_kernels < all, "{totals}");
    let said = format!("{by_kernels} of {all} multicast cases ran multicast kernels");
    assert!(output.contains(&said), "{output}");
}
