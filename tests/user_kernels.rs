//! User kernels: the handle they take, and the lifetime of their code.
//!
//! The device side is tested over the fake runtimes, which know the examples' kernel, in a child process, because an
//! environment variable selects the runtime.

#[allow(dead_code, reason = "these tests use the fake runtimes only")]
mod support;

use rstest::rstest;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::hip::{Release, fake_hip};
use symmem::backend::abi::SIGNAL_STRIDE;
use symmem::{
    Builder, CHANNELS, Communicator, DeviceAddress, Error, Function, Geometry, Handle, Module,
    SignalPlacement, SymmetricBuffer,
};

const DEADLINE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);
/// Time limit of the child process that uses the fake runtime.
const HARD_LIMIT: Duration = Duration::from_secs(60);
const CHANNEL: u32 = 5;

fn builder(rank: u32, world: u32, job: &str) -> Builder {
    support::rank("USER_KERNELS_BACKEND", rank, world, job).deadline(DEADLINE)
}

fn job() -> String {
    support::job("user-kernels")
}

/// Runs `rank` as both ranks of a world, which then finalize.
fn two_ranks(rank: impl Fn(&Communicator) + Sync) {
    let job = job();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (rank, job) = (&rank, &job);
            scope.spawn(move || {
                let communicator = builder(number, 2, job).build().unwrap();
                rank(&communicator);
                assert!(communicator.finalize().unwrap().is_empty());
            });
        }
    });
}

// ---- the handle ----

/// Reads a word on the host backend, whose memory this program can read.
fn word(address: DeviceAddress, offset: u64) -> u32 {
    // SAFETY: this is a word of the signal pad, which lives as long as the communicator and is only accessed
    // atomically.
    unsafe { AtomicU32::from_ptr((address.0 + offset) as *mut u32) }.load(Ordering::Acquire)
}

#[test]
fn a_handle_names_the_buffer_and_the_very_words_and_counters_of_the_streams_signals() {
    two_ranks(|communicator| {
        let (rank, peer) = (communicator.rank(), 1 - communicator.rank());
        let stream = communicator.stream().unwrap();
        let buffer = communicator.allocate::<u64>(&[10]).unwrap();
        let handle = buffer.handle_within(CHANNEL, SHORT).unwrap();
        assert_eq!(
            (handle.size, handle.version),
            (Handle::SIZE, Handle::VERSION)
        );
        assert_eq!(Handle::SIZE as usize, size_of::<Handle>());
        assert_eq!((handle.rank, handle.world), (rank as u32, 2));
        assert_eq!((handle.channel, handle.bytes), (CHANNEL, 80));
        assert_eq!(handle.watch.deadline_ns, SHORT.as_nanos() as u64);
        assert_eq!(handle.bases[rank], buffer.local().address());
        assert_eq!(handle.bases[peer], buffer.peer(peer).unwrap().address());
        assert_eq!(handle.bases[2..], [DeviceAddress::NULL; 70]);

        // Different numbers of signals in each direction, so that no two counts are equal.
        let (given, waited) = (3 + rank, 3 + peer);
        for _ in 0..given {
            let none = buffer.slice(..0).unwrap();
            stream.put_signal(peer, none, none, CHANNEL).unwrap();
        }
        for _ in 0..waited {
            stream.wait_signal(peer, CHANNEL).unwrap();
        }
        stream.synchronize().unwrap();
        let (to, from) = (4 * peer as u64, peer as u64 * SIGNAL_STRIDE);
        assert_eq!(word(handle.given, to), given as u32);
        assert_eq!(word(handle.waited, to), waited as u32);
        assert_eq!(word(handle.signals[rank], from), waited as u32);
        let raised = rank as u64 * SIGNAL_STRIDE;
        assert_eq!(word(handle.signals[peer], raised), given as u32);
        assert_eq!(word(handle.watch.aborted, 0), 0);
        assert_eq!(word(handle.arrivals, to), 0);
        assert_eq!(word(handle.departures, to), 0);
        // Another channel has other counters.
        let other = buffer.handle(CHANNEL + 1).unwrap();
        assert_eq!(word(other.given, to) + word(other.waited, to), 0);
        assert_eq!(word(other.signals[rank], from), 0);
        communicator.host_barrier().unwrap();
    });
}

