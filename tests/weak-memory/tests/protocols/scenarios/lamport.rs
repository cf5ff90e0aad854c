//! Sums and moves in Lamport packets: a word that is not empty is data, whatever else has arrived.

use super::*;

/// The kernels for all calls, and for one vector a thread in a group of two.
pub const KERNELS: [&str; 2] = [
    "symmem_reduce_lamport_f32",
    "symmem_reduce_lamport_pair1_f32",
];

/// The two-shot kernels, for all calls and for one vector of each share a thread.
pub const TWO_SHOT: [&str; 2] = [
    "symmem_reduce_lamport_two_shot_f32",
    "symmem_reduce_lamport_two_shot_few_f32",
];

/// The kernels that move, for all calls and for one vector a thread in a group of two.
pub const MOVES: [&str; 2] = ["symmem_move_lamport", "symmem_move_lamport_pair1"];

/// The kernels that reduce for one rank, and that move from or to one rank.
pub const ROOTED: [&str; 2] = [
    "symmem_reduce_lamport_rooted_f32",
    "symmem_move_lamport_rooted",
];

/// Bytes of a row of packets, and of the data in it.
const PACKET_ROW: usize = 512;
const DATA_ROW: usize = 496;

/// The kernels that add a residual and normalise rows. The model has no floating point but sums, so normalised rows may be
/// anything.
pub const NORMS: [&str; 3] = [
    "symmem_reduce_norm_f32",
    KERNELS[1],
    "symmem_reduce_norm_shares_f32",
];

/// The bytes of one vector for each thread of a grid.
const ROW: usize = BLOCKS * THREADS * 16;
const BUFFERS: u64 = 2;
/// `Norm::layer`, which takes two sums over a row.
const LAYER: u32 = 2;
/// Stands for every rank as sender or receiver.
const EVERY_MEMBER: u32 = u32::MAX;

/// Returns the bytes of dynamic shared memory of a kernel with a norm: two numbers for each 32 threads.
pub fn shared_memory(threads: usize) -> usize {
    threads / 32 * 2 * 4
}

/// Whether arguments name a rank.
fn is_named(named: u32, rank: usize) -> bool {
    named == EVERY_MEMBER || named == rank as u32
}

/// An all-reduce, or a reduce if it has a receiver.
struct Sum {
    /// The kernel of each rank.
    kernels: [&'static str; RANKS],
    bytes: usize,
    /// The bytes of a share in a two-shot call, otherwise 0.
    share_bytes: usize,
    receiver: u32,
}

/// A message from the sender to the receiver.
struct Move {
    kernel: &'static str,
    bytes: usize,
    sender: u32,
    receiver: u32,
}

/// What all calls on the same inboxes use.
struct Inboxes {
    slots: Vec<u64>,
    inboxes: Vec<u64>,
    counters: Vec<u64>,
    part_bytes: usize,
    /// The norm of rows, 0 for none.
    norm: u32,
    /// Memory at the end: a destination of each rank for each call.
    expected: Vec<(u64, Vec<u8>)>,
}

impl Inboxes {
    fn new(world: &mut World, part_bytes: usize) -> Self {
        let bytes = BUFFERS * (RANKS as u64 - 1) * part_bytes as u64;
        let counters = world.each("counters", 16, true);
        // A thread that comes late may find that a wait has given up.
        for base in &counters {
            world.machine.memory().let_loads_race(*base);
        }
        Self {
            slots: world.slots(0),
            inboxes: world.each("inbox", bytes, true),
            counters,
            part_bytes,
            norm: 0,
            expected: Vec::new(),
        }
    }

    /// Enqueues a sum at each rank. A rank that is not the receiver keeps its destination.
    fn sum(&mut self, world: &mut World, round: usize, sum: &Sum) {
        let count = sum.bytes / 4;
        let data = world.each(&format!("data {round}"), sum.bytes as u64, false);
        let results = world.filled(&format!("result {round}"), sum.bytes, round);
        let numbers = |value: &dyn Fn(usize) -> f32| -> Vec<u8> {
            (0..count).map(value).flat_map(f32::to_le_bytes).collect()
        };
        for rank in 0..RANKS {
            let own = numbers(&|at| number(at, rank, round));
            world.machine.memory().write(data[rank], &own);
            let source = |member: usize| match is_named(sum.receiver, member) {
                true => data[rank] + (member * sum.share_bytes) as u64,
                false => 0,
            };
            let sources = [source(0), source(1)];
            let peer = 1 - rank;
            let arguments = Arguments::default()
                .group(world.watch, &self.slots, 0, rank)
                .table(&self.inboxes, 0)
                .table(&sources, 0)
                .longs(&[results[rank], count as u64, self.counters[rank]])
                .words(&[self.part_bytes as u32])
                .words(&SUM_OF_F32)
                .words(&[0])
                .longs(&[sources[rank], sources[peer]])
                .longs(&[self.inboxes[rank], self.inboxes[peer]])
                .longs(&[sum.share_bytes as u64])
                .words(&[sum.receiver, 0]);
            world.launch(rank, sum.kernels[rank], BLOCKS, THREADS, arguments);
            let result = match is_named(sum.receiver, rank) {
                true => numbers(&|at| (0..RANKS).map(|each| number(at, each, round)).sum()),
                false => pattern(sum.bytes, rank, round),
            };
            self.expected.push((results[rank], result));
        }
    }

