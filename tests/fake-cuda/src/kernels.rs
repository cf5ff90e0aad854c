//! What symmem's kernels do, in Rust, by name.
//!
//! The layouts of the arguments are those of `symmem_core::backend::abi`, so a backend that passes
//! anything else is found out here.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use symmem_core::backend::abi::{
    Barrier, MAX_RANKS, SIGNAL_STRIDE, SignalTarget, SignalWait, WaitRecord, Watch,
};

use crate::driver::state;
use crate::error::{Code, Result};
use crate::memory::Engine;
use crate::report::violation;
use crate::work::{Runner, Word};

/// The argument of the three copy kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TransferArguments {
    /// First byte written.
    pub destination: u64,
    /// First byte read.
    pub source: u64,
    /// Bytes.
    pub bytes: u64,
    /// The signal to give when all are written.
    pub signal: SignalTarget,
    /// Bulk copies in flight per block.
    pub stages: u32,
    /// Bytes of each.
    pub stage_bytes: u32,
}

/// The argument of the two ping-pong kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencyArguments {
    /// What the peer writes and this rank polls.
    pub local: u64,
    /// What this rank writes and the peer polls.
    pub remote: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Round trips.
    pub rounds: u32,
    /// 1 at the rank that starts.
    pub first: u32,
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// A 64-bit word for the nanoseconds that all rounds took; 0 for nowhere.
    pub result: u64,
}

/// The argument of `symmem_test_fill`, which takes three parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FillArguments {
    /// First 32-bit word.
    pub address: u64,
    /// How many.
    pub words: u64,
    /// What to write in each.
    pub value: u32,
}

/// Structs of integers, which any bytes make.
///
/// # Safety
/// The type is `repr(C)`, holds integers only, and any bytes are a value of it.
unsafe trait Plain: Copy {}
// SAFETY: repr(C) structs of integers.
unsafe impl Plain for TransferArguments {}
// SAFETY: as above.
unsafe impl Plain for LatencyArguments {}
// SAFETY: as above.
unsafe impl Plain for FillArguments {}
// SAFETY: as above.
unsafe impl Plain for SignalTarget {}
// SAFETY: as above.
unsafe impl Plain for SignalWait {}
// SAFETY: as above.
unsafe impl Plain for Barrier {}

/// A kernel the fake knows.
pub(crate) struct Kernel {
    pub name: &'static str,
    /// Size and alignment of each parameter.
    pub parameters: &'static [(usize, usize)],
    waits: bool,
    ranges: fn(&Launch) -> Vec<(u64, u64)>,
    run: fn(&Launch, &Runner) -> Result,
}

impl Kernel {
    /// Bytes of the arguments, laid out as the driver's buffer form has them.
    pub fn argument_bytes(&self) -> usize {
        self.parameters.iter().fold(0, |at: usize, (size, align)| {
            at.next_multiple_of(*align) + size
        })
    }
}

/// A kernel with its arguments and geometry.
pub(crate) struct Launch {
    pub kernel: &'static Kernel,
    pub arguments: Vec<u8>,
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    pub shared: u32,
    pub module: u64,
}

impl Launch {
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        (self.kernel.ranges)(self)
    }

    pub fn can_wait(&self) -> bool {
        self.kernel.waits
    }

    pub fn run(&self, runner: &Runner) -> Result {
        if !state().modules.contains_key(&self.module) {
            violation(format!(
                "{} runs after its module was unloaded",
                self.kernel.name
            ));
            return Err(Code::ILLEGAL_ADDRESS);
        }
        (self.kernel.run)(self, runner)
    }

    fn arguments<T: Plain>(&self) -> T {
        let mut bytes = self.arguments.clone();
        // The tail padding of a struct is no parameter's bytes.
        bytes.resize(size_of::<T>(), 0);
        // SAFETY: `bytes` has the type's size, any bytes are a value of it, and the read asks for
        // no alignment.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    }
}

macro_rules! parameter {
    ($type:ty) => {
        &[(size_of::<$type>(), align_of::<$type>())]
    };
}

