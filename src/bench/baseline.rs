//! NVSHMEM beside us: the program in `benches/baselines`, driven line by line.
//!
//! Each rank of a pair owns one process of the pair. The protocol is at the head of
//! `nvshmem_p2p.cu`. A process works only between a command and its answer, while this rank is idle.

use super::{BenchError, Result, exchange, pairing};
use crate::report::{Direction, Spread, Traffic};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use symmem_core::Communicator;

/// The largest transfers that the baseline takes part in: beyond, a get by one block takes seconds.
pub(super) const LARGEST: u64 = 64 << 20;

/// How long an answer may take. The program's own watchdog gives up a little earlier.
const ANSWER: Duration = Duration::from_secs(70);
/// How long it may take to leave.
const LEAVE: Duration = Duration::from_secs(3);

/// What published tables have: 10 warm-ups, then 50 launches, by one block of 128 threads.
const WARM_UPS: u32 = 10;
const REPEATS: f64 = 50.0;
const BLOCKS: u32 = 1;
const THREADS: u32 = 128;
/// Nanoseconds of a round, beyond which fewer launches have to do.
const ROUND_NS: f64 = 100e6;

/// A process of the baseline; ended when dropped.
pub(super) struct Baseline {
    rank: usize,
    program: String,
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
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
        let (rank, world) = (communicator.rank(), communicator.world());
        let Some(peer) = pairing::peer(rank, world) else {
            exchange::all_gather(communicator, &String::new())?;
            return agree(communicator, program, Ok(None));
        };
        let ordinal = communicator.device().ordinal;
        let mut outcome = Self::spawn(program, rank, ordinal, largest);
        let mut identifier = String::new();
        if rank % 2 == 0
            && let Ok(baseline) = &mut outcome
        {
            match baseline.expect("uid") {
                Ok(rest) => identifier = rest,
                Err(error) => outcome = Err(error),
            }
        }
        let identifiers = exchange::all_gather(communicator, &identifier)?;
        let outcome = outcome.and_then(|mut baseline| {
            if rank % 2 == 1 {
                baseline.tell(&format!("uid {}", identifiers[peer]))?;
            }
            baseline.version = baseline.expect("ready")?;
            Ok(Some(baseline))
        });
        agree(communicator, program, outcome)
    }

    fn spawn(program: &Path, rank: usize, ordinal: u32, largest: u64) -> Result<Self> {
        let name = program.display().to_string();
        let failed = |message: String| BenchError::Baseline {
            rank,
            program: name.clone(),
            message,
        };
        let mut child = Command::new(program)
            .args(["--rank", &(rank % 2).to_string()])
            .args(["--device", &ordinal.to_string()])
            .args(["--bytes", &largest.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                failed(format!(
                    "cannot be started: {error}; build it with benches/baselines/build.sh"
                ))
            })?;
        let (sender, answers) = channel();
        let (Some(commands), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed("has no pipes".into()));
        };
        let baseline = Self {
            rank,
            program: name.clone(),
            child,
            commands,
            answers,
            version: String::new(),
        };
        // Ends with the process, whose output it reads.
        std::thread::Builder::new()
            .name("symmem-baseline".into())
            .spawn(move || {
                for line in BufReader::new(output).lines().map_while(|line| line.ok()) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| failed(format!("no thread to read it: {error}")))?;
        Ok(baseline)
    }

    fn failed(&self, message: impl Into<String>) -> BenchError {
        BenchError::Baseline {
            rank: self.rank,
            program: self.program.clone(),
            message: message.into(),
        }
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        writeln!(self.commands, "{line}")
            .and_then(|()| self.commands.flush())
            .map_err(|error| self.failed(format!("does not take `{line}`: {error}")))
    }

    /// The rest of the next answer, which must begin with `word`.
    fn expect(&mut self, word: &str) -> Result<String> {
        let line = match self.answers.recv_timeout(ANSWER) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(self.failed(format!("no answer within {ANSWER:?}")));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(self.failed("ended without an answer; its standard error says more"));
            }
        };
        match line.split_once(' ') {
            Some((first, rest)) if first == word => Ok(rest.trim().to_owned()),
            _ => Err(self.failed(format!("said `{line}` where `{word} …` was expected"))),
        }
    }

    fn numbers<const N: usize>(&self, rest: &str) -> Result<[f64; N]> {
        let numbers: Vec<f64> = rest
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        <[f64; N]>::try_from(numbers)
            .map_err(|_| self.failed(format!("said `{rest}` where {N} numbers were expected")))
    }

    /// A round: nanoseconds of a transfer at this rank (0 if it moved nothing), and wrong bytes.
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
        self.tell(&format!(
            "measure {verb} {bytes} {BLOCKS} {THREADS} {warm_ups} {repeats} {traffic}"
        ))?;
        let answer = self.expect("result")?;
        let [nanoseconds, wrong] = self.numbers(&answer)?;
        Ok((nanoseconds, wrong as u64))
    }

    /// One-way time of a put with signal between two kernels.
    pub(super) fn latency(&mut self, bytes: u64, threads: u32, rounds: u32) -> Result<Spread> {
        self.tell(&format!("latency {bytes} {threads} {WARM_UPS} {rounds}"))?;
        let answer = self.expect("latency")?;
        let [median, min, p99] = self.numbers(&answer)?;
        Ok(Spread { median, min, p99 })
    }
}

/// Gives every rank's outcome to all: the first error becomes everybody's.
fn agree(
    communicator: &Communicator,
    program: &Path,
    outcome: Result<Option<Baseline>>,
) -> Result<Option<Baseline>> {
    let error = outcome.as_ref().err().map(ToString::to_string);
    let errors = exchange::all_gather(communicator, &error)?;
    // This rank's own error first: it is the most precise.
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

impl Drop for Baseline {
    fn drop(&mut self) {
        // It leaves by itself if its pair does too; otherwise it is ended.
        let _ = self.tell("quit");
        let start = Instant::now();
        while start.elapsed() < LEAVE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
