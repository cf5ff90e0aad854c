//! Ranks that run grids, and the adversary that schedules waves and completes accesses.
//!
//! Everything is drawn from a seed: which wave runs and how long, which wave stands still, and which access completes
//! and when. The seed's remainder also selects a purpose of the adversary: any order, flags before data, or cache lines
//! as old as allowed.
//!
//! The adversary reports:
//! - a plain load that misses the newest store to any of its bytes. In a correct protocol, every such load is ordered
//!   after the store that it needs and before the next one;
//! - a register that is used before the load or atomic that writes it has been waited for;
//! - an access of a wave that races with one of another wave of its block: see [`block`](crate::block);
//! - a load that polls and sees a store which is not atomic, without a barrier or the end of a kernel between them;
//! - a store to another rank's memory after a wait of the block gave up and all its waves met;
//! - an access outside all allocations;
//! - a run that does not end.

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use symmem_kernels_hip::{Launch, Target};

use crate::Error;
use crate::banks::SharedAccesses;
use crate::block::Block;
use crate::memory::{Memory, Path, Stale, StoreNumber};
use crate::operation::Operation;
use crate::pending::{Dirtied, Kind, Pending};
use crate::program::Program;
use crate::random::Random;
use crate::wave::{self, Busy, LANES, Registers, State, Wave};

/// What stops a run.
pub enum Fault {
    Busy(Registers),
    Memory(String),
    Stale {
        lane: usize,
        instruction: usize,
        stale: Stale,
    },
}

impl From<Busy> for Fault {
    fn from(registers: Busy) -> Self {
        Self::Busy(registers)
    }
}

/// A grid to run.
#[derive(Clone)]
pub struct Grid {
    pub program: Rc<Program>,
    pub blocks: usize,
    pub threads: usize,
    /// The struct that follows the [`Launch`].
    pub arguments: Vec<u8>,
    /// Bytes of shared memory per block in addition to what the program declares.
    pub dynamic_shared_bytes: usize,
}

/// The adversary's purpose.
#[derive(Clone, Copy, Debug)]
struct Purpose {
    /// Percentage of turns in which an access completes that no wave waits for.
    completes: u64,
    /// Weights by which accesses are chosen to complete: plain stores, stores for the system, write-backs, others.
    weights: [u64; 4],
    /// See [`Memory::staleness`].
    staleness: u64,
    /// In how many of 1000 turns a line is evicted.
    evicts: u64,
}

const PURPOSES: [Purpose; 3] = [
    // Any order.
    Purpose {
        completes: 30,
        weights: [1, 1, 1, 1],
        staleness: 50,
        evicts: 5,
    },
    // Data late, flags soon.
    Purpose {
        completes: 30,
        weights: [0, 20, 0, 4],
        staleness: 50,
        evicts: 0,
    },
    // Old lines.
    Purpose {
        completes: 60,
        weights: [4, 2, 4, 1],
        staleness: 95,
        evicts: 20,
    },
];

/// Steps after which a run counts as hung.
const MOST_STEPS: u64 = 3_000_000;
/// Most instructions that a wave runs in one turn.
const BURST: u64 = 24;
/// Most turns for which a rank is preferred and a wave stands still, as a rule.
const MOST_TURNS: u64 = 300;
/// Kernels whose atomic operations acquire, although nothing follows in the kernel: users' kernels have the same.
const ACQUIRING: [&str; 1] = ["symmem_word_update"];
/// How the names of kernels begin whose barriers tell no thread of another's wait: those of sums over rows. What threads
/// then send is part of a call that fails at its receivers, too, since other packets never come.
pub const NO_VOTES: &str = "symmem_reduce_norm_";
/// One of this many grids has a wave that begins late, and by how many steps at most.
const LATE_GRIDS: u64 = 4;
const MOST_LATE_STEPS: u64 = 30_000;
/// Nanoseconds per clock tick; the clock counts instructions.
const TICK_NS: u32 = 10;

/// What accesses need apart from the waves.
pub struct Core {
    pub memory: Memory,
    pub random: Random,
    /// Blocks by rank and number.
    pub blocks: FxHashMap<(usize, usize), Block>,
    pub accesses: u64,
    /// Lines in a level 2 cache that no write-back has covered, by the block (its level 1 cache) that stored them.
    pub dirtied: FxHashMap<usize, FxHashMap<u64, Dirtied>>,
    /// The lines of each die that earlier grids have left there.
    pub left: FxHashMap<usize, Vec<u64>>,
    /// Clocks of accesses to shared memory.
    pub shared_accesses: SharedAccesses,
    stores: Vec<Issued>,
    /// The number of grids that each rank has begun.
    pub begun: Vec<usize>,
    /// See [`Machine::excuse`].
    pub excused: Vec<bool>,
    /// See [`Machine::watch`].
    pub watched: std::ops::Range<u64>,
}