    /// Enqueues a sum of rows of `hidden` elements with a residual at each rank, which stores it twice.
    fn norm(&mut self, world: &mut World, round: usize, (rows, hidden): (usize, usize)) {
        let bytes = rows * hidden * 4;
        let data = world.each(&format!("data {round}"), bytes as u64, false);
        let residuals = world.each(&format!("residual {round}"), bytes as u64, false);
        let results = world.filled(&format!("result {round}"), bytes, round);
        let sums = world.filled(&format!("sum {round}"), bytes, round);
        let numbers = |value: &dyn Fn(usize) -> f32| -> Vec<u8> {
            (0..rows * hidden)
                .map(value)
                .flat_map(f32::to_le_bytes)
                .collect()
        };
        let residual = |at: usize| number(at, RANKS, round);
        let expected = numbers(&|at| {
            let sum: f32 = (0..RANKS).map(|each| number(at, each, round)).sum();
            sum + residual(at)
        });
        for rank in 0..RANKS {
            let own = numbers(&|at| number(at, rank, round));
            world.machine.memory().write(data[rank], &own);
            let own = numbers(&residual);
            world.machine.memory().write(residuals[rank], &own);
            let sources = [data[rank]; RANKS];
            let peer = 1 - rank;
            let arguments = Arguments::default()
                .group(world.watch, &self.slots, 0, rank)
                .table(&self.inboxes, 0)
                .table(&sources, 0)
                .longs(&[results[rank], (rows * hidden) as u64, self.counters[rank]])
                .words(&[self.part_bytes as u32])
                .words(&SUM_OF_F32)
                .words(&[0])
                .longs(&[sources[rank], sources[peer]])
                .longs(&[self.inboxes[rank], self.inboxes[peer]])
                .longs(&[0])
                .words(&[EVERY_MEMBER, 0])
                .longs(&[residuals[rank], sums[rank], 0, 0, 0])
                .words(&[hidden as u32, rows as u32, 0, 0, self.norm, 0, 0, 0]);
            world.launch(rank, NORMS[0], BLOCKS, THREADS, arguments);
            if self.norm == 0 {
                self.expected.push((results[rank], expected.clone()));
            }
            self.expected.push((sums[rank], expected.clone()));
        }
    }

    /// Enqueues a two-shot sum of rows: each rank owns half of them, the last one less by one if their number is odd.
    fn norm_of_shares(&mut self, world: &mut World, round: usize, (rows, hidden): (usize, usize)) {
        let (share, row) = (rows.div_ceil(RANKS), hidden * 4);
        let data = world.each(&format!("data {round}"), (rows * row) as u64, false);
        let residuals = world.each(&format!("residual {round}"), (share * row) as u64, false);
        let results = world.filled(&format!("result {round}"), rows * row, round);
        let sums = world.filled(&format!("sum {round}"), share * row, round);
        let numbers = |range: std::ops::Range<usize>, value: &dyn Fn(usize) -> f32| -> Vec<u8> {
            range.map(value).flat_map(f32::to_le_bytes).collect()
        };
        let residual = |at: usize| number(at, RANKS, round);
        let all = |at: usize| {
            let sum: f32 = (0..RANKS).map(|each| number(at, each, round)).sum();
            sum + residual(at)
        };
        for rank in 0..RANKS {
            let own = rank * share * hidden..rows.min((rank + 1) * share) * hidden;
            let memory = world.machine.memory();
            memory.write(
                data[rank],
                &numbers(0..rows * hidden, &|at| number(at, rank, round)),
            );
            memory.write(residuals[rank], &numbers(own.clone(), &residual));
            let source = |member: usize| data[rank] + (member * share * row) as u64;
            let sources = [source(0), source(1)];
            let peer = 1 - rank;
            let arguments = Arguments::default()
                .group(world.watch, &self.slots, 0, rank)
                .table(&self.inboxes, 0)
                .table(&sources, 0)
                .longs(&[results[rank], (rows * hidden) as u64, self.counters[rank]])
                .words(&[self.part_bytes as u32])
                .words(&SUM_OF_F32)
                .words(&[0])
                .longs(&[sources[rank], sources[peer]])
                .longs(&[self.inboxes[rank], self.inboxes[peer]])
                .longs(&[(share * row.next_multiple_of(16)) as u64])
                .words(&[EVERY_MEMBER, 0])
                .longs(&[residuals[rank], sums[rank], 0, 0, 0])
                .words(&[hidden as u32, rows as u32, 0, 0, self.norm, 0])
                .words(&[share as u32, share as u32]);
            world.launch(rank, NORMS[2], BLOCKS, THREADS, arguments);
            let mut stored = pattern(share * row, rank, round);
            let sums_of_rank = numbers(own, &all);
            stored[..sums_of_rank.len()].copy_from_slice(&sums_of_rank);
            self.expected.push((sums[rank], stored));
            if self.norm == 0 {
                let everywhere = numbers(0..rows * hidden, &all);
                self.expected.push((results[rank], everywhere));
            }
        }
    }

