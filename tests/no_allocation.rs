//! After a stream's first calls, put, get, signals, words, their waits, barriers and collectives allocate nothing on
//! the calling thread.

#[path = "gemm/counting.rs"]
mod counting;
#[allow(dead_code, reason = "these tests use the fake runtimes only")]
mod support;

use counting::ALLOCATIONS;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::hip::{Release, fake_hip};
use symmem::backend::abi::CAPABILITY_COPY_ENGINE;
use symmem::backends::Selection;
use symmem::{
    Algorithm, Builder, CollectiveOptions, Communicator, Condition, LaunchEnvironment, Queue,
    ReduceOp, SignalPlacement, SymmetricBuffer,
};

const RANKS: u32 = 2;

type Buffer = SymmetricBuffer<u32>;

#[test]
fn the_counter_sees_an_allocation() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get(), before + 1);
}

#[test]
fn on_the_host_backend() {
    ranks("host");
}

#[test]
fn on_cuda_over_the_fake_driver() {
    all_on("cuda_ranks", support::fake_driver());
}

#[test]
fn on_hip_over_the_fake_runtime() {
    all_on("hip_ranks", fake_hip(Release::Seven));
}

/// Runs `ranks` in a child process, because an environment variable selects the driver.
fn all_on(ranks: &str, libraries: &Path) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([ranks, "--exact", "--ignored", "--nocapture"])
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("FAKE_DEVICE_COUNT", RANKS.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
#[ignore = "run by on_cuda_over_the_fake_driver"]
fn cuda_ranks() {
    ranks("cuda");
}

#[test]
#[ignore = "run by on_hip_over_the_fake_runtime"]
fn hip_ranks() {
    ranks("hip");
}

/// Runs ranks as threads, each of which counts its own allocations, wherever signals live.
fn ranks(backend: &str) {
    for placement in [SignalPlacement::Device, SignalPlacement::Host] {
        ranks_with(backend, placement);
    }
}

fn ranks_with(backend: &str, placement: SignalPlacement) {
    let process = std::process::id();
    let job = format!("no-allocation-{process}-{backend}-{placement:?}");
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let job = job.clone();
            scope.spawn(move || {
                let communicator = Builder::new()
                    .launch(LaunchEnvironment::local(rank, RANKS, job).unwrap())
                    .backend(Selection::Named(backend.into()))
                    .signal_placement(placement)
                    .deadline(Duration::from_secs(20))
                    .build()
                    .unwrap();
                calls_allocate_nothing(&communicator);
                communicator.finalize().unwrap();
            });
        }
    });
}

fn calls_allocate_nothing(communicator: &Communicator) {
    const CHANNEL: u32 = 1;
    let peer = 1 - communicator.rank();
    let stream = communicator.stream().unwrap();
    let inbox = communicator.allocate::<u32>(&[1024]).unwrap();
    let outbox = communicator.allocate::<u32>(&[1024]).unwrap();
    let named = |algorithm| CollectiveOptions::new().algorithm(algorithm);
    let has_engine = communicator.capabilities().flags & CAPABILITY_COPY_ENGINE != 0;
    let collectives = |queue: &Queue, inbox: &Buffer, outbox: &Buffer| {
        for algorithm in [Algorithm::Ll, Algorithm::TwoShot] {
            let options = named(algorithm);
            let sum = ReduceOp::Sum;
            queue
                .with(&options)
                .all_reduce(inbox.all(), outbox.all(), sum)?;
        }
        let half = outbox.slice(..512)?;
        for algorithm in [Algorithm::Push, Algorithm::CopyEngine] {
            if algorithm != Algorithm::CopyEngine || has_engine {
                // On side streams, too.
                let options = named(algorithm).concurrent(2);
                queue.with(&options).all_gather(inbox.all(), half)?;
            }
        }
        let mut exchange = queue.exchange();
        exchange.send(peer, outbox.all())?;
        exchange.recv(peer, inbox.all())?;
        exchange.enqueue()
    };
    let words = communicator.allocate::<u64>(&[3]).unwrap();
    let index = communicator.allocate::<u32>(&[1]).unwrap();
    let all_calls = || {
        stream.put(peer, inbox.all(), outbox.all())?;
        stream.get(peer, inbox.all(), outbox.all())?;
        stream.put_signal(peer, inbox.all(), outbox.all(), CHANNEL)?;
        stream.wait_signal(peer, CHANNEL)?;
        stream.barrier()?;
        collectives(&stream, &inbox, &outbox)?;
        stream.signal_add(peer, words.slice(..1)?, 1)?;
        stream.wait_all(words.slice(..1)?, 1, Condition::Greater, 0)?;
        stream.atomic_fetch_add(peer, words.slice(1..2)?, 1, Some(words.slice(2..3)?))?;
        stream.wait_any(
            words.all(),
            1,
            Condition::NotEqual,
            u64::MAX,
            Some(index.all()),
        )?;
        stream.synchronize()
    };
    // The first wait that blocks starts the host stream's thread and creates its queue, so each rank in turn arrives
    // late.
    for round in 0..10 {
        communicator.host_barrier().unwrap();
        if round % 2 == communicator.rank() {
            std::thread::sleep(Duration::from_millis(5));
        }
        all_calls().unwrap();
    }
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        all_calls().unwrap();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations in 100 rounds");
    inbox.free().unwrap();
    outbox.free().unwrap();
    words.free().unwrap();
    index.free().unwrap();
}
