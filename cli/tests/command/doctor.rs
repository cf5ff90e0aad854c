//! The multicast doctor: describes without touching, refuses, and tests over the fake driver, which has a switch.
//!
//! Every command that may run the live test names only the fake driver. Otherwise, it would test the real switch of the
//! machine.

use super::*;
use crate::ends::wait_until;
use crate::support::hip::{Release, fake_hip, hip_plugin};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;
use symmem_cli::doctor::Report;
use symmem_conformance::Outcome;

const RANKS: u32 = 3;

/// Returns a doctor over the fake driver with a switch; its look-ups in the dynamic loader are recorded.
fn doctor(directory: &Path, arguments: &[&str]) -> Command {
    recorded(directory, &[&["doctor", "multicast"], arguments].concat())
}

/// Returns any command in the same environment.
fn recorded(directory: &Path, arguments: &[&str]) -> Command {
    let libraries = support::fake_driver_and_libraries();
    assert!(
        libraries.join("libcuda.so.1").exists(),
        "only the fake driver may be used"
    );
    let mut command = symmem(directory, arguments);
    command
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("LD_PRELOAD", support::look_ups())
        .env("SYMMEM_TEST_LOOK_UPS", directory.join("look-ups"))
        .env("FAKE_CUDA_MULTICAST_HARDWARE", "1")
        .env("FAKE_DEVICE_COUNT", RANKS.to_string())
        .env("FAKE_DEVICE_TRACE", directory.join("trace"))
        .env("FAKE_DEVICE_REPORT", directory.join("report"));
    command
}

/// Returns a live test that is as short as possible.
fn live(directory: &Path) -> Command {
    let short = ["--quick", "--op", "all_reduce", "--max-bytes", "1K"];
    let json = ["--i-own-this-machine", "--json", "d.json"];
    let temporary = directory.join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let mut command = doctor(directory, &[&json[..], &short].concat());
    command.env("TMPDIR", temporary);
    command
}

/// Returns the names that were looked up in the dynamic loader.
fn look_ups(directory: &Path) -> Vec<String> {
    support::looked_up(&directory.join("look-ups"))
}

fn of_multicast(names: &[String]) -> usize {
    let named = names.iter().filter(|name| name.contains("Multicast"));
    named.count()
}

/// Returns the calls of the fake driver's functions.
fn calls(directory: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join("trace")).unwrap_or_default();
    let named = text.lines().filter(|line| line.contains(" = "));
    let symbols = named.filter_map(|line| line.split(' ').nth(3));
    symbols.map(str::to_owned).collect()
}

fn objects_made(directory: &Path) -> usize {
    let all = calls(directory).into_iter();
    all.filter(|call| call == "cuMulticastCreate").count()
}

/// Returns how often each rank ended by itself, and the violations that the fake driver reports.
fn ends(directory: &Path) -> ([usize; RANKS as usize], Vec<String>) {
    let told = std::fs::read_to_string(directory.join("report")).unwrap_or_default();
    let (processes, wrong): (Vec<&str>, Vec<&str>) =
        told.lines().partition(|line| line.starts_with("process "));
    let of = |rank: usize| {
        let named = format!(" rank {rank} ");
        let of_rank = processes.iter().filter(|line| line.contains(&named));
        of_rank.count()
    };
    let wrong = wrong.into_iter().map(str::to_owned);
    (std::array::from_fn(of), wrong.collect())
}

