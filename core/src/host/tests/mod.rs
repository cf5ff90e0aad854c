//! The host backend as its callers use it: ranks are instances that map each other's memory.
//!
//! Under Miri, which has no memfd, the ranks share ordinary memory.

mod bounds;
mod collectives;
mod failures;
mod graphs;
mod lamport;
mod lamport_moves;
mod memory;
mod moves;
mod reduced;
mod signals;
mod streams;
mod words;

use super::HostBackend;
use super::progress::word_at;
use crate::backend::abi::*;
use crate::backend::{Device, Signals, SymmetricMemory};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Offsets in each rank's shared memory.
pub(super) const BARRIER_WORDS: u64 = 0;
pub(super) const SIGNAL_WORDS: u64 = 16 * 1024;
pub(super) const DATA: u64 = 32 * 1024;
const SHARED_BYTES: u64 = 64 * 1024;

/// Offsets in each rank's own memory.
pub(super) const BARRIER_EPOCH: u64 = 0;
pub(super) const GIVE_EPOCH: u64 = 4;
pub(super) const WAIT_EPOCH: u64 = 8;
pub(super) const ABORT: u64 = 128;
pub(super) const RECORD: u64 = 256;
pub(super) const ABORTED: u64 = 384;

pub(super) const LONG: Duration = Duration::from_secs(20);

pub(super) fn options(local_world: u32) -> OpenOptions {
    OpenOptions {
        size: size_of::<OpenOptions>() as u32,
        ordinal: 0,
        rank: 0,
        local_world,
        services: std::ptr::null(),
    }
}

pub(super) struct Rank {
    pub(super) backend: HostBackend,
    pub(super) rank: u32,
    /// Every rank's shared memory, as this rank addresses it.
    pub(super) bases: Vec<DeviceAddress>,
    /// This rank's own memory.
    pub(super) own: HostMemory,
}

/// Opens `ranks` instances that have mapped each other's memory. Nothing is unmapped: the process ends.
pub(super) fn world(ranks: u32) -> Vec<Rank> {
    world_with(ranks, SHARED_BYTES)
}

/// Like [`world`], with `bytes` of shared memory per rank.
pub(super) fn world_with(ranks: u32, bytes: u64) -> Vec<Rank> {
    let backends: Vec<_> = (0..ranks)
        .map(|_| HostBackend::open(&options(ranks)).unwrap())
        .collect();
    let allocations: Vec<_> = backends
        .iter()
        .map(|backend| {
            if cfg!(miri) {
                let memory = backend.host_allocate(bytes).unwrap();
                return SharedAllocation {
                    address: memory.device,
                    ..SharedAllocation::default()
                };
            }
            backend.allocate(ShareKindCode::MEMORY_FILE, bytes).unwrap()
        })
        .collect();
    let bases: Vec<Vec<_>> = (0..backends.len())
        .map(|rank| {
            (0..backends.len())
                .map(|peer| {
                    if peer == rank || cfg!(miri) {
                        return allocations[peer].address;
                    }
                    let (exporter, importer) = (&backends[peer], &backends[rank]);
                    memory::hand_over(exporter, allocations[peer].handle, importer).address
                })
                .collect()
        })
        .collect();
    backends
        .into_iter()
        .zip(bases)
        .enumerate()
        .map(|(rank, (backend, bases))| Rank {
            own: backend.host_allocate(4096).unwrap(),
            backend,
            rank: rank as u32,
            bases,
        })
        .collect()
}

pub(super) fn read(address: DeviceAddress) -> u32 {
    // SAFETY: tests pass live words.
    unsafe { word_at(address) }.load(Ordering::Acquire)
}

pub(super) fn write(address: DeviceAddress, value: u32) {
    // SAFETY: tests pass live words.
    unsafe { word_at(address) }.store(value, Ordering::Release);
}

impl Rank {
    pub(super) fn at(&self, rank: u32, offset: u64) -> DeviceAddress {
        DeviceAddress(self.bases[rank as usize].0 + offset)
    }

    pub(super) fn mine(&self, offset: u64) -> DeviceAddress {
        DeviceAddress(self.own.device.0 + offset)
    }