#[test]
fn a_handle_is_refused_for_no_channel_and_for_signals_that_the_host_counts() {
    let communicator = builder(0, 1, &job()).build().unwrap();
    let buffer = communicator.allocate::<u8>(&[1]).unwrap();
    let error = buffer.handle(CHANNELS).unwrap_err();
    assert!(
        matches!(error, Error::InvalidArgument { rank: 0, .. }),
        "{error:?}"
    );
    communicator.abort();
    let error = buffer.handle(0).unwrap_err();
    assert!(matches!(error, Error::Aborted { rank: 0 }), "{error:?}");

    let on_host = builder(0, 1, &job()).signal_placement(SignalPlacement::Host);
    let communicator = on_host.build().unwrap();
    let buffer = communicator.allocate::<u8>(&[1]).unwrap();
    let error = buffer.handle(0).unwrap_err();
    assert!(
        matches!(error, Error::Unsupported { rank: 0, .. }),
        "{error:?}"
    );
}

#[test]
fn the_host_backend_loads_no_device_code() {
    let communicator = builder(0, 1, &job()).build().unwrap();
    // SAFETY: the call is refused before anything is loaded.
    let error = unsafe { communicator.load_module(code(&communicator)) }.unwrap_err();
    assert!(
        matches!(error, Error::Unsupported { rank: 0, .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("cannot launch user kernels"),
        "{error}"
    );
    communicator.finalize().unwrap();
}

// ---- over the fake runtimes ----

/// Returns the examples' code for this device.
fn code(communicator: &Communicator) -> &'static [u8] {
    match communicator.device().architecture {
        910 => include_bytes!("../examples/kernels/ring.gfx90a.co"),
        942 => include_bytes!("../examples/kernels/ring.gfx942.co"),
        950 => include_bytes!("../examples/kernels/ring.gfx950.co"),
        _ => include_bytes!("../examples/kernels/ring.ptx"),
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RingArguments {
    inbox: Handle,
    outbox: DeviceAddress,
    result: DeviceAddress,
    count: u64,
}

const COUNT: usize = 64;
const GEOMETRY: Geometry = Geometry {
    blocks: [2, 1, 1],
    threads: [128, 1, 1],
    shared_memory: 0,
};

struct Buffers {
    inbox: SymmetricBuffer<u32>,
    outbox: SymmetricBuffer<u32>,
    result: SymmetricBuffer<u32>,
}

impl Buffers {
    fn new(communicator: &Communicator) -> Self {
        let allocate = || communicator.allocate(&[COUNT]).unwrap();
        Self {
            inbox: allocate(),
            outbox: allocate(),
            result: allocate(),
        }
    }

    fn arguments(&self, deadline: Duration) -> RingArguments {
        RingArguments {
            inbox: self.inbox.handle_within(CHANNEL, deadline).unwrap(),
            outbox: self.outbox.local().address(),
            result: self.result.local().address(),
            count: COUNT as u64,
        }
    }
}

fn load(communicator: &Communicator) -> (Module, Function) {
    // SAFETY: this is the examples' own code.
    let module = unsafe { communicator.load_module(code(communicator)) }.unwrap();
    let function = module.function("symmem_example_ring").unwrap();
    (module, function)
}

/// Returns the number of unloads that the runtime has traced so far.
fn unloads() -> usize {
    let trace = std::env::var("FAKE_DEVICE_TRACE").unwrap();
    let trace = std::fs::read_to_string(trace).unwrap();
    trace
        .lines()
        .filter(|line| line.contains("ModuleUnload"))
        .count()
}

#[test]
#[ignore = "run by over_a_fake_runtime"]
fn device_a_module_is_unloaded_once_nothing_runs_it_and_no_graph_holds_it() {
    two_ranks(|communicator| {
        let rank = communicator.rank();
        let mut stream = communicator.stream().unwrap();
        let buffers = Buffers::new(communicator);
        let arguments = buffers.arguments(DEADLINE);
        let own = vec![10 + rank as u32; COUNT];
        buffers.outbox.write(&stream, 0, &own).unwrap();
        let (module, function) = load(communicator);
        communicator.host_barrier().unwrap();
        let before = unloads();
        communicator.host_barrier().unwrap();

        // Rank 0 waits for rank 1, which arrives after rank 0 has dropped everything.
        if rank == 1 {
            communicator.host_barrier().unwrap();
        }
        // SAFETY: the kernel takes these arguments, and the buffers live until the stream is idle.
        unsafe { stream.launch(&function, &GEOMETRY, &arguments) }.unwrap();
        drop((module, function));
        if rank == 0 {
            assert!(!stream.is_idle().unwrap());
            assert_eq!(unloads(), before, "while the kernel waits");
            communicator.host_barrier().unwrap();
        }
        let mut seen = vec![0; COUNT];
        buffers.result.read(&stream, 0, &mut seen).unwrap();
        assert_eq!(seen, vec![2 * (10 + 1 - rank as u32); COUNT]);
        stream.synchronize().unwrap();
        communicator.host_barrier().unwrap();
        assert_eq!(unloads(), before + 2, "once the streams are idle");

        // A graph keeps the module loaded.
        let (module, function) = load(communicator);
        let graph = stream
            .capture(|queue| {
                // SAFETY: the kernel takes these arguments, and the buffers outlive the graph.
                unsafe { queue.launch(&function, &GEOMETRY, &arguments) }?;
                queue.barrier()
            })
            .unwrap();
        drop((module, function));
        for lap in 1..4 {
            buffers.outbox.write(&stream, 0, &vec![lap; COUNT]).unwrap();
            communicator.host_barrier().unwrap();
            stream.launch_graph(&graph).unwrap();
            buffers.result.read(&stream, 0, &mut seen).unwrap();
            assert_eq!(seen, vec![2 * lap; COUNT]);
            communicator.host_barrier().unwrap();
        }
        assert_eq!(unloads(), before + 2, "while a graph holds it");
        communicator.host_barrier().unwrap();
        drop(graph);
        stream.synchronize().unwrap();
        communicator.host_barrier().unwrap();
        assert_eq!(unloads(), before + 4, "once the graph is gone");
        communicator.host_barrier().unwrap();
    });
}

#[test]
#[ignore = "run by over_a_fake_runtime"]
fn device_a_kernel_and_a_stream_take_each_others_signals() {
    two_ranks(|communicator| {
        let rank = communicator.rank();
        let stream = communicator.stream().unwrap();
        let buffers = Buffers::new(communicator);
        buffers.outbox.write(&stream, 0, &[7; COUNT]).unwrap();
        let (_module, function) = load(communicator);
        communicator.host_barrier().unwrap();
        for _ in 0..3 {
            if rank == 0 {
                // SAFETY: the kernel takes these arguments, and the buffers live until the stream is idle.
                unsafe { stream.launch(&function, &GEOMETRY, &buffers.arguments(DEADLINE)) }
                    .unwrap();
            } else {
                let (inbox, outbox) = (buffers.inbox.all(), buffers.outbox.all());
                stream.put_signal(0, inbox, outbox, CHANNEL).unwrap();
                stream.wait_signal(0, CHANNEL).unwrap();
            }
            stream.barrier().unwrap();
        }
        stream.synchronize().unwrap();
        let mut seen = [0; COUNT];
        if rank == 0 {
            buffers.result.read(&stream, 0, &mut seen).unwrap();
            assert_eq!(seen, [14; COUNT]);
        } else {
            buffers.inbox.read(&stream, 0, &mut seen).unwrap();
            assert_eq!(seen, [7; COUNT]);
        }
    });
}

#[test]
#[ignore = "run by over_a_fake_runtime"]
fn device_a_kernel_that_waits_in_vain_is_a_timeout_that_names_peer_and_channel() {
    let job = job();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let job = &job;
            scope.spawn(move || {
                let communicator = builder(rank, 2, job).build().unwrap();
                let stream = communicator.stream().unwrap();
                let buffers = Buffers::new(&communicator);
                let (_module, function) = load(&communicator);
                communicator.host_barrier().unwrap();
                if rank == 1 {
                    // Stay until this rank hears that the other one has given up.
                    while communicator.check().is_ok() {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    return;
                }
                let arguments = buffers.arguments(SHORT);
                // SAFETY: the kernel takes these arguments, and the buffers live until the stream is idle.
                unsafe { stream.launch(&function, &GEOMETRY, &arguments) }.unwrap();
                let error = stream.synchronize().unwrap_err();
                assert!(
                    matches!(
                        error,
                        Error::Timeout {
                            rank: 0,
                            peer: 1,
                            channel: CHANNEL,
                            ..
                        }
                    ),
                    "{error:?}"
                );
            });
        }
    });
}

#[test]
#[ignore = "run by over_a_fake_runtime"]
fn device_code_that_does_not_load_is_an_error_and_no_more() {
    let communicator = builder(0, 1, &job()).build().unwrap();
    let foreign: &[u8] = match communicator.device().architecture {
        // For another GPU than the fake one.
        942 => include_bytes!("../examples/kernels/ring.gfx90a.co"),
        _ => b".version 99.0\n.target sm_80\n",
    };
    // SAFETY: the image contains nothing that could run here.
    let error = unsafe { communicator.load_module(foreign) }.unwrap_err();
    assert!(matches!(error, Error::Backend { rank: 0, .. }), "{error:?}");
    let (module, function) = load(&communicator);
    let error = module.function("no_such_kernel").unwrap_err();
    assert!(error.to_string().contains("no_such_kernel"), "{error}");
    communicator.check().unwrap();

    let other = builder(0, 1, &job()).build().unwrap();
    let stream = other.stream().unwrap();
    // SAFETY: the call is refused before anything is launched.
    let error = unsafe { stream.launch(&function, &GEOMETRY, &0_u64) }.unwrap_err();
    assert!(
        error.to_string().contains("different communicators"),
        "{error}"
    );
    drop(stream);
    other.finalize().unwrap();
    drop((module, function));
    communicator.finalize().unwrap();
}

/// Returns the examples' code with another name for the kernel that tells the version of the headers.
fn code_with_marker(communicator: &Communicator, name: &str) -> Vec<u8> {
    let marker = Handle::marker(Handle::VERSION).into_bytes();
    assert_eq!(
        marker.len(),
        name.len(),
        "places in the file stay as they are"
    );
    let mut code = code(communicator).to_vec();
    let mut found = 0;
    for start in 0..code.len() - marker.len() {
        if code[start..].starts_with(&marker) {
            code[start..start + marker.len()].copy_from_slice(name.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "the headers leave their version in the code");
    code
}

#[test]
#[ignore = "run by over_a_fake_runtime"]
fn device_a_kernel_of_other_headers_is_refused_before_it_gets_a_handle() {
    const KERNEL: &str = "symmem_example_ring";
    let communicator = builder(0, 1, &job()).build().unwrap();
    let stream = communicator.stream().unwrap();
    let buffer = communicator.allocate::<u64>(&[10]).unwrap();
    let own = Handle::marker(Handle::VERSION);
    let later = Handle::VERSION + 1;
    for (name, version) in [
        (Handle::marker(later), Some(later)),
        // Of headers that had no version yet, or of code that does not include them.
        (own.replace("version", "nothing"), None),
    ] {
        let code = code_with_marker(&communicator, &name);
        // SAFETY: the code is the examples', under other names.
        let module = unsafe { communicator.load_module(&code) }.unwrap();
        let error = match version {
            Some(_) => module.function(KERNEL).unwrap_err(),
            None => {
                let function = module.function(KERNEL).unwrap();
                let handle = buffer.handle(0).unwrap();
                // SAFETY: it is refused before it begins.
                unsafe { stream.launch(&function, &GEOMETRY, &handle) }.unwrap_err()
            }
        };
        let Error::HandleVersion {
            rank: 0,
            ref kernel,
            found,
            expected: Handle::VERSION,
        } = error
        else {
            panic!("{error:?}")
        };
        assert_eq!((kernel.as_str(), found), (KERNEL, version), "{error}");
        assert!(error.to_string().contains("plain_function"), "{error}");
        // The caller may know that a kernel takes no handle.
        module.plain_function(KERNEL).unwrap();
    }
    // Nothing has poisoned the communicator, and code of these headers is taken.
    load(&communicator);
    drop(buffer);
    communicator.finalize().unwrap();
}

#[rstest]
fn over_a_fake_runtime(#[values("cuda", "hip")] backend: &str) {
    let libraries = match backend {
        "hip" => fake_hip(Release::Seven),
        _ => support::fake_driver(),
    };
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let directory = directory.join(format!("user-kernels-{backend}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for test in [
        "device_a_module_is_unloaded_once_nothing_runs_it_and_no_graph_holds_it",
        "device_a_kernel_and_a_stream_take_each_others_signals",
        "device_a_kernel_that_waits_in_vain_is_a_timeout_that_names_peer_and_channel",
        "device_code_that_does_not_load_is_an_error_and_no_more",
        "device_a_kernel_of_other_headers_is_refused_before_it_gets_a_handle",
    ] {
        let (report, log) = (directory.join("report"), directory.join("log"));
        let _ = std::fs::remove_file(&report);
        let output = std::fs::File::create(&log).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture"])
            .env("USER_KERNELS_BACKEND", backend)
            .env("SYMMEM_LIBRARY_PATH", libraries)
            .env("LD_LIBRARY_PATH", libraries)
            .env("FAKE_DEVICE_COUNT", "2")
            .env("FAKE_DEVICE_REPORT", &report)
            .env("FAKE_DEVICE_TRACE", directory.join("trace"))
            .stderr(output.try_clone().unwrap())
            .stdout(output)
            .spawn()
            .unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > HARD_LIMIT {
                child.kill().unwrap();
                panic!(
                    "{backend}: {test} hangs: {}",
                    std::fs::read_to_string(&log).unwrap()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(
            status.success(),
            "{backend}: {test}: {}",
            std::fs::read_to_string(&log).unwrap()
        );
        let report = std::fs::read_to_string(&report).unwrap();
        assert!(
            !report.contains("violation:"),
            "{backend}: {test}: {report}"
        );
        assert!(
            !report.contains("live: modules"),
            "{backend}: {test}: {report}"
        );
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
