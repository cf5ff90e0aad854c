//! Copies and kernels that use a dead rank's memory.
//!
//! symmem guarantees that the survivors end, but nothing about the bytes. The test prints what the driver does;
//! `benches/NOTES.md` records it for the machines where this ran.

use crate::support::{Member, Plan, Setting, however_memory_is_shared};
use rstest::rstest;
use rstest_reuse::apply;
use std::time::{Duration, Instant};
use symmem::backend::abi::{RawStream, Transfer, TransferRow};
use symmem::backend::{Device, RemoteAccess};
use symmem::{Direction, Method};

const VICTIM: usize = 1;
const ELEMENTS: usize = 4 << 20;

pub fn role(role: &str, member: &Member) {
    assert_eq!(role, "use", "the only role");
    let communicator = member.join();
    let stream = communicator.stream().expect("a stream");
    let buffer = communicator
        .allocate::<u32>(&[2 * ELEMENTS])
        .expect("memory");
    let contents = vec![7 + member.rank as u32; 2 * ELEMENTS];
    buffer.write(&stream, 0, &contents).expect("written");
    communicator.host_barrier().expect("everybody has written");
    member.ready();
    if member.rank == VICTIM {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    while communicator.check().is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The communicator is poisoned, but its mappings stay until it is dropped.
    let remote = buffer.peer(VICTIM).expect("a rank").address();
    let local = buffer.local().address();
    let mut seen = Vec::new();
    for (name, method, source, destination) in [
        ("engine get", Method::CopyEngine, remote, local),
        ("kernel get", Method::Vector, remote, local),
        ("engine put", Method::CopyEngine, local, remote),
        ("kernel put", Method::Vector, local, remote),
    ] {
        let bytes = (ELEMENTS * size_of::<u32>()) as u64;
        let transfer = Transfer {
            destination,
            source,
            bytes,
            direction: Direction::Put.into(),
            row: TransferRow {
                bytes,
                method: method.into(),
                blocks: 16,
                threads: 512,
                ..TransferRow::default()
            },
            ..Transfer::default()
        };
        let raw = RawStream(stream.raw());
        // SAFETY: both ranges are inside live mappings of this process. The test tries what happens when the owner of
        // one is dead.
        let outcome = unsafe { communicator.backend().transfer(&transfer, raw) };
        let start = Instant::now();
        let outcome = outcome.and_then(|()| {
            loop {
                // SAFETY: the stream is live.
                if unsafe { communicator.backend().stream_idle(raw) }? {
                    return Ok("done");
                }
                if start.elapsed() > Duration::from_secs(5) {
                    return Ok("still not done after 5 s");
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        seen.push(match outcome {
            Ok(what) => format!("{name}: {what}"),
            Err(failure) => format!("{name}: {failure}"),
        });
    }
    member.say("seen", seen.join("; "));
}

#[apply(however_memory_is_shared)]
fn the_survivors_end_though_they_use_a_dead_ranks_memory(setting: Setting) {
    let mut world = Plan::new("exporter/use", 2, setting).start();
    world.ready().go();
    world.ranks[VICTIM].kill();
    let dead = world.ranks.remove(VICTIM);
    let (_, seen) = world.ranks[0].expect("seen");
    println!("{setting:?}: {seen}");
    world.ends_well();
    drop(dead);
}
