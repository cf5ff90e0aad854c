//! The launches of collectives, steps and words, between ranks of one process over the fake driver,
//! whose kernels do what ours do.

use crate::support::{run, tell, tell_result};
use crate::world::{World, read, write};
use std::time::Duration;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Collectives, Device, Failure, Signals};

/// Elements of a rank's part: more than one round of packets, and a tail.
const COUNT: u64 = 3001;
const PACKET_BYTES: u64 = 8 << 10;
const SLOTS: u64 = SLOT_BLOCKS as u64 * SLOT_BYTES + PACKET_BLOCKS as u64 * PACKET_BYTES;
/// What calls read, what they write, and words, in each rank's memory behind the slots.
const SOURCE: u64 = SLOTS.next_multiple_of(1 << 20);
const DESTINATION: u64 = SOURCE + (1 << 20);
const WORDS: u64 = DESTINATION + (1 << 20);
const BYTES: u64 = WORDS + (1 << 16);
const DEADLINE_NS: u64 = 10_000_000_000;
/// A child that is not done by then has hung.
const LIMIT: Duration = Duration::from_secs(60);

/// The ranks' memory and streams.
struct Ranks {
    world: World,
    count: usize,
    /// `[rank][peer]`: where the peer's memory starts, as the rank addresses it.
    memory: Vec<Vec<u64>>,
    streams: Vec<RawStream>,
    staging: Vec<HostMemory>,
    control: Vec<HostMemory>,
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
        "refused" => refused,
        "timeout" => timeout,
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
    }
    for element in 1..=ElementType::F8_E5M2.0 {
        ranks.reduces(ElementType(element), 0)?;
        ranks.reduces_in_packets(ElementType(element), 0, element % 2)?;
    }
    ranks.sends_round()?;
    ranks.steps()?;
    ranks.words()?;
    ranks.replays()
}

impl Ranks {
    fn open(count: usize) -> CallResult<Self> {
        let mut world = World::open(0..count as u32)?;
        let mut own = Vec::new();
        for rank in 0..count {
            own.push(world.allocate(rank, ShareKind::VMM_FILE_DESCRIPTOR, BYTES)?);
        }
        let mut ranks = Self {
            world,
            count,
            memory: Vec::new(),
            streams: Vec::new(),
            staging: Vec::new(),
            control: Vec::new(),
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
            deadline_ns: DEADLINE_NS,
            rank: rank as u32,
            reserved: 0,
        }
    }