    pub(super) fn stream(&self) -> RawStream {
        self.backend.stream_create().unwrap()
    }

    pub(super) fn watch(&self, deadline: Duration) -> Watch {
        Watch {
            abort: self.mine(ABORT),
            record: self.mine(RECORD),
            aborted: self.mine(ABORTED),
            deadline_ns: deadline.as_nanos() as u64,
            rank: self.rank,
            reserved: 0,
        }
    }

    /// A signal from this rank to `peer`.
    pub(super) fn target(&self, peer: u32) -> SignalTarget {
        SignalTarget {
            word: self.at(peer, SIGNAL_WORDS + u64::from(self.rank) * SIGNAL_STRIDE),
            epoch: self.mine(GIVE_EPOCH),
            ..SignalTarget::default()
        }
    }

    /// A wait for the signal from `peer`.
    pub(super) fn wait(&self, peer: u32, deadline: Duration) -> SignalWait {
        SignalWait {
            word: self.at(self.rank, SIGNAL_WORDS + u64::from(peer) * SIGNAL_STRIDE),
            epoch: self.mine(WAIT_EPOCH),
            watch: self.watch(deadline),
            peer,
            slot: 5,
            ..SignalWait::default()
        }
    }

    pub(super) fn barrier(&self, deadline: Duration) -> Barrier {
        let mut peers = [DeviceAddress::NULL; MAX_RANKS];
        for (peer, word) in peers.iter_mut().enumerate().take(self.bases.len()) {
            let offset = BARRIER_WORDS + u64::from(self.rank) * SIGNAL_STRIDE;
            *word = self.at(peer as u32, offset);
        }
        Barrier {
            watch: self.watch(deadline),
            epoch: self.mine(BARRIER_EPOCH),
            own: self.at(self.rank, BARRIER_WORDS),
            peers,
            world: self.bases.len() as u32,
            slot: 9,
        }
    }

    pub(super) fn transfer(
        &self,
        destination: DeviceAddress,
        source: DeviceAddress,
        bytes: u64,
    ) -> Transfer {
        let row = TransferRow {
            bytes: u64::MAX,
            method: MethodCode::VECTOR,
            blocks: 1,
            threads: 128,
            ..TransferRow::default()
        };
        Transfer {
            destination,
            source,
            bytes,
            row,
            ..Transfer::default()
        }
    }

    pub(super) fn give(&self, peer: u32, stream: RawStream) {
        let target = self.target(peer);
        // SAFETY: the words outlive the test's streams.
        unsafe {
            self.backend
                .signal_give(&target, SignalPlacementCode::DEVICE, stream)
                .unwrap();
        }
    }

    pub(super) fn await_signal(&self, peer: u32, deadline: Duration, stream: RawStream) {
        let wait = self.wait(peer, deadline);
        // SAFETY: the words outlive the test's streams.
        unsafe {
            self.backend
                .signal_wait(&wait, SignalPlacementCode::DEVICE, stream)
                .unwrap();
        }
    }

    pub(super) fn idle(&self, stream: RawStream) -> bool {
        // SAFETY: the stream is live.
        unsafe { self.backend.stream_idle(stream).unwrap() }
    }

    pub(super) fn synchronize(&self, stream: RawStream) {
        let start = Instant::now();
        while !self.idle(stream) {
            assert!(start.elapsed() < 2 * LONG, "the stream never became idle");
            std::thread::yield_now();
        }
    }

    /// Whether the stream has started its thread.
    pub(super) fn has_thread(&self, stream: RawStream) -> bool {
        // SAFETY: the stream is live.
        unsafe { self.backend.stream(stream, "test").unwrap() }.has_thread()
    }

    pub(super) fn record(&self) -> WaitRecord {
        let field = |index: u64| read(self.mine(RECORD + 4 * index));
        WaitRecord {
            state: field(0),
            kind: field(1),
            rank: field(2),
            peer: field(3),
            slot: field(4),
            expected: field(5),
            seen: field(6),
            reason: field(7),
            elapsed_ns: u64::from(field(8)) | u64::from(field(9)) << 32,
        }
    }
}