    /// Enqueues a move at each rank. What no message is for keeps its bytes. Many words are those that need a mark.
    fn transfer(&mut self, world: &mut World, round: usize, call: &Move) {
        let bytes = call.bytes;
        let all = RANKS * bytes;
        let from = world.each(&format!("from {round}"), all as u64, false);
        let to = world.filled(&format!("to {round}"), all, round);
        let message = |rank: usize, peer: usize| -> Vec<u8> {
            let words = (0..bytes / 4).map(|at| match (at / 3 + at + rank) % 3 {
                0 => u32::MAX,
                _ => (1 + round * 1000 + peer * 100 + rank * 10 + at % 7) as u32,
            });
            words.flat_map(u32::to_le_bytes).collect()
        };
        let moves =
            |sender, receiver| is_named(call.sender, sender) && is_named(call.receiver, receiver);
        for rank in 0..RANKS {
            let sent: Vec<u8> = (0..RANKS).flat_map(|peer| message(rank, peer)).collect();
            world.machine.memory().write(from[rank], &sent);
            let at = |moves: bool, base: u64, peer: usize| match moves {
                true => base + (peer * bytes) as u64,
                false => 0,
            };
            let sources = [0, 1].map(|peer| at(moves(rank, peer), from[rank], peer));
            let destinations = [0, 1].map(|peer| at(moves(peer, rank), to[rank], peer));
            let peer = 1 - rank;
            let arguments = Arguments::default()
                .group(world.watch, &self.slots, 0, rank)
                .table(&self.inboxes, 0)
                .table(&sources, 0)
                .table(&destinations, 0)
                .longs(&[bytes as u64, self.counters[rank]])
                .words(&[self.part_bytes as u32, 0])
                .longs(&[sources[peer], destinations[peer]])
                .longs(&[sources[rank], destinations[rank]])
                .longs(&[self.inboxes[rank], self.inboxes[peer]])
                .words(&[call.sender, call.receiver]);
            world.launch(rank, call.kernel, BLOCKS, THREADS, arguments);
            let mut arrived = pattern(all, rank, round);
            for peer in (0..RANKS).filter(|peer| moves(*peer, rank)) {
                arrived[peer * bytes..][..bytes].copy_from_slice(&message(peer, rank));
            }
            self.expected.push((to[rank], arrived));
        }
    }
}

/// All-reduces of different lengths, more often than an inbox has buffers, so that each is emptied and used again.
pub fn sums(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    // A little more than the longest message.
    let mut inboxes = Inboxes::new(&mut world, ROW + 128);
    for round in 0..5 {
        // Whole vectors for the small kernel; more than a row of them, the last in part, for the other.
        let (kernel, bytes) = match (round + seed as usize) % 2 {
            0 => (KERNELS[1], ROW - 16 * round),
            _ => (KERNELS[0], ROW + 4 + 12 * round),
        };
        let sum = Sum {
            kernels: [kernel; RANKS],
            bytes,
            share_bytes: 0,
            receiver: EVERY_MEMBER,
        };
        inboxes.sum(&mut world, round, &sum);
    }
    world.run(&inboxes.expected)
}

/// Two-shot all-reduces of different lengths: the last share is shorter than the other, or empty.
pub fn two_shot_sums(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let mut inboxes = Inboxes::new(&mut world, 2 * (ROW + 128));
    for round in 0..5 {
        // Whole vectors for the small kernel, at one rank or both; more than a row of them for the other.
        let (kernels, share_bytes, bytes) = match (round + seed as usize) % 2 {
            0 => {
                let other = TWO_SHOT[(seed / 2 % 2) as usize];
                let share = ROW - 16 * round;
                ([TWO_SHOT[1], other], share, 2 * share - 16 * round)
            }
            _ => {
                let share = ROW + 16 + 16 * round;
                let bytes = match round {
                    2 | 3 => share / 2 + 4,
                    _ => 2 * share - 4 - 12 * round,
                };
                ([TWO_SHOT[0]; RANKS], share, bytes)
            }
        };
        let sum = Sum {
            kernels,
            bytes,
            share_bytes,
            receiver: EVERY_MEMBER,
        };
        inboxes.sum(&mut world, round, &sum);
    }
    world.run(&inboxes.expected)
}

/// All-to-alls of different lengths.
pub fn moves(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let rows = BLOCKS * THREADS / 32;
    let mut inboxes = Inboxes::new(&mut world, (rows + 1) * PACKET_ROW);
    for round in 0..5 {
        // Whole vectors for the small kernel; one row more than threads, the last vector in part, for the other.
        let (kernel, bytes) = match (round + seed as usize) % 2 {
            0 => (MOVES[1], rows * DATA_ROW - 16 * round),
            _ => (MOVES[0], rows * DATA_ROW + 4 + 12 * round),
        };
        let call = Move {
            kernel,
            bytes,
            sender: EVERY_MEMBER,
            receiver: EVERY_MEMBER,
        };
        inboxes.transfer(&mut world, round, &call);
    }
    world.run(&inboxes.expected)
}

/// All-to-alls of one vector a thread: few stores, so that an interruption often comes between those of a line.
pub fn lines(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let rows = BLOCKS * THREADS / 32;
    let mut inboxes = Inboxes::new(&mut world, rows * PACKET_ROW);
    for round in 0..2 {
        let call = Move {
            kernel: MOVES[1],
            bytes: rows * DATA_ROW - 16 * round,
            sender: EVERY_MEMBER,
            receiver: EVERY_MEMBER,
        };
        inboxes.transfer(&mut world, round, &call);
    }
    world.run(&inboxes.expected)
}

/// Reduces, broadcasts or scatters, and gathers, in turn with calls between all ranks on the same inboxes. What a rank
/// neither sends nor receives is an empty message.
pub fn rooted(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let rows = BLOCKS * THREADS / 32;
    let mut inboxes = Inboxes::new(&mut world, (rows + 1) * PACKET_ROW);
    for round in 0..7 {
        let root = ((round / 2 + seed as usize) % RANKS) as u32;
        let sum = |kernel, bytes, receiver| Sum {
            kernels: [kernel; RANKS],
            bytes,
            share_bytes: 0,
            receiver,
        };
        let call = |sender, receiver| Move {
            kernel: ROOTED[1],
            bytes: rows * DATA_ROW + 4 + 12 * round,
            sender,
            receiver,
        };
        match (round + seed as usize / 2) % 6 {
            0 | 3 => inboxes.sum(
                &mut world,
                round,
                &sum(ROOTED[0], ROW + 4 + 12 * round, root),
            ),
            1 => inboxes.transfer(&mut world, round, &call(root, EVERY_MEMBER)),
            2 => inboxes.sum(
                &mut world,
                round,
                &sum(KERNELS[1], ROW - 16 * round, EVERY_MEMBER),
            ),
            4 => inboxes.transfer(&mut world, round, &call(EVERY_MEMBER, root)),
            _ => inboxes.transfer(&mut world, round, &call(root, 1 - root)),
        }
    }
    world.run(&inboxes.expected)
}

/// Sums of rows with a residual, in turn with all-reduces on the same inboxes. Under half of the seeds with a norm.
pub fn norms(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    let mut world = World::new(kernels, seed);
    let mut inboxes = Inboxes::new(&mut world, 3 * ROW);
    if seed % 2 == 1 {
        inboxes.norm = LAYER;
        world.machine.let_numbers_be_anything();
    }
    for round in 0..5 {
        if (round + seed as usize) % 3 == 2 {
            let sum = Sum {
                kernels: [KERNELS[1]; RANKS],
                bytes: ROW - 16 * round,
                share_bytes: 0,
                receiver: EVERY_MEMBER,
            };
            inboxes.sum(&mut world, round, &sum);
            continue;
        }
        // A block has one row or two; a row has fewer vectors than threads or more, the last in part.
        let rows = 2 + (round + seed as usize) % 3;
        if (round / 2 + seed as usize) % 2 == 1 {
            // Two rows of a share, a block each, of which the second may not exist.
            inboxes.norm_of_shares(
                &mut world,
                round,
                (3 + rows % 2, [40, 130][round % 2] + round),
            );
            continue;
        }
        inboxes.norm(&mut world, round, (rows, [40, 515][round % 2] + round));
    }
    world.run(&inboxes.expected)
}