    fn group(&self, rank: usize, operation: CollectiveOperation) -> CollectiveGroup {
        let mut group = CollectiveGroup {
            watch: self.watch(rank),
            slots: [DeviceAddress::NULL; MAX_RANKS],
            packet_bytes: PACKET_BYTES,
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

    /// Puts bytes where calls of a rank read, and others where they write.
    fn give(&self, rank: usize, byte: impl Fn(usize) -> u8) -> CallResult<()> {
        let (own, staging) = (self.memory[rank][rank], &self.staging[rank]);
        let (stream, bytes) = (self.streams[rank], staging.bytes);
        write(staging, byte);
        self.world
            .copy(rank, own + SOURCE, staging.device.0, bytes, stream)?;
        // SAFETY: memory is live until the streams are drained.
        unsafe {
            let place = DeviceAddress(own + DESTINATION);
            self.world.ranks[rank].memory_set(place, 0xee, bytes, stream)?;
        }
        self.world.drain(rank, stream)
    }

    /// Compares what calls of every rank wrote.
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
                    // A guard behind.
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
            group: self.group(rank, CollectiveOperation::ALL_GATHER),
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
        // SAFETY: memory is live until the streams are drained. So for all below.
        unsafe { self.world.ranks[rank].collective_move(&arguments, &grid(8), stream) }
    }

    /// An all-to-all in packets.
    fn exchanges_parts(&self, round: usize) -> CallResult<()> {
        let pattern = move |rank: usize, index: usize| (rank * 59 + round * 3 + index * 17) as u8;
        for rank in 0..self.count {
            self.give(rank, |index| pattern(rank, index))?;
        }
        for rank in 0..self.count {
            let mut arguments = PacketArguments {
                group: self.group(rank, CollectiveOperation::ALL_TO_ALL),
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
            // SAFETY: as above.
            unsafe { self.world.ranks[rank].collective_packets(&arguments, &grid(2), stream) }?;
        }
        let all = COUNT * self.count as u64;
        self.expect("exchanges_parts", all, |rank, index| {
            let (from, place) = (index / COUNT as usize, index % COUNT as usize);
            pattern(from, rank * COUNT as usize + place)
        })
    }

    /// A one-shot all-reduce of ones, `offset` bytes into the memory.
    fn reduces(&self, element: ElementType, offset: u64) -> CallResult<()> {
        self.give_ones(element, offset)?;
        for rank in 0..self.count {
            self.reduce(rank, element, offset)?;
        }
        self.expect_sums("reduces", element, offset)
    }

    fn give_ones(&self, element: ElementType, offset: u64) -> CallResult<()> {
        let one = number(element, 1);
        let width = one.len();
        let place = |index: usize| index.wrapping_sub(offset as usize) % width;
        (0..self.count).try_for_each(|rank| self.give(rank, |index| one[place(index)]))
    }

    fn expect_sums(&self, what: &str, element: ElementType, offset: u64) -> CallResult<()> {
        let sum = number(element, self.count);
        let bytes = offset + COUNT * element.bytes();
        self.expect(what, bytes, |_, index| {
            match index.checked_sub(offset as usize) {
                Some(index) => sum[index % sum.len()],
                None => 0xee,
            }
        })
    }

    fn reduce(&self, rank: usize, element: ElementType, offset: u64) -> CallResult<()> {
        let mut arguments = ReduceArguments {
            group: self.group(rank, CollectiveOperation::ALL_REDUCE),
            sources: [DeviceAddress::NULL; MAX_RANKS],
            destinations: [DeviceAddress::NULL; MAX_RANKS],
            count: COUNT,
            element,
            reduce: ReduceOperation::SUM,
        };
        for peer in 0..self.count {
            arguments.sources[peer] = self.at(rank, peer, SOURCE + offset);
        }
        arguments.destinations[rank] = self.at(rank, rank, DESTINATION + offset);
        let stream = self.streams[rank];
        // SAFETY: as above.
        unsafe { self.world.ranks[rank].collective_reduce(&arguments, &grid(8), stream) }
    }

    /// An all-reduce in packets: each rank reduces all of it, or its part and sends that on.
    fn reduces_in_packets(
        &self,
        element: ElementType,
        offset: u64,
        two_shot: u32,
    ) -> CallResult<()> {
        self.give_ones(element, offset)?;
        for rank in 0..self.count {
            let mut arguments = ReducePacketArguments {
                group: self.group(rank, CollectiveOperation::ALL_REDUCE),
                sources: [DeviceAddress::NULL; MAX_RANKS],
                destinations: [DeviceAddress::NULL; MAX_RANKS],
                counts: [COUNT; MAX_RANKS],
                element,
                reduce: ReduceOperation::SUM,
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
            // SAFETY: as above.
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
            // One row: everybody's memory, as this rank addresses it.
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
                group: self.group(rank, CollectiveOperation::EXCHANGE),
                send_tokens: [NO_TOKEN; MAX_RANKS],
                send_bytes: [0; MAX_RANKS],
                destinations: [NO_TOKEN; MAX_RANKS],
                receive_bytes: [0; MAX_RANKS],
                table: self.at(rank, rank, WORDS),
                table_ranks: self.count as u32,
                blocks_per_peer: 2,
            };
            let right = (rank + 1) % self.count;
            arguments.send_tokens[right] = SOURCE;
            arguments.send_bytes[right] = COUNT;
            arguments.destinations[left(rank)] = self.at(rank, rank, DESTINATION).0;
            arguments.receive_bytes[left(rank)] = COUNT;
            let geometry = grid(2 * self.count as u32 + 1);
            let stream = self.streams[rank];
            // SAFETY: as above.
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
                // SAFETY: as above.
                unsafe { self.world.ranks[rank].signal_step(&target, &wait, stream) }?;
            }
        }
        (0..self.count).try_for_each(|rank| self.world.drain(rank, self.streams[rank]))
    }

    /// Every rank adds to a word of rank 0, which waits for all and tells the others.
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
                condition: Condition::GREATER_OR_EQUAL,
                bits: 64,
                ..WordWait::default()
            };
            // SAFETY: as above.
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
        let element = ElementType::BF16;
        let mut graphs = Vec::new();
        for rank in 0..self.count {
            let stream = self.streams[rank];
            // SAFETY: as above.
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
                    // SAFETY: as above.
                    unsafe { self.world.ranks[rank].graph_launch(graph, stream) }?;
                }
            }
            // The gather writes first, one byte an element; the reduction over it.
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