/// A store's issue.
struct Issued {
    program: Rc<Program>,
    instruction: usize,
    step: u64,
    rank: usize,
    grid: usize,
    block: usize,
    wave: usize,
    /// The epoch of its block.
    since_barrier: u32,
    /// Whether it is not atomic.
    plain: bool,
}

impl Core {
    /// Numbers a store.
    pub fn record(&mut self, wave: &Wave, plain: bool) -> StoreNumber {
        let block = self.blocks.get(&(wave.rank, wave.block));
        self.stores.push(Issued {
            program: Rc::clone(&wave.program),
            instruction: wave.next - 1,
            step: self.memory.now,
            rank: wave.rank,
            grid: self.begun[wave.rank],
            block: wave.block,
            wave: wave.number,
            since_barrier: block.map_or(0, Block::since_barrier),
            plain,
        });
        self.stores.len() as StoreNumber
    }

    pub fn story(&self, store: StoreNumber) -> String {
        let Some(index) = (store as usize).checked_sub(1) else {
            return "the host's initial value".to_owned();
        };
        let issued = &self.stores[index];
        let who = (issued.rank, issued.block, issued.wave);
        let place = wave::place(&issued.program, who, issued.instruction);
        format!("store {store} ({place} issued in step {})", issued.step)
    }

    /// Whether a store is not atomic, and neither the end of its grid nor a barrier of its block comes before what a wave
    /// does whose block's last barrier began an epoch.
    pub fn is_plain(&self, store: StoreNumber, wave: &Wave, since_barrier: u32) -> bool {
        let Some(index) = (store as usize).checked_sub(1) else {
            return false;
        };
        let store = &self.stores[index];
        let is_ordered = store.rank == wave.rank
            && (store.grid != self.begun[wave.rank]
                || store.block == wave.block && store.since_barrier < since_barrier);
        store.plain && !is_ordered
    }
}

/// A word that the host polls, and what it then reads.
struct Poll {
    word: u64,
    value: u32,
    range: std::ops::Range<u64>,
    seen: Option<Vec<u8>>,
}

/// The ranks.
pub struct Machine {
    core: Core,
    purpose: Purpose,
    dies_per_rank: usize,
    streams: Vec<VecDeque<Grid>>,
    waves: Vec<Wave>,
    polls: Vec<Poll>,
    /// The rank that runs first, the wave that stands still, and for how many turns.
    favorite: usize,
    stalled: usize,
    turns: u64,
    /// A wave that begins late, by rank, block and number, and in which step.
    late: Option<((usize, usize, usize), u64)>,
    /// Whether results of floating point may be anything.
    any_numbers: bool,
    /// The only rank that runs, if not all do.
    alone: Option<usize>,
}

impl Machine {
    /// Creates ranks of a target. MI300 and MI350 have several dies, each with its own level 2 cache; two per rank are
    /// enough to keep blocks apart.
    pub fn new(target: Target, ranks: usize, seed: u64) -> Self {
        let dies_per_rank = if target == Target::Gfx90a { 1 } else { 2 };
        let purpose = PURPOSES[(seed % PURPOSES.len() as u64) as usize];
        let mut memory = Memory::new(ranks * dies_per_rank);
        memory.staleness = purpose.staleness;
        Self {
            core: Core {
                memory,
                random: Random::new(seed),
                blocks: FxHashMap::default(),
                accesses: 0,
                dirtied: FxHashMap::default(),
                left: FxHashMap::default(),
                shared_accesses: SharedAccesses::new(),
                stores: Vec::new(),
                begun: vec![0; ranks],
                excused: vec![false; ranks],
                watched: 0..0,
            },
            purpose,
            dies_per_rank,
            streams: vec![VecDeque::new(); ranks],
            waves: Vec::new(),
            polls: Vec::new(),
            favorite: 0,
            stalled: 0,
            turns: 0,
            late: None,
            any_numbers: false,
            alone: None,
        }
    }