static KERNELS: &[Kernel] = &[
    Kernel {
        name: "symmem_copy_vector",
        parameters: parameter!(TransferArguments),
        waits: false,
        ranges: copy_ranges,
        run: copy,
    },
    Kernel {
        name: "symmem_copy_bulk",
        parameters: parameter!(TransferArguments),
        waits: false,
        ranges: copy_ranges,
        run: copy_bulk,
    },
    Kernel {
        name: "symmem_copy_unrolled",
        parameters: parameter!(TransferArguments),
        waits: false,
        ranges: copy_ranges,
        run: copy_unrolled,
    },
    Kernel {
        name: "symmem_signal",
        parameters: parameter!(SignalTarget),
        waits: false,
        ranges: signal_ranges,
        run: signal,
    },
    Kernel {
        name: "symmem_wait",
        parameters: parameter!(SignalWait),
        waits: true,
        ranges: wait_ranges,
        run: wait,
    },
    Kernel {
        name: "symmem_barrier",
        parameters: parameter!(Barrier),
        waits: true,
        ranges: barrier_ranges,
        run: barrier,
    },
    Kernel {
        name: "symmem_latency_packet",
        parameters: parameter!(LatencyArguments),
        waits: true,
        ranges: latency_ranges,
        run: latency_packet,
    },
    Kernel {
        name: "symmem_latency_signal",
        parameters: parameter!(LatencyArguments),
        waits: true,
        ranges: latency_ranges,
        run: latency_signal,
    },
    Kernel {
        name: "symmem_test_fill",
        parameters: &[(8, 8), (8, 8), (4, 4)],
        waits: false,
        ranges: fill_ranges,
        run: fill,
    },
];

/// The kernel of a name.
pub(crate) fn find(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

/// A word, if the address names one.
fn touched(words: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    words
        .iter()
        .filter(|address| **address != 0)
        .map(|address| (*address, 4))
}

fn target_ranges(target: &SignalTarget) -> Vec<(u64, u64)> {
    touched(&[target.word.0, target.epoch.0, target.arrivals.0]).collect()
}

fn watch_ranges(watch: &Watch) -> Vec<(u64, u64)> {
    touched(&[watch.abort.0, watch.record.0]).collect()
}

// ---- signals ----

/// The value to give or to wait for: the next epoch, or the host's number where it counts.
fn next(runner: &Runner, epoch: u64, value: u32) -> Result<u32> {
    if epoch == 0 {
        return Ok(value);
    }
    // A counter belongs to one grid at a time, so no other adds in between.
    Ok(runner
        .word(epoch)?
        .atomic()
        .fetch_add(1, Ordering::AcqRel)
        .wrapping_add(1))
}

fn give(runner: &Runner, target: &SignalTarget) -> Result {
    if target.word.0 == 0 {
        return Ok(());
    }
    let word = runner.word(target.word.0)?;
    let value = next(runner, target.epoch.0, target.value)?;
    word.atomic().store(value, Ordering::Release);
    Ok(())
}

fn signal(launch: &Launch, runner: &Runner) -> Result {
    let target: SignalTarget = launch.arguments();
    if launch.blocks.iter().product::<u32>() != 1 {
        violation("symmem_signal takes one block: each would give the signal".into());
    }
    give(runner, &target)
}

fn signal_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    target_ranges(&launch.arguments())
}

// ---- waits ----

/// A wait with what bounds it.
struct Bounded<'a> {
    runner: &'a Runner,
    watch: Watch,
    abort: Option<Word>,
    record: Option<[Word; 8]>,
    started: Instant,
    /// 1 a signal wait, 2 a barrier.
    kind: u32,
    slot: u32,
}

impl<'a> Bounded<'a> {
    fn new(runner: &'a Runner, watch: Watch, kind: u32, slot: u32) -> Result<Self> {
        let word = |address: u64| (address != 0).then(|| runner.word(address)).transpose();
        let abort = word(watch.abort.0)?;
        let record = match watch.record.0 {
            0 => None,
            base => {
                const { assert!(size_of::<WaitRecord>() == 8 * 4) };
                let mut words = Vec::new();
                for index in 0..8 {
                    words.push(runner.word(base + 4 * index)?);
                }
                words.try_into().ok()
            }
        };
        Ok(Self {
            runner,
            watch,
            abort,
            record,
            started: Instant::now(),
            kind,
            slot,
        })
    }

