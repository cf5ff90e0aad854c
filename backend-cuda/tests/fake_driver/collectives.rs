//! Collectives, steps and words between ranks of one process, over the fake driver, whose kernels do what the
//! real ones do.

use crate::collectives_tests;
use crate::support::tell_result;
use crate::world::{World, read, write};
use std::time::Duration;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, CollectiveKernels, Device, Failure, Signals};

/// Elements of a rank's part: more than one round of packets, and a tail.
const COUNT: u64 = 3001;
const PACKET_BYTES: u32 = 8 << 10;
const SLOTS: u64 = SLOT_BLOCKS as u64 * SLOT_BYTES + PACKET_BLOCKS as u64 * PACKET_BYTES as u64;
/// Offsets in each rank's memory behind the slots: inputs, outputs, and words.
const SOURCE: u64 = SLOTS.next_multiple_of(1 << 20);
const DESTINATION: u64 = SOURCE + (1 << 20);
const WORDS: u64 = DESTINATION + (1 << 20);
const BYTES: u64 = WORDS + (1 << 16);
const DEADLINE_NS: u64 = 10_000_000_000;
/// Time after which a child counts as hung.
const LIMIT: Duration = Duration::from_secs(60);

/// The ranks' memory and streams.
pub struct Ranks {
    pub world: World,
    count: usize,
    /// `[rank][peer]`: address of the peer's memory at this rank.
    pub memory: Vec<Vec<u64>>,
    pub streams: Vec<RawStream>,
    staging: Vec<HostMemory>,
    pub control: Vec<HostMemory>,
    dependents: DependentsCode,
}

/// Runs a role named `collectives …`.
pub fn role(words: &[&str]) {
    std::thread::spawn(|| {
        std::thread::sleep(LIMIT);
        eprintln!("the role hangs");
        std::process::exit(3);
    });
    let body = match words[0] {
        "everything" => everything,
        "plain" => plain,
        "barriers" => barriers,
        "refused" => collectives_tests::refused,
        "timeout" => collectives_tests::timeout,
        other => panic!("no such role: {other}"),
    };
    let count = words[1].parse().expect("a number");
    let result = Ranks::open(count).and_then(|mut ranks| {
        let done = body(&mut ranks);
        done.and(ranks.world.give_back())
    });
    tell_result(result);
}

fn everything(ranks: &mut Ranks) -> CallResult<()> {
    for round in 0..2 {
        ranks.gathers(round)?;
        ranks.exchanges_parts(round)?;
        ranks.swaps(round)?;
    }
    for element in 1..=ElementTypeCode::F8_E5M2.0 {
        ranks.reduces(ElementTypeCode(element), 0)?;
        ranks.reduces_in_packets(ElementTypeCode(element), 0, element % 2)?;
    }
    ranks.sends_round()?;
    ranks.steps()?;
    ranks.words()?;
    ranks.replays()
}

/// Collectives beside which nothing runs.
fn plain(ranks: &mut Ranks) -> CallResult<()> {
    ranks.dependents = DependentsCode::NEVER;
    ranks.gathers(0)?;
    ranks.exchanges_parts(0)?;
    ranks.swaps(0)?;
    ranks.reduces(ElementTypeCode::F32, 0)?;
    ranks.reduces_in_packets(ElementTypeCode::F32, 0, 1)?;
    ranks.sends_round()
}

/// Kernels of one block, which no caller's choice of dependents reaches.
fn barriers(ranks: &mut Ranks) -> CallResult<()> {
    ranks.dependents = DependentsCode::NEVER;
    ranks.meets()?;
    ranks.steps()
}

