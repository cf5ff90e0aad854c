//! Benchmarks of collectives: on the host, on CUDA with NCCL, and with other programs as baselines.

use super::*;
use rstest::rstest;

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
    // The part of each rank is a multiple of 16 bytes.
    let parts = [(96, 16), (192, 32), (384, 64), (768, 128)];
    assert_eq!(sizes(Collective::AllToAll), parts);
    assert!(report.points.is_empty() && section.points.iter().all(|point| point.rounds == 2));
    let page = std::fs::read_to_string(directory.join("c.html")).unwrap();
    assert!(page.contains("<h1>Collectives</h1>") && !page.contains("Published elsewhere"));
}

#[test]
fn on_cuda_collectives_stand_beside_nccl_each_captured_and_checked() {
    if too_long() {
        return;
    }
    let directory = directory("cuda-collectives");
    let libraries = support::fake_driver_and_libraries();
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
            // NCCL's all-to-all cannot work in place.
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

#[test]
fn algorithms_of_ours_stand_beside_one_another_by_name() {
    let directory = directory("collectives-by-name");
    let arguments = [
        "bench",
        "collectives",
        "--backend",
        "host",
        "-n",
        "2",
        "--algorithm",
        "multicast",
        "--baseline",
        "multicast_one_shot,two_shot",
        "--op",
        "all_reduce",
        "--max-bytes",
        "1K",
        "--json",
        "c.json",
    ];
    let mut command = symmem(&directory, &arguments);
    command.env("SYMMEM_MULTICAST", "emulate");
    succeed(command);
    let report = report(&directory.join("c.json"));
    let how = |by: &str| {
        let points = &collectives(&report).points;
        let found = points.iter().find(|point| point.by == by).unwrap();
        (found.algorithm.clone(), found.in_place.is_some())
    };
    assert_eq!(how(OURS), ("multicast".into(), true));
    assert_eq!(how("symmem two_shot"), ("two_shot".into(), true));
    // Not in place: a peer may still read what it would overwrite.
    let one_shot = ("multicast_one_shot".into(), false);
    assert_eq!(how("symmem multicast_one_shot"), one_shot);
}

#[test]
fn what_would_be_done_by_another_algorithm_is_left_out_and_named() {
    let directory = directory("collectives-strayed");
    let bench = |operations: &str, rest: &[&str]| {
        let mut arguments = vec![
            "bench",
            "collectives",
            "--backend",
            "host",
            "-n",
            "2",
            "--type",
            "i8",
            "--rounds",
            "1",
            "--max-bytes",
            "1K",
            "--op",
            operations,
        ];
        arguments.extend(rest);
        let mut command = symmem(&directory, &arguments);
        command.env("SYMMEM_MULTICAST", "emulate");
        command
    };
    let by_name = [
        "--algorithm",
        "multicast",
        "--baseline",
        "multicast_one_shot,one_shot",
    ];
    let to_json = ["--json", "c.json"];
    let operations = "all_reduce,all_gather,broadcast";
    let output = succeed(bench(operations, &[&by_name[..], &to_json].concat()));
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    // The switch moves 8-bit integers, but does not add them.
    let done = |collective, by: &str| {
        (section.points.iter()).any(|point| point.collective == collective && point.by == by)
    };
    assert!(!done(Collective::AllReduce, OURS) && done(Collective::AllGather, OURS));
    assert!(!done(Collective::AllReduce, "symmem multicast_one_shot"));
    assert!(done(Collective::AllReduce, "symmem one_shot"));
    let left_out = [
        "symmem multicast is left out of all_reduce of int8: the call would use two_shot",
        "symmem multicast_one_shot is left out of all_reduce of int8: the call would use one_shot",
    ];
    let notes: Vec<&String> = (report.notes.iter())
        .filter(|note| note.contains("left out"))
        .collect();
    assert_eq!(notes, left_out);
    assert!(text(&output.stdout).contains(left_out[0]));
    let error = fail(bench("all_reduce", &by_name));
    let said = "no operation would use multicast: all_reduce: the call would use two_shot";
    assert!(error.contains(said), "{error}");
}

#[test]
fn a_baseline_of_multicast_where_there_is_none_is_absent_with_the_reason() {
    let directory = directory("collectives-absent");
    let arguments = [
        "bench",
        "collectives",
        "--backend",
        "host",
        "-n",
        "2",
        "--baseline",
        "multicast,two_shot",
        "--op",
        "all_reduce",
        "--max-bytes",
        "512",
        "--json",
        "c.json",
    ];
    succeed(symmem(&directory, &arguments));
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    let absent = |name: &str| {
        let found = section.baselines.iter().find(|one| one.name == name);
        found.unwrap().absent.clone()
    };
    let reason = absent("symmem multicast").unwrap();
    assert!(
        reason.contains("a processor has no multicast addresses"),
        "{reason}"
    );
    assert_eq!(absent("symmem two_shot"), None);
    let by: Vec<&str> = section
        .points
        .iter()
        .map(|point| point.by.as_str())
        .collect();
    assert_eq!(by, [OURS, "symmem two_shot"]);
    // No size exceeds the requested one.
    assert!(section.points.iter().all(|point| point.bytes == 512));
}

#[test]
fn where_the_choice_in_place_is_another_it_is_said() {
    let directory = directory("collectives-in-place");
    let row = |algorithm: &str| {
        format!(
            r#"{{"operation": "all_reduce", "world": 8, "bytes": 65536, "algorithm": "{algorithm}"}}"#
        )
    };
    let rows = format!(
        r#"{{"version": 1, "rows": [{}, {}]}}"#,
        row("one_shot"),
        row("packets")
    );
    std::fs::write(directory.join("t.json"), rows).unwrap();
    let arguments = [
        "bench",
        "collectives",
        "--backend",
        "host",
        "-n",
        "2",
        "--baseline",
        "none",
        "--op",
        "all_reduce",
        "--max-bytes",
        "1K",
        "--json",
        "c.json",
    ];
    let mut command = symmem(&directory, &arguments);
    command.env("SYMMEM_TUNING", directory.join("t.json"));
    let output = text(&succeed(command).stdout);
    let report = report(&directory.join("c.json"));
    let point = &collectives(&report).points[0];
    let chosen = [&point.algorithm, &point.in_place_algorithm];
    assert_eq!(chosen, ["one_shot", "packets"]);
    assert!(output.contains("one_shot, packets"), "{output}");
}

/// Runs a benchmark of multicast on devices behind a switch, with this variable. Returns its error.
#[track_caller]
fn multicast_that_fails(name: &str, variable: (&str, &str)) -> Option<String> {
    if !support::permitted() {
        return None;
    }
    let directory = directory(name);
    let size = ["--min-bytes", "32M", "--max-bytes", "32M"];
    let how = ["--algorithm", "multicast", "--baseline", "none"];
    let bench = ["bench", "collectives", "--backend", "cuda", "-n", "2"];
    let arguments = [&bench[..], &how, &size].concat();
    assert!(
        support::fake_driver().join("libcuda.so.1").exists(),
        "only the fake driver may be used"
    );
    let mut command = on_fake_driver(&directory, 2, &arguments);
    command
        .env("FAKE_CUDA_MULTICAST_HARDWARE", "1")
        .env("SYMMEM_MULTICAST", "1")
        .env(variable.0, variable.1);
    Some(fail(command))
}

#[test]
fn what_found_no_room_in_the_multicast_object_is_not_measured_as_if_it_had() {
    let room_for_slots = ("SYMMEM_MULTICAST_BYTES", "100663296");
    if let Some(error) = multicast_that_fails("collectives-without-room", room_for_slots) {
        let said = "no room for buffers of this size; raise SYMMEM_MULTICAST_BYTES";
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_baseline_of_multicast_whose_buffers_are_not_bound_is_absent_too() {
    if !support::permitted() {
        return;
    }
    let directory = directory("collectives-baseline-unbound");
    let size = ["--max-bytes", "1K", "--rounds", "1"];
    let how = ["--baseline", "multicast", "--op", "all_reduce"];
    let bench = ["bench", "collectives", "--backend", "cuda", "-n", "2"];
    let to_json = ["--json", "c.json"];
    let arguments = [&bench[..], &how, &size, &to_json].concat();
    let mut command = on_fake_driver(&directory, 2, &arguments);
    command
        .env("FAKE_CUDA_MULTICAST_HARDWARE", "1")
        .env("SYMMEM_MULTICAST", "1")
        // The first call binds the slots of collectives.
        .env("FAKE_DEVICE_FAIL", "cuMulticastBindMem:2:401");
    succeed(command);
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    let absent = section.baselines[0].absent.as_deref().unwrap();
    assert!(absent.contains("cuMulticastBindMem"), "{absent}");
    // Only symmem is measured, and without multicast.
    for point in &section.points {
        assert!(point.by == OURS && !point.algorithm.starts_with("multicast"));
    }
}

#[test]
fn multicast_that_there_is_not_is_an_error_with_the_reason() {
    let fails = ("FAKE_DEVICE_FAIL", "cuMulticastBindMem:1:802");
    if let Some(error) = multicast_that_fails("collectives-no-multicast", fails) {
        assert!(error.contains("cannot measure multicast: rank "), "{error}");
        assert!(error.contains("not ready yet"), "{error}");
    }
}

/// A stand-in for Python with PyTorch that speaks the protocol, but moves and replays nothing. It exits after `limit`
/// commands and reports `wrong` wrong elements.
fn stand_in_for_torch(directory: &Path, limit: u32, wrong: u32) -> PathBuf {
    let script = format!(
        r#"#!/bin/sh
echo $$ >> pids
env > "environment-$$"
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
    program(directory, &script)
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
            symmem_bench::report::Placement::InPlace,
        );
        assert_eq!(found.unwrap().best, "gloo");
    }
    assert!(section.geometric_mean(None).is_some());
    have_ended(&directory);
}

/// With an empty value NCCL uses its default, which is to use multicast.
#[rstest]
#[case::not_set(None)]
#[case::empty(Some(["", "", "", ""]))]
#[case::on(Some(["2", "0", "0", "0"]))]
fn a_program_beside_us_has_no_multicast_whatever_our_environment_says(
    #[case] values: Option<[&str; 4]>,
) {
    let directory = directory(&format!("torch-switches-{}", values.map_or("no", |v| v[0])));
    let python = stand_in_for_torch(&directory, 1_000_000, 0);
    let mut command = beside_torch(&directory, &python);
    let switches = [
        "NCCL_NVLS_ENABLE=0",
        "NVSHMEM_DISABLE_NVLS=1",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST=1",
        "UB_SKIPMC=1",
    ];
    for (index, switch) in switches.iter().enumerate() {
        let name = switch.split('=').next().unwrap();
        match values {
            Some(values) => command.env(name, values[index]),
            None => command.env_remove(name),
        };
    }
    succeed(command);
    let files = std::fs::read_dir(&directory)
        .unwrap()
        .map(|file| file.unwrap().path());
    let environments: Vec<String> = files
        .filter(|file| {
            file.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("environment-")
        })
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    assert_eq!(environments.len(), 2, "one of each rank");
    for environment in environments {
        for switch in switches {
            assert!(
                environment.lines().any(|line| line == switch),
                "{switch}:\n{environment}"
            );
        }
    }
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
    let told = |note: &String| note.contains("baseline gloo failed");
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
