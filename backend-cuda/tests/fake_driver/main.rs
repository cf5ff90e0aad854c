//! The whole backend over a fake driver: everything it does, a failure of every driver call in turn, and every
//! reason not to start.

#[allow(dead_code, reason = "tests of other crates sample in other ways too")]
#[path = "../../../tests/support/amount.rs"]
mod amount;
mod collectives;
mod collectives_tests;
#[allow(dead_code, reason = "tests of other crates load more fakes")]
#[path = "../../../tests/support/fakes.rs"]
mod fakes;
mod multicast;
mod scenario;
mod support;
mod two_processes;
mod vendor;
mod vendor_tests;
mod world;

use std::collections::BTreeSet;
use std::ffi::CStr;
use support::{Outcome, fake_number, fresh, run, start, tell, tell_result};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, Implementation, SymmetricMemory, read_text};
use world::{World, options, tables};

/// Entry point of a started child; see [`support::start`].
#[test]
#[ignore = "a role that the other tests start"]
fn child() {
    let role = std::env::var(support::ROLE).expect("started by another test");
    let parts: Vec<&str> = role.split_whitespace().collect();
    match parts[..] {
        ["everything", kind] => {
            tell_result(scenario::everything(kind_of(kind), || {
                tell("closing-after", fake_number("fake_device_calls"));
            }));
        }
        ["rank", rank, kind, meeting] => {
            let rank = rank.parse().expect("a rank");
            tell_result(two_processes::rank(rank, kind_of(kind), meeting));
        }
        ["probe"] => tell_result(tables().device_count().map(drop)),
        ["describe"] => {
            let device = symmem_cuda::CudaBackend::describe_device(0).expect("a device");
            tell("partition", device.partition);
            tell("name", read_text(&device.name));
            for line in symmem_cuda::CudaBackend::describe_libraries().lines() {
                let (key, value) = line.split_once('=').expect("key=value");
                tell(key, value);
            }
        }
        ["open", ordinal] => {
            let ordinal = ordinal.parse().expect("an ordinal");
            let opened = tables().open(&options(ordinal));
            if let Ok(backend) = &opened {
                let flags = backend.capabilities().expect("known").flags;
                tell("multicast", flags & CAPABILITY_MULTICAST_HARDWARE != 0);
            }
            tell_result(opened.map(drop));
        }
        ["allocate", kind, bytes] => {
            let bytes = bytes.parse().expect("bytes");
            tell_result(allocate(kind_of(kind), bytes));
        }
        ["map", kind] => tell_result(map(kind_of(kind))),
        ["register-host-memory"] => tell_result(register_host_memory()),
        ["padded-launch"] => tell_result(scenario::padded_launch()),
        ["wait-in-vain"] => tell_result(wait_in_vain()),
        ["collectives", ref words @ ..] => collectives::role(words),
        ["vendor", ref words @ ..] => vendor::role(words),
        ["multicast", ref words @ ..] => multicast::role(words),
        ["keep-context"] => keep_context(),
        ["leave-all-to-close"] => tell_result(leave_all_to_close()),
        _ => panic!("no such role: {role}"),
    }
}

fn kind_of(name: &str) -> ShareKindCode {
    let kinds = [
        ShareKindCode::VMM_FILE_DESCRIPTOR,
        ShareKindCode::LEGACY_IPC,
        ShareKindCode::SAME_PROCESS,
    ];
    let kind = kinds.into_iter().find(|kind| kind.name() == name);
    kind.expect("a kind of sharing")
}

// ---- everything works ----

#[test]
fn ranks_in_one_process_do_everything_and_give_everything_back() {
    for kind in ["VMM_FILE_DESCRIPTOR", "SAME_PROCESS"] {
        run(&format!("everything {kind}"), &[]).assert_clean();
    }
}

#[test]
fn a_backend_loaded_from_its_plugin_file_does_the_same() {
    let plugin = fakes::cuda_plugin();
    let path = plugin.to_str().expect("a path of this test");
    run("everything VMM_FILE_DESCRIPTOR", &[(world::PLUGIN, path)]).assert_clean();
}