impl Ranks {
    fn open(count: usize) -> CallResult<Self> {
        let mut world = World::open(0..count as u32)?;
        let mut own = Vec::new();
        for rank in 0..count {
            own.push(world.allocate(rank, ShareKindCode::VMM_FILE_DESCRIPTOR, BYTES)?);
        }
        let mut ranks = Self {
            world,
            count,
            memory: Vec::new(),
            streams: Vec::new(),
            staging: Vec::new(),
            control: Vec::new(),
            dependents: DependentsCode::ANSWERED,
        };
        for rank in 0..count {
            let mut row = Vec::new();
            for (peer, allocation) in own.iter().enumerate() {
                row.push(match peer == rank {
                    true => allocation.address.0,
                    false => ranks.world.map(peer, allocation.handle, rank)?.address.0,
                });
            }
            ranks.memory.push(row);
            ranks.streams.push(ranks.world.stream(rank)?);
            ranks.staging.push(ranks.world.host(rank, 1 << 18)?);
            ranks.control.push(ranks.world.host(rank, 4096)?);
        }
        Ok(ranks)
    }

    fn watch(&self, rank: usize) -> Watch {
        let control = self.control[rank].device.0;
        Watch {
            abort: DeviceAddress(control),
            record: DeviceAddress(control + 128),
            aborted: DeviceAddress::NULL,
            deadline_ns: DEADLINE_NS,
            rank: rank as u32,
            reserved: 0,
        }
    }

    pub fn group(&self, rank: usize, operation: CollectiveOperationCode) -> CollectiveGroup {
        let mut group = CollectiveGroup {
            watch: self.watch(rank),
            slots: [DeviceAddress::NULL; MAX_RANKS],
            packet_bytes: PACKET_BYTES,
            dependents: self.dependents,
            rank: rank as u32,
            world: self.count as u32,
            slot: 0,
            operation,
            members: [0; MAX_RANKS],
        };
        for peer in 0..self.count {
            group.slots[peer] = DeviceAddress(self.memory[rank][peer]);
            group.members[peer] = peer as u8;
        }
        group
    }

    fn at(&self, rank: usize, peer: usize, offset: u64) -> DeviceAddress {
        DeviceAddress(self.memory[rank][peer] + offset)
    }

    /// Writes a rank's inputs, and other bytes over its outputs.
    fn give(&self, rank: usize, byte: impl Fn(usize) -> u8) -> CallResult<()> {
        let (own, staging) = (self.memory[rank][rank], &self.staging[rank]);
        let (stream, bytes) = (self.streams[rank], staging.bytes);
        write(staging, byte);
        self.world
            .copy(rank, own + SOURCE, staging.device.0, bytes, stream)?;
        // SAFETY: all memory is live until the streams are drained.
        unsafe {
            let place = DeviceAddress(own + DESTINATION);
            self.world.ranks[rank].memory_set(place, 0xee, bytes, stream)?;
        }
        self.world.drain(rank, stream)
    }

    /// Compares the outputs of every rank.
    fn expect(&self, what: &str, bytes: u64, byte: impl Fn(usize, usize) -> u8) -> CallResult<()> {
        for rank in 0..self.count {
            let (own, staging) = (self.memory[rank][rank], &self.staging[rank]);
            let seen = bytes + 64;
            self.world.copy(
                rank,
                staging.device.0,
                own + DESTINATION,
                seen,
                self.streams[rank],
            )?;
        }
        for rank in 0..self.count {
            self.world.drain(rank, self.streams[rank])?;
            let results = read(&self.staging[rank]);
            for (index, &result) in results[..bytes as usize + 64].iter().enumerate() {
                let wanted = match (index as u64) < bytes {
                    true => byte(rank, index),
                    // The guard behind the output.
                    false => 0xee,
                };
                if result != wanted {
                    let told = format!("byte {index} at rank {rank}: {result}, not {wanted}");
                    return Err(Failure::new(Status::CALL_FAILED, what, told));
                }
            }
        }
        Ok(())
    }

    /// An all-gather by stores.
    fn gathers(&self, round: usize) -> CallResult<()> {
        let pattern = move |rank: usize, index: usize| (rank * 101 + round * 7 + index * 13) as u8;
        for rank in 0..self.count {
            self.give(rank, |index| pattern(rank, index))?;
        }
        for rank in 0..self.count {
            self.gather(rank)?;
        }
        self.expect("gathers", COUNT * self.count as u64, |_, index| {
            pattern(index / COUNT as usize, index % COUNT as usize)
        })
    }

