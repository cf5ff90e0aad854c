//! The launcher's side of a world: starts the ranks once, sends them cases and reads the outcomes.

use super::case::Case;
use super::outcome::Outcome;
use super::rank::{Answer, MARK, Setup, WorldDescription};
use super::ranks_per_node::RanksPerNode;
use crate::spawn::spawn;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use symmem::ShareKind;
use symmem::backends::Selection;

use super::session::CASE_DEADLINE;

/// Time in which rank 0 may report what the end of a rank means, before the launcher does without its answer.
const REACTION: Duration = Duration::from_secs(1);

/// Interval at which the launcher checks whether its ranks run.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Number of times that a lost world is replaced; after that, the remaining cases fail.
const MOST_LOST: usize = 3;

/// Options of [`World::launch`].
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// The ranks, by node. Nodes are of this machine, by `SYMMEM_NODE`, and UCX carries what goes between them: over TCP,
    /// unless `UCX_TLS` is set.
    pub ranks: RanksPerNode,
    /// Number of devices. If there are enough, each of several nodes has its own; 0 to give devices by rank.
    pub devices: u32,
    /// Whether the ranks are threads of one process; otherwise each is a process.
    pub threads: bool,
    /// The backend.
    pub backend: Selection,
    /// Strategies of sharing memory to try, in order; empty for the default.
    pub share_kinds: Vec<ShareKind>,
    /// Time limit of each wait for a peer.
    pub deadline: Duration,
    /// The program that calls [`super::rank_main`].
    pub program: PathBuf,
    /// Arguments that make the program call it.
    pub arguments: Vec<OsString>,
    /// Variables to set for every rank.
    pub environment: Vec<(OsString, OsString)>,
    /// Stop after the first case that does not pass: the ranks free their resources and end, and the remaining
    /// cases do not run. Otherwise a lost world is replaced, up to three times.
    pub ends_at_failure: bool,
}

impl WorldOptions {
    /// Returns options for `ranks` processes of `program`, with the best available backend.
    pub fn new(ranks: impl Into<RanksPerNode>, program: impl Into<PathBuf>) -> Self {
        Self {
            ranks: ranks.into(),
            devices: 0,
            threads: false,
            backend: Selection::Auto,
            share_kinds: Vec::new(),
            deadline: CASE_DEADLINE,
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            ends_at_failure: false,
        }
    }
}

/// Why a world did not start, or did not shut down cleanly.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A rank could not be started.
    #[error("starting rank {rank}, {}: {source}", program.display())]
    Start {
        /// The rank.
        rank: u32,
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// No job name could be made.
    #[error(transparent)]
    Job(#[from] symmem::bootstrap::BootstrapError),
    /// The ranks could not meet or open their devices.
    #[error("{0}")]
    Open(String),
    /// Rank 0 exited without an answer, or a rank exited with a failure.
    #[error("a rank exited unexpectedly: {0}")]
    Ended(String),
    /// Rank 0 did not answer within the time limit.
    #[error("rank 0 did not answer within {0:?}")]
    Silent(Duration),
    /// A rank did not exit within the time limit after rank 0 had answered for the last time.
    #[error(
        "rank {0} still runs {1:?} after the end of its world; the driver of its device may be stuck"
    )]
    Remains(usize, Duration),
    /// Buffers were not freed at the end.
    #[error("{0} buffers were not freed when the world ended")]
    Leaked(usize),
}

/// A case and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The case.
    pub case: Case,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Duration in nanoseconds.
    pub nanoseconds: u64,
}

/// A running world of ranks; the kernel kills the ranks when this process ends.
pub struct World {
    options: WorldOptions,
    ranks: Ranks,
    about: WorldDescription,
}

/// The processes of a world; dropping this value ends them.
struct Ranks {
    children: Vec<Child>,
    inputs: Vec<ChildStdin>,
    answers: Receiver<Answer>,
    /// Time that the processes get to exit by themselves before they are killed.
    grace: Duration,
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.inputs.clear();
        end(&mut self.children, self.grace, || ());
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

impl World {
    /// Starts the ranks and blocks until their communicator is up, at most three times the deadline.
    ///
    /// # Errors
    /// [`WorldError`], with the reason that rank 0 gave.
    pub fn launch(options: WorldOptions) -> Result<Self, WorldError> {
        let (ranks, about) = start(&options)?;
        Ok(Self {
            options,
            ranks,
            about,
        })
    }

    /// Returns the options with which it was launched.
    pub fn options(&self) -> &WorldOptions {
        &self.options
    }

    /// Returns the machine and features that the world runs on.
    pub fn about(&self) -> &WorldDescription {
        &self.about
    }

    /// Returns the process ids of the ranks, by rank; one id if the ranks are threads.
    pub fn processes(&self) -> Vec<u32> {
        self.ranks.children.iter().map(Child::id).collect()
    }