    /// Wait until `reached` likes the word; false if the wait gave up, which is then recorded.
    fn until(
        &self,
        word: &Word,
        reached: impl Fn(u32) -> bool,
        expected: u32,
        peer: u32,
    ) -> Result<bool> {
        let mut rounds = 0;
        loop {
            let seen = word.atomic().load(Ordering::Acquire);
            if reached(seen) {
                return Ok(true);
            }
            let aborted = self
                .abort
                .as_ref()
                .is_some_and(|w| w.atomic().load(Ordering::Acquire) != 0);
            let late = self.started.elapsed() >= Duration::from_nanos(self.watch.deadline_ns);
            if aborted || late {
                let reason = if aborted { 2 } else { 1 };
                self.give_up([
                    self.kind,
                    self.watch.rank,
                    peer,
                    self.slot,
                    expected,
                    seen,
                    reason,
                ]);
                return Ok(false);
            }
            self.runner.pause(&mut rounds)?;
        }
    }

    /// Write the record, unless somebody has.
    fn give_up(&self, values: [u32; 7]) {
        let Some([state, fields @ ..]) = &self.record else {
            return;
        };
        let state = state.atomic();
        if state
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            for (field, value) in fields.iter().zip(values) {
                field.atomic().store(value, Ordering::Relaxed);
            }
            state.store(2, Ordering::Release);
        }
    }
}

fn reached(expected: u32) -> impl Fn(u32) -> bool {
    move |seen| seen.wrapping_sub(expected) as i32 >= 0
}

fn wait(launch: &Launch, runner: &Runner) -> Result {
    let wait: SignalWait = launch.arguments();
    let bounded = Bounded::new(runner, wait.watch, 1, wait.slot)?;
    let word = runner.word(wait.word.0)?;
    let expected = next(runner, wait.epoch.0, wait.value)?;
    bounded
        .until(&word, reached(expected), expected, wait.peer)
        .map(drop)
}

fn wait_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let wait: SignalWait = launch.arguments();
    let mut ranges = watch_ranges(&wait.watch);
    ranges.extend(touched(&[wait.word.0, wait.epoch.0]));
    ranges
}

fn barrier(launch: &Launch, runner: &Runner) -> Result {
    let barrier: Barrier = launch.arguments();
    let (world, rank) = (barrier.world as usize, barrier.watch.rank as usize);
    if world > MAX_RANKS || rank >= world {
        violation(format!("a barrier of {world} ranks, here as rank {rank}"));
        return Err(Code::ILLEGAL_ADDRESS);
    }
    let bounded = Bounded::new(runner, barrier.watch, 2, barrier.slot)?;
    let epoch = next(runner, barrier.epoch.0, 0)?;
    for peer in barrier.peers[..world]
        .iter()
        .enumerate()
        .filter(|(peer, _)| *peer != rank)
    {
        runner
            .word(peer.1.0)?
            .atomic()
            .store(epoch, Ordering::Release);
    }
    for peer in (0..world).filter(|peer| *peer != rank) {
        let word = runner.word(barrier.own.0 + peer as u64 * SIGNAL_STRIDE)?;
        if !bounded.until(&word, reached(epoch), epoch, peer as u32)? {
            break;
        }
    }
    Ok(())
}

fn barrier_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let barrier: Barrier = launch.arguments();
    let mut ranges = watch_ranges(&barrier.watch);
    ranges.extend(touched(&[barrier.epoch.0]));
    ranges.push((barrier.own.0, u64::from(barrier.world) * SIGNAL_STRIDE));
    let peers = barrier.peers.map(|peer| peer.0);
    ranges.extend(touched(&peers[..(barrier.world as usize).min(MAX_RANKS)]));
    ranges
}

// ---- transfers ----

fn copy(launch: &Launch, runner: &Runner) -> Result {
    let transfer: TransferArguments = launch.arguments();
    runner.copy(
        transfer.destination,
        transfer.source,
        transfer.bytes,
        Engine::Kernel,
    )?;
    let target = &transfer.signal;
    if target.word.0 != 0 && launch.blocks.iter().product::<u32>() > 1 {
        if target.arrivals.0 == 0 {
            violation(
                "several blocks give one signal, with no word to find the last of them by".into(),
            );
            return Err(Code::ILLEGAL_ADDRESS);
        }
        let arrivals = runner
            .word(target.arrivals.0)?
            .atomic()
            .load(Ordering::Acquire);
        if arrivals != 0 {
            violation(format!(
                "the word that counts arriving blocks starts at {arrivals}, not at zero"
            ));
        }
    }
    give(runner, target)
}

