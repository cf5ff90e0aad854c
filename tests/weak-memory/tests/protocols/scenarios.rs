//! Programs of several ranks for each protocol. In each, a rank stores and signals, and the other loads.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use symmem_kernels_hip::Target;
use symmem_weak_memory::Error;
use symmem_weak_memory::banks::{self, SharedAccesses};
use symmem_weak_memory::machine::{Grid, Machine};
use symmem_weak_memory::operation::Operation;
use symmem_weak_memory::program::{Instruction, Program, has_kernel};
use symmem_weak_memory::random::Random;

use crate::arguments::{Arguments, WatchWords};

pub mod covered;
mod element;
mod exchange;
mod lamport;
mod latency;
mod pieces;
pub mod product;
mod push;
mod sums;
mod swap;
mod words;

/// A program for several ranks.
pub struct Scenario {
    pub name: &'static str,
    pub kernels: &'static [&'static str],
    /// Runs the program with a seed.
    pub run: fn(&Kernels, u64) -> Result<(), Error>,
}

impl Scenario {
    /// Whether it has a GEMM, which takes as long as several others.
    pub fn is_gemm(&self) -> bool {
        let mut kernels = self.kernels.iter();
        kernels.any(|kernel| kernel.contains("_gemm_"))
    }

    /// Returns the targets that have all its kernels.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        let has = |name: &str, target: Target| {
            let modules = symmem_kernels_hip::modules().iter();
            let mut entries = modules.flat_map(|module| module.entries_of(target));
            entries.any(|entry| entry.name == name)
        };
        let all = Target::ALL.into_iter();
        all.filter(move |target| self.kernels.iter().all(|name| has(name, *target)))
    }
}

pub const SCENARIOS: [Scenario; 21] = [
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
        run: exchange::exchange,
    },
    Scenario {
        name: "push",
        kernels: &["symmem_copy_vector", "symmem_reduce_push_f32"],
        run: push::push,
    },
    Scenario {
        name: "gathered product",
        kernels: &product::KERNELS,
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
    Scenario {
        name: "words",
        kernels: &words::WORDS_AND_STEPS,
        run: words::words,
    },
    Scenario {
        name: "steps",
        kernels: &words::STEPS,
        run: words::steps,
    },
    Scenario {
        name: "latency of signals",
        kernels: &latency::SIGNAL,
        run: latency::signals,
    },
    Scenario {
        name: "latency of packets",
        kernels: &latency::PACKET,
        run: latency::packets,
    },
    Scenario {
        name: "swap",
        kernels: &swap::KERNELS,
        run: swap::swaps,
    },
    Scenario {
        name: "reduced product",
        kernels: &sums::KERNELS,
        run: sums::sums,
    },
    Scenario {
        name: "gathered product of 8-bit floats",
        kernels: &product::KERNELS_OF_F8,
        run: product::product_of_f8,
    },
];

/// The kernels of a scenario, compiled for a target.
pub struct Kernels {
    target: Target,
    programs: HashMap<String, Rc<Program>>,
    /// Clocks of accesses to shared memory in all runs.
    pub shared_accesses: RefCell<SharedAccesses>,
}

/// The kernels of a scenario. The last one aborts: see `alone`.
fn names(scenario: &Scenario) -> Vec<&'static str> {
    let names = scenario.kernels.iter().chain(&["symmem_word_update"]);
    names.copied().collect()
}

impl Kernels {
    pub fn load(scenario: &Scenario, target: Target) -> Result<Self, Error> {
        Ok(Self::of(
            target,
            Program::load_all(&names(scenario), target)?,
        ))
    }

    /// Loads the kernels of a scenario, those that a code object has from there.
    pub fn load_with(scenario: &Scenario, target: Target, object: &[u8]) -> Result<Self, Error> {
        let names = names(scenario).into_iter();
        let (given, others): (Vec<_>, Vec<_>) = names.partition(|name| has_kernel(object, name));
        let mut programs = Program::from_object(&given, target, object)?;
        programs.extend(Program::load_all(&others, target)?);
        Ok(Self::of(target, programs))
    }