    /// Runs cases in order and returns their records. If a case breaks the world, starts a new world for
    /// the remaining cases, up to three times; with [`WorldOptions::ends_at_failure`], stops instead.
    ///
    /// Calls `each` after every case. Blocks until all cases are done.
    pub fn run(&mut self, cases: &[Case], mut each: impl FnMut(&Record)) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::with_capacity(cases.len());
        let mut lost = 0;
        while records.len() < cases.len() {
            let rest = &cases[records.len()..];
            let before = records.len();
            let usable = self.feed(rest, |record| {
                each(&record);
                records.push(record);
            });
            if usable && records.len() == cases.len() || self.options.ends_at_failure {
                break;
            }
            if records.len() == before && lost > 0 && !usable {
                lost = MOST_LOST;
            }
            lost += 1;
            let replaced = if lost > MOST_LOST {
                Err("the world was lost too often".to_owned())
            } else {
                start(&self.options).map_err(|error| error.to_string())
            };
            match replaced {
                Ok((ranks, about)) => (self.ranks, self.about) = (ranks, about),
                Err(reason) => {
                    for case in &cases[records.len()..] {
                        let outcome = Outcome::Failed(format!("not run: {reason}"));
                        let record = Record {
                            case: case.clone(),
                            outcome,
                            nanoseconds: 0,
                        };
                        each(&record);
                        records.push(record);
                    }
                }
            }
        }
        records
    }

    /// Sends cases until one ends the world; returns whether the world is still usable.
    fn feed(&mut self, cases: &[Case], mut done: impl FnMut(Record)) -> bool {
        let limit = self.options.deadline * 3;
        let ends_at_failure = self.options.ends_at_failure;
        let Ranks {
            inputs,
            answers,
            children,
            grace,
        } = &mut self.ranks;
        std::thread::scope(|scope| {
            let mut written = std::mem::take(inputs);
            // A separate thread writes the cases, since the answers must be read at the same time.
            let mut writer = Some(scope.spawn(move || {
                for case in cases {
                    let line = serde_json::to_string(case).unwrap_or_default();
                    for input in &mut written {
                        // The loop below notices a rank that has ended.
                        if writeln!(input, "{line}").is_err() {
                            return written;
                        }
                    }
                }
                written
            }));
            for case in cases {
                let answer = next_answer(answers, children, limit);
                let (mut outcome, nanoseconds, usable) = match answer {
                    Ok(Answer::Done {
                        outcome,
                        nanoseconds,
                        usable,
                    }) => (outcome, nanoseconds, usable),
                    Ok(Answer::Failed(reason)) => (Outcome::Failed(reason), 0, false),
                    Ok(_) => (
                        Outcome::Failed("the world ended before all cases had run".into()),
                        0,
                        false,
                    ),
                    Err(error) => {
                        let waited = match error {
                            WorldError::Silent(limit) => limit.as_nanos() as u64,
                            _ => 0,
                        };
                        (Outcome::Failed(error.to_string()), waited, false)
                    }
                };
                if ends_at_failure && !usable && outcome == Outcome::Passed {
                    // No later case would show that the world is lost.
                    outcome = Outcome::Failed("the case passed, but broke the world".into());
                }
                let over = !usable || ends_at_failure && outcome != Outcome::Passed;
                done(Record {
                    case: case.clone(),
                    outcome,
                    nanoseconds,
                });
                if over {
                    // Closes the input, so that ranks that wait for another case end.
                    let close = || {
                        if writer.as_ref().is_some_and(|writer| writer.is_finished()) {
                            drop(writer.take().map(|writer| writer.join()));
                        }
                    };
                    // A dead rank also unblocks the writer.
                    end(children, *grace, close);
                    return false;
                }
            }
            if let Some(Ok(written)) = writer.map(|writer| writer.join()) {
                *inputs = written;
            }
            true
        })
    }