fn read(directory: &Path) -> Report {
    let text = std::fs::read_to_string(directory.join("d.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Runs a live test that fails. Returns its message and its report.
#[track_caller]
fn in_trouble(directory: &Path, mut command: Command) -> (String, Report) {
    let output = command.output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}\n{err}");
    let said = out.lines().find(|line| line.starts_with("FAILED: "));
    let said = said.unwrap_or_else(|| panic!("{out}\n{err}")).to_owned();
    let report = read(directory);
    let told = report
        .trial
        .as_ref()
        .and_then(|trial| trial.failure.clone());
    assert_eq!(said, format!("FAILED: {}", told.unwrap_or_default()));
    (said, report)
}

#[test]
fn without_the_owners_word_it_looks_and_tells_and_touches_nothing() {
    let directory = directory("doctor-looks");
    // Even if a variable asks for multicast.
    let mut command = doctor(&directory, &["--json", "d.json"]);
    command.env("SYMMEM_MULTICAST", "1");
    let output = text(&succeed(command).stdout);
    for part in [
        "driver: 12.8, which has multicast functions",
        "device 2: Fake NVIDIA H200, architecture 90, multicast ",
        "SYMMEM_MULTICAST=1\n",
        "NVSHMEM_DISABLE_NVLS",
        "cuMulticastCreate, for 3 devices, 1024 MiB",
        "128 slots",
        "nvidia-smi --gpu-reset",
        "symmem doctor multicast --i-own-this-machine",
    ] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    assert!(read(&directory).trial.is_none());
    let names = look_ups(&directory);
    assert!(names.iter().any(|name| name == "cuInit"), "{names:?}");
    assert_eq!(of_multicast(&names), 0, "{names:?}");
    // It calls no more functions than `symmem info` does.
    let told = calls(&directory);
    let mut info = on_fake_driver(&directory, RANKS, &["info", "--backend", "cuda"]);
    info.env("FAKE_DEVICE_TRACE", directory.join("trace"));
    std::fs::remove_file(directory.join("trace")).unwrap();
    succeed(info);
    let of_info = calls(&directory);
    let more: Vec<_> = told.iter().filter(|call| !of_info.contains(call)).collect();
    assert!(more.is_empty() && !told.is_empty(), "{more:?}");
}

/// The description of multicast uses only the device's attribute.
#[rstest]
#[case::unasked("SYMMEM_MULTICAST", "")]
#[case::asked("SYMMEM_MULTICAST", "1")]
#[case::emulated("SYMMEM_MULTICAST", "emulate")]
#[case::forbidden("NCCL_NVLS_ENABLE", "0")]
fn what_is_told_of_a_machine_looks_no_function_of_multicast_up(
    #[case] name: &str,
    #[case] value: &str,
) {
    let directory = directory(&format!("info-{name}-{value}"));
    let mut info = recorded(&directory, &["info", "--backend", "cuda"]);
    info.env(name, value);
    let told = text(&succeed(info).stdout);
    assert!(told.contains("multicast"), "{told}");
    let names = look_ups(&directory);
    assert!(names.iter().any(|name| name == "cuInit"), "{names:?}");
    assert_eq!(of_multicast(&names), 0, "{names:?}");
}

#[rstest]
#[case("SYMMEM_MULTICAST", "0")]
#[case("NCCL_NVLS_ENABLE", "0")]
#[case("NVSHMEM_DISABLE_NVLS", "1")]
#[case("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")]
fn a_variable_that_forbids_it_is_named_and_not_even_the_driver_is_opened(
    #[case] name: &str,
    #[case] value: &str,
) {
    let directory = directory(&format!("doctor-{name}"));
    let mut tells = doctor(&directory, &[]);
    tells.env(name, value);
    let told = text(&succeed(tells).stdout);
    let line = format!("{name}={value}: forbids multicast");
    assert!(
        told.contains(&line) && told.contains(", multicast forbidden by "),
        "{told}"
    );
    assert_eq!(of_multicast(&look_ups(&directory)), 0);

    std::fs::remove_file(directory.join("look-ups")).unwrap();
    let mut refuses = live(&directory);
    refuses.env(name, value);
    let error = fail(refuses);
    let said = format!("{name}={value}");
    assert!(
        error.contains(&said) && error.contains("forbids"),
        "{error}"
    );
    let names = look_ups(&directory);
    assert!(
        !names.iter().any(|name| name.starts_with("cu")),
        "{names:?}"
    );
    assert!(!directory.join("d.json").exists());
}

#[test]
fn the_owners_word_runs_all_of_it_and_leaves_nothing() {
    if too_long() {
        return;
    }
    if !support::permitted() {
        return;
    }
    let directory = directory("doctor-live");
    let mut command = live(&directory);
    // Each communicator takes the only slot, which the previous one has freed.
    command
        .env("FAKE_CUDA_MULTICAST_SLOTS", "1")
        .env("FAKE_DEVICE_LEDGER", directory.join("ledger"));
    let output = succeed(command);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        out.contains("Multicast works on this machine, with 3 ranks."),
        "{out}"
    );
    for step in [
        "creating the multicast object: done",
        "importing the multicast object: done",
        "joining the multicast object: done",
        "binding memory to the multicast object: done",
        "mapping the multicast object: done",
        "unmapping the multicast object: done",
        "unbinding memory from the multicast object: done",
        "releasing the multicast object: done",
    ] {
        assert!(err.contains(step), "{step} is missing in\n{err}");
    }
    let trial = read(&directory).trial.unwrap();
    assert_eq!((trial.ranks, trial.failure), (RANKS, None));
    let all: Vec<_> = trial.set_up.iter().chain(&trial.bring_ups).collect();
    assert_eq!(all.len(), 3);
    assert!(
        all.iter()
            .all(|bring_up| bring_up.path == "HARDWARE" && bring_up.failure().is_none())
    );
    let conformance = trial.conformance.unwrap();
    assert!(conformance.is_clean() && conformance.totals.skipped.is_empty());
    assert!(conformance.totals.passed >= 6, "one of each at least");
    let bench = trial.bench.unwrap();
    assert!(!bench.is_wrong());
    assert!(
        bench
            .environment
            .multicast
            .contains("asked for by SYMMEM_MULTICAST=1")
    );
    assert!(bench.environment.variables.contains_key("NCCL_NVLS_ENABLE"));
    let section = bench.collectives.unwrap();
    let measured: Vec<&str> = section
        .points
        .iter()
        .map(|point| point.by.as_str())
        .collect();
    for by in [
        OURS,
        "symmem multicast_one_shot",
        "symmem two_shot",
        "symmem packets",
        "nccl",
        "nccl windows",
    ] {
        assert!(measured.contains(&by), "{by}: {measured:?}");
    }
    let ours = section.points.iter().filter(|point| point.by == OURS);
    assert!(ours.into_iter().all(|point| point.algorithm == "multicast"));
    // The fake driver reports any call in a wrong order.
    assert_eq!(ends(&directory), ([4; RANKS as usize], Vec::new()));
    // Otherwise the tests that see no look-ups and no calls would prove nothing.
    assert!(of_multicast(&look_ups(&directory)) >= 5 * RANKS as usize);
    assert_eq!(objects_made(&directory), 5);
    let left = std::fs::read_dir(directory.join("tmp")).unwrap();
    assert_eq!(left.count(), 0, "of what ranks hand over");
}

#[rstest]
#[case::on_another_rank("cuMulticastBindMem:1:401", 1, "rank 1: ", "fabric manager is down")]
#[case::at_the_creator("cuMulticastCreate:1:801", 0, "rank 0: ", "no multicast together")]
#[case::while_joining("cuMulticastAddDevice:1:802", 2, "rank 2: ", "not ready yet")]
#[case::of_a_buffer(
    "cuMulticastBindMem:2:2",
    2,
    "buffers were not bound: rank 2: ",
    "no slot left"
)]
fn a_call_that_fails_in_the_set_up_is_told_with_what_to_do_and_nothing_comes_after(
    #[case] call: &str,
    #[case] rank: u32,
    #[case] whose: &str,
    #[case] advice: &str,
) {
    if !support::permitted() {
        return;
    }
    let directory = directory(&format!("doctor-fails-{}", call.replace(':', "-")));
    let mut command = live(&directory);
    command
        .env("FAKE_DEVICE_FAIL", call)
        .env("FAKE_DEVICE_FAIL_RANK", rank.to_string());
    let (said, report) = in_trouble(&directory, command);
    assert!(said.starts_with("FAILED: setup: "), "{said}");
    assert!(said.contains(whose) && said.contains(advice), "{said}");
    let trial = report.trial.unwrap();
    assert_eq!(trial.set_up.len(), 1);
    assert!(trial.conformance.is_none() && trial.bring_ups.is_empty() && trial.bench.is_none());
}