/// Runs two ranks, each with its own environment.
fn two_ranks(kind: &str, environment: &[(&str, &str)]) -> [Outcome; 2] {
    let meeting = fresh("meeting");
    let role = |rank: u32| format!("rank {rank} {kind} {}", meeting.display());
    let started = [0, 1].map(|rank: u32| {
        let number = rank.to_string();
        let mut environment = environment.to_vec();
        environment.push(("SYMMEM_RANK", &number));
        start(&role(rank), &environment)
    });
    let outcomes = started.map(support::Running::wait);
    let _ = std::fs::remove_file(&meeting);
    outcomes
}

#[test]
fn ranks_in_two_processes_share_memory_either_way() {
    for kind in ["VMM_FILE_DESCRIPTOR", "LEGACY_IPC"] {
        for outcome in two_ranks(kind, &[]) {
            outcome.assert_clean();
        }
    }
}

#[test]
fn closing_gives_back_what_was_not_given_up() {
    run("leave-all-to-close", &[]).assert_clean();
}

fn leave_all_to_close() -> CallResult<()> {
    let backend = tables().open(&options(0))?;
    backend.allocate(ShareKindCode::VMM_FILE_DESCRIPTOR, 1)?;
    let plain = backend.allocate(ShareKindCode::LEGACY_IPC, 1)?;
    // SAFETY: the memory lives as long as the open device.
    unsafe { backend.register(ShareKindCode::LEGACY_IPC, plain.address, 64) }?;
    Ok(())
}

// ---- each call fails in turn ----

/// Fails each driver call in turn and checks what the backend reports.
#[test]
fn every_failing_call_is_named_and_leaks_nothing() {
    let mut jobs = Vec::new();
    for kind in ["VMM_FILE_DESCRIPTOR", "SAME_PROCESS"] {
        let outcome = run(&format!("everything {kind}"), &[WITHOUT_MULTICAST]);
        outcome.assert_clean();
        let numbers = worth_failing(&outcome.calls);
        jobs.extend(numbers.into_iter().map(|number| (kind, number)));
    }
    let jobs = std::sync::Mutex::new(jobs.into_iter());
    let (functions, problems) = std::thread::scope(|scope| {
        let worker = || {
            let (mut functions, mut problems) = (BTreeSet::new(), Vec::new());
            while let Some((kind, number)) = { jobs.lock().expect("no panic").next() } {
                match check_failing_call(kind, number) {
                    Ok(function) => drop(functions.insert(function)),
                    Err(problem) => problems.push(problem),
                }
            }
            (functions, problems)
        };
        // A child mostly waits for its streams, so run a few at a time.
        let workers = [0; 4].map(|_| scope.spawn(worker));
        let mut all = (BTreeSet::new(), Vec::new());
        for worker in workers {
            let (functions, problems) = worker.join().expect("no panic");
            all.0.extend(functions);
            all.1.extend(problems);
        }
        all
    });
    assert_eq!(problems, [""; 0], "{} problems", problems.len());
    let count = functions.len();
    assert!(
        count > 50,
        "only {count} functions were called: {functions:?}"
    );
}

/// Numbers of the calls to fail, from 1. All kernels are loaded by the same four calls. Of these calls one in
/// seven fails, which covers each of the four in turn; all of them if `SYMMEM_TESTS=all`.
fn worth_failing(calls: &[String]) -> Vec<usize> {
    const LOADING: [&str; 4] = [
        "cuModuleGetFunction",
        "cuFuncLoad",
        "cuFuncGetAttribute",
        "cuFuncSetAttribute",
    ];
    let full = amount::amount() == amount::Amount::All;
    let mut loads = 0;
    let numbered = calls.iter().enumerate().filter(|(_, call)| {
        let is_load = LOADING.contains(&call.as_str());
        loads += u32::from(is_load);
        full || !is_load || loads % 7 == 1
    });
    numbered.map(|(index, _)| index + 1).collect()
}

/// Failures of queries about multicast are not errors here, and have their own test (`multicast`).
const WITHOUT_MULTICAST: (&str, &str) = ("SYMMEM_MULTICAST", "0");