    /// Shuts the world down. Blocks until the ranks have exited.
    ///
    /// # Errors
    /// [`WorldError::Leaked`] if buffers were not freed; another [`WorldError`] if a rank did not exit
    /// cleanly.
    pub fn finish(mut self) -> Result<(), WorldError> {
        self.ranks.inputs.clear();
        let limit = self.options.deadline * 3;
        let Ranks {
            answers, children, ..
        } = &mut self.ranks;
        match next_answer(answers, children, limit)? {
            Answer::Ended { leaked: 0 } => {}
            Answer::Ended { leaked } => return Err(WorldError::Leaked(leaked)),
            Answer::Failed(reason) => return Err(WorldError::Open(reason)),
            _ => return Err(WorldError::Open("rank 0 answered out of turn".into())),
        }
        let start = Instant::now();
        while let Some(rank) = children.iter_mut().position(is_running) {
            if start.elapsed() > limit {
                return Err(WorldError::Remains(rank, limit));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        if children.iter_mut().any(has_failed) {
            return Err(WorldError::Ended(ended(children)));
        }
        Ok(())
    }
}

/// Waits up to `grace` for the ranks to exit, calling `meanwhile` repeatedly; then kills the rest.
fn end(children: &mut [Child], grace: Duration, mut meanwhile: impl FnMut()) {
    const PAUSE: Duration = Duration::from_millis(10);
    let start = Instant::now();
    while start.elapsed() < grace && children.iter_mut().any(is_running) {
        meanwhile();
        std::thread::sleep(PAUSE);
    }
    for child in children {
        // An error means that the child has already exited.
        let _ = child.kill();
    }
}

/// Returns rank 0's next answer. Blocks for at most `limit`, and once a rank has failed for at most [`REACTION`] more.
fn next_answer(
    answers: &Receiver<Answer>,
    children: &mut [Child],
    limit: Duration,
) -> Result<Answer, WorldError> {
    let start = Instant::now();
    let mut failed_at = None;
    loop {
        match answers.recv_timeout(LOOK_INTERVAL) {
            Ok(answer) => return Ok(answer),
            // Rank 0 has closed its output, and ends.
            Err(RecvTimeoutError::Disconnected) => {
                let closed = Instant::now();
                while closed.elapsed() < REACTION && children.iter_mut().take(1).any(is_running) {
                    std::thread::sleep(LOOK_INTERVAL);
                }
                return Err(WorldError::Ended(ended(children)));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if failed_at.is_none() && children.iter_mut().any(has_failed) {
            failed_at = Some(Instant::now());
        }
        if failed_at.is_some_and(|at: Instant| at.elapsed() > REACTION) {
            return Err(WorldError::Ended(ended(children)));
        }
        if start.elapsed() > limit {
            return Err(WorldError::Silent(limit));
        }
    }
}

fn is_running(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

fn has_failed(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(Some(status)) if !status.success())
}

/// Returns the exit status of each rank that has exited.
fn ended(children: &mut [Child]) -> String {
    let ends = children.iter_mut().enumerate().filter_map(|(rank, child)| {
        let status = child.try_wait().ok().flatten()?;
        Some(format!("rank {rank}: {status}"))
    });
    ends.collect::<Vec<_>>().join(", ")
}

fn start(options: &WorldOptions) -> Result<(Ranks, WorldDescription), WorldError> {
    let job = symmem::bootstrap::LaunchEnvironment::alone()?
        .job
        .unwrap_or_default();
    let world = options.ranks.world();
    let processes = if options.threads { 1 } else { world };
    let setup = Setup {
        share_kinds: options
            .share_kinds
            .iter()
            .map(|kind| kind.name().into())
            .collect(),
        deadline: options.deadline,
        threads: if options.threads { world } else { 0 },
        nodes: (0..world)
            .filter_map(|rank| options.ranks.key(rank))
            .collect(),
        devices: (0..world)
            .filter_map(|rank| options.ranks.device(rank, options.devices))
            .collect(),
        ends_at_failure: options.ends_at_failure,
    };
    let setup = serde_json::to_string(&setup).unwrap_or_default();
    let limit = options.deadline * 3;
    let (sender, answers) = channel();
    let mut ranks = Ranks {
        children: Vec::new(),
        inputs: Vec::new(),
        answers,
        grace: match options.ends_at_failure {
            true => limit,
            false => Duration::ZERO,
        },
    };
    for rank in 0..processes {
        let failed = |source| WorldError::Start {
            rank,
            program: options.program.clone(),
            source,
        };
        let mut child = spawn(command(options, rank, processes, &job)).map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        ranks.children.push(child);
        if let Some(mut input) = input {
            match writeln!(input, "{setup}") {
                // It is dead already, which its exit status says below.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                written => written.map_err(failed)?,
            }
            ranks.inputs.push(input);
        }
        if let (0, Some(output)) = (rank, output) {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                for line in lines {
                    if let Some(answer) = line.strip_prefix(MARK)
                        && let Ok(answer) = serde_json::from_str(answer)
                        && sender.send(answer).is_err()
                    {
                        break;
                    }
                }
            });
        }
    }
    drop(sender);
    match next_answer(&ranks.answers, &mut ranks.children, limit)? {
        Answer::Up(about) if about.ranks_per_node == options.ranks.sizes() => Ok((ranks, about)),
        Answer::Up(about) => Err(WorldError::Open(format!(
            "the nodes have {:?} ranks instead of {:?}",
            about.ranks_per_node,
            options.ranks.sizes()
        ))),
        Answer::Failed(reason) => Err(WorldError::Open(reason)),
        _ => Err(WorldError::Open("rank 0 answered out of turn".into())),
    }
}

fn command(options: &WorldOptions, rank: u32, world: u32, job: &str) -> Command {
    let mut command = Command::new(&options.program);
    command
        .args(&options.arguments)
        .env("SYMMEM_BACKEND", options.backend.to_string())
        .env("SYMMEM_RANK", rank.to_string())
        .env("SYMMEM_WORLD", world.to_string())
        .env("SYMMEM_LOCAL_RANK", rank.to_string())
        .env("SYMMEM_LOCAL_WORLD", world.to_string())
        .env("SYMMEM_JOB", job)
        .env_remove("SYMMEM_RENDEZVOUS")
        .env_remove("SYMMEM_SECRET")
        .env_remove("SYMMEM_GENERATION")
        .env_remove("SYMMEM_NODE")
        .envs(options.ranks.environment(rank))
        .envs(
            options
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .stdin(Stdio::piped())
        .stdout(if rank == 0 {
            Stdio::piped()
        } else {
            Stdio::null()
        });
    command
}
