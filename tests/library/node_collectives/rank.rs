//! The program of a rank.

use crate::checks::Checks;
use crate::world::{BACKEND, ROLE};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::time::Duration;
use symmem::backends::Selection;
use symmem::{Communicator, Result};

/// The deadline of waits and of the setup.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs the checks if this process is a rank.
///
/// # Panics
/// If a check fails.
pub fn run_if_asked() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // If the test is killed, nothing goes on.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let ended = match role.as_str() {
        "time" => join().and_then(crate::times::run),
        "nccl" => join().and_then(|communicator| {
            communicator.open_nccl(false)?;
            run(communicator)
        }),
        "explained" => join().and_then(|communicator| crate::explained::run(communicator, false)),
        "explained with NCCL" => {
            join().and_then(|communicator| crate::explained::run(communicator, true))
        }
        "refused" => join().and_then(crate::explained::refused),
        "named" => join().and_then(crate::named::run),
        "crowded" => join().and_then(crate::crowded::run),
        "failing" => join().and_then(crate::failing::run),
        "dying" => join().and_then(|communicator| crate::dying::run(communicator, false)),
        "dying in NCCL" => join().and_then(|communicator| crate::dying::run(communicator, true)),
        _ => join().and_then(run),
    };
    if let Err(error) = ended {
        panic!("{error:?}");
    }
}

fn join() -> Result<Communicator> {
    Communicator::builder()
        .backend(Selection::Named(
            std::env::var(BACKEND).unwrap_or_else(|_| "host".into()),
        ))
        .deadline(DEADLINE)
        .setup_deadline(DEADLINE)
        // A busy machine may not run a rank for seconds.
        .silence(DEADLINE)
        .build()
}

fn run(communicator: Communicator) -> Result<()> {
    Checks::new(&communicator, None)?.all()?;
    let world = communicator.world_size() as u32;
    // All ranks in reverse order, and groups that cross nodes.
    let rank = communicator.rank() as u32;
    for (color, key) in [(0, world - rank), (rank % 2, 0), (rank / 3, rank)] {
        let group = communicator.split(Some(color), key)?;
        Checks::new(&communicator, group.as_ref())?.all()?;
        drop(group);
    }
    communicator.finalize().map(drop)
}
