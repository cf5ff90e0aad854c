//! Runs a loop by all waves of a compute unit, instruction by instruction.
//!
//! What it assumes:
//! - Waves are dealt to the four SIMDs in turn. A SIMD issues every four clocks: at most one instruction of each wave, and
//!   of each unit, in the order of priority and then of age. A wave issues in order.
//! - A vector instruction occupies its SIMD's lanes, a matrix instruction its matrix core, which work side by side. A
//!   matrix result can be added to at once, and used otherwise after llvm-mca's latency.
//! - Shared memory and vector memory belong to all four SIMDs and take their accesses in order of issue. Loads come back
//!   after a latency, at most at the rate of what they are loaded from.
//! - `s_waitcnt` waits for the counters, `s_barrier` for the block. The counters have their widths.
//!
//! Not modeled: instruction fetch, the scalar cache, conflicts between registers' banks, TLB misses, unequal waves.

use std::collections::VecDeque;

use super::devices::{LANES, PASS, SIMDS};
use super::steps::{Step, Unit};

/// Where global accesses go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Clocks from a load's turn until its data is there.
    pub latency: u64,
    /// Bytes of a compute unit's share in a clock.
    pub rate: f64,
}

/// How a kernel runs on a compute unit.
#[derive(Clone, Copy, Debug)]
pub struct Occupancy {
    pub blocks: u32,
    pub threads: u32,
    /// Whether the waves behind the first four of a block start one barrier later.
    pub staggered: bool,
    pub shared_latency: u64,
    pub loads: Path,
    pub stores: Path,
    /// Whether loads and stores share the rate of `loads`.
    pub one_memory: bool,
}

/// The steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steady {
    /// Clocks of an iteration of all waves.
    pub clocks: f64,
    /// Shares of the time for which units are busy.
    pub matrix: f64,
    pub vector: f64,
    pub shared: f64,
    pub memory: f64,
    /// The most bytes in flight of the compute unit: loads, and stores.
    pub loads_in_flight: u64,
    pub stores_in_flight: u64,
}

/// A wave runs at least so many iterations; the first third is not counted.
const LEAST_ITERATIONS: usize = 12;
/// Clocks after which a run counts as hung.
const MOST_CLOCKS: u64 = 20_000_000;
/// The most accesses that a wave's counters can count (CDNA3: six bits and four).
const MOST_MEMORY: usize = 63;
const MOST_SHARED: usize = 15;
/// Clocks from the last wave's arrival at a barrier until waves go on: an assumption.
const BARRIER: u64 = 4 * PASS;

/// An access that is under way.
#[derive(Clone, Copy)]
struct Access {
    done: u64,
    loaded: u64,
    stored: u64,
}

struct Wave {
    block: usize,
    simd: usize,
    next: usize,
    iterations: Vec<u64>,
    free: u64,
    priority: u32,
    memory: VecDeque<Access>,
    shared: VecDeque<u64>,
    at_barrier: bool,
    /// When each vector register can be added to, and when it can be used otherwise.
    added: Vec<u64>,
    used: Vec<u64>,
    /// Barriers that it passes before the loop.
    owed: u32,
}

struct Machine<'a> {
    steps: &'a [Step],
    iterations: usize,
    given: Occupancy,
    waves: Vec<Wave>,
    matrix_free: [u64; SIMDS as usize],
    vector_free: [u64; SIMDS as usize],
    shared_free: u64,
    memory_free: u64,
    loads_free: f64,
    stores_free: f64,
    most: (u64, u64),
}

/// Runs a loop. Returns `None` if it does not get on, such as at a barrier that others never reach.
pub fn run(steps: &[Step], given: Occupancy) -> Option<Steady> {
    let per_block = given.threads.div_ceil(LANES);
    let registers = super::steps::ACCUMULATION as usize + 512;
    let waves = (0..given.blocks).flat_map(|block| {
        (0..per_block).map(move |wave| Wave {
            block: block as usize,
            simd: ((block * per_block + wave) % SIMDS) as usize,
            next: 0,
            iterations: Vec::new(),
            free: 0,
            priority: 0,
            memory: VecDeque::new(),
            shared: VecDeque::new(),
            at_barrier: false,
            added: vec![0; registers],
            used: vec![0; registers],
            owed: u32::from(given.staggered && wave >= SIMDS),
        })
    });
    // Accesses without waits fill the counters before the loop is steady.
    let accesses = steps.iter().filter(|step| step.unit == Unit::Memory);
    let filling = (6 * MOST_MEMORY).checked_div(accesses.count());
    let mut machine = Machine {
        steps,
        iterations: LEAST_ITERATIONS.max(filling.unwrap_or(0)),
        given,
        waves: waves.collect(),
        matrix_free: [0; SIMDS as usize],
        vector_free: [0; SIMDS as usize],
        shared_free: 0,
        memory_free: 0,
        loads_free: 0.0,
        stores_free: 0.0,
        most: (0, 0),
    };
    if steps.is_empty() || machine.waves.is_empty() {
        return None;
    }
    let mut clock = 0;
    while !machine.is_done() {
        if clock > MOST_CLOCKS {
            return None;
        }
        clock = if machine.turn(clock) {
            clock + PASS
        } else {
            machine.next_change(clock)
        };
    }
    Some(machine.steady())
}

