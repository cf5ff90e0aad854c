//! The program of a rank: it joins, does what its role says, and prints one line: `@joined`, or `@KIND PEER ERROR`.

use crate::world::{ROLE, SETUP};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::Write;
use symmem::backends::Selection;
use symmem::{Communicator, ReduceOp, Result};

pub fn run_if_asked() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // If the test is killed, nothing goes on.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let text = match run(&role) {
        Ok(()) => "joined".to_owned(),
        Err(error) => {
            let peer = error
                .peer()
                .map_or("nobody".into(), |peer| peer.to_string());
            format!("{:?} {peer} {error:?}", error.kind()).replace('\n', " ")
        }
    };
    // Past the harness, which has begun a line.
    let _ = std::io::stdout().write_all(format!("\n@{text}\n").as_bytes());
    std::process::exit(0);
}

fn run(role: &str) -> Result<()> {
    let communicator = Communicator::builder()
        .backend(Selection::Named("host".into()))
        .deadline(SETUP)
        .setup_deadline(SETUP)
        .build()?;
    if role != "join" {
        collective(&communicator, role)?;
    }
    communicator.finalize().map(drop)
}

/// Makes a collective call, of another size on each rank unless it is `sum`.
fn collective(communicator: &Communicator, role: &str) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream()?;
    let source = communicator.allocate::<u32>(&[1024])?;
    let destination = communicator.allocate::<u32>(&[1024 * world])?;
    stream.write(&source, &[1; 1024])?;
    let count = match role {
        "sum" => 64,
        _ => 64 << rank,
    };
    match role {
        "all_gather" => {
            stream.all_gather(destination.slice(..count * world)?, source.slice(..count)?)?
        }
        "broadcast" => {
            stream.broadcast(0, destination.slice(..count)?, source.slice(..count)?)?;
        }
        _ => stream.all_reduce(
            destination.slice(..count)?,
            source.slice(..count)?,
            ReduceOp::Sum,
        )?,
    }
    stream.synchronize()?;
    communicator.host_barrier()?;
    let mut sums = [0; 64];
    destination.read(&stream, 0, &mut sums)?;
    assert!(role != "sum" || sums == [world as u32; 64], "{sums:?}");
    Ok(())
}