#[test]
fn slots_that_run_out_only_when_communicators_come_and_go_are_found() {
    if !support::permitted() {
        return;
    }
    let directory = directory("doctor-slots");
    let mut command = live(&directory);
    // A process creates a second object only in the third part.
    command
        .env("FAKE_DEVICE_FAIL", "cuMulticastCreate:2:2")
        .env("FAKE_DEVICE_MEMORY_BYTES", (4_u64 << 30).to_string());
    let (said, report) = in_trouble(&directory, command);
    assert!(said.contains("setup and release: "), "{said}");
    assert!(said.contains("no slot left"), "{said}");
    let trial = report.trial.unwrap();
    assert_eq!(trial.bring_ups.len(), 2);
    assert!(trial.bring_ups[0].failure().is_none() && trial.conformance.unwrap().is_clean());
}

#[test]
fn a_rank_that_dies_in_the_set_up_ends_the_test() {
    if !support::permitted() {
        return;
    }
    let directory = directory("doctor-dies");
    let mut command = live(&directory);
    command
        .env("FAKE_DEVICE_KILL", "cuMulticastAddDevice:1")
        .env("FAKE_DEVICE_KILL_RANK", "1");
    let (said, _) = in_trouble(&directory, command);
    assert!(said.contains("setup: a rank failed"), "{said}");
    // The others were not killed while they gave back what they had.
    assert_eq!(ends(&directory).0, [1, 0, 1]);
}