impl Machine<'_> {
    fn is_done(&self) -> bool {
        self.waves
            .iter()
            .all(|wave| wave.iterations.len() >= self.iterations)
    }

    /// Each SIMD issues what it can. Returns whether anything happened.
    fn turn(&mut self, clock: u64) -> bool {
        let mut happened = false;
        for wave in &mut self.waves {
            while wave
                .memory
                .front()
                .is_some_and(|access| access.done <= clock)
            {
                wave.memory.pop_front();
            }
            while wave.shared.front().is_some_and(|done| *done <= clock) {
                wave.shared.pop_front();
            }
        }
        for simd in 0..SIMDS as usize {
            // A unit takes one instruction of a SIMD in a turn; vector and matrix instructions share the issue.
            let mut taken: Vec<Unit> = Vec::new();
            let mut order: Vec<usize> = (0..self.waves.len())
                .filter(|&wave| self.waves[wave].simd == simd)
                .collect();
            order.sort_by_key(|&wave| std::cmp::Reverse(self.waves[wave].priority));
            for wave in order {
                let waits = self.waves[wave].at_barrier;
                if let Some(unit) = self.issue(wave, clock, &taken) {
                    taken.push(unit);
                    happened = true;
                }
                happened |= self.waves[wave].at_barrier != waits;
            }
        }
        happened | self.pass_barriers(clock)
    }

    /// Returns the first turn after an idle one in which a wave may issue.
    fn next_change(&self, clock: u64) -> u64 {
        let of_wave = |wave: &Wave| {
            let step = &self.steps[wave.next];
            let added = [&step.accumulates, &step.writes].into_iter().flatten();
            let added = added.map(|&register| wave.added[register as usize]);
            let used = step
                .reads
                .iter()
                .map(|&register| wave.used[register as usize]);
            let access = wave.memory.front().map(|access| access.done);
            let more = access.into_iter().chain(wave.shared.front().copied());
            let times = added.chain(used).chain(more).chain([wave.free]);
            times.filter(|&time| time > clock).min()
        };
        let of_waves = self.waves.iter().filter_map(of_wave);
        let units = self.matrix_free.iter().chain(&self.vector_free).copied();
        let units = units.filter(|&time| time > clock);
        // Vector memory takes accesses again before it is free: then go on turn by turn.
        let held = (self.memory_free > clock).then_some(clock + PASS);
        let next = of_waves.chain(units).chain(held).min();
        next.unwrap_or(clock + PASS).next_multiple_of(PASS)
    }

    /// Issues a wave's next instruction if it can. Returns the unit that took it.
    fn issue(&mut self, index: usize, clock: u64, taken: &[Unit]) -> Option<Unit> {
        let wave = &mut self.waves[index];
        if wave.iterations.len() > self.iterations || wave.at_barrier || wave.free > clock {
            return None;
        }
        if wave.owed > 0 {
            wave.owed -= 1;
            wave.at_barrier = true;
            return None;
        }
        let step = &self.steps[wave.next];
        let lanes = |unit: Unit| matches!(unit, Unit::Vector | Unit::Matrix);
        let same = |other: &Unit| *other == step.unit || (lanes(*other) && lanes(step.unit));
        if step.unit != Unit::Internal && taken.iter().any(same) {
            return None;
        }
        let waits = step
            .wait
            .memory
            .is_some_and(|left| wave.memory.len() > left)
            || step
                .wait
                .shared
                .is_some_and(|left| wave.shared.len() > left);
        let ready = |when: &[u64], which: &[u16]| {
            which
                .iter()
                .all(|&register| when[register as usize] <= clock)
        };
        if waits
            || !ready(&wave.used, &step.reads)
            || !ready(&wave.added, &step.accumulates)
            || !ready(&wave.added, &step.writes)
        {
            return None;
        }
        let simd = wave.simd;
        wave.free = clock + PASS;
        match step.unit {
            Unit::Matrix => {
                if self.matrix_free[simd] > clock {
                    wave.free = clock;
                    return None;
                }
                self.matrix_free[simd] = clock + step.clocks;
                for &register in &step.writes {
                    wave.added[register as usize] = clock + step.clocks;
                    wave.used[register as usize] = clock + step.latency;
                }
            }
            Unit::Vector => {
                if self.vector_free[simd] > clock {
                    wave.free = clock;
                    return None;
                }
                self.vector_free[simd] = clock + step.clocks;
            }
            Unit::Shared => {
                if wave.shared.len() >= MOST_SHARED {
                    wave.free = clock;
                    return None;
                }
                self.shared_free = self.shared_free.max(clock) + step.clocks;
                let done = self.shared_free + self.given.shared_latency.saturating_sub(step.clocks);
                wave.shared.push_back(done);
            }
            Unit::Memory => {
                // The unit holds few accesses: a wave whose access would wait long is held back.
                let full = self.memory_free > clock + 4 * step.clocks;
                if wave.memory.len() >= MOST_MEMORY || full {
                    wave.free = clock;
                    return None;
                }
                self.memory_free = self.memory_free.max(clock) + step.clocks;
                let access = self.access(index, self.memory_free);
                let wave = &mut self.waves[index];
                wave.memory.push_back(access);
                self.count_in_flight();
            }
            Unit::Branch | Unit::Internal => wave.free = clock + step.clocks,
            Unit::Scalar => {}
        }
        let wave = &mut self.waves[index];
        let step = &self.steps[wave.next];
        if let Some(priority) = step.priority {
            wave.priority = priority;
        }
        wave.at_barrier = step.barrier;
        wave.next += 1;
        if wave.next == self.steps.len() {
            wave.next = 0;
            wave.iterations.push(clock);
        }
        Some(step.unit)
    }

    /// Sends an access that leaves the compute unit at `clock` on its way.
    fn access(&mut self, index: usize, clock: u64) -> Access {
        let step = &self.steps[self.waves[index].next];
        let (path, free) = if step.stored > 0 && !self.given.one_memory {
            (self.given.stores, &mut self.stores_free)
        } else {
            (self.given.loads, &mut self.loads_free)
        };
        let bytes = (step.loaded + step.stored) as f64;
        *free = free.max(clock as f64) + bytes / path.rate;
        let latency = if step.stored > 0 {
            self.given.stores.latency
        } else {
            path.latency
        };
        if step.direct > 0 {
            self.shared_free = self.shared_free.max(clock) + step.direct;
        }
        // Counters go down in the order of issue.
        let last = self.waves[index].memory.back().map_or(0, |last| last.done);
        Access {
            done: (*free as u64 + latency).max(last),
            loaded: step.loaded,
            stored: step.stored,
        }
    }

    fn count_in_flight(&mut self) {
        let under_way = self.waves.iter().flat_map(|wave| &wave.memory);
        let now = under_way.fold((0, 0), |(loaded, stored), access| {
            (loaded + access.loaded, stored + access.stored)
        });
        self.most = (self.most.0.max(now.0), self.most.1.max(now.1));
    }

    /// Lets blocks go on whose waves are all at a barrier, or at the end.
    /// Returns whether it did.
    fn pass_barriers(&mut self, clock: u64) -> bool {
        let mut passed = false;
        for block in 0..self.given.blocks as usize {
            let of_block = |wave: &&mut Wave| wave.block == block;
            let most = self.iterations;
            let ended = |wave: &Wave| wave.iterations.len() > most;
            let waits = self
                .waves
                .iter()
                .filter(|wave| wave.block == block)
                .all(|wave| wave.at_barrier || ended(wave));
            if waits {
                for wave in self.waves.iter_mut().filter(of_block) {
                    if wave.at_barrier {
                        wave.at_barrier = false;
                        passed = true;
                        wave.free = wave.free.max(clock + BARRIER);
                    }
                }
            }
        }
        passed
    }

    fn steady(&self) -> Steady {
        let end_of = |iteration: usize| {
            let ends = self.waves.iter().map(|wave| wave.iterations[iteration - 1]);
            ends.max().unwrap_or(0) as f64
        };
        let warm = self.iterations / 3;
        let counted = (self.iterations - warm) as f64;
        let clocks = (end_of(self.iterations) - end_of(warm)) / counted;
        let busy = |unit: Unit, units: f64| {
            let of_wave = self.steps.iter().filter(|step| step.unit == unit);
            let of_wave: u64 = of_wave.map(|step| step.clocks).sum();
            of_wave as f64 * self.waves.len() as f64 / units / clocks
        };
        let direct: u64 = self.steps.iter().map(|step| step.direct).sum();
        let direct = direct as f64 * self.waves.len() as f64 / clocks;
        Steady {
            clocks,
            matrix: busy(Unit::Matrix, f64::from(SIMDS)),
            vector: busy(Unit::Vector, f64::from(SIMDS)),
            shared: busy(Unit::Shared, 1.0) + direct,
            memory: busy(Unit::Memory, 1.0),
            loads_in_flight: self.most.0,
            stores_in_flight: self.most.1,
        }
    }
}

#[cfg(test)]
mod tests;
