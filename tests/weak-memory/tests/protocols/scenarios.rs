//! Programs of several ranks for each protocol. In each, a rank stores and signals, and the other loads.

use std::collections::HashMap;
use std::rc::Rc;

use symmem_kernels_hip::Target;
use symmem_weak_memory::Error;
use symmem_weak_memory::machine::{Grid, Machine};
use symmem_weak_memory::operation::Operation;
use symmem_weak_memory::program::{Instruction, Program};

use crate::arguments::Arguments;

mod lamport;
mod pieces;
mod product;

/// A program for several ranks.
pub struct Scenario {
    pub name: &'static str,
    pub kernels: &'static [&'static str],
    /// Runs the program with a seed.
    pub run: fn(&Kernels, u64) -> Result<(), Error>,
}

pub const SCENARIOS: [Scenario; 14] = [
    Scenario {
        name: "put",
        kernels: &["symmem_copy_vector", "symmem_wait"],
        run: put,
    },
    Scenario {
        name: "barrier",
        kernels: &["symmem_copy_vector", "symmem_barrier"],
        run: barrier,
    },
    Scenario {
        name: "move",
        kernels: &["symmem_copy_vector", "symmem_move"],
        run: copies,
    },
    Scenario {
        name: "reduce",
        kernels: &["symmem_copy_vector", "symmem_reduce_u32"],
        run: reduction,
    },
    Scenario {
        name: "packets",
        kernels: &["symmem_reduce_packets_u32"],
        run: packets,
    },
    Scenario {
        name: "exchange",
        kernels: &["symmem_copy_vector", "symmem_exchange"],
        run: exchange,
    },
    Scenario {
        name: "push",
        kernels: &["symmem_copy_vector", "symmem_reduce_push_f32"],
        run: push,
    },
    Scenario {
        name: "gathered product",
        kernels: &[
            "symmem_copy_vector",
            "symmem_barrier",
            product::KERNELS[0][0],
            product::KERNELS[0][1],
            product::KERNELS[1][0],
            product::KERNELS[1][1],
        ],
        run: product::product,
    },
    Scenario {
        name: "lamport",
        kernels: &lamport::KERNELS,
        run: lamport::sums,
    },
    Scenario {
        name: "pieces",
        kernels: &["symmem_copy_vector", pieces::KERNEL],
        run: pieces::moves,
    },
    Scenario {
        name: "move in Lamport packets",
        kernels: &lamport::MOVES,
        run: lamport::moves,
    },
    Scenario {
        name: "two-shot in Lamport packets",
        kernels: &lamport::TWO_SHOT,
        run: lamport::two_shot_sums,
    },
    Scenario {
        name: "from and to one rank in Lamport packets",
        kernels: &[lamport::KERNELS[1], lamport::ROOTED[0], lamport::ROOTED[1]],
        run: lamport::rooted,
    },
    Scenario {
        name: "rows with a residual in Lamport packets",
        kernels: &lamport::NORMS,
        run: lamport::norms,
    },
];

/// The kernels of a scenario, compiled for a target.
pub struct Kernels {
    target: Target,
    programs: HashMap<String, Rc<Program>>,
}

impl Kernels {
    pub fn load(scenario: &Scenario, target: Target) -> Result<Self, Error> {
        let load = |name: &&str| Ok((name.to_string(), Rc::new(Program::load(name, target)?)));
        let programs = scenario
            .kernels
            .iter()
            .map(load)
            .collect::<Result<_, Error>>()?;
        Ok(Self { target, programs })
    }

    /// Changes instructions of a kernel and returns how many were changed.
    pub fn plant(
        &mut self,
        kernel: &str,
        fault: impl Fn(&[Instruction], usize) -> Option<Operation>,
    ) -> usize {
        let (planted, changed) = self.programs[kernel].with(fault);
        self.programs.insert(kernel.to_owned(), Rc::new(planted));
        changed
    }
}

