//! The rank's side of a world: a process that reads cases from its standard input, runs them with the
//! other ranks and, if it is rank 0, tells their outcomes on its standard output.
//!
//! Lines of JSON, each line of the answer behind [`MARK`], so that other output does no harm. First
//! comes a [`Setup`], then [`Case`]s; the end of the input ends the rank in good order.

use super::case::Case;
use super::collectives::MulticastKernels;
use super::outcome::Outcome;
use super::session::Session;
use super::transfer_case::Placement;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use symmem::Builder;
use symmem::backend::read_text;
use symmem::bootstrap::LaunchEnvironment;
use symmem::{Communicator, Leaks, Result, ShareKind};

/// What the lines of an answer begin with.
pub(super) const MARK: &str = "#symmem-conformance ";

/// What a rank must know before the first case. Its backend, rank and world it has from the
/// environment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    /// Names of [`ShareKind`]s to force; empty for the backend's own.
    pub share_kinds: Vec<String>,
    /// Bound of each wait.
    pub deadline: Duration,
    /// How many ranks are threads of this process, which is then the whole world; 0 for none.
    pub threads: u32,
    /// Whether the first case that does not pass is the last.
    pub ends_at_failure: bool,
}

/// What rank 0 tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The communicator is up.
    Up(About),
    /// A case is done.
    Done {
        outcome: Outcome,
        nanoseconds: u64,
        /// Whether the world can run another case.
        usable: bool,
    },
    /// The world has ended in good order.
    Ended {
        /// Buffers not given up, by this rank or its peers.
        leaked: usize,
    },
    /// The world cannot go on.
    Failed(String),
}

/// What a world runs on, as its rank 0 sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The device's name.
    pub device: String,
    /// Version of the driver, as the vendor numbers it.
    pub driver_version: u32,
    /// How memory is shared.
    pub share_kind: String,
    /// Whether several ranks share a device.
    pub shares_device: bool,
    /// What the ranks agreed on about multicast, and why it is no more.
    #[serde(default)]
    pub multicast: String,
    /// What it has of multicast that not every world has.
    #[serde(default)]
    pub multicast_kernels: MulticastKernels,
}

/// Where a rank has its cases from, and where it tells of them.
struct Feed<'a> {
    next: &'a mut dyn FnMut() -> Option<Case>,
    tell: &'a mut dyn FnMut(&Answer),
}

