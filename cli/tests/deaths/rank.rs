//! The program of a rank: it works with the others until something fails.

use std::io::Write;
use std::time::Duration;
use symmem::backends::Selection;
use symmem::bootstrap::BootstrapError;
use symmem::{Communicator, Error, ReduceOp, Result};

/// The variable that makes this binary a rank; its value is the deadline in milliseconds.
pub const ROLE: &str = "SYMMEM_DEATHS_DEADLINE";

/// Marks a rank's line about its end.
pub const END: &str = "the end of rank";

/// Works until something fails, and tells of it in a line.
pub fn run() -> ! {
    let deadline = std::env::var(ROLE).expect("set by the test");
    let deadline = Duration::from_millis(deadline.parse().expect("milliseconds"));
    let rank = std::env::var("SYMMEM_RANK").expect("set by the launcher");
    let error = match join(deadline).and_then(work) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let error = format!("{error:#?}").replace('\n', " ");
    // In one piece: all ranks may write to one pipe.
    let line = format!("{END} {rank}: {error}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    std::process::exit(1)
}

fn join(deadline: Duration) -> Result<Communicator> {
    Communicator::builder()
        .backend(Selection::Named("host".into()))
        .deadline(deadline)
        .setup_deadline(deadline)
        .build()
}

/// No value: the work ends only by an error.
enum Never {}

/// Waits for the other ranks in every way: on the device, in a collective, and on the host.
fn work(communicator: Communicator) -> Result<Never> {
    let stream = communicator.stream()?;
    loop {
        let buffer = communicator.allocate::<u32>(&[1024])?;
        stream.barrier()?;
        stream.all_reduce(&buffer, &buffer, ReduceOp::Sum)?;
        stream.synchronize()?;
        communicator.host_barrier()?;
        buffer.free()?;
        communicator.check()?;
        // Others run on this machine, too.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether a rank's line says that `rank` died.
pub fn names_death(line: &str, rank: u32) -> bool {
    let peer = line.split_once("peer: ").map(|(_, rest)| rest);
    let number = peer.and_then(|rest| rest.split(|one: char| !one.is_ascii_digit()).next());
    line.contains("PeerDied") && number.is_some_and(|number| number.parse() == Ok(rank))
}

/// Returns whether a rank's line says that others did not come.
pub fn is_timeout(line: &str) -> bool {
    line.contains("Timeout")
}

/// Returns whether a rank's line says that `rank` did not come.
pub fn names_missing(line: &str, rank: u32) -> bool {
    let missing = line.split_once("missing: [").map(|(_, rest)| rest);
    let missing = missing.and_then(|rest| rest.split(']').next());
    let numbers = missing.into_iter().flat_map(|list| list.split(','));
    let mut numbers = numbers.map(|number| number.trim().parse());
    is_timeout(line) && numbers.any(|number| number == Ok(rank))
}

#[test]
fn lines_are_read_as_ranks_write_them() {
    let died = Error::PeerDied { rank: 0, peer: 1 };
    let died = format!("{died:#?}").replace('\n', " ");
    assert!(names_death(&died, 1) && !names_death(&died, 11), "{died}");
    let timeout = BootstrapError::Timeout {
        rank: 0,
        awaited: "the rendezvous".into(),
        missing: vec![3, 12],
        elapsed: Duration::ZERO,
        source: None,
    };
    let timeout = format!("{:#?}", Error::from(timeout)).replace('\n', " ");
    assert!(
        names_missing(&timeout, 3) && names_missing(&timeout, 12),
        "{timeout}"
    );
    assert!(
        !names_missing(&timeout, 1) && !names_missing(&died, 1),
        "{timeout}"
    );
}