const RANKS: usize = 2;
const BLOCKS: usize = 2;
const THREADS: usize = 128;
/// More than one row of vectors of the grid, and not a multiple of 16.
const BYTES: usize = 4140;
const SLOT_BLOCKS: u64 = 320;
const SLOT_BYTES: u64 = 4096;
const NO_TOKEN: u64 = !0;
/// Bytes between two signal words.
const STRIDE: u64 = 128;
/// The offset of the barrier's epoch counter in a rank's signals.
const EPOCH: u64 = 16 * STRIDE;
/// `ElementType::u32`, `ReduceOpCode::sum`
const SUM_OF_U32: [u32; 2] = [6, 1];
/// `ElementType::f32`, `ReduceOpCode::sum`
const SUM_OF_F32: [u32; 2] = [11, 1];

/// Ranks with signals, and an abort word that nobody sets.
struct World<'a> {
    kernels: &'a Kernels,
    machine: Machine,
    abort: u64,
    signals: Vec<u64>,
}

impl<'a> World<'a> {
    fn new(kernels: &'a Kernels, seed: u64) -> Self {
        let mut machine = Machine::new(kernels.target, RANKS, seed);
        let abort = machine.memory().allocate("abort", 64, true);
        let mut world = Self {
            kernels,
            machine,
            abort,
            signals: Vec::new(),
        };
        world.signals = world.each("signals", 4096, true);
        world
    }

    /// Allocates memory for each rank.
    fn each(&mut self, name: &str, bytes: u64, uncached: bool) -> Vec<u64> {
        let memory = self.machine.memory();
        (0..RANKS)
            .map(|rank| memory.allocate(&format!("{name} of rank {rank}"), bytes, uncached))
            .collect()
    }

    /// Allocates memory for each rank and fills it with bytes that identify rank and position.
    fn filled(&mut self, name: &str, bytes: usize, salt: usize) -> Vec<u64> {
        let bases = self.each(name, bytes as u64, false);
        for (rank, base) in bases.iter().enumerate() {
            self.machine
                .memory()
                .write(*base, &pattern(bytes, rank, salt));
        }
        bases
    }

    fn slots(&mut self, packet_bytes: u64) -> Vec<u64> {
        let bytes = SLOT_BLOCKS * SLOT_BYTES + 8 * packet_bytes;
        self.each("slots", bytes, true)
    }

    fn launch(
        &mut self,
        rank: usize,
        kernel: &str,
        blocks: usize,
        threads: usize,
        arguments: Arguments,
    ) {
        self.machine.enqueue(
            rank,
            Grid {
                program: Rc::clone(&self.kernels.programs[kernel]),
                blocks,
                threads,
                dynamic_shared_bytes: product::shared_memory(kernel, self.kernels.target),
                arguments: arguments.bytes(kernel),
            },
        );
    }

    /// Enqueues a copy followed by a signal: its word, the word that counts blocks, and the value.
    fn copy(
        &mut self,
        rank: usize,
        to: u64,
        from: u64,
        bytes: usize,
        (word, arrivals, value): (u64, u64, u32),
    ) {
        let arguments = Arguments::default()
            .longs(&[to, from, bytes as u64])
            .signal(word, arrivals, value)
            .words(&[0, 0]);
        self.launch(rank, "symmem_copy_vector", BLOCKS, THREADS, arguments);
    }

    fn wait(&mut self, rank: usize, word: u64, value: u32) {
        let arguments = Arguments::default()
            .longs(&[word, 0])
            .watch(self.abort, rank)
            .words(&[value, 0, 0, 0]);
        self.launch(rank, "symmem_wait", 1, 64, arguments);
    }

    /// Enqueues a rank's part of the barrier of both ranks.
    fn meet(&mut self, rank: usize) {
        let remote = self.signals[1 - rank] + rank as u64 * STRIDE;
        let words: Vec<u64> = (0..RANKS)
            .map(|each| if each == rank { 0 } else { remote })
            .collect();
        let arguments = Arguments::default()
            .watch(self.abort, rank)
            .longs(&[self.signals[rank] + EPOCH, self.signals[rank]])
            .table(&words, 0)
            .words(&[RANKS as u32, 0]);
        self.launch(rank, "symmem_barrier", 1, 128, arguments);
    }