/// The fourth memory that a process binds is a buffer of the conformance suite. Before it come the slots of collectives
/// and two buffers; the first part binds no more.
#[test]
fn a_world_that_conformance_loses_is_the_last_set_up() {
    if !support::permitted() {
        return;
    }
    let directory = directory("doctor-loses-a-world");
    let mut command = live(&directory);
    command
        .env("FAKE_DEVICE_KILL", "cuMulticastBindMem:4")
        .env("FAKE_DEVICE_KILL_RANK", "1");
    let (said, report) = in_trouble(&directory, command);
    assert!(said.starts_with("FAILED: conformance: "), "{said}");
    assert_eq!(objects_made(&directory), 2);
    // The others were not killed while they gave back what they had.
    assert_eq!(ends(&directory).0, [2, 1, 2]);
    let trial = report.trial.unwrap();
    let cases = &trial.conformance.unwrap().worlds[0].cases;
    let last = &cases.last().unwrap().record.outcome;
    assert!(matches!(last, Outcome::Failed(_)), "{last:?}");
    assert!(trial.bring_ups.is_empty());
}

#[test]
fn a_case_that_cannot_be_run_is_the_last_and_the_ranks_end_in_good_order() {
    if !support::permitted() {
        return;
    }
    let directory = directory("doctor-skips-a-case");
    let mut command = live(&directory);
    command
        .env("FAKE_DEVICE_FAIL", "cuMulticastBindMem:4:2")
        .env("FAKE_DEVICE_FAIL_RANK", "1");
    let (said, report) = in_trouble(&directory, command);
    assert!(
        said.contains("was not run: ") && said.contains("no slot left"),
        "{said}"
    );
    assert_eq!(objects_made(&directory), 2);
    assert_eq!(ends(&directory), ([2; RANKS as usize], Vec::new()));
    let trial = report.trial.unwrap();
    let conformance = trial.conformance.unwrap();
    assert_eq!(conformance.worlds[0].failure, None);
    let cases = &conformance.worlds[0].cases;
    let passed = |case: &&symmem_conformance::NamedRecord| case.record.outcome == Outcome::Passed;
    assert_eq!(cases.iter().filter(passed).count(), cases.len() - 1);
}

#[test]
fn what_was_found_out_before_a_rank_failed_is_told() {
    if too_long() {
        return;
    }
    if !support::permitted() {
        return;
    }
    let directory = directory("doctor-dies-later");
    let mut command = live(&directory);
    // A process joins a second object only in the third part.
    command
        .env("FAKE_DEVICE_KILL", "cuMulticastAddDevice:2")
        .env("FAKE_DEVICE_KILL_RANK", "1");
    let (said, report) = in_trouble(&directory, command);
    assert!(said.contains("release: a rank failed"), "{said}");
    let trial = report.trial.unwrap();
    assert_eq!(trial.bring_ups.len(), 1);
    assert_eq!(trial.bring_ups[0].failure(), None);
    assert_eq!(ends(&directory).0, [3, 2, 3]);
    let left = std::fs::read_dir(directory.join("tmp")).unwrap();
    assert_eq!(left.count(), 0, "of what ranks hand over");
}

#[test]
fn ended_during_conformance_it_ends_with_its_ranks_and_leaves_nothing() {
    if !support::permitted() {
        return;
    }
    let directory = directory("doctor-is-ended");
    let mut command = live(&directory);
    // Long enough to interrupt the conformance suite during its setup.
    command
        .env("FAKE_DEVICE_STALL", "cuMulticastCreate:1:3000")
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut doctor = command.spawn().unwrap();
    let mut lines = BufReader::new(doctor.stdout.take().unwrap()).lines();
    let begins = |line: &std::io::Result<String>| line.as_ref().unwrap() == "2. Conformance";
    assert!(lines.any(|line| begins(&line)));
    let mut ranks = Vec::new();
    wait_until("all ranks run", || {
        ranks = children(doctor.id(), "rank-selftest");
        ranks.len() == RANKS as usize
    });
    kill_process(Pid::from_child(&doctor), Signal::TERM).unwrap();
    wait_until("SIGTERM ends it", || doctor.try_wait().unwrap().is_some());
    let ended = doctor.wait().unwrap();
    assert_eq!(ended.signal(), Some(Signal::TERM.as_raw()), "{ended}");
    // Ranks left behind would run for as long as the call takes.
    std::thread::sleep(Duration::from_millis(500));
    let lives = |pid: &&u32| is_a(**pid, "rank-selftest");
    assert_eq!(ranks.iter().filter(lives).count(), 0);
    let left = std::fs::read_dir(directory.join("tmp")).unwrap();
    assert_eq!(left.count(), 0, "of what ranks hand over");
}