    fn gather(&self, rank: usize) -> CallResult<()> {
        let mut arguments = MoveArguments {
            group: self.group(rank, CollectiveOperationCode::ALL_GATHER),
            destinations: [DeviceAddress::NULL; MAX_RANKS],
            sources: [DeviceAddress::NULL; MAX_RANKS],
            bytes: [0; MAX_RANKS],
            copies: self.count as u32,
            concurrent: self.count as u32,
        };
        for copy in 0..self.count {
            let peer = (rank + copy) % self.count;
            let offset = DESTINATION + COUNT * rank as u64;
            arguments.destinations[copy] = self.at(rank, peer, offset);
            arguments.sources[copy] = self.at(rank, rank, SOURCE);
            arguments.bytes[copy] = COUNT;
        }
        let stream = self.streams[rank];
        // SAFETY: all memory is live until the streams are drained.
        unsafe { self.world.ranks[rank].collective_move(&arguments, &grid(8), stream) }
    }

    /// An all-to-all in place: the lower rank of each pair swaps the first half, the other one the second.
    fn swaps(&self, round: usize) -> CallResult<()> {
        let pattern = move |rank: usize, index: usize| (rank * 83 + round * 5 + index * 11) as u8;
        let all = COUNT * self.count as u64;
        for rank in 0..self.count {
            self.give(rank, |index| pattern(rank, index))?;
            let (own, stream) = (self.memory[rank][rank], self.streams[rank]);
            self.world
                .copy(rank, own + DESTINATION, own + SOURCE, all, stream)?;
            self.world.drain(rank, stream)?;
        }
        for rank in 0..self.count {
            let mut arguments = MoveArguments {
                group: self.group(rank, CollectiveOperationCode::ALL_TO_ALL),
                destinations: [DeviceAddress::NULL; MAX_RANKS],
                sources: [DeviceAddress::NULL; MAX_RANKS],
                bytes: [0; MAX_RANKS],
                copies: self.count as u32,
                concurrent: 1,
            };
            for peer in (0..self.count).filter(|&peer| peer != rank) {
                let half = COUNT / 2;
                let (start, bytes) = match rank < peer {
                    true => (0, half),
                    false => (half, COUNT - half),
                };
                let place = |of: usize| DESTINATION + COUNT * of as u64 + start;
                arguments.destinations[peer] = self.at(rank, rank, place(peer));
                arguments.sources[peer] = self.at(rank, peer, place(rank));
                arguments.bytes[peer] = bytes;
            }
            let stream = self.streams[rank];
            // SAFETY: all memory is live until the streams are drained.
            unsafe { self.world.ranks[rank].collective_swap(&arguments, &grid(8), stream) }?;
        }
        self.expect("swaps", all, |rank, index| {
            let (from, place) = (index / COUNT as usize, index % COUNT as usize);
            pattern(from, rank * COUNT as usize + place)
        })
    }

    /// An all-to-all in packets.
    fn exchanges_parts(&self, round: usize) -> CallResult<()> {
        let pattern = move |rank: usize, index: usize| (rank * 59 + round * 3 + index * 17) as u8;
        for rank in 0..self.count {
            self.give(rank, |index| pattern(rank, index))?;
        }
        for rank in 0..self.count {
            let mut arguments = PacketArguments {
                group: self.group(rank, CollectiveOperationCode::ALL_TO_ALL),
                sources: [DeviceAddress::NULL; MAX_RANKS],
                destinations: [DeviceAddress::NULL; MAX_RANKS],
                send_bytes: [0; MAX_RANKS],
                receive_bytes: [0; MAX_RANKS],
            };
            for peer in 0..self.count {
                let offset = COUNT * peer as u64;
                arguments.sources[peer] = self.at(rank, rank, SOURCE + offset);
                arguments.destinations[peer] = self.at(rank, rank, DESTINATION + offset);
                arguments.send_bytes[peer] = COUNT;
                arguments.receive_bytes[peer] = COUNT;
            }
            let stream = self.streams[rank];
            // SAFETY: all memory is live until the streams are drained.
            unsafe { self.world.ranks[rank].collective_packets(&arguments, &grid(2), stream) }?;
        }
        let all = COUNT * self.count as u64;
        self.expect("exchanges_parts", all, |rank, index| {
            let (from, place) = (index / COUNT as usize, index % COUNT as usize);
            pattern(from, rank * COUNT as usize + place)
        })
    }