    /// Runs everything and compares memory with `expected`.
    fn run(mut self, expected: &[(u64, Vec<u8>)]) -> Result<(), Error> {
        self.machine.run()?;
        for (base, bytes) in expected {
            let found = self.machine.memory().read(*base, bytes.len());
            if let Some(at) = (0..bytes.len()).find(|at| found[*at] != bytes[*at]) {
                return Err(Error::Violation(format!(
                    "at the end {} is {:#x}, not {:#x}",
                    self.machine.memory().describe(base + at as u64),
                    found[at],
                    bytes[at]
                )));
            }
        }
        Ok(())
    }
}

fn pattern(bytes: usize, rank: usize, salt: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at * 7 + at / 251 + rank * 101 + salt * 37 + 1) as u8)
        .collect()
}

const NO_SIGNAL: (u64, u64, u32) = (0, 0, 0);

/// Rank 0 puts twice into the same inbox; rank 1 waits, copies the data out, and answers with a signal.
fn put(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let inbox = world.each("inbox", BYTES as u64, false)[1];
    let mut expected = Vec::new();
    let [signals, answers] = [world.signals[1], world.signals[0]];
    for round in 1..=2 {
        let data = world.filled(&format!("data {round}"), BYTES, round)[0];
        let taken = world.each(&format!("taken {round}"), BYTES as u64, false)[1];
        if round > 1 {
            world.wait(0, answers, round as u32 - 1);
        }
        world.copy(
            0,
            inbox,
            data,
            BYTES,
            (signals, answers + STRIDE, round as u32),
        );
        world.wait(1, signals, round as u32);
        world.copy(
            1,
            taken,
            inbox,
            BYTES,
            (answers, signals + STRIDE, round as u32),
        );
        expected.push((taken, pattern(BYTES, 0, round)));
    }
    world.run(&expected)
}

/// Each rank puts to the other, meets it in a barrier, and copies out what it received. Twice, with a barrier in
/// between.
fn barrier(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let inboxes = world.each("inbox", BYTES as u64, false);
    let mut expected = Vec::new();
    for round in 0..2 {
        let data = world.filled(&format!("data {round}"), BYTES, round);
        let taken = world.each(&format!("taken {round}"), BYTES as u64, false);
        for rank in 0..RANKS {
            let peer = 1 - rank;
            world.copy(rank, inboxes[peer], data[rank], BYTES, NO_SIGNAL);
            world.meet(rank);
            world.copy(rank, taken[rank], inboxes[rank], BYTES, NO_SIGNAL);
            world.meet(rank);
            expected.push((taken[rank], pattern(BYTES, peer, round)));
        }
    }
    world.run(&expected)
}

/// An all-gather by loads from peers, of data that an earlier kernel stored. Twice, with the same memory.
fn copies(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    let data = world.each("data", BYTES as u64, false);
    let mut expected = Vec::new();
    for round in 0..2 {
        let fresh = world.filled(&format!("fresh {round}"), BYTES, round);
        let gathered = world.each(&format!("gathered {round}"), (BYTES * RANKS) as u64, false);
        for rank in 0..RANKS {
            world.copy(rank, data[rank], fresh[rank], BYTES, NO_SIGNAL);
            let destinations: Vec<u64> = (0..RANKS)
                .map(|from| gathered[rank] + (from * BYTES) as u64)
                .collect();
            let arguments = Arguments::default()
                .group(world.abort, &slots, 0, rank)
                .table(&destinations, 0)
                .table(&data, 0)
                .table(&[BYTES as u64; RANKS], 0)
                .words(&[RANKS as u32, RANKS as u32]);
            world.launch(rank, "symmem_move", BLOCKS, THREADS, arguments);
            for (from, destination) in destinations.into_iter().enumerate() {
                expected.push((destination, pattern(BYTES, from, round)));
            }
        }
    }
    world.run(&expected)
}

