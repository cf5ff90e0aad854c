//! Measures collectives on the host backend, by algorithm and size. The selector's table for the host comes from here.
//!
//! `cargo run --release -p symmem-core --example host_collective_speed [RANKS [OP [LARGEST]]]`
//!
//! Prints the mean time of back-to-back calls in µs, of the slowest rank. The algorithms take turns, and the best turn
//! counts, because other work on the machine only adds time.

use std::error::Error;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, CollectiveKernels, Device, SymmetricMemory};
use symmem_core::host::HostBackend;

const LARGEST: u64 = 16 << 20;
const PACKET_BYTES: u32 = 64 << 10;
const SLOTS: u64 = SLOT_BLOCKS as u64 * SLOT_BYTES + PACKET_BLOCKS as u64 * PACKET_BYTES as u64;
const INPUT: u64 = SLOTS;
const OUTPUT: u64 = INPUT + LARGEST;
const BYTES: u64 = OUTPUT + LARGEST;
const TURNS: usize = 9;

struct Rank {
    backend: HostBackend,
    rank: u32,
    bases: Vec<DeviceAddress>,
    stream: RawStream,
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
}

const OPERATIONS: [(&str, Operation, &[AlgorithmCode]); 4] = [
    (
        "all_reduce",
        Operation::AllReduce,
        &[
            AlgorithmCode::PACKETS,
            AlgorithmCode::PACKETS_TWO_SHOT,
            AlgorithmCode::ONE_SHOT,
            AlgorithmCode::TWO_SHOT,
        ],
    ),
    (
        "all_gather",
        Operation::AllGather,
        &[
            AlgorithmCode::PACKETS,
            AlgorithmCode::PUSH,
            AlgorithmCode::PULL,
        ],
    ),
    (
        "reduce_scatter",
        Operation::ReduceScatter,
        &[AlgorithmCode::PACKETS, AlgorithmCode::ONE_SHOT],
    ),
    (
        "all_to_all",
        Operation::AllToAll,
        &[
            AlgorithmCode::PACKETS,
            AlgorithmCode::PUSH,
            AlgorithmCode::PULL,
        ],
    ),
];

/// A collective call with its arguments.
#[allow(clippy::large_enum_variant, reason = "one at a time")]
enum Call {
    Move(MoveArguments),
    Packets(PacketArguments),
    Reduce(ReduceArguments),
    ReducePackets(ReducePacketArguments),
}

impl Rank {
    fn at(&self, rank: u32, offset: u64) -> DeviceAddress {
        DeviceAddress(self.bases[rank as usize].0 + offset)
    }

    fn world(&self) -> u32 {
        self.bases.len() as u32
    }

    fn group(&self) -> CollectiveGroup {
        let mut slots = [DeviceAddress::NULL; MAX_RANKS];
        slots[..self.bases.len()].copy_from_slice(&self.bases);
        CollectiveGroup {
            watch: Watch {
                deadline_ns: 10_000_000_000,
                rank: self.rank,
                ..Watch::default()
            },
            slots,
            packet_bytes: PACKET_BYTES,
            dependents: DependentsCode::ANSWERED,
            rank: self.rank,
            world: self.world(),
            slot: 0,
            operation: CollectiveOperationCode::ALL_REDUCE,
            members: std::array::from_fn(|member| member as u8),
        }
    }

    /// Returns the offset and size, in bytes, of a member's part: whole elements.
    fn part(&self, bytes: u64, member: u32) -> (u64, u64) {
        let (elements, world) = (bytes / 4, u64::from(self.world()));
        let first = |member: u64| elements * member / world * 4;
        let member = u64::from(member);
        (first(member), first(member + 1) - first(member))
    }