/// Runs as a rank of a world that [`super::World`] launched, until the input ends.
///
/// Fails if there is no such world: the hidden command that calls this is of no use by hand.
pub fn rank_main() -> ExitCode {
    match rank() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("symmem conformance rank: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn rank() -> std::result::Result<(), String> {
    let mut lines = std::io::stdin().lock().lines();
    let mut line = move || lines.next().and_then(std::result::Result::ok);
    let setup = line().ok_or("the input has no setup")?;
    let setup: Setup = serde_json::from_str(&setup).map_err(|error| format!("setup: {error}"))?;
    let launch = LaunchEnvironment::detect().map_err(|error| error.to_string())?;
    let mut next = || line().and_then(|line| serde_json::from_str(&line).ok());
    if setup.threads > 0 {
        return threads(&setup, &launch, &mut next);
    }
    let tells = launch.rank == 0;
    let mut tell = |answer: &Answer| {
        if tells {
            say(answer);
        }
    };
    let mut feed = Feed {
        next: &mut next,
        tell: &mut tell,
    };
    serve(&setup, &launch, &mut feed).map_err(|error| error.to_string())
}

/// The world as threads: the first tells, the input is passed on to all.
fn threads(
    setup: &Setup,
    launch: &LaunchEnvironment,
    next: &mut dyn FnMut() -> Option<Case>,
) -> std::result::Result<(), String> {
    std::thread::scope(|scope| {
        let mut inputs: Vec<Sender<Case>> = Vec::new();
        let mut ranks = Vec::new();
        for rank in 0..setup.threads {
            let (sender, receiver): (_, Receiver<Case>) = channel();
            inputs.push(sender);
            let launch = LaunchEnvironment {
                rank,
                world: setup.threads,
                local_rank: rank,
                local_world: setup.threads,
                ..launch.clone()
            };
            ranks.push(scope.spawn(move || {
                let mut tell = |answer: &Answer| {
                    if rank == 0 {
                        say(answer);
                    }
                };
                let mut next = || receiver.recv().ok();
                let mut feed = Feed {
                    next: &mut next,
                    tell: &mut tell,
                };
                serve(setup, &launch, &mut feed)
            }));
        }
        while let Some(case) = next() {
            // A rank that has ended takes no more cases; its error is found below.
            if inputs.iter().any(|input| input.send(case.clone()).is_err()) {
                break;
            }
        }
        drop(inputs);
        ranks.into_iter().try_for_each(|rank| match rank.join() {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("a rank panicked".into()),
        })
    })
}

fn say(answer: &Answer) {
    let mut output = std::io::stdout().lock();
    let text = serde_json::to_string(answer).unwrap_or_default();
    // Whoever listened is gone if this fails, and the input ends with it.
    let _ = writeln!(output, "\n{MARK}{text}").and_then(|()| output.flush());
}

/// Runs cases until there are none, with a communicator for each placement of signals, one at a time.
fn serve(setup: &Setup, launch: &LaunchEnvironment, feed: &mut Feed<'_>) -> Result<()> {
    let result = communicators(setup, launch, feed);
    match &result {
        Ok(leaks) => (feed.tell)(&Answer::Ended {
            leaked: leaks.count(),
        }),
        Err(error) => (feed.tell)(&Answer::Failed(error.to_string())),
    }
    result.map(drop)
}

fn communicators(setup: &Setup, launch: &LaunchEnvironment, feed: &mut Feed<'_>) -> Result<Leaks> {
    let mut launch = launch.clone();
    let mut leaks = Leaks::default();
    let mut placement = Placement::Device;
    let mut first = None;
    loop {
        let communicator = open(setup, &launch, placement)?;
        if launch.generation == 0 {
            (feed.tell)(&Answer::Up(about(&communicator)));
        }
        let mut session = Session::new(&communicator)?.deadline(setup.deadline);
        let mut other = None;
        while let Some(case) = first.take().or_else(|| (feed.next)()) {
            if case.placement() != placement {
                other = Some(case);
                break;
            }
            let started = Instant::now();
            let outcome = session.run(&case);
            let usable = session.is_usable();
            let last = setup.ends_at_failure && outcome != Outcome::Passed;
            let nanoseconds = started.elapsed().as_nanos() as u64;
            (feed.tell)(&Answer::Done {
                outcome,
                nanoseconds,
                usable,
            });
            if !usable {
                // The launcher starts another world for the rest.
                return Ok(leaks);
            }
            if last {
                break;
            }
        }
        session.close()?;
        let left = communicator.finalize()?;
        leaks.buffers += left.buffers;
        leaks.held_by_peers += left.held_by_peers;
        let Some(case) = other else { return Ok(leaks) };
        placement = case.placement();
        first = Some(case);
        launch.generation += 1;
    }
}

fn open(setup: &Setup, launch: &LaunchEnvironment, placement: Placement) -> Result<Communicator> {
    let kinds: Vec<ShareKind> = setup
        .share_kinds
        .iter()
        .filter_map(|name| {
            let mut kinds = ShareKind::ALL.iter().copied();
            kinds.find(|kind| kind.name() == name)
        })
        .collect();
    Builder::new()
        .launch(launch.clone())
        .signal_placement(placement.into())
        .share_kinds(&kinds)
        .deadline(setup.deadline)
        .setup_deadline(setup.deadline)
        .build()
}

fn about(communicator: &Communicator) -> About {
    let multicast = communicator.multicast();
    About {
        device: read_text(&communicator.device().name).to_string(),
        driver_version: communicator.capabilities().driver_version,
        share_kind: communicator.share_kind().name().into(),
        shares_device: communicator.shares_device(),
        multicast: match multicast.reason {
            Some(reason) => format!("{}: {reason}", multicast.support.name()),
            None => multicast.support.name().into(),
        },
        multicast_kernels: MulticastKernels::of(communicator),
    }
}