    /// A one-shot all-reduce of ones, `offset` bytes into the memory.
    fn reduces(&self, element: ElementTypeCode, offset: u64) -> CallResult<()> {
        self.give_ones(element, offset)?;
        for rank in 0..self.count {
            self.reduce(rank, element, offset)?;
        }
        self.expect_sums("reduces", element, offset)
    }

    fn give_ones(&self, element: ElementTypeCode, offset: u64) -> CallResult<()> {
        let one = number(element, 1);
        let width = one.len();
        let place = |index: usize| index.wrapping_sub(offset as usize) % width;
        (0..self.count).try_for_each(|rank| self.give(rank, |index| one[place(index)]))
    }

    fn expect_sums(&self, what: &str, element: ElementTypeCode, offset: u64) -> CallResult<()> {
        let sum = number(element, self.count);
        let bytes = offset + COUNT * element.bytes();
        self.expect(what, bytes, |_, index| {
            match index.checked_sub(offset as usize) {
                Some(index) => sum[index % sum.len()],
                None => 0xee,
            }
        })
    }

    fn reduce(&self, rank: usize, element: ElementTypeCode, offset: u64) -> CallResult<()> {
        let mut arguments = ReduceArguments {
            group: self.group(rank, CollectiveOperationCode::ALL_REDUCE),
            sources: [DeviceAddress::NULL; MAX_RANKS],
            destinations: [DeviceAddress::NULL; MAX_RANKS],
            count: COUNT,
            element,
            reduce: ReduceOpCode::SUM,
        };
        for peer in 0..self.count {
            arguments.sources[peer] = self.at(rank, peer, SOURCE + offset);
        }
        arguments.destinations[rank] = self.at(rank, rank, DESTINATION + offset);
        let stream = self.streams[rank];
        // SAFETY: all memory is live until the streams are drained.
        unsafe { self.world.ranks[rank].collective_reduce(&arguments, &grid(8), stream) }
    }

    /// An all-reduce in packets, one-shot (each rank reduces everything) or two-shot (each rank reduces its
    /// part and sends it on).
    fn reduces_in_packets(
        &self,
        element: ElementTypeCode,
        offset: u64,
        two_shot: u32,
    ) -> CallResult<()> {
        self.give_ones(element, offset)?;
        for rank in 0..self.count {
            let mut arguments = ReducePacketArguments {
                group: self.group(rank, CollectiveOperationCode::ALL_REDUCE),
                sources: [DeviceAddress::NULL; MAX_RANKS],
                destinations: [DeviceAddress::NULL; MAX_RANKS],
                counts: [COUNT; MAX_RANKS],
                element,
                reduce: ReduceOpCode::SUM,
                two_shot,
                reserved: 0,
            };
            let mut first = 0;
            for peer in 0..self.count {
                if two_shot == 1 {
                    let end = COUNT * (peer as u64 + 1) / self.count as u64;
                    arguments.counts[peer] = end - first;
                }
                let place = offset + first * element.bytes();
                arguments.sources[peer] = self.at(rank, rank, SOURCE + place);
                arguments.destinations[peer] = self.at(rank, rank, DESTINATION + place);
                if two_shot == 1 {
                    first += arguments.counts[peer];
                }
            }
            let stream = self.streams[rank];
            // SAFETY: all memory is live until the streams are drained.
            unsafe {
                self.world.ranks[rank].collective_reduce_packets(&arguments, &grid(2), stream)
            }?;
        }
        self.expect_sums("reduces_in_packets", element, offset)
    }