fn grid(blocks: u32) -> Geometry {
    Geometry {
        blocks: [blocks, 1, 1],
        threads: [128, 1, 1],
        shared_memory: 0,
    }
}

/// A small number as an element's bytes.
fn number(element: ElementType, number: usize) -> Vec<u8> {
    // Bit patterns of 1, 2, 3, 4.
    let pattern = |patterns: [u64; 4]| patterns[number - 1];
    let bits = match element {
        ElementType::F16 => pattern([0x3c00, 0x4000, 0x4200, 0x4400]),
        ElementType::BF16 => pattern([0x3f80, 0x4000, 0x4040, 0x4080]),
        ElementType::F8_E4M3 => pattern([0x38, 0x40, 0x44, 0x48]),
        ElementType::F8_E5M2 => pattern([0x3c, 0x40, 0x42, 0x44]),
        ElementType::F32 => u64::from((number as f32).to_bits()),
        ElementType::F64 => (number as f64).to_bits(),
        _ => number as u64,
    };
    bits.to_le_bytes()[..element.bytes() as usize].to_vec()
}

/// Grids that cannot be, and numbers that mean nothing.
fn refused(ranks: &mut Ranks) -> CallResult<()> {
    let backend = &ranks.world.ranks[0];
    let stream = ranks.streams[0];
    let known = backend.resident_blocks(CollectiveKernel::REDUCE, ElementType::BF16, 512)?;
    assert!(
        known > 0
            && known
                == backend.resident_blocks(CollectiveKernel::REDUCE, ElementType::BF16, 500)?
    );
    for (kernel, element, threads) in [
        (CollectiveKernel(9), ElementType::BF16, 512),
        (CollectiveKernel::REDUCE, ElementType(0), 512),
        (CollectiveKernel::REDUCE_PACKETS, ElementType(15), 512),
        (CollectiveKernel::MOVE, ElementType::U8, 0),
        (CollectiveKernel::MOVE, ElementType::U8, 1025),
    ] {
        assert_eq!(backend.resident_blocks(kernel, element, threads)?, 0);
    }
    let good = ReduceArguments {
        group: ranks.group(0, CollectiveOperation::ALL_REDUCE),
        sources: [DeviceAddress::NULL; MAX_RANKS],
        destinations: [DeviceAddress::NULL; MAX_RANKS],
        count: 0,
        element: ElementType::BF16,
        reduce: ReduceOperation::SUM,
    };
    let reduce = |arguments: &ReduceArguments, geometry: Geometry| {
        // SAFETY: nothing is launched.
        let refused = unsafe { backend.collective_reduce(arguments, &geometry, stream) };
        let failure = refused.expect_err("it is refused");
        assert_eq!(failure.status, Status::INVALID_ARGUMENT);
        failure.message
    };
    let most = known.min(SLOT_BLOCKS);
    let with = |blocks, threads, shared_memory| Geometry {
        blocks,
        threads,
        shared_memory,
    };
    let beyond = reduce(&good, with([most + 1, 1, 1], [512, 1, 1], 0));
    assert!(beyond.contains(&format!("1 to {most}")), "{beyond}");
    for geometry in [
        with([0, 1, 1], [128, 1, 1], 0),
        with([1, 2, 1], [128, 1, 1], 0),
        with([1, 1, 1], [64, 2, 1], 0),
        with([1, 1, 1], [100, 1, 1], 0),
        with([1, 1, 1], [2048, 1, 1], 0),
        with([1, 1, 1], [128, 1, 1], 16),
    ] {
        reduce(&good, geometry);
    }
    let mut stranger = good;
    stranger.group.rank = 7;
    let mut crowd = good;
    crowd.group.world = MAX_RANKS as u32 + 1;
    for wrong in [
        ReduceArguments {
            element: ElementType(15),
            ..good
        },
        ReduceArguments {
            reduce: ReduceOperation(0),
            ..good
        },
        stranger,
        crowd,
    ] {
        reduce(&wrong, grid(1));
    }
    let packets = PacketArguments {
        group: good.group,
        sources: [DeviceAddress::NULL; MAX_RANKS],
        destinations: [DeviceAddress::NULL; MAX_RANKS],
        send_bytes: [0; MAX_RANKS],
        receive_bytes: [0; MAX_RANKS],
    };
    // SAFETY: nothing is launched. So for all below.
    let refused = unsafe { backend.collective_packets(&packets, &grid(PACKET_BLOCKS + 1), stream) };
    let message = refused.expect_err("no region").message;
    assert!(
        message.contains(&format!("1 to {PACKET_BLOCKS}")),
        "{message}"
    );
    let update = WordOperation {
        bits: 16,
        ..WordOperation::default()
    };
    // SAFETY: as above.
    assert!(unsafe { backend.word_update(&update, stream) }.is_err());
    let wait = WordWait {
        count: 1,
        bits: 32,
        ..WordWait::default()
    };
    // SAFETY: as above.
    assert!(unsafe { backend.word_wait(&wait, stream) }.is_err());
    Ok(())
}