    fn call(&self, operation: Operation, algorithm: AlgorithmCode, bytes: u64) -> Call {
        let group = self.group();
        let me = self.rank as usize;
        let mut sources = [DeviceAddress::NULL; MAX_RANKS];
        let mut destinations = sources;
        let mut sizes = [0; MAX_RANKS];
        let mut received = [0; MAX_RANKS];
        let (own_at, own) = self.part(bytes, self.rank);
        for member in 0..self.world() {
            let index = member as usize;
            let (at, part) = self.part(bytes, member);
            let (source, destination, size) = match (operation, algorithm) {
                (Operation::AllReduce, AlgorithmCode::PACKETS) => {
                    (self.at(self.rank, INPUT), self.at(self.rank, OUTPUT), bytes)
                }
                (Operation::AllReduce, AlgorithmCode::PACKETS_TWO_SHOT) => (
                    self.at(self.rank, INPUT + at),
                    self.at(self.rank, OUTPUT + at),
                    part,
                ),
                (Operation::AllReduce, AlgorithmCode::ONE_SHOT) => {
                    (self.at(member, INPUT), DeviceAddress::NULL, bytes)
                }
                (Operation::AllReduce, _) => (
                    self.at(member, INPUT + own_at),
                    self.at(member, OUTPUT + own_at),
                    own,
                ),
                (Operation::ReduceScatter, AlgorithmCode::PACKETS) => (
                    self.at(self.rank, INPUT + at),
                    self.at(self.rank, OUTPUT),
                    part,
                ),
                (Operation::ReduceScatter, _) => {
                    (self.at(member, INPUT + own_at), DeviceAddress::NULL, own)
                }
                (Operation::AllGather, AlgorithmCode::PACKETS) => (
                    self.at(self.rank, INPUT),
                    self.at(self.rank, OUTPUT + at),
                    own,
                ),
                (Operation::AllGather, AlgorithmCode::PUSH) => (
                    self.at(self.rank, INPUT),
                    self.at(member, OUTPUT + own_at),
                    own,
                ),
                (Operation::AllGather, _) => (
                    self.at(member, INPUT),
                    self.at(self.rank, OUTPUT + at),
                    part,
                ),
                (Operation::AllToAll, AlgorithmCode::PACKETS) => (
                    self.at(self.rank, INPUT + at),
                    self.at(self.rank, OUTPUT + at),
                    part,
                ),
                (Operation::AllToAll, AlgorithmCode::PUSH) => (
                    self.at(self.rank, INPUT + at),
                    self.at(member, OUTPUT + own_at),
                    part,
                ),
                (Operation::AllToAll, _) => (
                    self.at(member, INPUT + own_at),
                    self.at(self.rank, OUTPUT + at),
                    part,
                ),
            };
            (sources[index], destinations[index], sizes[index]) = (source, destination, size);
            received[index] = part;
        }
        let (element, reduce) = (ElementTypeCode::F32, ReduceOpCode::SUM);
        match (operation, algorithm) {
            (Operation::AllReduce | Operation::ReduceScatter, AlgorithmCode::PACKETS)
            | (_, AlgorithmCode::PACKETS_TWO_SHOT) => Call::ReducePackets(ReducePacketArguments {
                group,
                sources,
                destinations,
                counts: sizes.map(|bytes| bytes / 4),
                element,
                reduce,
                two_shot: (algorithm == AlgorithmCode::PACKETS_TWO_SHOT).into(),
                reserved: 0,
            }),
            (Operation::AllReduce | Operation::ReduceScatter, _) => {
                if algorithm == AlgorithmCode::ONE_SHOT {
                    destinations[me] = self.at(self.rank, OUTPUT);
                }
                Call::Reduce(ReduceArguments {
                    group,
                    sources,
                    destinations,
                    count: sizes[me] / 4,
                    element,
                    reduce,
                })
            }
            (_, AlgorithmCode::PACKETS) => Call::Packets(PacketArguments {
                group,
                sources,
                destinations,
                send_bytes: sizes,
                receive_bytes: received,
            }),
            _ => Call::Move(MoveArguments {
                group,
                destinations,
                sources,
                bytes: sizes,
                copies: self.world(),
                concurrent: self.world(),
            }),
        }
    }

