//! The `symmem` command as its users meet it, on the host backend and on CUDA over the fake driver.

#[allow(dead_code, reason = "these tests use the fake driver only")]
mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use symmem::report::collectives::OURS;
use symmem::report::{Collective, Collectives, Column, Direction, Report, Traffic};
use symmem::tuning::Table;

/// An empty directory of a test's own.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("command")
        .join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn symmem(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symmem"));
    command.args(arguments).current_dir(directory);
    for name in ["SYMMEM_BACKEND", "SYMMEM_RANK", "SYMMEM_NVSHMEM_BASELINE"] {
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

/// The collectives of a report, each point of ours timed in every way, checked to the last rank.
#[track_caller]
fn collectives(report: &Report) -> &Collectives {
    let section = report.collectives.as_ref().unwrap();
    for point in section.points.iter().filter(|point| point.by == OURS) {
        let both = [point.out_of_place, point.in_place];
        assert!(both.iter().all(Option::is_some), "{point:?}");
        for placed in both.into_iter().flatten() {
            assert!(placed.looped.is_some() && placed.graph.is_some() && placed.single.is_some());
            // A call and a replay, at every rank.
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
        "bfloat16" => 2,
        "float" => 4,
        other => panic!("{other} is not among what is measured here"),
    }
}

/// That a report has every size, way and direction for these columns, timed in every way.
#[track_caller]
fn is_whole(report: &Report, columns: &[Column]) {
    let mut sizes: Vec<u64> = report.points.iter().map(|point| point.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    assert_eq!(sizes, [2 << 10, 64 << 10, 1 << 20, 4 << 20]);
    for traffic in Traffic::ALL {
        for direction in Direction::ALL {
            for bytes in &sizes {
                for &column in columns {
                    let point = report.slowest(direction, traffic, *bytes, column);
                    let point = point.unwrap_or_else(|| panic!("{column:?} {bytes}"));
                    assert!(point.looped.gbps > 0.0 && point.rounds == 3);
                    let timed = point.graph.is_some() && point.single.is_some();
                    assert_eq!(timed, !column.is_baseline(), "{column:?}");
                }
            }
        }
    }
}

#[test]
fn without_a_command_two_ranks_of_the_host_are_measured_and_both_files_written() {
    let directory = directory("host");
    let mut command = symmem(&directory, &["--quick"]);
    command.env("SYMMEM_BACKEND", "host");
    let output = succeed(command);
    let table = text(&output.stdout);
    for part in [
        "Push, both ways at once",
        "Pull, one way",
        "memcpy",
        "Latency",
        "reduce_scatter: three times",
    ] {
        assert!(table.contains(part), "{part} is missing in\n{table}");
    }
    let report = report(&directory.join("symmem-p2p.json"));
    is_whole(&report, &[Column::Block128, Column::Memcpy]);
    let section = collectives(&report);
    assert_eq!(section.points.len(), 4 * 3, "four operations, three sizes");
    let absent = section.baselines.iter().map(|one| one.absent.is_some());
    assert_eq!(absent.collect::<Vec<_>>(), [true, true], "no NCCL here");
    assert_eq!(report.environment.devices.len(), 2);
    assert_eq!(report.environment.backend, "host");
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("initialisation"))
    );
    let page = std::fs::read_to_string(directory.join("symmem-p2p.html")).unwrap();
    assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"));
}

#[test]
fn on_cuda_every_column_is_measured_and_every_byte_checked() {
    let directory = directory("cuda");
    let arguments = [
        "bench",
        "p2p",
        "--quick",
        "--json",
        "p2p.json",
        "--backend",
        "cuda",
    ];
    succeed(on_fake_driver(&directory, 2, &arguments));
    let report = report(&directory.join("p2p.json"));
    is_whole(
        &report,
        &[
            Column::Block128,
            Column::BlockBest,
            Column::GridBest,
            Column::CopyEngine,
            Column::Unrolled,
        ],
    );
    assert_eq!(report.latencies.len(), 4, "a packet, two puts, and calls");
    assert!(report.environment.driver.is_some());
}

#[test]
fn an_odd_rank_stands_by_and_every_pair_is_measured_alone() {
    let directory = directory("pairs");
    let arguments = [
        "bench", "p2p", "--quick", "--pairs", "all", "--json", "all.json",
    ];
    succeed(on_fake_driver(&directory, 3, &arguments));
    let report = report(&directory.join("all.json"));
    assert_eq!(
        report.matrices.len(),
        4,
        "push and pull, copy engine and kernel"
    );
    for matrix in &report.matrices {
        for (rank, row) in matrix.gbps.iter().enumerate() {
            for (peer, gbps) in row.iter().enumerate() {
                assert_eq!(gbps.is_some(), rank != peer, "{rank} {peer}");
            }
        }
    }
}

/// A stand-in for NVSHMEM's program: speaks its protocol, moves nothing. Breaks off after `limit`
/// commands.
fn stand_in(directory: &Path, limit: u32) -> PathBuf {
    let script = format!(
        r#"#!/bin/sh
echo $$ >> pids
if [ "$2" = 0 ]; then echo "uid c0ffee"; else read -r word id; [ "$id" = c0ffee ] || exit 1; fi
echo "ready 0.0.1"
left={limit}
while read -r command rest; do
    [ "$left" -gt 0 ] || {{ echo "error broken off"; exit 1; }}
    left=$((left - 1))
    case $command in
    measure) echo "result 1000.0 0" ;;
    latency) echo "latency 1500.0 1400.0 1600.0" ;;
    quit) exit 0 ;;
    esac
done
"#
    );
    let file = directory.join("stand-in");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    file
}