fn copy_bulk(launch: &Launch, runner: &Runner) -> Result {
    let transfer: TransferArguments = launch.arguments();
    let TransferArguments {
        destination,
        source,
        stages,
        stage_bytes,
        ..
    } = transfer;
    // Bulk copies need both ends aligned to 16, which a common shift can give and no other.
    if destination.wrapping_sub(source) % 16 != 0 {
        violation(format!(
            "a bulk copy from {source:#x} to {destination:#x}, which differ modulo 16"
        ));
    }
    if stages == 0 || stage_bytes == 0 || stage_bytes % 16 != 0 {
        violation(format!(
            "a bulk copy in {stages} stages of {stage_bytes} bytes"
        ));
    }
    if u64::from(stages) * u64::from(stage_bytes) > launch.shared.into() {
        violation(format!(
            "{stages} stages of {stage_bytes} bytes in {} of shared memory",
            launch.shared
        ));
    }
    copy(launch, runner)
}

fn copy_unrolled(launch: &Launch, runner: &Runner) -> Result {
    if launch.threads.iter().product::<u32>() != 128 {
        violation(format!(
            "the unrolled copy is made for four warps, not {:?} threads",
            launch.threads
        ));
    }
    copy(launch, runner)
}

fn copy_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let transfer: TransferArguments = launch.arguments();
    let mut ranges = target_ranges(&transfer.signal);
    ranges.extend([
        (transfer.destination, transfer.bytes),
        (transfer.source, transfer.bytes),
    ]);
    ranges
}

// ---- latency ----

/// Play `rounds` of ping-pong: `send` a round's number, `receive` it.
fn ping_pong(
    arguments: &LatencyArguments,
    runner: &Runner,
    send: impl Fn(u32) -> Result,
    receive: impl Fn(&Bounded, u32) -> Result<bool>,
) -> Result {
    let bounded = Bounded::new(runner, arguments.watch, 1, 0)?;
    for round in 1..=arguments.rounds {
        if arguments.first != 0 {
            send(round)?;
        }
        if !receive(&bounded, round)? {
            return Ok(());
        }
        if arguments.first == 0 {
            send(round)?;
        }
    }
    if arguments.result != 0 {
        let nanoseconds = bounded.started.elapsed().as_nanos() as u64;
        let staged = nanoseconds.to_ne_bytes();
        runner.fill(arguments.result, &staged, 1, Engine::Kernel)?;
    }
    Ok(())
}

/// Packets of 8 bytes, data below and the round's number above, as many as hold the payload.
fn latency_packet(launch: &Launch, runner: &Runner) -> Result {
    let arguments: LatencyArguments = launch.arguments();
    let packets = arguments.bytes.div_ceil(4).max(1);
    let send = |round: u32| {
        for packet in 0..packets {
            let at = arguments.remote + packet * 8;
            runner.word(at)?.atomic().store(round, Ordering::Relaxed);
            runner
                .word(at + 4)?
                .atomic()
                .store(round, Ordering::Release);
        }
        Ok(())
    };
    let receive = |bounded: &Bounded, round: u32| {
        for packet in 0..packets {
            let flag = runner.word(arguments.local + packet * 8 + 4)?;
            if !bounded.until(&flag, |seen| seen == round, round, 0)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    ping_pong(&arguments, runner, send, receive)
}

/// The payload, and behind it (rounded up to 8 bytes) the signal's word.
fn latency_signal(launch: &Launch, runner: &Runner) -> Result {
    let arguments: LatencyArguments = launch.arguments();
    let behind = arguments.bytes.next_multiple_of(8);
    let send = |round: u32| {
        runner.fill(
            arguments.remote,
            &[round as u8],
            arguments.bytes,
            Engine::Kernel,
        )?;
        runner
            .word(arguments.remote + behind)?
            .atomic()
            .store(round, Ordering::Release);
        Ok(())
    };
    let receive = |bounded: &Bounded, round: u32| {
        let word = runner.word(arguments.local + behind)?;
        bounded.until(&word, |seen| seen == round, round, 0)
    };
    ping_pong(&arguments, runner, send, receive)
}

fn latency_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: LatencyArguments = launch.arguments();
    let mut ranges = watch_ranges(&arguments.watch);
    ranges.extend(touched(&[
        arguments.local,
        arguments.remote,
        arguments.result,
    ]));
    ranges
}

// ---- tests ----

fn fill(launch: &Launch, runner: &Runner) -> Result {
    let FillArguments {
        address,
        words,
        value,
    } = launch.arguments();
    runner.fill(address, &value.to_ne_bytes(), words, Engine::Kernel)
}

fn fill_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let FillArguments { address, words, .. } = launch.arguments();
    vec![(address, words * 4)]
}