/// The call whose failure the backend cannot report: restoring the caller's context.
const UNTOLD: &str = "cuCtxSetCurrent";

/// Fails one call. Returns which function it was, or what is wrong with the outcome.
fn check_failing_call(kind: &str, number: usize) -> Result<String, String> {
    let fail = format!("#{number}");
    let outcome = run(
        &format!("everything {kind}"),
        &[WITHOUT_MULTICAST, ("FAKE_DEVICE_FAIL", &fail)],
    );
    let symbol = outcome.calls.get(number - 1).cloned().unwrap_or_default();
    let problem = |what: &str| {
        let (lines, report) = (&outcome.lines, &outcome.report);
        Err(format!(
            "{kind} call {number} {symbol}: {what}: {lines:?} {report:?}"
        ))
    };
    let closing_after = outcome.get("closing-after").parse().unwrap_or(usize::MAX);
    let closing = number > closing_after;
    // If closing fails to make the context not current, it stays current, destroyed.
    let stays = closing && symbol == UNTOLD;
    if !outcome.report.is_empty() && !stays {
        return problem("a rule was broken or something leaked");
    }
    // Closing reports no failures. Polling makes the number of calls vary, so the last one may not be reached.
    let untold = symbol == UNTOLD && outcome.get("result") == "ok";
    if symbol.is_empty() || closing || untold {
        return Ok(symbol);
    }
    if outcome.get("call") != symbol || outcome.get("code") != "999" {
        return problem("the failure does not name the call");
    }
    if !outcome.get("message").contains("CUDA_ERROR_UNKNOWN") {
        return problem("the message lacks the driver's word");
    }
    Ok(symbol)
}

#[test]
fn a_rank_whose_sharing_fails_says_so_and_both_give_everything_back() {
    for (kind, symbol) in [
        ("LEGACY_IPC", "cuMemAlloc_v2"),
        ("LEGACY_IPC", "cuIpcGetMemHandle"),
        ("LEGACY_IPC", "cuIpcOpenMemHandle_v2"),
        ("LEGACY_IPC", "cuIpcCloseMemHandle"),
        ("VMM_FILE_DESCRIPTOR", "cuMemExportToShareableHandle"),
        ("VMM_FILE_DESCRIPTOR", "cuMemImportFromShareableHandle"),
    ] {
        let fail = format!("{symbol}:1");
        let environment = [
            ("FAKE_DEVICE_FAIL", fail.as_str()),
            ("FAKE_DEVICE_FAIL_RANK", "1"),
        ];
        let [healthy, failed] = two_ranks(kind, &environment);
        assert_eq!(failed.get("call"), symbol, "{:?}", failed.lines);
        assert_eq!(failed.get("code"), "999");
        for outcome in [healthy, failed] {
            assert_eq!(outcome.report, [""; 0], "{symbol}");
        }
    }
}

#[test]
fn opening_an_own_handle_is_a_failure_that_names_the_call() {
    let outcome = run("map LEGACY_IPC", &[]);
    assert_eq!(outcome.get("call"), "cuIpcOpenMemHandle_v2");
    // The fake refuses it, like the driver, and reports nothing else.
    assert_eq!(outcome.report.len(), 1, "{:?}", outcome.report);
    assert!(outcome.report[0].contains("in the process that made it"));
}

fn map(kind: ShareKindCode) -> CallResult<()> {
    let mut world = World::open(0..2)?;
    let memory = world.allocate(0, kind, 1)?;
    world.map(0, memory.handle, 1)?;
    world.give_back()
}

#[test]
fn a_peer_out_of_reach_is_told_with_both_devices() {
    for kind in ["VMM_FILE_DESCRIPTOR", "SAME_PROCESS"] {
        let outcome = run(&format!("map {kind}"), &[("FAKE_DEVICE_NO_PEER", "1")]);
        assert_eq!(
            outcome.get("status"),
            "PEER_UNREACHABLE",
            "{:?}",
            outcome.lines
        );
        assert!(outcome.get("message").contains("device 1"));
        assert!(outcome.get("message").contains("nvidia-smi topo"));
        assert_eq!(outcome.report, [""; 0]);
    }
}

