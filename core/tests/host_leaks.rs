//! The host backend leaks nothing. This is a single test, so that the process does nothing else.
#![cfg(not(any(loom, miri)))]

use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use symmem_core::backend::abi::*;
use symmem_core::backend::{Device, Signals, SymmetricMemory};
use symmem_core::host::HostBackend;

fn entries(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("symmem")).count()
}

fn threads_of_streams() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim() == "symmem-stream")
        .count()
}

fn round(backends: &[HostBackend; 2]) {
    let [owner, peer] = backends;
    // SAFETY: each handle is live, used in order, and given up once.
    unsafe {
        let allocation = owner.allocate(ShareKindCode::MEMORY_FILE, 8192).unwrap();
        let range = owner
            .register(ShareKindCode::MEMORY_FILE, allocation.address, 100)
            .unwrap();
        let handle = owner.export(range.handle).unwrap();
        let descriptor = OwnedFd::from_raw_fd(handle.descriptor);
        let mapping = peer.import(&handle).unwrap();
        drop(descriptor);
        peer.unmap(mapping.handle).unwrap();
        owner.free(range.handle).unwrap();
        owner.free(allocation.handle).unwrap();
    }
}

fn stream_with_a_thread(backend: &HostBackend) {
    let memory = backend.host_allocate(4096).unwrap();
    // SAFETY: the memory lives until the stream is idle; each handle is given up once.
    unsafe {
        let stream = backend.stream_create().unwrap();
        let event = backend.event_create().unwrap();
        let value = 1;
        let wait = SignalWait {
            word: memory.device,
            value,
            ..SignalWait::default()
        };
        let give = SignalTarget {
            word: memory.device,
            value,
            ..SignalTarget::default()
        };
        let placement = SignalPlacementCode::HOST;
        backend.signal_wait(&wait, placement, stream).unwrap();
        backend.event_record(event, stream).unwrap();
        backend
            .signal_give(&give, placement, RawStream::NULL)
            .unwrap();
        while !backend.stream_idle(stream).unwrap() {}
        backend.event_destroy(event).unwrap();
        backend.stream_destroy(stream).unwrap();
        backend.host_free(memory).unwrap();
    }
}

#[test]
fn ten_thousand_rounds_leave_descriptors_mappings_and_threads_as_they_were() {
    let open = || {
        let options = OpenOptions {
            size: size_of::<OpenOptions>() as u32,
            ordinal: 0,
            rank: 0,
            local_world: 2,
            services: std::ptr::null(),
        };
        HostBackend::open(&options).unwrap()
    };
    let backends = [open(), open()];
    round(&backends);
    let before = (entries("/proc/self/fd"), mappings());
    for _ in 0..10_000 {
        round(&backends);
    }
    assert_eq!((entries("/proc/self/fd"), mappings()), before);

    for _ in 0..50 {
        stream_with_a_thread(&backends[0]);
    }
    let start = std::time::Instant::now();
    while threads_of_streams() > 0 {
        assert!(start.elapsed().as_secs() < 5, "a stream's thread stayed");
        std::thread::yield_now();
    }
}