    /// Returns the mean time of back-to-back calls.
    fn measure(&self, call: &Call, calls: u32, together: &Barrier) -> CallResult<Duration> {
        let geometry = Geometry::default();
        let run = || {
            // SAFETY: all memory outlives the stream.
            unsafe {
                match call {
                    Call::Move(a) => self.backend.collective_move(a, &geometry, self.stream)?,
                    Call::Packets(a) => {
                        self.backend.collective_packets(a, &geometry, self.stream)?;
                    }
                    Call::Reduce(a) => self.backend.collective_reduce(a, &geometry, self.stream)?,
                    Call::ReducePackets(a) => {
                        self.backend
                            .collective_reduce_packets(a, &geometry, self.stream)?;
                    }
                }
                while !self.backend.stream_idle(self.stream)? {}
            }
            Ok(())
        };
        for _ in 0..calls / 10 + 1 {
            run()?;
        }
        together.wait();
        run()?;
        let start = Instant::now();
        for _ in 0..calls {
            run()?;
        }
        Ok(start.elapsed() / calls)
    }
}

fn open(world: u32) -> CallResult<Vec<Rank>> {
    let mut backends = Vec::new();
    for rank in 0..world {
        let backend = HostBackend::open(&OpenOptions {
            size: size_of::<OpenOptions>() as u32,
            ordinal: 0,
            rank,
            local_world: world,
            services: std::ptr::null(),
        })?;
        let own = backend.allocate(ShareKindCode::MEMORY_FILE, BYTES)?;
        backends.push((backend, own));
    }
    let mut bases = vec![Vec::new(); world as usize];
    for (rank, bases) in bases.iter_mut().enumerate() {
        for (peer, (exporter, own)) in backends.iter().enumerate() {
            if peer == rank {
                bases.push(own.address);
                continue;
            }
            // SAFETY: the allocation is live, and this function owns the exported descriptor.
            unsafe {
                let handle = exporter.export(own.handle)?;
                let _descriptor = OwnedFd::from_raw_fd(handle.descriptor);
                bases.push(backends[rank].0.import(&handle)?.address);
            }
        }
    }
    let ranks = backends.into_iter().zip(bases).enumerate();
    ranks
        .map(|(rank, ((backend, _), bases))| {
            let stream = backend.stream_create()?;
            let rank = rank as u32;
            Ok(Rank {
                backend,
                rank,
                bases,
                stream,
            })
        })
        .collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let world = arguments.next().map_or(Ok(2), |ranks| ranks.parse())?;
    let only = arguments.next();
    let largest = arguments
        .next()
        .map_or(Ok(LARGEST), |bytes| bytes.parse())?;
    let ranks = open(world)?;
    for (name, operation, algorithms) in OPERATIONS {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        print!("{name:>15}");
        for algorithm in algorithms {
            print!(" {:>17}", algorithm.name());
        }
        println!();
        for power in 3..=largest.min(LARGEST).ilog2() {
            let bytes = 1u64 << power;
            let calls = (4_000_000 / (bytes + 1000)).clamp(4, 4000) as u32;
            let mut times = vec![Vec::new(); algorithms.len()];
            for _ in 0..TURNS {
                for (algorithm, times) in algorithms.iter().zip(&mut times) {
                    let together = Barrier::new(world as usize);
                    let slowest = std::thread::scope(|scope| {
                        let together = &together;
                        let threads: Vec<_> = ranks
                            .iter()
                            .map(|rank| {
                                let call = rank.call(operation, *algorithm, bytes);
                                scope.spawn(move || rank.measure(&call, calls, together))
                            })
                            .collect();
                        // A panic of a rank's thread is a panic here.
                        let mut times = threads
                            .into_iter()
                            .map(|t| t.join().expect("a rank panicked"));
                        times.try_fold(Duration::ZERO, |most, time| CallResult::Ok(most.max(time?)))
                    })?;
                    times.push(slowest);
                }
            }
            print!("{bytes:>15}");
            for times in &mut times {
                times.sort_unstable();
                print!(" {:>17.3}", times[0].as_nanos() as f64 / 1e3);
            }
            println!();
        }
    }
    Ok(())
}