#[test]
fn memory_that_runs_out_is_told_and_leaks_nothing() {
    for kind in ["VMM_FILE_DESCRIPTOR", "LEGACY_IPC"] {
        let role = format!("allocate {kind} {}", 64 << 20);
        let outcome = run(&role, &[("FAKE_DEVICE_MEMORY_BYTES", "8388608")]);
        assert_eq!(
            outcome.get("status"),
            "OUT_OF_MEMORY",
            "{:?}",
            outcome.lines
        );
        assert_eq!(outcome.report, [""; 0]);
        let outcome = run(&format!("allocate {kind} {}", u64::MAX), &[]);
        assert_eq!(
            outcome.get("status"),
            "OUT_OF_MEMORY",
            "{:?}",
            outcome.lines
        );
    }
}

fn allocate(kind: ShareKindCode, bytes: u64) -> CallResult<()> {
    let mut world = World::open(0..1)?;
    world.allocate(0, kind, bytes)?;
    world.give_back()
}

#[test]
fn memory_of_the_wrong_kind_is_not_registered() {
    let outcome = run("register-host-memory", &[]);
    assert_eq!(outcome.get("status"), "UNSUPPORTED", "{:?}", outcome.lines);
    assert!(outcome.get("message").contains("not device memory"));
    assert_eq!(outcome.report, [""; 0]);
}

fn register_host_memory() -> CallResult<()> {
    let mut world = World::open(0..1)?;
    let memory = world.host(0, 4096)?;
    world.register(0, ShareKindCode::LEGACY_IPC, memory.device.0, 4096)?;
    world.give_back()
}

#[test]
fn a_wait_in_vain_ends_at_its_deadline_with_a_record() {
    let outcome = run("wait-in-vain", &[]);
    outcome.assert_clean();
    assert_eq!(outcome.get("record"), "state 2 expected 9 seen 0 reason 1");
}