/// That both processes of the stand-in were started and have ended.
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
fn the_baseline_takes_turns_with_us_and_stands_beside_in_the_report() {
    let directory = directory("baseline");
    let baseline = format!("nvshmem={}", stand_in(&directory, 1_000_000).display());
    let arguments = [
        "bench",
        "p2p",
        "--quick",
        "--baseline",
        &baseline,
        "--json",
        "b.json",
    ];
    succeed(on_fake_driver(&directory, 2, &arguments));
    let report = report(&directory.join("b.json"));
    is_whole(&report, &[Column::Block128, Column::Nvshmem]);
    let point = report.slowest(Direction::Pull, Traffic::OneWay, 2048, Column::Nvshmem);
    assert_eq!(point.unwrap().looped.ns, 1000.0);
    assert_eq!(report.environment.libraries["nvshmem"], "0.0.1");
    assert!(
        report
            .latencies
            .iter()
            .any(|latency| latency.baseline.is_some())
    );
    have_ended(&directory);
}

#[test]
fn a_baseline_that_breaks_off_is_an_error_that_names_it_and_leaves_no_process() {
    let directory = directory("broken-baseline");
    let baseline = format!("nvshmem={}", stand_in(&directory, 5).display());
    let arguments = ["bench", "p2p", "--quick", "--baseline", &baseline];
    let error = fail(on_fake_driver(&directory, 2, &arguments));
    assert!(
        error.contains("broken off") && error.contains("stand-in"),
        "{error}"
    );
    have_ended(&directory);
}

#[test]
fn collectives_of_any_world_and_size_are_right_and_in_the_columns_of_nccl_tests() {
    let directory = directory("collectives");
    let arguments = [
        "bench",
        "collectives",
        "--backend",
        "host",
        "-n",
        "3",
        "--baseline",
        "none",
        "--min-bytes",
        "100",
        "--max-bytes",
        "1K",
        "--type",
        "bf16",
        "--rounds",
        "2",
        "--json",
        "c.json",
        "--html",
        "c.html",
    ];
    let output = text(&succeed(symmem(&directory, &arguments)).stdout);
    let columns = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong";
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let tables = output.lines().filter(|line| words(line) == columns).count();
    assert_eq!(tables, 4, "{output}");
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    assert_eq!(section.world, 3);
    let sizes = |collective: Collective| -> Vec<(u64, u64)> {
        let points = section.points.iter();
        let points = points.filter(|point| point.collective == collective);
        points.map(|point| (point.bytes, point.count)).collect()
    };
    let whole = [(100, 50), (200, 100), (400, 200), (800, 400)];
    assert_eq!(sizes(Collective::AllReduce), whole);
    // A part of each rank is so many whole words of 16 bytes.
    let parts = [(96, 16), (192, 32), (384, 64), (768, 128)];
    assert_eq!(sizes(Collective::AllToAll), parts);
    assert!(report.points.is_empty() && section.points.iter().all(|point| point.rounds == 2));
    let page = std::fs::read_to_string(directory.join("c.html")).unwrap();
    assert!(page.contains("<h1>Collectives</h1>") && !page.contains("Published elsewhere"));
}

