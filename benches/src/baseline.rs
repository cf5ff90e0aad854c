//! NVSHMEM as a baseline: the program in `benches/baselines`, controlled line by line.
//!
//! Each rank of a pair owns one process of the pair. The head of `nvshmem_p2p.cu` describes the
//! protocol.

use super::pairing::Pairing;
use super::process::Process;
use super::{BenchError, Result, exchange};
use crate::report::{Direction, Spread, Traffic};
use std::path::Path;
use std::process::Command;
use symmem::Communicator;

/// The largest transfers of the baseline, in bytes; above, a get by one block takes seconds.
pub(super) const LARGEST: u64 = 64 << 20;

/// The method of published tables: 10 warm-ups, then 50 launches of one block of 128 threads.
const WARM_UPS: u32 = 10;
const REPEATS: f64 = 50.0;
const BLOCKS: u32 = 1;
const THREADS: u32 = 128;
/// Time budget of a round in nanoseconds; longer rounds get fewer launches.
const ROUND_NS: f64 = 100e6;

/// A process of the baseline; killed when dropped.
pub(super) struct Baseline {
    process: Process,
    /// NVSHMEM's version.
    pub version: String,
}

/// The name of NVSHMEM's function.
pub(super) fn method(direction: Direction) -> &'static str {
    match direction {
        Direction::Push => "putmem_block",
        Direction::Pull => "getmem_block",
    }
}

impl Baseline {
    /// Starts the processes of all pairs, for transfers of at most `largest` bytes. `None` at a rank
    /// without a peer. Collective: it fails on all ranks if it fails on one.
    pub(super) fn start(
        communicator: &Communicator,
        program: &Path,
        largest: u64,
    ) -> Result<Option<Self>> {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let Some(peer) = Pairing::of_neighbors(world).peer(rank) else {
            exchange::all_gather(communicator, &String::new())?;
            return agree(communicator, program, Ok(None));
        };
        let ordinal = communicator.device().ordinal;
        let mut outcome = Self::spawn(program, rank, ordinal, largest);
        let mut identifier = String::new();
        if rank % 2 == 0
            && let Ok(baseline) = &mut outcome
        {
            match baseline.process.expect("uid") {
                Ok(rest) => identifier = rest,
                Err(error) => outcome = Err(error),
            }
        }
        let identifiers = exchange::all_gather(communicator, &identifier)?;
        let outcome = outcome.and_then(|mut baseline| {
            if rank % 2 == 1 {
                baseline
                    .process
                    .tell(&format!("uid {}", identifiers[peer]))?;
            }
            baseline.version = baseline.process.expect("ready")?;
            Ok(Some(baseline))
        });
        agree(communicator, program, outcome)
    }

    fn spawn(program: &Path, rank: usize, ordinal: u32, largest: u64) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(["--rank", &(rank % 2).to_string()])
            .args(["--device", &ordinal.to_string()])
            .args(["--bytes", &largest.to_string()]);
        let advice = "build it with benches/baselines/build.sh";
        Ok(Self {
            process: Process::spawn(command, program.display().to_string(), advice, rank)?,
            version: String::new(),
        })
    }

    /// Measures one round; returns nanoseconds per transfer at this rank (0 if it moved nothing), and the number of
    /// wrong bytes. Blocks.
    pub(super) fn measure(
        &mut self,
        direction: Direction,
        bytes: u64,
        traffic: Traffic,
    ) -> Result<(f64, u64)> {
        let (verb, gbps) = match direction {
            Direction::Push => ("put", 10.0),
            Direction::Pull => ("get", 2.0),
        };
        let traffic = match traffic {
            Traffic::BothWays => "both",
            Traffic::OneWay => "one",
        };
        let repeats = (ROUND_NS / (bytes as f64 / gbps)).clamp(2.0, REPEATS) as u32;
        let warm_ups = WARM_UPS.min(repeats);
        self.process.tell(&format!(
            "measure {verb} {bytes} {BLOCKS} {THREADS} {warm_ups} {repeats} {traffic}"
        ))?;
        let answer = self.process.expect("result")?;
        let [nanoseconds, wrong] = self.process.numbers(&answer)?;
        Ok((nanoseconds, wrong as u64))
    }

    /// Measures the one-way time of a put with signal between two kernels. Blocks.
    pub(super) fn latency(&mut self, bytes: u64, threads: u32, rounds: u32) -> Result<Spread> {
        self.process
            .tell(&format!("latency {bytes} {threads} {WARM_UPS} {rounds}"))?;
        let answer = self.process.expect("latency")?;
        let [median, min, p99] = self.process.numbers(&answer)?;
        Ok(Spread { median, min, p99 })
    }
}

/// Exchanges the ranks' outcomes: if any rank failed, all fail. Collective.
fn agree(
    communicator: &Communicator,
    program: &Path,
    outcome: Result<Option<Baseline>>,
) -> Result<Option<Baseline>> {
    let error = outcome.as_ref().err().map(ToString::to_string);
    let errors = exchange::all_gather(communicator, &error)?;
    // This rank's own error first, since it keeps its type.
    let baseline = outcome?;
    for (peer, error) in errors.into_iter().enumerate() {
        if let Some(message) = error {
            return Err(BenchError::Baseline {
                rank: communicator.rank(),
                program: program.display().to_string(),
                message: format!("rank {peer} failed to start it: {message}"),
            });
        }
    }
    Ok(baseline)
}