/// A peer that never makes the call is told by a record.
fn timeout(ranks: &mut Ranks) -> CallResult<()> {
    let mut group = ranks.group(0, CollectiveOperation::ALL_GATHER);
    group.watch.deadline_ns = 20_000_000;
    let arguments = MoveArguments {
        group,
        destinations: [DeviceAddress::NULL; MAX_RANKS],
        sources: [DeviceAddress::NULL; MAX_RANKS],
        bytes: [0; MAX_RANKS],
        copies: 0,
        concurrent: 1,
    };
    let stream = ranks.streams[0];
    // SAFETY: memory is live until the stream is drained.
    unsafe { ranks.world.ranks[0].collective_move(&arguments, &grid(1), stream) }?;
    ranks.world.drain(0, stream)?;
    let bytes = read(&ranks.control[0]);
    let field = |index: usize| {
        let at = 128 + 4 * index;
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let (state, kind, peer, expected, reason) = (field(0), field(1), field(3), field(5), field(7));
    tell(
        "record",
        format!("state {state} kind {kind} peer {peer} expected {expected} reason {reason}"),
    );
    Ok(())
}

// ---- tests ----

fn collectives(role: &str, environment: &[(&str, &str)]) -> crate::support::Outcome {
    let mut all = vec![("FAKE_CUDA_DEVICES", "4")];
    all.extend(environment);
    run(&format!("collectives {role}"), &all)
}

#[test]
fn every_kernel_of_collectives_does_what_it_should_in_worlds_of_one_to_four() {
    for world in 1..=4 {
        collectives(&format!("everything {world}"), &[]).assert_clean();
    }
}

#[test]
fn kernels_start_beside_their_predecessors_where_graphs_can_hold_that() {
    let beside = |version: &str| {
        let outcome = collectives("everything 2", &[("FAKE_CUDA_DRIVER_VERSION", version)]);
        outcome.assert_clean();
        outcome
            .calls
            .iter()
            .filter(|call| *call == "cuLaunchKernelEx")
            .count()
    };
    let entries = symmem_kernels_ptx::modules()
        .iter()
        .flat_map(|module| module.entries);
    let dependent = |name: &str| name.starts_with("symmem_reduce");
    let any = entries
        .filter(|entry| entry.dependent_launch)
        .any(|entry| dependent(entry.name));
    assert_eq!(beside("12040") > 0, any);
    assert_eq!(beside("12020"), 0);
}

#[test]
fn a_grid_that_could_not_be_resident_is_refused_and_not_hung() {
    collectives("refused 2", &[]).assert_clean();
}

#[test]
fn a_collective_that_a_peer_never_makes_ends_at_its_deadline_with_a_record() {
    let outcome = collectives("timeout 2", &[]);
    outcome.assert_clean();
    let kind = WaitRecord::COLLECTIVE + CollectiveOperation::ALL_GATHER.0;
    let expected = format!("state 2 kind {kind} peer 1 expected 1 reason 1");
    assert_eq!(outcome.get("record"), expected);
}
