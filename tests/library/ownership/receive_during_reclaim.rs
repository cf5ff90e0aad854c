//! A receive reads the sender's copy of a buffer through the receiver's mapping. A rank that has dropped its own handle
//! of the buffer unmaps all copies once its streams are idle. A receive that is enqueued at that moment must find the
//! memory mapped, or find no address.

use crate::backend::Backend;
use crate::child::passes;
use crate::program::*;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Elements of the sent buffer. Receiving them takes milliseconds.
const LENGTH: usize = 4 << 20;
/// Elements of the large host copy.
const LARGE: usize = 16 << 20;
/// Sends in a round. Receiving them all takes about as long as the large host copy.
const SENDS: usize = 8;
const ROUNDS: u32 = 24;
/// No round begins later than this.
const BUDGET: Duration = Duration::from_secs(15);
const PATTERN: u32 = 17;

#[test]
fn a_receive_during_the_reclaim_of_the_sent_buffer_on_the_host_is_done_or_refused() {
    passes("receive during reclaim", Backend::Host);
}

/// Rank 0 sends. Rank 1 drops its handle of the sent buffer on one thread and receives on another.
pub fn run() -> Result<()> {
    let start = Instant::now();
    let mut refused = None;
    for round in 0..ROUNDS {
        if start.elapsed() < BUDGET {
            let rank = |communicator| match number(&communicator) {
                0 => sender(&communicator),
                _ => receiver(&communicator, round),
            };
            // If rank 1 is refused, rank 0 sees a failed peer: only rank 1's result counts.
            let received = world(2, rank).pop();
            refused = received.and_then(Result::err).or(refused);
        }
    }
    refused.map_or(Ok(()), Err)
}

fn sender(communicator: &Communicator) -> Result<()> {
    let stream = stream(communicator);
    let sent = allocate(communicator, LENGTH);
    let _received = allocate(communicator, LENGTH);
    let _other = allocate(communicator, LARGE);
    write(&stream, &sent, &pattern(PATTERN, LENGTH))?;
    meet(communicator)?;
    (0..SENDS).try_for_each(|_| send(&stream, 1, &sent))?;
    synchronize(&stream)
}

/// Once all its streams are idle, the rank first removes the dropped buffer from the table that receives look addresses
/// up in, then unmaps it. The removal needs the staging memory, which the large host copy holds. A receive that begins
/// meanwhile still finds the address, and reads the buffer while it is unmapped.
fn receiver(communicator: &Communicator, round: u32) -> Result<()> {
    let (receiving, copying) = (stream(communicator), stream(communicator));
    let sent = allocate(communicator, LENGTH);
    let to = allocate(communicator, LENGTH);
    let other = allocate(communicator, LARGE);
    let large = vec![0; LARGE];
    meet(communicator)?;
    let start = Instant::now();
    write(&copying, &other, &large)?;
    let takes = start.elapsed();
    let together = Barrier::new(3);
    std::thread::scope(|scope| {
        let host_copy = scope.spawn(|| {
            together.wait();
            write(&copying, &other, &large)
        });
        let reclaim = scope.spawn(|| {
            together.wait();
            std::thread::sleep(takes / 16);
            drop(sent);
            // Each synchronization tries again to reclaim what was dropped.
            (0..64).try_for_each(|_| synchronize(&copying))
        });
        together.wait();
        std::thread::sleep(takes * (1 + round % 3) / 8);
        let received = (0..SENDS).try_for_each(|_| {
            receive(&receiving, 0, &to)?;
            synchronize(&receiving)
        });
        let ends = [reclaim, host_copy].map(|thread| thread.join().expect("no panic"));
        received?;
        ends.into_iter().collect::<Result<()>>()?;
        expect(&receiving, &to, PATTERN)
    })
}