/// Returns the child processes with this argument.
fn children(parent: u32, argument: &str) -> Vec<u32> {
    let parent = format!("PPid:\t{parent}");
    let is_child = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line == parent) && is_a(*pid, argument)
    };
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(is_child).collect()
}

/// Returns whether a process exists and has this argument.
fn is_a(pid: u32, argument: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0)
        .any(|one| one == argument.as_bytes())
}

#[test]
fn a_switch_between_fewer_than_two_devices_is_none() {
    if !support::permitted() {
        return;
    }
    let directory = directory("doctor-alone");
    let mut command = live(&directory);
    command.env("FAKE_DEVICE_COUNT", "1");
    let (said, _) = in_trouble(&directory, command);
    assert!(said.contains("at least two devices"), "{said}");
    assert_eq!(of_multicast(&look_ups(&directory)), 0);
}

#[rstest]
#[case("4G")]
#[case("0")]
fn a_size_of_the_object_that_ranks_would_refuse_is_refused(#[case] size: &str) {
    let directory = directory(&format!("doctor-size-{size}"));
    let sized = |mut command: Command| {
        command.env("SYMMEM_MULTICAST_BYTES", size);
        fail(command)
    };
    let sentence = format!("SYMMEM_MULTICAST_BYTES={size} is not a number of bytes");
    let mut errors = vec![sized(doctor(&directory, &[]))];
    if support::permitted() {
        errors.push(sized(live(&directory)));
    }
    for error in errors {
        assert!(error.contains(&sentence), "{error}");
    }
    let names = look_ups(&directory);
    assert!(
        !names.iter().any(|name| name.starts_with("cu")),
        "{names:?}"
    );
}

#[test]
fn it_tells_of_the_test_that_its_arguments_ask_for() {
    let directory = directory("doctor-asked");
    let told = |arguments: &[&str], bytes: &str| {
        let mut command = doctor(&directory, arguments);
        command.env("SYMMEM_MULTICAST_BYTES", bytes);
        text(&succeed(command).stdout)
    };
    let full = told(&["--full", "--max-bytes", "1K"], "");
    // The conformance suite needs this size.
    assert!(full.contains("for 3 devices, 4096 MiB"), "{full}");
    assert!(full.contains("finalizes 130 communicators"), "{full}");
    let quick = told(
        &["--quick", "--op", "broadcast,reduce,broadcast"],
        "8388608",
    );
    assert!(quick.contains("for 3 devices, 8 MiB"), "{quick}");
    assert!(
        quick.contains("4. Measures broadcast and reduce up to 1 MiB:"),
        "{quick}"
    );
}

#[test]
fn a_plugin_is_looked_at_as_what_it_is() {
    let directory = directory("doctor-plugins");
    let with = |path: &Path| {
        let selection = format!("path:{}", path.display());
        doctor(&directory, &["--backend", &selection])
    };
    let told = text(&succeed(with(support::cuda_plugin())).stdout);
    assert!(told.contains("device 2: Fake NVIDIA H200"), "{told}");
    for missing in ["libsymmem_cuda.so", "typo.so"] {
        let path = directory.join(missing);
        let error = fail(with(&path));
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
    let mut other = with(hip_plugin());
    let libraries = std::env::join_paths([
        support::fake_driver_and_libraries(),
        fake_hip(Release::Seven),
    ]);
    other.env("SYMMEM_LIBRARY_PATH", libraries.unwrap());
    let error = fail(other);
    assert!(
        error.contains("the backend hip has no multicast"),
        "{error}"
    );
}

#[test]
fn a_machine_without_cuda_is_said_to_be_one() {
    let directory = directory("doctor-no-cuda");
    let without = |mut command: Command| {
        // The fake driver is found first, and fails like the toolkit's stub library.
        command.env("FAKE_CUDA_STUB", "1");
        command
    };
    let output = text(&succeed(without(doctor(&directory, &[]))).stdout);
    assert!(
        output.contains("CUDA cannot start on this machine"),
        "{output}"
    );
    assert!(output.contains("NCCL_NVLS_ENABLE"), "{output}");
    if support::permitted() {
        let output = without(live(&directory)).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stdout).contains("CUDA cannot start on this machine"));
    }
    let error = fail(doctor(&directory, &["--backend", "host"]));
    assert!(error.contains("host has no multicast"), "{error}");
}
