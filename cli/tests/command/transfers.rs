//! Benchmarks of put and get: on the host, on CUDA, and with NVSHMEM as a baseline.

use super::*;
use rstest::rstest;
use symmem_bench::report::{Column, Direction, Traffic};

/// Asserts that a report has every size, traffic and direction for these columns, with all timings.
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
    let mut command = symmem(&directory, &["--quick", "--details"]);
    command.env("SYMMEM_BACKEND", "host");
    let output = succeed(command);
    let table = text(&output.stdout);
    for part in [
        "Push, both ways at once",
        "Pull, one way",
        "memcpy",
        "Latency",
        "reduce_scatter: looped, replayed and single calls",
        "All-gather + GEMM of 2 ranks",
    ] {
        assert!(table.contains(part), "{part} is missing in\n{table}");
    }
    let report = report(&only_result(&directory, ".json"));
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
            .any(|note| note.contains("initialization"))
    );
    let page = std::fs::read_to_string(only_result(&directory, ".html")).unwrap();
    assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"));
}

#[test]
fn without_a_command_one_screen_says_backend_ranks_figures_and_whether_all_was_right() {
    let directory = directory("screen");
    let mut command = symmem(&directory, &["--quick"]);
    command.env("SYMMEM_BACKEND", "host");
    let screen = text(&succeed(command).stdout);
    assert!(screen.lines().count() <= 45, "{screen}");
    for line in screen.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for part in [
        "Host backend, 2 ranks",
        "put 4 MiB",
        "memcpy",
        "all_reduce",
        "AG+GEMM",
        "all correct",
        "--details",
    ] {
        assert!(screen.contains(part), "{part} is missing in\n{screen}");
    }
}

/// NCCL may use multicast, so symmem opens it only if a variable permits that: none does by default.
#[test]
fn links_are_recorded_and_a_library_that_is_not_permitted_is_left_out() {
    let directory = directory("screen-cuda");
    let libraries = support::fake_driver_and_libraries();
    let on_fakes = |arguments: &[&str]| {
        let mut command = on_fake_driver(&directory, 2, arguments);
        command
            .env("SYMMEM_LIBRARY_PATH", libraries)
            .env("LD_LIBRARY_PATH", libraries);
        for name in ["SYMMEM_MULTICAST", "NCCL_NVLS_ENABLE", "VIRTUAL_ENV"] {
            command.env_remove(name);
        }
        command
    };
    let few = ["--quick", "--op", "all_reduce", "--max-bytes", "1K"];
    let bench = ["bench", "collectives", "--json", "c.json"];
    succeed(on_fakes(&[&bench[..], &few].concat()));
    let report = report(&directory.join("c.json"));
    let links = report.environment.links.as_deref();
    assert_eq!(links, Some("peer access between both devices"));
    let baselines = &collectives(&report).baselines;
    let nccl = baselines.iter().find(|one| one.name == "nccl").unwrap();
    let why = nccl.absent.as_deref().unwrap_or_default();
    assert!(why.contains("NCCL_NVLS_ENABLE=0"), "{nccl:?}");

    succeed(on_fakes(&[&["tune"][..], &few].concat()));
    let shape = [
        "bench", "ag-gemm", "-m", "8", "-n", "8", "-k", "8", "--rounds", "1",
    ];
    succeed(on_fakes(&shape));
}

#[test]
fn on_cuda_every_column_is_measured_and_every_byte_checked() {
    if too_long() {
        return;
    }
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
    if too_long() {
        return;
    }
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

/// A stand-in for NVSHMEM's program that speaks its protocol and moves nothing. It exits after `limit` commands.
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
    program(directory, &script)
}

#[test]
fn the_baseline_takes_turns_with_us_and_stands_beside_in_the_report() {
    if too_long() {
        return;
    }
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

#[rstest]
#[case::alone("kill -9 $$")]
// As a wrapper does that is killed, and whose program goes on.
#[case::that_leaves_a_process_with_its_output("sleep 60 & kill -9 $$")]
fn a_baseline_that_is_killed_is_named_with_its_signal_at_once(#[case] end: &str) {
    let directory = directory(&format!("baseline-killed-{}", end.len()));
    let script = format!("#!/bin/sh\necho $$ >> pids\n{end}\n");
    let baseline = format!("nvshmem={}", program(&directory, &script).display());
    let arguments = ["bench", "p2p", "--quick", "--baseline", &baseline];
    let command = on_fake_driver(&directory, 2, &arguments);
    // Only now: the driver may have had to be built.
    let start = std::time::Instant::now();
    let error = fail(command);
    assert!(error.contains("SIGKILL"), "{error}");
    // Far below the time limit of an answer.
    assert!(start.elapsed().as_secs() < 50, "{:?}", start.elapsed());
}
