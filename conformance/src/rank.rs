//! The rank's side of a world: a process that reads cases from standard input, runs them together with
//! the other ranks and, if it is rank 0, writes the outcomes to standard output.
//!
//! Both directions are lines of JSON. The input is a [`Setup`], then [`Case`]s; a rank shuts down
//! cleanly at the end of its input. Each output line starts with [`MARK`], so that the reader can
//! ignore other output.

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
use symmem::{Communicator, DeviceChoice, Leaks, Result, ShareKind};

/// Prefix of each line that carries an answer.
pub(super) const MARK: &str = "#symmem-conformance ";

/// The settings that a rank needs before the first case. Backend, rank and world size come from the
/// environment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    /// Names of the [`ShareKind`]s to try, in order; empty for the default.
    pub share_kinds: Vec<String>,
    /// Time limit of each wait.
    pub deadline: Duration,
    /// If not 0, this process is the whole world, with this number of ranks as threads.
    pub threads: u32,
    /// The key of each rank's node; empty if there is only one node.
    pub nodes: Vec<String>,
    /// The device of each rank; empty to give devices by rank.
    pub devices: Vec<u32>,
    /// Whether to stop after the first case that does not pass.
    pub ends_at_failure: bool,
}

/// A message from rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The communicator is up.
    Up(WorldDescription),
    /// A case is done.
    Done {
        outcome: Outcome,
        nanoseconds: u64,
        /// Whether the world can run another case.
        usable: bool,
    },
    /// The world has shut down cleanly.
    Ended {
        /// Buffers that this rank or its peers did not free.
        leaked: usize,
    },
    /// The world cannot continue.
    Failed(String),
}

/// The machine and features that a world runs on, as seen by rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldDescription {
    /// Device name.
    pub device: String,
    /// Driver version, in the vendor's numbering.
    pub driver_version: u32,
    /// How ranks share memory; the name of a [`ShareKind`].
    pub share_kind: String,
    /// Whether several ranks share a device.
    pub shares_device: bool,
    /// Number of ranks on each node.
    #[serde(default)]
    pub ranks_per_node: Vec<u32>,
    /// How bytes go between nodes; empty if there is only one node.
    #[serde(default)]
    pub network: String,
    /// Level of multicast support, and the reason if it is limited.
    #[serde(default)]
    pub multicast: String,
    /// Multicast features that not every world with multicast has.
    #[serde(default)]
    pub multicast_kernels: MulticastKernels,
}

/// A rank's source of cases and its sink for answers.
struct CaseFeed<'a> {
    next: &'a mut dyn FnMut() -> Option<Case>,
    tell: &'a mut dyn FnMut(&Answer),
}

/// Runs as a rank of a world that [`super::World`] launched. Blocks until standard input ends.
///
/// Prints an error and fails outside such a world: the hidden command that calls this is not meant to
/// be started by hand.
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
    let mut launch = LaunchEnvironment::detect().map_err(|error| error.to_string())?;
    launch.node = node(&setup, launch.rank);
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
    let mut feed = CaseFeed {
        next: &mut next,
        tell: &mut tell,
    };
    serve(&setup, &launch, &mut feed).map_err(|error| error.to_string())
}

/// Returns the key of a rank's node.
fn node(setup: &Setup, rank: u32) -> Option<String> {
    setup.nodes.get(rank as usize).cloned()
}

/// Runs all ranks as threads: each gets every case, and rank 0 answers.
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
                node: node(setup, rank),
                ..launch.clone()
            };
            ranks.push(scope.spawn(move || {
                let mut tell = |answer: &Answer| {
                    if rank == 0 {
                        say(answer);
                    }
                };
                let mut next = || receiver.recv().ok();
                let mut feed = CaseFeed {
                    next: &mut next,
                    tell: &mut tell,
                };
                serve(setup, &launch, &mut feed)
            }));
        }
        while let Some(case) = next() {
            // The channel of a rank that has ended is closed; the join below returns its error.
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
    // If this fails, the launcher is gone, and the input ends too.
    let _ = writeln!(output, "\n{MARK}{text}").and_then(|()| output.flush());
}

/// Runs all cases of the feed; opens a new communicator whenever the placement of signals changes.
fn serve(setup: &Setup, launch: &LaunchEnvironment, feed: &mut CaseFeed<'_>) -> Result<()> {
    let result = communicators(setup, launch, feed);
    match &result {
        Ok(leaks) => (feed.tell)(&Answer::Ended {
            leaked: leaks.count(),
        }),
        Err(error) => (feed.tell)(&Answer::Failed(error.to_string())),
    }
    result.map(drop)
}

fn communicators(
    setup: &Setup,
    launch: &LaunchEnvironment,
    feed: &mut CaseFeed<'_>,
) -> Result<Leaks> {
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
    let device = setup.devices.get(launch.rank as usize);
    Builder::new()
        .launch(launch.clone())
        .device(device.map_or(DeviceChoice::LocalRank, |&device| {
            DeviceChoice::Ordinal(device)
        }))
        .signal_placement(placement.into())
        .share_kinds(&kinds)
        .deadline(setup.deadline)
        .setup_deadline(setup.deadline)
        // A busy machine may not run a rank for seconds.
        .silence(setup.deadline)
        .build()
}

fn about(communicator: &Communicator) -> WorldDescription {
    let multicast = communicator.multicast();
    let mut ranks_per_node = vec![0; communicator.nodes()];
    for peer in communicator.peers() {
        ranks_per_node[peer.node] += 1;
    }
    WorldDescription {
        device: read_text(&communicator.device().name).to_string(),
        driver_version: communicator.capabilities().driver_version,
        share_kind: communicator.share_kind().name().into(),
        shares_device: communicator.shares_device(),
        ranks_per_node,
        network: (communicator.network()).map_or_else(String::new, |network| network.to_string()),
        multicast: match multicast.reason {
            Some(reason) => format!("{}: {reason}", multicast.support.name()),
            None => multicast.support.name().into(),
        },
        multicast_kernels: MulticastKernels::of(communicator),
    }
}