    /// Each rank sends to its right and receives from its left.
    fn sends_round(&self) -> CallResult<()> {
        let pattern = |rank: usize, index: usize| (rank * 83 + index * 5) as u8;
        for rank in 0..self.count {
            self.give(rank, |index| pattern(rank, index))?;
            // One row of the table: all ranks' memory as this rank addresses it.
            let row: Vec<u8> = self.memory[rank]
                .iter()
                .flat_map(|base| base.to_ne_bytes())
                .collect();
            let (staging, own) = (&self.staging[rank], self.memory[rank][rank]);
            write(staging, |index| *row.get(index).unwrap_or(&0));
            let (table, stream) = (own + WORDS, self.streams[rank]);
            self.world
                .copy(rank, table, staging.device.0, row.len() as u64, stream)?;
            self.world.drain(rank, stream)?;
        }
        let left = |rank: usize| (rank + self.count - 1) % self.count;
        for rank in 0..self.count {
            let mut arguments = ExchangeArguments {
                group: self.group(rank, CollectiveOperationCode::EXCHANGE),
                send_tokens: [NO_TOKEN; MAX_RANKS],
                send_bytes: [0; MAX_RANKS],
                destinations: [NO_TOKEN; MAX_RANKS],
                receive_bytes: [0; MAX_RANKS],
                table: self.at(rank, rank, WORDS),
                table_ranks: self.count as u32,
                blocks_per_peer: 2,
                staging: 0,
                chunk_bytes: 0,
                reserved: 0,
            };
            let right = (rank + 1) % self.count;
            arguments.send_tokens[right] = SOURCE;
            arguments.send_bytes[right] = COUNT;
            arguments.destinations[left(rank)] = self.at(rank, rank, DESTINATION).0;
            arguments.receive_bytes[left(rank)] = COUNT;
            let geometry = grid(2 * self.count as u32 + 1);
            let stream = self.streams[rank];
            // SAFETY: all memory is live until the streams are drained.
            unsafe { self.world.ranks[rank].collective_exchange(&arguments, &geometry, stream) }?;
        }
        self.expect("sends_round", COUNT, |rank, index| {
            pattern(left(rank), index)
        })
    }

    /// Two steps of a pipeline: a signal to the right, then a wait for the left.
    fn steps(&self) -> CallResult<()> {
        for _ in 0..2 {
            for rank in 0..self.count {
                let right = (rank + 1) % self.count;
                let target = SignalTarget {
                    word: self.at(rank, right, WORDS + 1024),
                    epoch: self.at(rank, rank, WORDS + 1152),
                    arrivals: self.at(rank, rank, WORDS + 1280),
                    ..SignalTarget::default()
                };
                let wait = SignalWait {
                    word: self.at(rank, rank, WORDS + 1024),
                    epoch: self.at(rank, rank, WORDS + 1408),
                    watch: self.watch(rank),
                    ..SignalWait::default()
                };
                let stream = self.streams[rank];
                // SAFETY: all memory is live until the streams are drained.
                unsafe { self.world.ranks[rank].signal_step(&target, &wait, stream) }?;
            }
        }
        (0..self.count).try_for_each(|rank| self.world.drain(rank, self.streams[rank]))
    }

    /// Two barriers of all ranks.
    fn meets(&self) -> CallResult<()> {
        const OWN: u64 = WORDS + 4096;
        for _ in 0..2 {
            for rank in 0..self.count {
                let mut barrier = Barrier {
                    watch: self.watch(rank),
                    epoch: self.at(rank, rank, OWN + MAX_RANKS as u64 * SIGNAL_STRIDE),
                    own: self.at(rank, rank, OWN),
                    peers: [DeviceAddress::NULL; MAX_RANKS],
                    world: self.count as u32,
                    slot: 0,
                };
                for peer in 0..self.count {
                    let word = OWN + rank as u64 * SIGNAL_STRIDE;
                    barrier.peers[peer] = self.at(rank, peer, word);
                }
                let stream = self.streams[rank];
                // SAFETY: all memory is live until the streams are drained.
                unsafe { self.world.ranks[rank].barrier(&barrier, stream) }?;
            }
        }
        (0..self.count).try_for_each(|rank| self.world.drain(rank, self.streams[rank]))
    }