/// Returns the sums over all ranks of the little-endian numbers at the same position.
fn sums(bytes: usize, salt: usize) -> Vec<u8> {
    let all: Vec<Vec<u8>> = (0..RANKS).map(|rank| pattern(bytes, rank, salt)).collect();
    let number = |bytes: &[u8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    (0..bytes)
        .step_by(4)
        .flat_map(|at| {
            let sum = all
                .iter()
                .fold(0u32, |sum, each| sum.wrapping_add(number(each, at)));
            sum.to_le_bytes()
        })
        .collect()
}

/// An all-reduce: each rank loads its share from all, stores the sums at all, and copies its result out.
fn reduction(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const SHARE: usize = 2064;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    let data = world.each("data", (SHARE * RANKS) as u64, false);
    let results = world.each("result", (SHARE * RANKS) as u64, false);
    let mut expected = Vec::new();
    for round in 0..2 {
        let fresh = world.filled(&format!("fresh {round}"), SHARE * RANKS, round);
        let taken = world.each(&format!("taken {round}"), (SHARE * RANKS) as u64, false);
        for rank in 0..RANKS {
            let share = |bases: &[u64]| -> Vec<u64> {
                bases
                    .iter()
                    .map(|base| base + (rank * SHARE) as u64)
                    .collect()
            };
            world.copy(rank, data[rank], fresh[rank], SHARE * RANKS, NO_SIGNAL);
            let arguments = Arguments::default()
                .group(world.abort, &slots, 0, rank)
                .reduce(
                    &share(&data),
                    &share(&results),
                    SHARE as u64 / 4,
                    SUM_OF_U32,
                );
            world.launch(rank, "symmem_reduce_u32", BLOCKS, THREADS, arguments);
            world.copy(rank, taken[rank], results[rank], SHARE * RANKS, NO_SIGNAL);
            expected.push((taken[rank], sums(SHARE * RANKS, round)));
        }
    }
    world.run(&expected)
}

/// Two-shot all-reduces in packets, more often than there are halves of the packet buffer.
fn packets(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const SHARE: usize = 520;
    const PACKET_BYTES: u64 = 2 * RANKS as u64 * 512;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(PACKET_BYTES);
    let mut expected = Vec::new();
    for round in 0..2 {
        let data = world.filled(&format!("data {round}"), SHARE * RANKS, round);
        let results = world.each(&format!("result {round}"), (SHARE * RANKS) as u64, false);
        for rank in 0..RANKS {
            let shares = |base: u64| -> Vec<u64> {
                (0..RANKS)
                    .map(|share| base + (share * SHARE) as u64)
                    .collect()
            };
            let arguments = Arguments::default()
                .group(world.abort, &slots, PACKET_BYTES, rank)
                .table(&shares(data[rank]), 0)
                .table(&shares(results[rank]), 0)
                .table(&[SHARE as u64 / 4; RANKS], 0)
                .words(&SUM_OF_U32)
                .words(&[1, 0]);
            world.launch(rank, "symmem_reduce_packets_u32", BLOCKS, 64, arguments);
            expected.push((results[rank], sums(SHARE * RANKS, round)));
        }
    }
    world.run(&expected)
}

/// Each rank sends data that an earlier kernel stored to the other. Twice, with the same memory; in each round one of the
/// ranks sends it as memory that only it can address, in more chunks than its staging holds.
fn exchange(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const BLOCKS_PER_PEER: usize = 1;
    const STAGING: u64 = SLOT_BLOCKS * SLOT_BYTES;
    const CHUNK_BYTES: u32 = 1536;
    const OWN_ROW: u64 = 0xfffe << 48;
    let mut world = World::new(kernels, seed);
    // What other kernels use for packets has room for the chunks.
    let slots = world.slots(CHUNK_BYTES.into());
    let data = world.each("data", BYTES as u64, false);
    let tables = world.each("table", 64, false);
    for table in &tables {
        let bytes: Vec<u8> = data.iter().flat_map(|base| base.to_le_bytes()).collect();
        world.machine.memory().write(*table, &bytes);
    }
    let mut expected = Vec::new();
    for round in 0..2 {
        let fresh = world.filled(&format!("fresh {round}"), BYTES, round);
        let received = world.each(&format!("received {round}"), BYTES as u64, false);
        for rank in 0..RANKS {
            let to_peer = |value: u64, rest: u64| -> Vec<u64> {
                (0..RANKS)
                    .map(|each| if each == rank { rest } else { value })
                    .collect()
            };
            world.copy(rank, data[rank], fresh[rank], BYTES, NO_SIGNAL);
            let token = match (rank + round) % RANKS {
                0 => 0,
                _ => OWN_ROW | data[rank],
            };
            let arguments = Arguments::default()
                .group(world.abort, &slots, 0, rank)
                .table(&to_peer(token, NO_TOKEN), NO_TOKEN)
                .table(&to_peer(BYTES as u64, 0), 0)
                .table(&to_peer(received[rank], NO_TOKEN), NO_TOKEN)
                .table(&to_peer(BYTES as u64, 0), 0)
                .longs(&[tables[rank]])
                .words(&[RANKS as u32, BLOCKS_PER_PEER as u32])
                .longs(&[STAGING])
                .words(&[CHUNK_BYTES, 0]);
            world.launch(
                rank,
                "symmem_exchange",
                RANKS * BLOCKS_PER_PEER + 1,
                THREADS,
                arguments,
            );
            expected.push((received[rank], pattern(BYTES, 1 - rank, round)));
        }
    }
    world.run(&expected)
}

/// Returns small whole numbers, whose sums are exact.
fn number(at: usize, rank: usize, salt: usize) -> f32 {
    ((at * 7 + rank * 1009 + salt * 37) % 4096) as f32
}

/// All-reduces by push: each rank stores the other's share into its inbox, reduces its own share from there, and stores
/// the sums at all ranks. There are more pieces than slots, so slots are reused. It runs twice, so that the counters
/// continue.
fn push(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const NUMBERS: usize = 500;
    const SHARE: usize = 4 * NUMBERS;
    const PIECE_BYTES: u64 = 256;
    const SLOTS: u64 = 2;
    /// Words of 32 bytes each, rounded up to a multiple of 128.
    const WORDS: u64 = ((2 * RANKS as u64 + 1) * 32).next_multiple_of(128);
    const CHANNEL_BYTES: u64 = WORDS + (RANKS as u64 - 1) * SLOTS * PIECE_BYTES;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(0);
    let inboxes = world.each("inbox", BLOCKS as u64 * CHANNEL_BYTES, true);
    let data = world.each("data", (SHARE * RANKS) as u64, false);
    let results = world.each("result", (SHARE * RANKS) as u64, false);
    let mut expected = Vec::new();
    for round in 0..2 {
        let fresh = world.each(&format!("fresh {round}"), (SHARE * RANKS) as u64, false);
        let taken = world.each(&format!("taken {round}"), (SHARE * RANKS) as u64, false);
        let bytes = |value: &dyn Fn(usize) -> f32| -> Vec<u8> {
            let all = (0..NUMBERS * RANKS).map(value);
            all.flat_map(f32::to_le_bytes).collect()
        };
        for (rank, base) in fresh.iter().enumerate() {
            let numbers = bytes(&|at| number(at, rank, round));
            world.machine.memory().write(*base, &numbers);
        }
        for rank in 0..RANKS {
            let share = |base: u64, of: usize| base + (of * SHARE) as u64;
            let own: Vec<u64> = data.iter().map(|base| share(*base, rank)).collect();
            let stored: Vec<u64> = results.iter().map(|base| share(*base, rank)).collect();
            let pushed: Vec<u64> = (0..RANKS).map(|of| share(data[rank], of)).collect();
            world.copy(rank, data[rank], fresh[rank], SHARE * RANKS, NO_SIGNAL);
            let arguments = Arguments::default()
                .group(world.abort, &slots, 0, rank)
                .reduce(&own, &stored, NUMBERS as u64, SUM_OF_F32)
                .table(&pushed, 0)
                .table(&[NUMBERS as u64; RANKS], 0)
                .table(&inboxes, 0)
                .longs(&[CHANNEL_BYTES])
                .words(&[BLOCKS as u32, SLOTS as u32, PIECE_BYTES as u32, 1]);
            world.launch(rank, "symmem_reduce_push_f32", BLOCKS, THREADS, arguments);
            world.copy(rank, taken[rank], results[rank], SHARE * RANKS, NO_SIGNAL);
            let sums = bytes(&|at| (0..RANKS).map(|each| number(at, each, round)).sum());
            expected.push((taken[rank], sums));
        }
    }
    world.run(&expected)
}