fn wait_in_vain() -> CallResult<()> {
    use symmem_core::backend::Signals;
    let mut world = World::open(0..1)?;
    let memory = world.allocate(0, ShareKindCode::LEGACY_IPC, 4096)?;
    let (control, stream) = (world.host(0, 4096)?, world.stream(0)?);
    let wait = SignalWait {
        word: memory.address,
        watch: Watch {
            abort: control.device,
            record: DeviceAddress(control.device.0 + 128),
            deadline_ns: 20_000_000,
            ..Watch::default()
        },
        value: 9,
        ..SignalWait::default()
    };
    // SAFETY: all memory is live until the stream is drained.
    unsafe { world.ranks[0].signal_wait(&wait, SignalPlacementCode::DEVICE, stream) }?;
    world.drain(0, stream)?;
    let bytes = world::read(&control);
    let field = |index: usize| {
        let at = 128 + 4 * index;
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let (state, expected, seen, reason) = (field(0), field(5), field(6), field(7));
    tell(
        "record",
        format!("state {state} expected {expected} seen {seen} reason {reason}"),
    );
    world.give_back()
}

#[test]
fn padding_behind_a_kernels_arguments_is_among_the_causes_of_a_refused_launch() {
    let outcome = run("padded-launch", &[]);
    assert_eq!(outcome.get("call"), "cuLaunchKernel", "{:?}", outcome.lines);
    assert_eq!(outcome.get("code"), "701");
    assert_eq!(outcome.get("status"), Status::INVALID_ARGUMENT.name());
    let message = outcome.get("message");
    for part in ["24 bytes", "padding", "32 threads", "registers"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let [broken] = &outcome.report[..] else {
        panic!("{:?}", outcome.report)
    };
    assert!(
        broken.contains("takes 20 bytes of arguments, not 24"),
        "{broken}"
    );
}

// ---- the caller's context ----

#[test]
fn a_caller_finds_its_own_context_current_again() {
    let outcome = run("keep-context", &[]);
    assert_eq!(outcome.get("kept"), "true", "{:?}", outcome.lines);
    assert_eq!(outcome.report, [""; 0]);
}

/// Works on device 0 while the program has device 1's context current.
fn keep_context() {
    let path = std::env::var("SYMMEM_LIBRARY_PATH").expect("set by the parent");
    let path = std::path::Path::new(&path).join("libcuda.so.1");
    // SAFETY: the fake has the driver's functions, and each gets valid arguments.
    unsafe {
        let library = libloading::Library::new(path).expect("the fake driver");
        let get = |name: &CStr| {
            library
                .get::<unsafe extern "C" fn(*mut usize, i32) -> i32>(name.to_bytes_with_nul())
                .expect("a function of the driver")
        };
        let backend = tables().open(&options(0)).expect("device 0");
        let (mut own, mut current) = (0, 0);
        assert_eq!(get(c"cuDevicePrimaryCtxRetain")(&raw mut own, 1), 0);
        let set = library
            .get::<unsafe extern "C" fn(usize) -> i32>("cuCtxSetCurrent")
            .expect("a function of the driver");
        assert_eq!(set(own), 0);
        let stream = backend.stream_create().expect("a stream");
        backend.stream_destroy(stream).expect("its end");
        drop(backend);
        get(c"cuCtxGetCurrent")(&raw mut current, 0);
        tell("kept", current == own);
        set(0);
        let release = library
            .get::<unsafe extern "C" fn(i32) -> i32>("cuDevicePrimaryCtxRelease_v2")
            .expect("a function of the driver");
        release(1);
        std::mem::forget(library);
    }
}

// ---- every way not to start ----

#[test]
fn a_stub_is_told_from_a_driver() {
    let outcome = run("probe", &[("FAKE_CUDA_STUB", "1")]);
    assert_eq!(
        outcome.get("status"),
        "LIBRARY_MISSING",
        "{:?}",
        outcome.lines
    );
    assert_eq!(outcome.get("code"), "34");
    assert!(outcome.get("message").contains("stub"));
    assert!(outcome.get("message").contains(".so"), "it names the file");
}

#[test]
fn a_driver_that_cannot_start_says_what_to_do() {
    for (code, status, word) in [
        ("100", "NO_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("999", "CALL_FAILED", "nvidia-modprobe"),
        ("803", "CALL_FAILED", "reboot"),
    ] {
        let fail = format!("cuInit:1:{code}");
        let outcome = run("probe", &[("FAKE_DEVICE_FAIL", &fail)]);
        assert_eq!(outcome.get("call"), "cuInit");
        assert_eq!(outcome.get("code"), code);
        assert_eq!(outcome.get("status"), status);
        assert!(outcome.get("message").contains(word), "{:?}", outcome.lines);
    }
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let directory = fresh("broken");
    std::fs::create_dir(&directory).expect("a directory");
    let file = directory.join("libcuda.so.1");
    std::fs::write(&file, "not an ELF file").expect("a file");
    let path = directory.to_str().expect("a path of this test");
    let outcome = run("probe", &[("SYMMEM_LIBRARY_PATH", path)]);
    let _ = std::fs::remove_dir_all(&directory);
    assert_eq!(
        outcome.get("status"),
        "LIBRARY_MISSING",
        "{:?}",
        outcome.lines
    );
    assert!(
        outcome
            .get("message")
            .contains(file.to_str().expect("as above"))
    );
}

#[test]
fn a_library_without_the_functions_is_told_with_the_first_that_is_missing() {
    let directory = fresh("other");
    std::fs::create_dir(&directory).expect("a directory");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process's maps");
    let other = maps.lines().find_map(|line| {
        let path = line.split_whitespace().last()?;
        path.ends_with("/libc.so.6").then_some(path)
    });
    let link = directory.join("libcuda.so.1");
    std::os::unix::fs::symlink(other.expect("the C library"), link).expect("a link");
    let path = directory.to_str().expect("a path of this test");
    let outcome = run("probe", &[("SYMMEM_LIBRARY_PATH", path)]);
    let _ = std::fs::remove_dir_all(&directory);
    assert_eq!(outcome.get("call"), "dlsym", "{:?}", outcome.lines);
    assert!(
        outcome
            .get("message")
            .contains("libcuda.so.1 has no symbol cuInit")
    );
}

#[test]
fn a_device_that_is_not_there_is_told_with_how_many_are() {
    let outcome = run("open 7", &[]);
    assert_eq!(outcome.get("status"), "NO_DEVICE");
    assert!(
        outcome
            .get("message")
            .contains("no device 7: 2 are visible")
    );
}

#[test]
fn mig_instances_are_described_and_refused() {
    let mig = [("FAKE_CUDA_MIG", "1")];
    let outcome = run("describe", &mig);
    assert_eq!(outcome.get("partition"), "1", "{:?}", outcome.lines);
    let outcome = run("open 0", &mig);
    assert_eq!(outcome.get("status"), "UNSUPPORTED");
    assert!(outcome.get("message").contains("MIG instance"));
    assert_eq!(outcome.report, [""; 0]);
}

// ---- what is reported ----

#[test]
fn libraries_are_described_by_file_version_and_kernels() {
    let outcome = run("describe", &[("FAKE_CUDA_DRIVER_VERSION", "12040")]);
    let file = outcome.get("libcuda.so.1");
    assert!(
        file.ends_with("libsymmem_fake_cuda.so"),
        "{:?}",
        outcome.lines
    );
    assert_eq!(outcome.get("driver_version"), "12.4");
    assert_eq!(outcome.get("device_0_kernels_bulk"), "cubin sm_90");
    assert_ne!(outcome.get("device_1_multicast"), "");
}

#[test]
fn older_architectures_run_without_bulk_copies() {
    let environment = [("FAKE_CUDA_ARCHITECTURE", "86")];
    let outcome = run("describe", &environment);
    assert_eq!(outcome.get("device_0_kernels_base"), "cubin sm_80");
    assert_eq!(outcome.get("device_0_kernels_bulk"), "none (needs sm_90)");
    run("open 0", &environment).assert_clean();
}

/// Before 12.3 no graph could hold an edge between overlapping kernels, and any put may be captured.
#[test]
fn kernels_start_beside_their_predecessors_only_where_a_graph_can_say_so() {
    for (version, expected) in [("12020", false), ("12030", true)] {
        let trace = fresh("trace");
        let file = trace.to_str().expect("a path of this test");
        let environment = [
            ("FAKE_CUDA_DRIVER_VERSION", version),
            ("FAKE_DEVICE_TRACE", file),
        ];
        run("everything VMM_FILE_DESCRIPTOR", &environment).assert_clean();
        let calls = std::fs::read_to_string(&trace).expect("the fake driver's trace");
        let _ = std::fs::remove_file(&trace);
        assert!(calls.contains(" cuLaunchKernel = "), "{version}");
        let beside = calls.contains(" cuLaunchKernelEx = ");
        assert_eq!(beside, expected, "{version}");
    }
}

#[test]
fn multicast_is_only_read_and_not_even_that_where_forbidden() {
    let hardware = ("FAKE_CUDA_MULTICAST_HARDWARE", "1");
    let outcome = run("describe", &[hardware]);
    assert_eq!(
        outcome.get("device_0_multicast"),
        "hardware: yes (attribute 132 read only), use: off"
    );
    assert_eq!(run("open 0", &[hardware]).get("multicast"), "true");
    let emulated = [hardware, ("SYMMEM_MULTICAST", "emulate")];
    assert_eq!(
        run("describe", &emulated).get("device_0_multicast"),
        "hardware: yes (attribute 132 read only), use: off; emulated, as SYMMEM_MULTICAST=emulate asks"
    );
    for (variable, text) in [
        ("SYMMEM_MULTICAST", "0"),
        ("NCCL_NVLS_ENABLE", "0"),
        ("NVSHMEM_DISABLE_NVLS", "1"),
        ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
    ] {
        let environment = [hardware, (variable, text)];
        let outcome = run("describe", &environment);
        let line = format!("forbidden by {variable}");
        assert_eq!(outcome.get("device_0_multicast"), line);
        assert_eq!(run("open 0", &environment).get("multicast"), "false");
    }
}