#[test]
fn on_cuda_collectives_stand_beside_nccl_each_captured_and_checked() {
    let directory = directory("cuda-collectives");
    let libraries = support::fake_driver_and_nccl();
    let mut command = symmem(
        &directory,
        &[
            "bench",
            "collectives",
            "--backend",
            "cuda",
            "--quick",
            "--min-bytes",
            "8K",
            "--max-bytes",
            "16K",
            "--op",
            "all_reduce,all_to_all",
            "--baseline",
            "nccl,nccl-windows",
            "--json",
            "c.json",
        ],
    );
    command
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("NCCL_NVLS_ENABLE", "0")
        .env("FAKE_DEVICE_COUNT", "2");
    succeed(command);
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    for baseline in &section.baselines {
        assert_eq!(
            baseline.version.as_deref(),
            Some("NCCL 2.28.9"),
            "{baseline:?}"
        );
    }
    let of = |by: &str| -> Vec<_> {
        let points = section.points.iter();
        points.filter(|point| point.by == by).collect()
    };
    for by in [OURS, "nccl", "nccl windows"] {
        assert_eq!(of(by).len(), 4, "{by}: two operations, two sizes");
        for point in of(by) {
            assert_eq!(point.element, "bfloat16");
            let out = point.out_of_place.unwrap();
            assert!(out.graph.is_some() && out.checked > 0, "{by}");
            // The vendor's all-to-all cannot work within one buffer.
            let within = by == OURS || point.collective == Collective::AllReduce;
            assert_eq!(point.in_place.is_some(), within, "{by}");
        }
    }
    let ours = of(OURS);
    assert!(
        ours.iter()
            .all(|point| !point.algorithm.is_empty() && point.blocks > 0)
    );
    assert!(section.geometric_mean(None).is_some());
    assert!(section.barrier.unwrap().graph.is_some());
}

/// A stand-in for Python with PyTorch: speaks the protocol, moves nothing, replays nothing. Breaks off
/// after `limit` commands; `wrong` is what it says of its results.
fn stand_in_for_torch(directory: &Path, limit: u32, wrong: u32) -> PathBuf {
    let script = format!(
        r#"#!/bin/sh
echo $$ >> pids
rank=$4
if [ "$rank" = 0 ]; then echo "port 7"; else read -r word port; [ "$port" = 7 ] || exit 1; fi
echo "ready PyTorch 0.0.1"
left={limit}
while read -r command library operation kind bytes placement how rest; do
    [ "$left" -gt 0 ] || exit 1
    left=$((left - 1))
    case "$command $operation $how" in
    check\ all_reduce\ *) echo "wrong {wrong} 100" ;;
    time\ *loop) echo "result $((1000 + rank))" ;;
    single\ *) echo "samples 2000 3000" ;;
    quit*) exit 0 ;;
    *) echo "absent a stand-in has no such thing" ;;
    esac
done
"#
    );
    let file = directory.join("stand-in");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    file
}

fn beside_torch(directory: &Path, python: &Path) -> Command {
    let arguments = [
        "bench",
        "collectives",
        "--backend",
        "host",
        "-n",
        "2",
        "--baseline",
        "gloo",
        "--min-bytes",
        "1K",
        "--max-bytes",
        "2K",
        "--rounds",
        "3",
        "--op",
        "all_reduce,all_gather",
        "--json",
        "c.json",
    ];
    let mut command = symmem(directory, &arguments);
    command.env("SYMMEM_PYTHON", python);
    command
}

#[test]
fn a_program_beside_us_takes_its_turn_and_what_it_lacks_is_left_out() {
    let directory = directory("torch");
    let python = stand_in_for_torch(&directory, 1_000_000, 0);
    let output = text(&succeed(beside_torch(&directory, &python)).stdout);
    assert!(output.contains("baseline gloo: PyTorch 0.0.1"), "{output}");
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    let theirs: Vec<_> = (section.points.iter())
        .filter(|point| point.by == "gloo")
        .collect();
    assert_eq!(
        theirs.len(),
        2,
        "two sizes of the one operation that it has"
    );
    for point in theirs {
        let placed = point.out_of_place.unwrap();
        assert_eq!(placed.looped.unwrap().ns, 1001.0, "of the slower rank");
        assert_eq!((placed.graph, placed.checked), (None, 200));
        assert_eq!(placed.single.unwrap().p99_ns, 3000.0);
        let found = section.comparison(
            point.collective,
            point.bytes,
            symmem::report::Placement::InPlace,
        );
        assert_eq!(found.unwrap().best, "gloo");
    }
    assert!(section.geometric_mean(None).is_some());
    have_ended(&directory);
}