    fn of(target: Target, programs: Vec<Program>) -> Self {
        let programs = programs.into_iter();
        Self {
            target,
            programs: programs
                .map(|program| (program.name.clone(), Rc::new(program)))
                .collect(),
            shared_accesses: RefCell::default(),
        }
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

/// How far a scenario runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// See [`alone`].
    Alone,
    /// See [`interrupted`].
    Interrupted,
}

thread_local! {
    static EXTENT: Cell<Extent> = const { Cell::new(Extent::Whole) };
    /// The steps of the last scenario that ran as a whole.
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Whether a scenario runs as a whole.
fn is_whole() -> bool {
    EXTENT.get() == Extent::Whole
}

fn run_to(extent: Extent, scenario: &Scenario, kernels: &Kernels, seed: u64) -> Result<(), Error> {
    // The order of updates decides what words hold, and these kernels wait for nobody.
    if scenario.kernels.contains(&"symmem_word_update") {
        return Ok(());
    }
    EXTENT.set(extent);
    let result = (scenario.run)(kernels, seed);
    EXTENT.set(Extent::Whole);
    result
}

/// Runs a scenario up to the first kernel of rank 0 that waits, without the other rank, which sets the abort word in the
/// host's place. All waits must then end, and no result may be stored that is not the expected one.
pub fn alone(scenario: &Scenario, kernels: &Kernels, seed: u64) -> Result<(), Error> {
    run_to(Extent::Alone, scenario, kernels, seed)
}

/// Runs a scenario, after it ran as a whole, to a moment that the seed draws. From then on, the waits of rank 0 give up, and
/// it begins no kernel. When rank 1 has done what it can without rank 0, its waits give up, too. A kernel that ended
/// before that must have stored what is expected, and no other may have stored anything else.
pub fn interrupted(scenario: &Scenario, kernels: &Kernels, seed: u64) -> Result<(), Error> {
    run_to(Extent::Interrupted, scenario, kernels, seed)
}

/// Ranks with signals, and words that their waits watch.
struct World<'a> {
    kernels: &'a Kernels,
    machine: Machine,
    seed: u64,
    /// See [`WatchWords`].
    watch: u64,
    signals: Vec<u64>,
    /// Whether rank 0 runs alone and its waiting kernel is enqueued.
    waits: bool,
    /// The arguments of each rank's kernels.
    launched: [Vec<Vec<u8>>; RANKS],
    /// How many of a rank's kernels had ended when its waits began to give up.
    whole: [usize; RANKS],
}

impl<'a> World<'a> {
    fn new(kernels: &'a Kernels, seed: u64) -> Self {
        let mut machine = Machine::new(kernels.target, RANKS, seed);
        let watch = machine.memory().allocate("watch", WatchWords::BYTES, true);
        machine.watch(watch..watch + WatchWords::BYTES);
        for rank in 0..RANKS {
            let record = WatchWords::of(watch, rank).record;
            machine.poll(record, 2, record..record + WatchWords::RECORD_BYTES);
        }
        let mut world = Self {
            kernels,
            machine,
            seed,
            watch,
            signals: Vec::new(),
            waits: false,
            launched: Default::default(),
            whole: [usize::MAX; RANKS],
        };
        world.signals = world.each("signals", 4096, true);
        world
    }

