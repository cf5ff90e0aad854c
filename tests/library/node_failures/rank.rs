//! The program of a rank: it works with the others until something fails, says so, and does as it is told.
//!
//! It prints lines: `working` after its first lap; `end TIME KIND PEER ERROR` with the monotonic clock in nanoseconds
//! when something failed; `rebuilt WORLD` and `done` if it was told to go on. It reads `leave` or `rebuild`.

use crate::work::Work;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::time::Duration;
use symmem::backends::Selection;
use symmem::{Communicator, DeviceChoice, Error, Result};

/// The variable that makes this binary a rank.
pub const ROLE: &str = "SYMMEM_NODE_FAILURES_RANK";

/// The variable that names the backend, if it is not the host's.
pub const BACKEND: &str = "SYMMEM_NODE_FAILURES_RANK_BACKEND";
/// The variable with the ordinal of the rank's device, if that is not chosen by its number.
pub const DEVICE: &str = "SYMMEM_NODE_FAILURES_RANK_DEVICE";
/// The variable that makes NCCL carry collectives between nodes.
pub const NCCL: &str = "SYMMEM_NODE_FAILURES_RANK_NCCL";

/// The deadline of waits and of the setup: much longer than the bounds that are tested.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Laps after a rebuild.
const LAPS: usize = 20;

/// Returns the monotonic clock, which all processes share.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn say(line: &str) {
    // In one piece and past the harness, which would keep it.
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
    let _ = std::io::stdout().flush();
}

pub fn run() -> ! {
    // If the test is killed, nothing goes on.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // The harness has begun a line.
    say("");
    let communicator = match join() {
        Ok(communicator) => communicator,
        Err(error) => {
            tell(&error);
            std::process::exit(0);
        }
    };
    let Err(error) = work(&communicator);
    tell(&error);
    let mut order = String::new();
    let _ = std::io::stdin().read_line(&mut order);
    let end = match order.trim() {
        "rebuild" => go_on(communicator),
        _ => {
            drop(communicator);
            Ok(())
        }
    };
    if let Err(error) = end {
        say(&format!("cannot go on: {error:#?}").replace('\n', " "));
        std::process::exit(1);
    }
    std::process::exit(0)
}

fn tell(error: &Error) {
    let time = now().as_nanos();
    let (kind, peer) = (error.kind(), error.peer());
    let peer = peer.map_or("none".to_owned(), |peer| peer.to_string());
    say(&format!("end {time} {kind:?} {peer} {error:?}").replace('\n', " "));
}

fn join() -> Result<Communicator> {
    let backend = std::env::var(BACKEND).unwrap_or_else(|_| "host".into());
    let device = std::env::var(DEVICE).ok();
    let communicator = Communicator::builder()
        .backend(Selection::Named(backend))
        .device(device.map_or(DeviceChoice::LocalRank, |device| {
            DeviceChoice::Ordinal(device.parse().expect("an ordinal"))
        }))
        .deadline(DEADLINE)
        .setup_deadline(DEADLINE)
        .build()?;
    open_nccl(&communicator)?;
    Ok(communicator)
}

/// Opens NCCL, if it is to carry collectives between nodes.
fn open_nccl(communicator: &Communicator) -> Result<()> {
    match std::env::var_os(NCCL) {
        Some(_) => communicator.open_nccl(false).map(drop),
        None => Ok(()),
    }
}

/// Works until something fails.
fn work(communicator: &Communicator) -> Result<std::convert::Infallible> {
    let mut work = Work::new(communicator)?;
    work.lap()?;
    say("working");
    loop {
        work.lap()?;
    }
}

fn go_on(communicator: Communicator) -> Result<()> {
    let communicator = communicator.rebuild()?;
    say(&format!("rebuilt {}", communicator.world_size()));
    open_nccl(&communicator)?;
    let mut work = Work::new(&communicator)?;
    for _ in 0..LAPS {
        work.lap()?;
    }
    drop(work);
    communicator.finalize()?;
    say("done");
    Ok(())
}