#[test]
fn a_program_that_is_absent_is_named_and_nothing_else() {
    let directory = directory("no-torch");
    let output = succeed(beside_torch(&directory, Path::new("/no/such/python")));
    let output = text(&output.stdout);
    assert!(output.contains("baseline gloo: absent"), "{output}");
    assert!(output.contains("/no/such/python"), "{output}");
    let report = report(&directory.join("c.json"));
    assert_eq!(collectives(&report).points.len(), 4);
}

#[test]
fn a_program_that_breaks_off_ends_its_part_and_not_the_run() {
    let directory = directory("broken-torch");
    let python = stand_in_for_torch(&directory, 5, 0);
    succeed(beside_torch(&directory, &python));
    let report = report(&directory.join("c.json"));
    let ours = collectives(&report).points.iter();
    assert_eq!(ours.filter(|point| point.by == OURS).count(), 4);
    let told = |note: &String| note.contains("baseline gloo broke off");
    assert!(report.notes.iter().any(told), "{:?}", report.notes);
    have_ended(&directory);
}

#[test]
fn wrong_elements_fail_the_command_and_show_no_time() {
    let directory = directory("wrong-torch");
    let python = stand_in_for_torch(&directory, 1_000_000, 7);
    let mut command = beside_torch(&directory, &python);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    let table = text(&output.stdout);
    assert!(
        table.contains("WRONG: gloo of 1 KiB out of place had 14 wrong elements"),
        "{table}"
    );
}

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

#[test]
fn the_cost_of_a_call_stands_beside_what_lies_below_it() {
    let directory = directory("enqueue");
    let arguments = ["bench", "enqueue", "--quick", "--json", "e.json"];
    succeed(on_fake_driver(&directory, 2, &arguments));
    let json = std::fs::read_to_string(directory.join("e.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = value["rows"].as_array().unwrap();
    let put = |row: &&serde_json::Value| row["call"] == "Stream::put_with, vector";
    let put = rows.iter().find(put).unwrap();
    assert!(put["above"]["call"].as_str().unwrap().contains("launch"));
    assert!(put["ns"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn info_says_what_starts_and_why_the_rest_does_not() {
    let directory = directory("info");
    let mut command = symmem(&directory, &["info", "--json", "info.json"]);
    command.env("SYMMEM_LIBRARY_PATH", &directory);
    let output = text(&succeed(command).stdout);
    assert!(output.contains("host (built in): 1 device(s)"), "{output}");
    let json = std::fs::read_to_string(directory.join("info.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema"], "symmem-info/1");

    let output = succeed(on_fake_driver(
        &directory,
        2,
        &["info", "--backend", "cuda"],
    ));
    let output = text(&output.stdout);
    for part in [
        "Fake NVIDIA H200",
        "peer",
        "libcuda.so.1",
        "driver_version",
        "multicast",
    ] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    let mut apart = on_fake_driver(&directory, 2, &["info", "--backend", "cuda"]);
    apart.env("FAKE_DEVICE_NO_PEER", "1");
    assert!(text(&succeed(apart).stdout).contains("no"));
}

#[test]
fn run_starts_a_program_for_each_rank_and_ends_with_its_code() {
    let directory = directory("run");
    // Rank 1, whose end would end rank 0, waits for it.
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
        (&["-n", "0"], "0 is not in"),
        (&["bench", "p2p", "--baseline", "mpi"], "nvshmem=PROGRAM"),
        (
            &["run", "-n", "2", "--", "no-such-program"],
            "no-such-program",
        ),
        (&["rank", "{}"], "for symmem itself"),
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
    let report: symmem::conformance::Report = serde_json::from_str(&json).unwrap();
    assert!(report.is_clean() && report.totals.passed > 0);
}