    /// Every rank adds to a word of rank 0, which waits for all ranks and then notifies them.
    fn words(&self) -> CallResult<()> {
        let word = WORDS + 2048;
        for rank in (0..self.count).rev() {
            let backend = &self.world.ranks[rank];
            let stream = self.streams[rank];
            let add = WordOperation {
                word: self.at(rank, 0, word),
                operand: 2,
                update: WordUpdate::ADD,
                bits: 64,
                ..WordOperation::default()
            };
            let wait = WordWait {
                words: self.at(rank, rank, word),
                stride: 8,
                value: 2 * self.count as u64,
                watch: self.watch(rank),
                count: 1,
                condition: ConditionCode::GREATER_OR_EQUAL,
                bits: 64,
                ..WordWait::default()
            };
            // SAFETY: all memory is live until the streams are drained.
            unsafe {
                backend.word_update(&add, stream)?;
                if rank == 0 {
                    backend.word_wait(&wait, stream)?;
                    for peer in 1..self.count {
                        let tell = WordOperation {
                            word: self.at(0, peer, word),
                            operand: wait.value,
                            update: WordUpdate::SET,
                            ..add
                        };
                        backend.word_update(&tell, stream)?;
                    }
                } else {
                    backend.word_wait(&wait, stream)?;
                }
            }
        }
        (0..self.count).try_for_each(|rank| self.world.drain(rank, self.streams[rank]))
    }

    /// Captured collectives, replayed between eager ones.
    fn replays(&mut self) -> CallResult<()> {
        let element = ElementTypeCode::BF16;
        let mut graphs = Vec::new();
        for rank in 0..self.count {
            let stream = self.streams[rank];
            // SAFETY: all memory is live until the streams are drained.
            let graph = unsafe {
                self.world.ranks[rank].capture_begin(stream)?;
                let made = self
                    .gather(rank)
                    .and_then(|()| self.reduce(rank, element, 0));
                let ended = self.world.ranks[rank].capture_end(stream);
                made.and(ended)
            }?;
            graphs.push(self.world.graph(rank, graph)?);
        }
        for _ in 0..3 {
            self.give_ones(element, 0)?;
            for _ in 0..2 {
                for (rank, &graph) in graphs.iter().enumerate() {
                    let stream = self.streams[rank];
                    // SAFETY: all memory is live until the streams are drained.
                    unsafe { self.world.ranks[rank].graph_launch(graph, stream) }?;
                }
            }
            // The gather writes first, one byte per element; the reduction overwrites it.
            let sum = number(element, self.count);
            let bytes = COUNT * element.bytes().max(self.count as u64);
            let one = number(element, 1);
            self.expect("replays", bytes, |_, index| {
                match index < (COUNT * element.bytes()) as usize {
                    true => sum[index % 2],
                    false => one[index % COUNT as usize % 2],
                }
            })?;
            self.reduces(element, 0)?;
        }
        Ok(())
    }
}

pub fn grid(blocks: u32) -> Geometry {
    Geometry {
        blocks: [blocks, 1, 1],
        threads: [128, 1, 1],
        shared_memory: 0,
    }
}

/// Returns a small number as an element's bytes.
fn number(element: ElementTypeCode, number: usize) -> Vec<u8> {
    // Bit patterns of 1, 2, 3, 4.
    let pattern = |patterns: [u64; 4]| patterns[number - 1];
    let bits = match element {
        ElementTypeCode::F16 => pattern([0x3c00, 0x4000, 0x4200, 0x4400]),
        ElementTypeCode::BF16 => pattern([0x3f80, 0x4000, 0x4040, 0x4080]),
        ElementTypeCode::F8_E4M3 => pattern([0x38, 0x40, 0x44, 0x48]),
        ElementTypeCode::F8_E5M2 => pattern([0x3c, 0x40, 0x42, 0x44]),
        ElementTypeCode::F32 => u64::from((number as f32).to_bits()),
        ElementTypeCode::F64 => (number as f64).to_bits(),
        _ => number as u64,
    };
    bits.to_le_bytes()[..element.bytes() as usize].to_vec()
}
