//! Measures the host backend: put-with-signal ping-pong between two ranks, and the rates of puts and gets beside
//! `memcpy` between the same buffers.
//!
//! `cargo run --release -p symmem-core --example host_backend_speed`

use std::error::Error;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Instant;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Device, RemoteAccess, Signals, SymmetricMemory};
use symmem_core::host::HostBackend;

const LARGEST: u64 = 64 << 20;
const DATA: u64 = 4096;
const ROUNDS: usize = 50_000;

struct Rank {
    backend: HostBackend,
    own: SharedAllocation,
    peer: DeviceAddress,
    epochs: HostMemory,
}

fn open() -> CallResult<(HostBackend, SharedAllocation)> {
    let backend = HostBackend::open(&OpenOptions {
        size: size_of::<OpenOptions>() as u32,
        ordinal: 0,
        rank: 0,
        local_world: 2,
        services: std::ptr::null(),
    })?;
    let own = backend.allocate(ShareKindCode::MEMORY_FILE, DATA + LARGEST)?;
    Ok((backend, own))
}

fn map(
    exporter: &HostBackend,
    own: SharedAllocation,
    by: &HostBackend,
) -> CallResult<DeviceAddress> {
    // SAFETY: the allocation is live, and this function owns the exported descriptor.
    unsafe {
        let handle = exporter.export(own.handle)?;
        let _descriptor = OwnedFd::from_raw_fd(handle.descriptor);
        Ok(by.import(&handle)?.address)
    }
}

fn plain(destination: u64, source: u64, bytes: u64) -> Transfer {
    Transfer {
        destination: DeviceAddress(destination),
        source: DeviceAddress(source),
        bytes,
        row: TransferRow {
            bytes: u64::MAX,
            method: MethodCode::VECTOR,
            blocks: 1,
            threads: 1,
            ..TransferRow::default()
        },
        ..Transfer::default()
    }
}

/// Returns the sorted times, in ns, of round trips: put 8 bytes with a signal, wait for the peer's signal,
/// synchronize.
fn ping_pong(rank: &Rank, first: bool) -> CallResult<Vec<u64>> {
    let mut put = plain(rank.peer.0 + DATA, rank.own.address.0 + DATA, 8);
    put.signal.word = rank.peer;
    put.signal.epoch = rank.epochs.device;
    let wait = SignalWait {
        word: rank.own.address,
        epoch: DeviceAddress(rank.epochs.device.0 + 4),
        watch: Watch {
            deadline_ns: 10_000_000_000,
            ..Watch::default()
        },
        ..SignalWait::default()
    };
    let backend = &rank.backend;
    let stream = backend.stream_create()?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        // SAFETY: all memory outlives the stream, which is idle at the end of each round.
        unsafe {
            if first {
                backend.transfer(&put, stream)?;
            }
            backend.signal_wait(&wait, SignalPlacementCode::DEVICE, stream)?;
            if !first {
                backend.transfer(&put, stream)?;
            }
            while !backend.stream_idle(stream)? {}
        }
        times.push(start.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    Ok(times)
}

/// Returns the median time of each copy, in ns. The copies take turns, so that all see the same machine.
fn medians(copies: [&dyn Fn() -> CallResult<()>; 3], bytes: u64) -> CallResult<[f64; 3]> {
    let loops = (LARGEST / bytes).clamp(1, 32);
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..21 {
        for (copy, times) in copies.iter().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..loops {
                copy()?;
            }
            times.push(start.elapsed().as_nanos() as f64 / loops as f64);
        }
    }
    Ok(times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let ((a, own_a), (b, own_b)) = (open()?, open()?);
    let (peer_of_a, peer_of_b) = (map(&b, own_b, &a)?, map(&a, own_a, &b)?);
    let rank = |backend: HostBackend, own, peer| -> CallResult<Rank> {
        let epochs = backend.host_allocate(4096)?;
        Ok(Rank {
            backend,
            own,
            peer,
            epochs,
        })
    };
    let (a, b) = (rank(a, own_a, peer_of_a)?, rank(b, own_b, peer_of_b)?);

    let times = std::thread::scope(|scope| {
        let peer = scope.spawn(|| ping_pong(&b, false));
        let times = ping_pong(&a, true);
        // A panic of the peer's thread is a panic here.
        peer.join().expect("the peer's thread panicked").and(times)
    })?;
    let percentile = |part: usize| times[(times.len() - 1) * part / 100] as f64 / 2.0;
    println!(
        "put-with-signal, one way: p10 {:.0} ns, median {:.0} ns, p90 {:.0} ns, p99 {:.0} ns",
        percentile(10),
        percentile(50),
        percentile(90),
        percentile(99)
    );

    println!(
        "{:>10} {:>12} {:>12} {:>12} {:>7} {:>7}",
        "bytes", "memcpy GB/s", "put GB/s", "get GB/s", "put", "get"
    );
    for bytes in [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, LARGEST] {
        let (own, peer) = (a.own.address.0 + DATA, a.peer.0 + DATA);
        let memcpy = || {
            // SAFETY: both ranges are mapped and disjoint, and no other thread uses them now.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    std::ptr::with_exposed_provenance::<u8>(own as usize),
                    std::ptr::with_exposed_provenance_mut::<u8>(peer as usize),
                    bytes as usize,
                );
            }
            Ok(())
        };
        let backend = &a.backend;
        let transfer = |transfer: Transfer| {
            // SAFETY: both ranges are mapped and disjoint, and no other thread uses them now.
            move || unsafe { backend.transfer(&transfer, RawStream::NULL) }
        };
        let (put, get) = (
            transfer(plain(peer, own, bytes)),
            transfer(plain(own, peer, bytes)),
        );
        let [memcpy, put, get] = medians([&memcpy, &put, &get], bytes)?;
        let rate = |time: f64| bytes as f64 / time;
        println!(
            "{bytes:>10} {:>12.2} {:>12.2} {:>12.2} {:>7.2} {:>7.2}",
            rate(memcpy),
            rate(put),
            rate(get),
            memcpy / put,
            memcpy / get
        );
    }
    Ok(())
}