    /// Allocates memory for each rank.
    fn each(&mut self, name: &str, bytes: u64, uncached: bool) -> Vec<u64> {
        let memory = self.machine.memory();
        (0..RANKS)
            .map(|rank| {
                let base = memory.allocate(&format!("{name} of rank {rank}"), bytes, uncached);
                memory.belongs_to(rank);
                base
            })
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

    /// Writes how often each block has used its packets.
    fn count_uses(&mut self, slots: &[u64], uses: u32) {
        for slot in slots {
            for block in 0..BLOCKS as u64 {
                let counters = u64::from(uses) << 32;
                let place = slot + block * SLOT_BYTES;
                self.machine.memory().write(place, &counters.to_le_bytes());
            }
        }
    }

    fn launch(
        &mut self,
        rank: usize,
        kernel: &str,
        blocks: usize,
        threads: usize,
        arguments: Arguments,
    ) {
        if EXTENT.get() == Extent::Alone {
            if self.waits || rank != 0 {
                return;
            }
            self.waits = !kernel.starts_with("symmem_copy_");
        }
        let arguments = arguments.bytes(kernel);
        self.launched[rank].push(arguments.clone());
        self.machine.enqueue(
            rank,
            Grid {
                program: Rc::clone(&self.kernels.programs[kernel]),
                blocks,
                threads,
                dynamic_shared_bytes: match kernel.starts_with("symmem_reduce_norm_") {
                    true => lamport::shared_memory(threads),
                    false => product::shared_memory(kernel, self.kernels.target),
                },
                arguments,
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
            .watch(self.watch, rank)
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
            .watch(self.watch, rank)
            .longs(&[self.signals[rank] + EPOCH, self.signals[rank]])
            .table(&words, 0)
            .words(&[RANKS as u32, 0]);
        self.launch(rank, "symmem_barrier", 1, 128, arguments);
    }

    /// Runs everything, or as far as [`EXTENT`] says.
    fn finish(&mut self) -> Result<(), Error> {
        match EXTENT.get() {
            Extent::Whole => STEPS.set(self.machine.run()?),
            Extent::Alone => {
                const SET: u32 = 1;
                let abort = WatchWords::of(self.watch, 0).abort;
                let arguments = Arguments::default()
                    .longs(&[abort, 0, 1, 0])
                    .words(&[SET, 32]);
                self.waits = false;
                EXTENT.set(Extent::Whole);
                self.launch(1, "symmem_word_update", 1, 64, arguments);
                EXTENT.set(Extent::Alone);
                self.machine.run()?;
            }
            Extent::Interrupted => self.interrupt()?,
        }
        self.machine.check_polls()
    }

    fn interrupt(&mut self) -> Result<(), Error> {
        let steps = STEPS.get().max(1000);
        let mut random = Random::new(self.seed ^ steps);
        // Other moments are when a part of a message has arrived, and, as soon as a kernel begins, when it has just begun, or
        // when some waves of a block have looked whether to give up, and others have not.
        let kind = random.below(5);
        let begins = matches!(kind, 1..=3);
        let moment = random.below(if begins { steps / 2 } else { steps });
        if self.machine.run_for(moment)? {
            return self.machine.run().map(|_| ());
        }
        let begun = self.machine.begun(0);
        let has_come = |world: &Self| match kind {
            0 => world.machine.is_torn(1, 0),
            1 => world.machine.begun(0) > begun,
            2 | 3 => world.machine.is_divided(0),
            _ => true,
        };
        while !has_come(self) && self.machine.steps() < moment + steps / 2 {
            if self.machine.run_for(1)? {
                break;
            }
        }
        if kind == 1 {
            self.machine.run_for(random.below(400))?;
        }
        let alone = kind == 0 || random.below(2) == 0;
        self.give_up(0);
        // Rank 1 may stand still meanwhile.
        self.machine.let_run(alone.then_some(0));
        while !self.machine.is_idle(0) && self.machine.steps() < moment + 1_000_000 {
            self.machine.run_for(100)?;
        }
        self.machine.let_run(None);
        if !self.machine.run_for(steps / 2 + 2000)? {
            self.give_up(1);
        }
        self.machine.run().map(|_| ())
    }

    /// Lets a rank's waits give up from now on, and its stream end with the kernel that runs.
    fn give_up(&mut self, rank: usize) {
        let aborted = WatchWords::of(self.watch, rank).aborted;
        self.machine.memory().write(aborted, &1u32.to_le_bytes());
        self.whole[rank] = self.machine.ended(rank);
        self.machine.cancel(rank);
        // A GEMM goes on with what is there when it has given up.
        if self.is_product() {
            self.machine.excuse(rank);
        }
    }

    fn is_product(&self) -> bool {
        let mut kernels = self.kernels.programs.keys();
        kernels.any(|kernel| kernel.starts_with("symmem_gathered_gemm_"))
    }

    /// Whether the bytes from an address on, a result, must be the expected ones: the last kernel of its rank that has the
    /// address as an argument ended before the rank's waits gave up.
    fn is_due(&mut self, result: u64) -> bool {
        if EXTENT.get() != Extent::Interrupted {
            return is_whole();
        }
        let region = self.machine.memory().region(result, 1);
        let Some(rank) = region.and_then(|region| region.rank) else {
            return false;
        };
        let names = |arguments: &Vec<u8>| {
            let mut longs = arguments.chunks_exact(8);
            longs.any(|long| long == result.to_le_bytes())
        };
        let last = self.launched[rank].iter().rposition(names);
        last.is_some_and(|last| last < self.whole[rank])
    }

    /// Runs everything and compares memory with `expected`.
    fn run(mut self, expected: &[(u64, Vec<u8>)]) -> Result<(), Error> {
        let read = |world: &mut Self| -> Vec<Vec<u8>> {
            let memory = world.machine.memory();
            let each = expected.iter();
            each.map(|(base, bytes)| memory.read(*base, bytes.len()))
                .collect()
        };
        let before = read(&mut self);
        self.finish()?;
        let accesses = self.machine.shared_accesses();
        banks::add(&mut self.kernels.shared_accesses.borrow_mut(), accesses);
        let after = read(&mut self);
        for (((base, bytes), before), found) in expected.iter().zip(&before).zip(&after) {
            let due = self.is_due(*base);
            let excused = !due && !is_whole() && self.is_product();
            let is_wrong =
                |at: &usize| found[*at] != bytes[*at] && (due || found[*at] != before[*at]);
            if let Some(at) = (0..bytes.len()).find(is_wrong)
                && !excused
            {
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
                .group(world.watch, &slots, 0, rank)
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
                .group(world.watch, &slots, 0, rank)
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

/// Two-shot all-reduces in packets, more often than there are halves of the packet buffer. Under half of the seeds the
/// number of uses wraps.
fn packets(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    const SHARE: usize = 1040;
    const PACKET_BYTES: u64 = 2 * RANKS as u64 * 1024;
    let mut world = World::new(kernels, seed);
    let slots = world.slots(PACKET_BYTES);
    if seed % 2 == 1 {
        world.count_uses(&slots, u32::MAX - 3);
    }
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
                .group(world.watch, &slots, PACKET_BYTES, rank)
                .table(&shares(data[rank]), 0)
                .table(&shares(results[rank]), 0)
                .table(&[SHARE as u64 / 4; RANKS], 0)
                .words(&SUM_OF_U32)
                .words(&[1, 0]);
            world.launch(
                rank,
                "symmem_reduce_packets_u32",
                BLOCKS,
                THREADS,
                arguments,
            );
            expected.push((results[rank], sums(SHARE * RANKS, round)));
        }
    }
    world.run(&expected)
}

/// Returns small whole numbers, whose sums are exact.
fn number(at: usize, rank: usize, salt: usize) -> f32 {
    ((at * 7 + rank * 1009 + salt * 37) % 4096) as f32
}