    /// Returns all memory, to set it up and to read the results of a run.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.core.memory
    }

    /// Returns the clocks of all accesses to shared memory so far, by instruction.
    pub fn shared_accesses(&self) -> SharedAccesses {
        self.core.shared_accesses.clone()
    }

    /// Appends a grid to a rank's stream.
    pub fn enqueue(&mut self, rank: usize, grid: Grid) {
        self.streams[rank].push_back(grid);
    }

    /// Runs all grids to their ends and returns the number of steps. Memory then holds everything that kernels stored.
    ///
    /// # Errors
    /// [`Error::Violation`] and [`Error::Hang`]; see the module.
    pub fn run(&mut self) -> Result<u64, Error> {
        let begin = self.core.memory.now;
        if !self.run_for(MOST_STEPS)? {
            return Err(self.hang());
        }
        for rank in 0..self.streams.len() {
            self.end_grid(rank)?;
            self.write_back(rank);
        }
        Ok(self.core.memory.now - begin)
    }

    /// Runs for a number of steps, or until all grids have ended, and returns whether they have. Only [`Self::run`] then
    /// writes back what they stored.
    ///
    /// # Errors
    /// [`Error::Violation`]; see the module.
    pub fn run_for(&mut self, steps: u64) -> Result<bool, Error> {
        let begin = self.core.memory.now;
        loop {
            self.begin_grids()?;
            if (0..self.streams.len()).all(|rank| self.is_idle(rank)) {
                return Ok(true);
            }
            self.turn()?;
            self.observe();
            if self.core.memory.now - begin > steps {
                return Ok(false);
            }
        }
    }

    /// Whether a rank's grids have all ended.
    pub fn is_idle(&self, rank: usize) -> bool {
        self.streams[rank].is_empty() && !self.is_running(rank)
    }

    fn is_running(&self, rank: usize) -> bool {
        let mut waves = self.waves.iter();
        waves.any(|wave| wave.rank == rank && wave.state != State::Ended)
    }

    /// Whether a wave of a rank has stores to another rank of which only a part of the last one is missing.
    pub fn is_torn(&self, rank: usize, other: usize) -> bool {
        let goes_there = |each: &&Pending| {
            let place = each.lanes.first();
            let region = place.and_then(|(_, address)| self.core.memory.region(*address, 1));
            each.kind == Kind::Store && region.is_some_and(|region| region.rank == Some(other))
        };
        let mut waves = self.waves.iter().filter(|wave| wave.rank == rank);
        waves.any(|wave| {
            let mut stores = wave.pending.iter().filter(goes_there);
            stores.next().is_some_and(|first| first.torn) && stores.next().is_none()
        })
    }

    /// Whether some waves of a rank's block have loaded a word that aborts, and others are still to do so.
    pub fn is_divided(&self, rank: usize) -> bool {
        let waves = || self.waves.iter().filter(|wave| wave.rank == rank);
        waves().any(|wave| {
            let is_before = |at: usize| {
                waves().any(|other| {
                    other.block == wave.block && other.looked.is_none() && other.next <= at
                })
            };
            wave.looked.is_some_and(is_before)
        })
    }

    /// Returns how many of a rank's grids have begun.
    pub fn begun(&self, rank: usize) -> usize {
        self.core.begun[rank]
    }

    /// Returns how many of a rank's grids have ended.
    pub fn ended(&self, rank: usize) -> usize {
        self.core.begun[rank] - usize::from(self.is_running(rank))
    }

    /// Returns the steps of all runs so far.
    pub fn steps(&self) -> u64 {
        self.core.memory.now
    }

    /// Lets a rank load what is not there: its call has failed, and its results are undefined.
    pub fn excuse(&mut self, rank: usize) {
        self.core.excused[rank] = true;
    }

    /// Names the addresses of words that abort: a wait that finds one set gives up.
    pub fn watch(&mut self, words: std::ops::Range<u64>) {
        self.core.watched = words;
    }

    /// Lets floating point that is not modeled have any results: no run may depend on them.
    pub fn let_numbers_be_anything(&mut self) {
        self.any_numbers = true;
    }

    /// Lets only one rank run, or all.
    pub fn let_run(&mut self, rank: Option<usize>) {
        self.alone = rank;
    }

    /// Takes the grids that have not begun out of a rank's stream.
    pub fn cancel(&mut self, rank: usize) {
        self.streams[rank].clear();
    }

    /// Lets the host poll a word until it has a value, and then read the bytes around it, which must not change any more.
    pub fn poll(&mut self, word: u64, value: u32, range: std::ops::Range<u64>) {
        self.polls.push(Poll {
            word,
            value,
            range,
            seen: None,
        });
    }

    fn observe(&mut self) {
        for poll in self.polls.iter_mut().filter(|poll| poll.seen.is_none()) {
            let memory = &self.core.memory;
            if memory.read(poll.word, 4) == poll.value.to_le_bytes() {
                let bytes = poll.range.end - poll.range.start;
                poll.seen = Some(memory.read(poll.range.start, bytes as usize));
            }
        }
    }

    /// Fails if what the host read behind a word that it had polled was not there yet.
    ///
    /// # Errors
    /// [`Error::Violation`]
    pub fn check_polls(&self) -> Result<(), Error> {
        for poll in &self.polls {
            let Some(seen) = &poll.seen else { continue };
            let last = self.core.memory.read(poll.range.start, seen.len());
            if let Some(at) = (0..last.len()).find(|at| seen[*at] != last[*at]) {
                return Err(Error::Violation(format!(
                    "the host polls {} and then reads {}, which changes later",
                    self.core.memory.describe(poll.word),
                    self.core.memory.describe(poll.range.start + at as u64)
                )));
            }
        }
        Ok(())
    }

    /// Begins a rank's next grid if all waves of the previous grid have ended.
    fn begin_grids(&mut self) -> Result<(), Error> {
        for rank in 0..self.streams.len() {
            if self.streams[rank].is_empty() || self.is_running(rank) {
                continue;
            }
            self.end_grid(rank)?;
            // Between grids of a stream AMD's runtime fences for the device only (`AMD_OPT_FLUSH`, which is 1 by
            // default). So what a peer loads may still be in a level 2 cache that all of the device shares.
            if self.dies_per_rank > 1 {
                self.write_back(rank);
            } else {
                let lines = self.core.memory.dirty_lines(rank);
                self.core.left.insert(rank, lines);
            }
            if let Some(grid) = self.streams[rank].pop_front() {
                self.begin_grid(rank, &grid);
            }
        }
        Ok(())
    }

    /// Ends a grid: completes its accesses.
    fn end_grid(&mut self, rank: usize) -> Result<(), Error> {
        for index in 0..self.waves.len() {
            while self.waves[index].rank == rank && !self.waves[index].pending.is_empty() {
                self.complete(index, 0)?;
            }
        }
        self.waves.retain(|wave| wave.rank != rank);
        self.core.blocks.retain(|(owner, _), _| *owner != rank);
        self.core.memory.now += 1;
        Ok(())
    }

    /// Writes back a rank's level 2 caches.
    fn write_back(&mut self, rank: usize) {
        for die in self.dies(rank) {
            let lines = self.core.memory.dirty_lines(die);
            self.core.memory.write_back(die, lines);
        }
    }

    fn dies(&self, rank: usize) -> std::ops::Range<usize> {
        rank * self.dies_per_rank..(rank + 1) * self.dies_per_rank
    }

    fn begin_grid(&mut self, rank: usize, grid: &Grid) {
        self.core.begun[rank] += 1;
        let memory = &mut self.core.memory;
        memory.now += 1;
        let launch = Launch {
            blocks: grid.blocks as u32,
            threads: grid.threads as u32,
            tick_ns: TICK_NS,
            reserved: 0,
        };
        let words = [
            launch.blocks,
            launch.threads,
            launch.tick_ns,
            launch.reserved,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(&grid.arguments);
        // Padding for loads that are wider than the rest of the arguments.
        bytes.resize(bytes.len() + 64, 0);
        let arguments = memory.allocate(
            &format!("arguments of rank {rank}"),
            bytes.len() as u64,
            false,
        );
        memory.write(arguments, &bytes);
        for die in self.dies(rank) {
            self.core.memory.invalidate_die(die);
        }
        let first = self.core.random.below(self.dies_per_rank as u64) as usize;
        for block in 0..grid.blocks {
            let die = rank * self.dies_per_rank + (block + first) % self.dies_per_rank;
            let path = Path {
                die,
                level1: self.core.memory.add_level1(die),
            };
            // Even, so that a vote which is not there yet counts as one against.
            let shared = vec![0xda; grid.program.shared_bytes + grid.dynamic_shared_bytes];
            self.core.blocks.insert((rank, block), Block::new(shared));
            for number in 0..grid.threads.div_ceil(LANES) {
                let threads = (grid.threads - number * LANES).min(LANES);
                let program = Rc::clone(&grid.program);
                let who = (rank, block, number);
                self.waves
                    .push(Wave::new(program, who, path, threads, arguments));
            }
        }
        let random = &mut self.core.random;
        if random.below(LATE_GRIDS) == 0 {
            let block = random.below(grid.blocks as u64) as usize;
            let number = random.below(grid.threads.div_ceil(LANES) as u64) as usize;
            let step = self.core.memory.now + random.below(MOST_LATE_STEPS);
            self.late = Some(((rank, block, number), step));
        }
    }

    fn turn(&mut self) -> Result<(), Error> {
        self.core.memory.now += 1;
        let random = &mut self.core.random;
        if self.turns == 0 {
            self.favorite = random.below(self.streams.len() as u64) as usize;
            self.stalled = random.below(self.waves.len() as u64) as usize;
            self.turns = 1 + random.below(MOST_TURNS);
            if random.below(16) == 0 {
                self.turns *= 8;
            }
        }
        self.turns -= 1;
        if random.below(1000) < self.purpose.evicts {
            let die = random.below((self.streams.len() * self.dies_per_rank) as u64) as usize;
            let lines = self.core.memory.dirty_lines(die);
            if !lines.is_empty() {
                let line = lines[self.core.random.below(lines.len() as u64) as usize];
                self.core.memory.write_back(die, [line]);
            }
        }
        let mut index = self.core.random.below(self.waves.len() as u64) as usize;
        if self.waves[index].rank != self.favorite && self.core.random.below(4) != 0 {
            index = self.core.random.below(self.waves.len() as u64) as usize;
        }
        if index == self.stalled && self.core.random.below(32) != 0 {
            return Ok(());
        }
        let wave = &self.waves[index];
        let stands_still = self.late.is_some_and(|(late, step)| {
            late == (wave.rank, wave.block, wave.number) && self.core.memory.now < step
        });
        if stands_still || self.alone.is_some_and(|rank| rank != wave.rank) {
            return Ok(());
        }
        if self.core.random.below(100) < self.purpose.completes {
            self.complete_one(index, false)?;
        }
        if self.waves[index].state == State::Running {
            let burst = 1 + self.core.random.below(BURST);
            for _ in 0..burst {
                if !self.step(index)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Completes one of a wave's accesses, drawn by the adversary's weights. With `waits`, the wave waits for its
    /// accesses and one always completes.
    fn complete_one(&mut self, index: usize, waits: bool) -> Result<(), Error> {
        let pending = &self.waves[index].pending;
        let free: Vec<usize> = (0..pending.len())
            .filter(|later| {
                !pending[..*later]
                    .iter()
                    .any(|before| before.holds_up(&pending[*later]))
            })
            .collect();
        let weight = |index: &usize| {
            let pending = &pending[*index];
            let kind = match pending.kind {
                Kind::Store if !pending.reach.past_level2 => 0,
                Kind::Store => 1,
                Kind::WriteBack { .. } => 2,
                _ => 3,
            };
            self.purpose.weights[kind]
        };
        let all: u64 = free.iter().map(weight).sum();
        let chosen = if all > 0 {
            let mut left = self.core.random.below(all);
            free.iter().copied().find(|index| {
                let weight = weight(index);
                let found = left < weight;
                left = left.saturating_sub(weight);
                found
            })
        } else if waits && !free.is_empty() && self.core.random.below(8) == 0 {
            // What is to be late is late for a wave that waits for it, too.
            Some(free[self.core.random.below(free.len() as u64) as usize])
        } else {
            None
        };
        match chosen {
            Some(chosen) => {
                self.tear(index, chosen);
                self.complete(index, chosen)
            }
            None => Ok(()),
        }
    }

    /// Splits some stores of a wave in two, of which the second completes later: the lanes' stores need not arrive together.
    fn tear(&mut self, index: usize, chosen: usize) {
        let pending = &mut self.waves[index].pending;
        let lanes = pending[chosen].lanes.len() as u64;
        if pending[chosen].kind != Kind::Store || lanes < 2 || self.core.random.below(4) != 0 {
            return;
        }
        let first = 1 + self.core.random.below(lanes - 1) as usize;
        let rest = pending[chosen].split(first);
        pending.insert(chosen + 1, rest);
    }

    fn complete(&mut self, index: usize, chosen: usize) -> Result<(), Error> {
        self.core
            .complete(&mut self.waves[index], chosen)
            .map_err(|fault| self.explain(index, &fault))
    }

    /// Runs a wave's next instruction; returns false if the wave's turn ends.
    fn step(&mut self, index: usize) -> Result<bool, Error> {
        self.core.memory.now += 1;
        let wave = &mut self.waves[index];
        let program = Rc::clone(&wave.program);
        let Some(instruction) = program.instructions.get(wave.next) else {
            return Err(Error::Violation(format!(
                "{} runs on",
                wave.place(wave.next)
            )));
        };
        if let Operation::Wait { vector, scalar } = instruction.operation {
            let mut ended = Ok(());
            while ended.is_ok() && scalar.is_some_and(|left| wave.scalar_pending.len() > left) {
                let Some(late) = wave.scalar_pending.pop_front() else {
                    break;
                };
                wave.mark(&late.registers, false);
                ended = self.core.end_shared(wave, &late);
            }
            ended.map_err(|fault| self.explain(index, &fault))?;
            let wave = &self.waves[index];
            // The counter decreases in order of issue: all accesses but the newest `left` must be complete.
            let held_up = |left: usize| {
                let newest = wave.issued.saturating_sub(left as u64);
                wave.pending.iter().any(|pending| pending.order <= newest)
            };
            if vector.is_some_and(held_up) {
                self.complete_one(index, true)?;
                return Ok(false);
            }
            self.waves[index].next += 1;
            return Ok(true);
        }
        wave.next += 1;
        match instruction.operation {
            // A wave whose accesses are in flight mostly stays, so that others run beside them.
            Operation::End if !wave.pending.is_empty() && self.core.random.below(32) != 0 => {
                wave.next -= 1;
                return Ok(false);
            }
            Operation::End => {
                if wave.found.is_some() && ACQUIRING.contains(&program.name.as_str()) {
                    return Err(Error::Violation(format!(
                        "{} ends without an invalidation behind an operation on a word",
                        wave.place(wave.next - 1)
                    )));
                }
                wave.state = State::Ended;
                self.release_block(index);
                return Ok(false);
            }
            Operation::Barrier => {
                wave.state = State::AtBarrier;
                self.release_block(index);
                return Ok(false);
            }
            Operation::Sleep => return Ok(false),
            Operation::Unmodeled { destination, wide }
                if self.any_numbers && destination.is_some() =>
            {
                let result = wave.put_any(destination, wide);
                result.map_err(|busy| self.explain(index, &busy.into()))?;
                return Ok(true);
            }
            Operation::Unmodeled { .. } => {
                return Err(Error::Instruction {
                    kernel: program.name.clone(),
                    offset: instruction.offset,
                    text: instruction.text.clone(),
                });
            }
            _ => {}
        }
        let result = match wave.execute(&instruction.operation) {
            Some(result) => result.map_err(Fault::from),
            None => self.core.issue(wave, &instruction.operation).map(|_| ()),
        };
        result.map_err(|fault| self.explain(index, &fault))?;
        Ok(true)
    }

    /// Lets a block continue once all its waves are at the barrier or have ended.
    fn release_block(&mut self, index: usize) {
        let (rank, block) = (self.waves[index].rank, self.waves[index].block);
        let mut fellows: Vec<&mut Wave> = self
            .waves
            .iter_mut()
            .filter(|wave| wave.rank == rank && wave.block == block)
            .collect();
        if fellows.iter().any(|wave| wave.state == State::Running) {
            return;
        }
        for wave in &mut fellows {
            if wave.state == State::AtBarrier {
                wave.state = State::Running;
            }
        }
        if let Some(block) = self.core.blocks.get_mut(&(rank, block)) {
            block.pass_barrier();
        }
    }

    fn explain(&self, index: usize, fault: &Fault) -> Error {
        let wave = &self.waves[index];
        let step = self.core.memory.now;
        let here = wave.place(wave.next.saturating_sub(1));
        Error::Violation(match fault {
            Fault::Busy(registers) => {
                format!("step {step}: {here}: {registers:?} is used before its load was waited for")
            }
            Fault::Memory(what) => format!("step {step}: {here}: {what}"),
            Fault::Stale {
                lane,
                instruction,
                stale,
            } => format!(
                "step {step}: {}: lane {lane} loads {} and sees {}, not {}, which is {}",
                wave.place(*instruction),
                self.core.memory.describe(stale.address),
                self.core.story(stale.seen),
                self.core.story(stale.newest),
                self.core.memory.whereabouts(stale.newest, stale.address),
            ),
        })
    }

    fn hang(&self) -> Error {
        let waves: Vec<String> = self
            .waves
            .iter()
            .filter(|wave| wave.state != State::Ended)
            .map(|wave| format!("{:?} {}", wave.state, wave.place(wave.next)))
            .collect();
        Error::Hang {
            steps: MOST_STEPS,
            waves: waves.join("; "),
        }
    }
}
